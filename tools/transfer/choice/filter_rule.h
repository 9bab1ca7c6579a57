/* Rules as they are written: "- *.o", "protect,p core", ": .rules". One line, nothing of files. */
#ifndef TOOLS_TRANSFER_FILTER_RULE_H
#define TOOLS_TRANSFER_FILTER_RULE_H

#include <stdbool.h>

#include "tools/transfer/wire/protocol.h"

#define FILTER_WHY_LENGTH 200

enum filter_line_kind {
    LINE_RULE,  /* for filter_add */
    LINE_MERGE, /* the rules of that file stand here; RULE_PATTERNS as with RULE_MERGES */
    LINE_CLEAR,
    LINE_CVS, /* the patterns that CVS leaves out stand here */
};

struct filter_line {
    enum filter_line_kind kind;
    unsigned bits;     /* of enum rule_bits */
    bool without_file; /* LINE_MERGE, RULE_MERGES: the file itself is left out */
    const char *text;  /* of the line: the pattern, or the name of the file */
};

/* `bits` are what the file that it stands in gives to each of its rules. False: it is no rule, and
 * ret_why says why not. */
bool filter_parse_line(const char *line, unsigned bits, struct filter_line *ret_line,
                       char ret_why[FILTER_WHY_LENGTH]);
/* A line of a file of rules that says nothing. */
static inline bool filter_is_idle(const char *line)
{
    return line[0] == 0 || line[0] == '#' || line[0] == ';';
}
/* What each line of a file is given by the rule that names it. */
static inline unsigned filter_given_bits(unsigned bits)
{
    return bits & (RULE_INCLUDE | RULE_HIDES | RULE_PROTECTS | RULE_PERISHABLE | RULE_ABSOLUTE);
}

#endif
