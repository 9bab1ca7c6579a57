#include "tools/transfer/choice/filter_rule.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* What a rule begins with. */
static const struct kind {
    char letter;
    const char *name;
    unsigned bits;
    const char *modifiers;
} kinds[] = {
    {'-', "exclude", 0, "/!Csrp"},
    {'+', "include", RULE_INCLUDE, "/!srp"},
    {'H', "hide", RULE_HIDES, "/!p"},
    {'S', "show", RULE_INCLUDE | RULE_HIDES, "/!p"},
    {'P', "protect", RULE_PROTECTS, "/!p"},
    {'R', "risk", RULE_INCLUDE | RULE_PROTECTS, "/!p"},
    {'.', "merge", 0, "-+/Cenwsrp"},
    {':', "dir-merge", RULE_MERGES, "-+/Censwrp"},
    {'!', "clear", 0, ""},
};

/* The kind, and what is behind its name; NULL: none. */
static const struct kind *find_kind(const char *text, const char **ret_rest)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        size_t length = strlen(kinds[i].name);
        bool named = strncmp(text, kinds[i].name, length) == 0 &&
                     (text[length] == 0 || strchr(", _", text[length]) != NULL);
        if (named || text[0] == kinds[i].letter) {
            *ret_rest = text + (named ? length : 1);
            return &kinds[i];
        }
    }
    return NULL;
}

static void take_modifier(char letter, struct filter_line *line)
{
    switch (letter) {
    case '!':
        line->bits |= RULE_NEGATED;
        return;
    case '/':
        line->bits |= RULE_ABSOLUTE;
        return;
    case 's':
        line->bits |= RULE_HIDES;
        return;
    case 'r':
        line->bits |= RULE_PROTECTS;
        return;
    case 'p':
        line->bits |= RULE_PERISHABLE;
        return;
    case 'e':
        line->without_file = true;
        return;
    case 'n':
        line->bits |= RULE_ALONE;
        return;
    case 'w':
        line->bits |= RULE_WORDS;
        return;
    case 'C':
        if (line->kind == LINE_RULE && (line->bits & RULE_MERGES) == 0) {
            line->kind = LINE_CVS;
        } else {
            line->bits = (line->bits & ~(unsigned)RULE_INCLUDE) | RULE_CVS;
        }
        return;
    default: /* every line of the file is a pattern of this kind */
        line->bits &= ~(unsigned)RULE_INCLUDE;
        line->bits |= RULE_PATTERNS | (letter == '+' ? RULE_INCLUDE : 0u);
        return;
    }
}

bool filter_parse_line(const char *text, unsigned bits, struct filter_line *ret_line,
                       char ret_why[FILTER_WHY_LENGTH])
{
    const char *rest;
    const struct kind *kind = find_kind(text, &rest);
    if (kind == NULL) {
        snprintf(ret_why, FILTER_WHY_LENGTH,
                 "a rule begins with one of - + H S P R . : ! or its name, and a space");
        return false;
    }
    struct filter_line line = {.kind = kind->letter == '.'   ? LINE_MERGE
                                       : kind->letter == '!' ? LINE_CLEAR
                                                             : LINE_RULE,
                               .bits = kind->bits};
    rest += *rest == ',';
    for (; *rest != 0 && *rest != ' ' && *rest != '_'; rest++) {
        if (strchr(kind->modifiers, *rest) == NULL) {
            snprintf(ret_why, FILTER_WHY_LENGTH, "'%c' is not known here behind '%s'", *rest,
                     kind->name);
            return false;
        }
        take_modifier(*rest, &line);
    }
    rest += *rest != 0;
    bool of_files = line.kind == LINE_MERGE || (line.bits & RULE_MERGES) != 0;
    if (*rest == 0 && of_files && (line.bits & RULE_CVS) == RULE_CVS) {
        rest = ".cvsignore";
    }
    const unsigned sides = RULE_HIDES | RULE_PROTECTS;
    const char *why = NULL;
    if ((bits & sides) != 0 && (line.bits & sides) != 0) {
        why = "the rule that merges its file says the side";
    } else if (*rest == 0 && line.kind != LINE_CLEAR && line.kind != LINE_CVS) {
        why = "there is nothing behind the rule";
    } else if (*rest != 0 && (line.kind == LINE_CLEAR || line.kind == LINE_CVS)) {
        why = "'!' and '-C' stand alone";
    } else if ((line.bits & RULE_MERGES) != 0 &&
               !protocol_is_rule(line.bits, (struct span){rest, strlen(rest)})) {
        why = "a file of rules in each directory has a name without a slash, but for one at its "
              "start";
    }
    if (why != NULL) {
        snprintf(ret_why, FILTER_WHY_LENGTH, "%s", why);
        return false;
    }
    line.bits |= bits;
    line.text = rest;
    *ret_line = line;
    return true;
}
