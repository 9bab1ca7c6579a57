#include "tools/cp_rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Files of rules that name files of rules. */
#define MERGE_DEPTH_MAX 16

/* Where rules come from. */
struct rules {
    const struct command *command;
    struct filter **filter;
    unsigned depth; /* of files */
};

static int add(const struct rules *rules, unsigned bits, const char *pattern)
{
    if (!filter_add(*rules->filter, bits, (struct span){pattern, strlen(pattern)})) {
        return command_usage_error(rules->command,
                                   "the pattern '%.80s' is empty or too long, or there are too "
                                   "many (%d, 64 KiB together)",
                                   pattern, FILTER_RULES_MAX);
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

static int take_file(const struct rules *rules, const char *path, take_line_fn *take, unsigned bits)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    char *line = NULL;
    size_t capacity = 0;
    int code = -1;
    if (file == NULL) {
        command_error(rules->command, "%s: %s", path, strerror(errno));
        return EXIT_SETUP;
    }
    for (ssize_t length; code < 0 && (length = getline(&line, &capacity, file)) >= 0;) {
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) {
            line[--length] = 0;
        }
        if (length > 0 && line[0] != '#' && line[0] != ';') {
            code = take(rules, bits, line);
        }
    }
    if (code < 0 && ferror(file)) {
        command_error(rules->command, "%s: %s", path, strerror(errno));
        code = EXIT_SETUP;
    }
    free(line);
    if (file != stdin) {
        fclose(file);
    }
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
    const struct rules rules = {command, filter, 0};
    int code = prepare(&rules);
    return code >= 0 ? code : take_pattern(&rules, bits, text);
}

int cp_take_patterns(const struct command *command, struct filter **filter, unsigned bits,
                     const char *path)
{
    const struct rules rules = {command, filter, 0};
    int code = prepare(&rules);
    return code >= 0 ? code : take_file(&rules, path, take_pattern, bits);
}

/* --- rules ------------------------------------------------------------------------------------ */

/* What a rule begins with. */
static const struct kind {
    char letter;
    const char *name;
    unsigned bits;
    const char *modifiers;
} kinds[] = {
    {'-', "exclude", 0, "!srp"},
    {'+', "include", RULE_INCLUDE, "!srp"},
    {'H', "hide", RULE_HIDES, "!p"},
    {'S', "show", RULE_INCLUDE | RULE_HIDES, "!p"},
    {'P', "protect", RULE_PROTECTS, "!p"},
    {'R', "risk", RULE_INCLUDE | RULE_PROTECTS, "!p"},
    {'.', "merge", 0, "-+esrp"},
    {':', "dir-merge", 0, ""},
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

/* The modifiers of a rule. */
struct modifiers {
    unsigned bits;
    char every_line;   /* of a merged file is a pattern of this kind; 0: a rule */
    bool without_file; /* itself */
};

static int take_modifier(const struct rules *rules, const struct kind *kind, char letter,
                         const char *text, struct modifiers *modifiers)
{
    if (strchr(kind->modifiers, letter) == NULL) {
        return command_usage_error(rules->command,
                                   "--filter '%.80s': '%c' is not known here behind '%s'", text,
                                   letter, kind->name);
    }
    switch (letter) {
    case '!':
        modifiers->bits |= RULE_NEGATED;
        break;
    case 's':
        modifiers->bits |= RULE_HIDES;
        break;
    case 'r':
        modifiers->bits |= RULE_PROTECTS;
        break;
    case 'p':
        modifiers->bits |= RULE_PERISHABLE;
        break;
    case 'e':
        modifiers->without_file = true;
        break;
    default:
        modifiers->every_line = letter;
        break;
    }
    return -1;
}

static int take_rule(const struct rules *rules, unsigned bits, const char *text);

static int merge(const struct rules *rules, const struct modifiers *modifiers, const char *path)
{
    const struct rules inside = {rules->command, rules->filter, rules->depth + 1};
    const char *slash = strrchr(path, '/');
    int code = -1;
    if (inside.depth > MERGE_DEPTH_MAX) {
        return command_usage_error(rules->command, "%s: files of rules merge each other %d deep",
                                   path, MERGE_DEPTH_MAX);
    }
    if (modifiers->without_file) {
        code = add(rules, 0, slash != NULL ? slash + 1 : path);
    }
    if (code >= 0) {
        return code;
    }
    unsigned include = modifiers->every_line == '+' ? RULE_INCLUDE : 0;
    return take_file(&inside, path, modifiers->every_line != 0 ? add : take_rule,
                     modifiers->bits | include);
}

static int take_rule(const struct rules *rules, unsigned bits, const char *text)
{
    const char *rest;
    const struct kind *kind = find_kind(text, &rest);
    struct modifiers modifiers = {0};
    if (kind == NULL) {
        return command_usage_error(rules->command,
                                   "--filter '%.80s': a rule begins with one of - + H S P R . ! or "
                                   "its name, and a space",
                                   text);
    }
    if (kind->letter == ':') {
        return command_usage_error(rules->command,
                                   "--filter '%.80s': rules from files in each directory are not "
                                   "known here; '. FILE' takes those of one file",
                                   text);
    }
    rest += *rest == ',';
    for (; *rest != 0 && *rest != ' ' && *rest != '_'; rest++) {
        int code = take_modifier(rules, kind, *rest, text, &modifiers);
        if (code >= 0) {
            return code;
        }
    }
    rest += *rest != 0;
    const unsigned sides = RULE_HIDES | RULE_PROTECTS;
    if ((bits & sides) != 0 && ((kind->bits | modifiers.bits) & sides) != 0) {
        return command_usage_error(
            rules->command, "--filter '%.80s': the rule that merges its file says the side", text);
    }
    if ((*rest == 0) != (kind->letter == '!')) {
        return command_usage_error(rules->command, "--filter '%.80s': %s", text,
                                   *rest == 0 ? "there is nothing behind the rule"
                                              : "'!' stands alone");
    }
    modifiers.bits |= bits;
    if (kind->letter == '!') {
        filter_clear(*rules->filter);
        return -1;
    }
    return kind->letter == '.' ? merge(rules, &modifiers, rest)
                               : add(rules, kind->bits | modifiers.bits, rest);
}

int cp_take_rule(const struct command *command, struct filter **filter, const char *text)
{
    const struct rules rules = {command, filter, 0};
    int code = prepare(&rules);
    return code >= 0 ? code : take_rule(&rules, 0, text);
}
