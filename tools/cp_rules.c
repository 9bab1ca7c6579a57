#include "tools/cp_rules.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/input_file.h"
#include "tools/transfer/choice/filter_rule.h"

/* Files of rules that name files of rules. */
#define MERGE_DEPTH_MAX 16
#define WHITE_SPACE     " \t\v\f\r\n"

/* Where rules come from. */
struct rules {
    const struct command *command;
    struct filter **filter;
    bool zeros;     /* lines of files end with a zero, */
    bool words;     /* or each word is one */
    unsigned depth; /* of files */
};

static int add(const struct rules *rules, unsigned bits, const char *pattern)
{
    const struct span span = {pattern, strlen(pattern)};
    if (!filter_has_room(*rules->filter, span)) {
        return command_usage_error(rules->command, "'%.80s' is one rule too many: " FILTER_BOUNDS,
                                   pattern);
    }
    if (!filter_add(*rules->filter, bits, span)) {
        return command_usage_error(
            rules->command,
            "the pattern '%.80s' is empty or longer than %d bytes, or there are more than %d files "
            "of rules in directories",
            pattern, PATH_LENGTH_MAX, FILTER_MERGES_MAX);
    }
    return -1;
}

static int prepare(const struct rules *rules)
{
    if (*rules->filter == NULL && (*rules->filter = filter_create()) == NULL) {
        command_error(rules->command, "not enough memory");
        return EXIT_SETUP;
    }
    return -1;
}

/* What a line of a file is taken by: a pattern or a rule, with the bits that it has anyway. */
typedef int take_line_fn(const struct rules *rules, unsigned bits, const char *line);

/* Cuts the text up. */
static int take_words(const struct rules *rules, char *text, take_line_fn *take, unsigned bits)
{
    char *rest;
    int code = -1;
    for (char *word = strtok_r(text, WHITE_SPACE, &rest); word != NULL && code < 0;
         word = strtok_r(NULL, WHITE_SPACE, &rest)) {
        code = take(rules, bits, word);
    }
    return code;
}

static int take_file(const struct rules *rules, const char *path, take_line_fn *take, unsigned bits)
{
    char *line = NULL;
    size_t capacity = 0;
    int code = -1, end = rules->zeros ? 0 : '\n';
    FILE *file = input_file_open(rules->command, path, &code);
    if (file == NULL) {
        return code;
    }
    for (ssize_t length; code < 0 && (length = getdelim(&line, &capacity, end, file)) >= 0;) {
        while (length > 0 && (line[length - 1] == end || (end != 0 && line[length - 1] == '\r'))) {
            line[--length] = 0;
        }
        code = rules->words            ? take_words(rules, line, take, bits)
               : !filter_is_idle(line) ? take(rules, bits, line)
                                       : -1;
    }
    if (code < 0 && ferror(file)) {
        command_error(rules->command, "%s: %s", path, strerror(errno));
        code = EXIT_SETUP;
    }
    free(line);
    input_file_close(file);
    return code;
}

/* --- patterns --------------------------------------------------------------------------------- */

static int take_pattern(const struct rules *rules, unsigned bits, const char *text)
{
    if (strcmp(text, "!") == 0) {
        filter_clear(*rules->filter);
        return -1;
    }
    if (strncmp(text, "+ ", 2) == 0 || strncmp(text, "- ", 2) == 0) {
        bits = text[0] == '+' ? RULE_INCLUDE : 0;
        text += 2;
    }
    return add(rules, bits, text);
}

int cp_take_pattern(const struct command *command, struct filter **filter, unsigned bits,
                    const char *text)
{
    const struct rules rules = {.command = command, .filter = filter};
    int code = prepare(&rules);
    return code >= 0 ? code : take_pattern(&rules, bits, text);
}

int cp_take_patterns(const struct command *command, struct filter **filter, unsigned bits,
                     bool zeros, const char *path)
{
    const struct rules rules = {.command = command, .filter = filter, .zeros = zeros};
    int code = prepare(&rules);
    return code >= 0 ? code : take_file(&rules, path, take_pattern, bits);
}

/* --- rules ------------------------------------------------------------------------------------ */

static int take_rule(const struct rules *rules, unsigned bits, const char *text);

static int leave_out(const struct rules *rules, const char *path)
{
    const char *slash = strrchr(path, '/');
    return add(rules, 0, slash != NULL ? slash + 1 : path);
}

/* As CVS's own files have them. */
static int add_for_cvs(const struct rules *rules, unsigned bits, const char *text)
{
    if (strcmp(text, "!") == 0) {
        filter_clear(*rules->filter);
        return -1;
    }
    return add(rules, bits, text);
}

/* What CVS leaves out of itself, and by the user's own word. */
static int leave_out_as_cvs(const struct rules *rules)
{
    char known[] =
        "RCS SCCS CVS CVS.adm RCSLOG cvslog.* tags TAGS .make.state .nse_depinfo *~ #* .#* "
        ",* _$* *$ *.old *.bak *.BAK *.orig *.rej .del-* *.a *.olb *.o *.obj *.so *.exe "
        "*.Z *.elc *.ln core .svn/ .git/ .hg/ .bzr/";
    struct rules words = *rules;
    words.words = true;
    int code = take_words(&words, known, add, RULE_PERISHABLE);
    char path[PATH_MAX];
    const char *home = getenv("HOME"), *given = getenv("CVSIGNORE");
    int length = home != NULL ? snprintf(path, sizeof(path), "%s/.cvsignore", home) : -1;
    if (code < 0 && length > 0 && length < (int)sizeof(path) && access(path, R_OK) == 0) {
        code = take_file(&words, path, add_for_cvs, 0);
    }
    char *copy = given != NULL ? strdup(given) : NULL;
    if (code < 0 && copy != NULL) {
        code = take_words(&words, copy, add_for_cvs, 0);
    }
    free(copy);
    return code;
}

static int merge(const struct rules *rules, const struct filter_line *line)
{
    struct rules inside = *rules;
    inside.depth++;
    inside.words = (line->bits & RULE_WORDS) != 0;
    bool patterns = (line->bits & RULE_PATTERNS) != 0, cvs = (line->bits & RULE_CVS) == RULE_CVS;
    if (inside.depth > MERGE_DEPTH_MAX) {
        return command_usage_error(rules->command, "%s: files of rules merge each other %d deep",
                                   line->text, MERGE_DEPTH_MAX);
    }
    return take_file(&inside, line->text,
                     cvs        ? add_for_cvs
                     : patterns ? add
                                : take_rule,
                     filter_given_bits(line->bits));
}

static int take_rule(const struct rules *rules, unsigned bits, const char *text)
{
    char why[FILTER_WHY_LENGTH];
    struct filter_line line;
    int code = -1;
    if (!filter_parse_line(text, bits, &line, why)) {
        return command_usage_error(rules->command, "--filter '%.80s': %s", text, why);
    }
    if (line.without_file) {
        code = leave_out(rules, line.text);
    }
    if (code >= 0) {
        return code;
    }
    switch (line.kind) {
    case LINE_CLEAR:
        filter_clear(*rules->filter);
        return -1;
    case LINE_MERGE:
        return merge(rules, &line);
    case LINE_CVS:
        return leave_out_as_cvs(rules);
    case LINE_RULE:
        return add(rules, line.bits, line.text);
    }
    return -1;
}

int cp_take_rule(const struct command *command, struct filter **filter, bool zeros,
                 const char *text)
{
    const struct rules rules = {.command = command, .filter = filter, .zeros = zeros};
    int code = prepare(&rules);
    return code >= 0 ? code : take_rule(&rules, 0, text);
}
