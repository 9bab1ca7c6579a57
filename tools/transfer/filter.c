#include "tools/transfer/filter.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tools/transfer/filter_scope.h"

enum token_kind {
    TOKEN_BYTE,
    TOKEN_ANY,      /* "?" */
    TOKEN_CLASS,    /* "[...]" */
    TOKEN_STAR,     /* "*" */
    TOKEN_STARS,    /* "**" and more of them */
    TOKEN_MISTAKEN, /* matches nothing: a class without its end */
};

struct token {
    enum token_kind kind;
    unsigned char byte;
    const char *class; /* behind its "[" */
};

/* Against what a pattern is held. */
enum reach {
    REACH_NAME,  /* the last component */
    REACH_PATH,  /* the whole path */
    REACH_TAIL,  /* as many components as the pattern has */
    REACH_AFTER, /* the path, or what follows any of its slashes */
};

struct rule {
    uint8_t bits; /* of enum rule_bits */
    bool directories_only, wild;
    bool anchored;                   /* REACH_PATH because of a slash at its start */
    bool slash_before, slash_behind; /* of a path, of a directory: for a leading or trailing "**" */
    enum reach reach;
    unsigned slashes;
    char *text;    /* as it was given */
    char *pattern; /* without the slashes at its ends */
    struct token *tokens;
    unsigned count;
};

struct filter {
    struct rule *rules;
    unsigned count;
    size_t length;
    unsigned merges[FILTER_MERGES_MAX]; /* of the rules, those with RULE_MERGES */
    unsigned merge_count;
};

struct filter *filter_create(void)
{
    return calloc(1, sizeof(struct filter));
}

static void clear_rule(struct rule *rule)
{
    free(rule->text);
    free(rule->pattern);
    free(rule->tokens);
}

void filter_clear(struct filter *filter)
{
    for (unsigned i = 0; i < filter->count; i++) {
        clear_rule(&filter->rules[i]);
    }
    free(filter->rules);
    *filter = (struct filter){0};
}

void filter_destroy(struct filter *filter)
{
    if (filter != NULL) {
        filter_clear(filter);
        free(filter);
    }
}

unsigned filter_count(const struct filter *filter)
{
    return filter->count;
}

struct span filter_rule(const struct filter *filter, unsigned index, uint8_t *ret_bits)
{
    const struct rule *rule = &filter->rules[index];
    *ret_bits = rule->bits;
    return (struct span){rule->text, strlen(rule->text)};
}

/* --- classes ---------------------------------------------------------------------------------- */

static bool is_named(const char *name, size_t length, unsigned char byte)
{
    static const struct {
        const char *name;
        int (*is)(int byte);
    } kinds[] = {{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl},
                 {"digit", isdigit}, {"graph", isgraph}, {"lower", islower}, {"print", isprint},
                 {"punct", ispunct}, {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strlen(kinds[i].name) == length && memcmp(kinds[i].name, name, length) == 0) {
            return kinds[i].is(byte) != 0;
        }
    }
    return false;
}

/* One byte of a class, which a backslash may quote; NULL at the pattern's end. */
static const char *class_byte(const char *at, unsigned char *ret_byte)
{
    at += *at == '\\';
    *ret_byte = (unsigned char)*at;
    return *at != 0 ? at + 1 : NULL;
}

/* One item of a class: a byte, a range, or a name in "[:" and ":]". Returns what is behind it. */
static const char *class_item(const char *at, unsigned char byte, bool *ret_matches)
{
    unsigned char first, last;
    if (at[0] == '[' && at[1] == ':') {
        const char *end = strstr(at + 2, ":]");
        *ret_matches = end != NULL && is_named(at + 2, (size_t)(end - at - 2), byte);
        return end != NULL ? end + 2 : NULL;
    }
    at = class_byte(at, &first);
    last = first;
    if (at != NULL && at[0] == '-' && at[1] != 0 && at[1] != ']') {
        at = class_byte(at + 1, &last);
    }
    *ret_matches = first <= byte && byte <= last;
    return at;
}

/* From behind the "["; returns what is behind the "]", or NULL where there is none. */
static const char *class_match(const char *at, unsigned char byte, bool *ret_matches)
{
    bool negated = *at == '!' || *at == '^';
    bool found = false;
    at += negated;
    do { /* a "]" that comes first is one of the bytes */
        bool matches = false;
        at = class_item(at, byte, &matches);
        found |= matches;
    } while (at != NULL && *at != 0 && *at != ']');
    *ret_matches = found != negated && byte != '/';
    return at != NULL && *at == ']' ? at + 1 : NULL;
}

/* --- patterns --------------------------------------------------------------------------------- */

/* The token at `at`, and what is behind it. */
static const char *read_token(const char *at, struct token *ret_token)
{
    bool unused;
    *ret_token = (struct token){.kind = TOKEN_BYTE, .byte = (unsigned char)*at};
    if (*at == '?') {
        ret_token->kind = TOKEN_ANY;
        return at + 1;
    }
    if (*at == '*') {
        size_t stars = strspn(at, "*");
        ret_token->kind = stars > 1 ? TOKEN_STARS : TOKEN_STAR;
        return at + stars;
    }
    if (*at == '[') {
        const char *end = class_match(at + 1, 0, &unused);
        ret_token->kind = end != NULL ? TOKEN_CLASS : TOKEN_MISTAKEN;
        ret_token->class = at + 1;
        return end != NULL ? end : at + strlen(at);
    }
    if (*at == '\\') {
        ret_token->kind = at[1] != 0 ? TOKEN_BYTE : TOKEN_MISTAKEN;
        ret_token->byte = (unsigned char)at[1];
        return at[1] != 0 ? at + 2 : at + 1;
    }
    return at + 1;
}

static bool read_tokens(struct rule *rule)
{
    rule->tokens = malloc((strlen(rule->pattern) + 1) * sizeof(*rule->tokens));
    for (const char *at = rule->pattern; rule->tokens != NULL && *at != 0;) {
        at = read_token(at, &rule->tokens[rule->count++]);
    }
    return rule->tokens != NULL;
}

static void choose_reach(struct rule *rule, bool anchored)
{
    const char *stars = rule->wild ? strstr(rule->pattern, "**") : NULL;
    bool begins = stars == rule->pattern && stars != NULL && !anchored;
    size_t length = strlen(rule->pattern);
    rule->slash_before = begins;
    rule->slash_behind =
        stars != NULL && length >= 3 && strcmp(rule->pattern + length - 3, "***") == 0;
    if (anchored || begins) {
        rule->reach = REACH_PATH;
    } else if (stars != NULL) {
        rule->reach = REACH_AFTER;
    } else {
        rule->reach = rule->slashes > 0 ? REACH_TAIL : REACH_NAME;
    }
}

static bool make_rule(struct rule *rule, unsigned bits, struct span text)
{
    bool anchored = ((const char *)text.bytes)[0] == '/';
    *rule = (struct rule){.bits = (uint8_t)bits, .anchored = anchored};
    rule->text = strndup(text.bytes, text.length);
    rule->pattern = strndup((const char *)text.bytes + anchored, text.length - anchored);
    if (rule->text == NULL || rule->pattern == NULL) {
        return false;
    }
    if ((bits & RULE_MERGES) != 0) {
        return true;
    }
    size_t length = strlen(rule->pattern);
    if (length > 0 && rule->pattern[length - 1] == '/') {
        rule->pattern[length - 1] = 0;
        rule->directories_only = true;
    }
    for (const char *at = rule->pattern; *at != 0; at++) {
        rule->slashes += *at == '/';
    }
    rule->wild = strpbrk(rule->pattern, "*[?") != NULL;
    choose_reach(rule, anchored);
    return !rule->wild || read_tokens(rule);
}

unsigned filter_merges(const struct filter *filter)
{
    return filter->merge_count;
}

void filter_merge(const struct filter *filter, unsigned index, struct filter_merge *ret_merge)
{
    const struct rule *rule = &filter->rules[filter->merges[index]];
    *ret_merge = (struct filter_merge){
        .index = index, .name = rule->pattern, .bits = rule->bits, .above = rule->anchored};
}

static bool is_merged(const struct filter *filter, struct span name)
{
    const char *bytes = name.bytes;
    struct filter_merge merge;
    size_t slash = bytes[0] == '/';
    for (unsigned i = 0; i < filter->merge_count; i++) {
        filter_merge(filter, i, &merge);
        if (strlen(merge.name) == name.length - slash &&
            memcmp(merge.name, bytes + slash, name.length - slash) == 0) {
            return true;
        }
    }
    return false;
}

bool filter_add(struct filter *filter, unsigned bits, struct span pattern)
{
    bool merges = (bits & RULE_MERGES) != 0;
    if (!protocol_is_rule(bits, pattern) || (merges && filter->merge_count == FILTER_MERGES_MAX)) {
        return false;
    }
    if (merges && is_merged(filter, pattern)) {
        return true;
    }
    if (pattern.length == 0 || pattern.length > PATH_LENGTH_MAX ||
        memchr(pattern.bytes, 0, pattern.length) != NULL || filter->count == FILTER_RULES_MAX ||
        filter->length + pattern.length > FILTER_LENGTH_MAX) {
        return false;
    }
    if ((filter->count & (filter->count - 1)) == 0) { /* full: room for twice as many */
        size_t capacity = filter->count > 0 ? 2 * (size_t)filter->count : 1;
        struct rule *rules = realloc(filter->rules, capacity * sizeof(*rules));
        if (rules == NULL) {
            return false;
        }
        filter->rules = rules;
    }
    struct rule *rule = &filter->rules[filter->count];
    if (!make_rule(rule, bits, pattern)) {
        clear_rule(rule);
        return false;
    }
    if (merges) {
        filter->merges[filter->merge_count++] = filter->count;
    }
    filter->count++;
    filter->length += pattern.length;
    return true;
}

/* --- matching --------------------------------------------------------------------------------- */

static bool token_takes(const struct token *token, unsigned char byte)
{
    bool matches = false;
    switch (token->kind) {
    case TOKEN_BYTE:
        return byte == token->byte;
    case TOKEN_ANY:
    case TOKEN_STAR:
        return byte != '/';
    case TOKEN_STARS:
        return true;
    case TOKEN_CLASS:
        class_match(token->class, byte, &matches);
        return matches;
    case TOKEN_MISTAKEN:
        return false;
    }
    return false;
}

static bool is_star(const struct token *token)
{
    return token->kind == TOKEN_STAR || token->kind == TOKEN_STARS;
}

/* All ways through the pattern at once: bit i says that the text so far took the tokens before i.
 * `anew`: what follows any of the slashes may match, too. */
static bool match_text(const struct rule *rule, const char *text, size_t length, bool anew)
{
    bool at[2][PATH_LENGTH_MAX + 1];
    bool *now = at[0], *next = at[1];
    unsigned count = rule->count;
    memset(now, 0, count + 1);
    now[0] = true;
    for (size_t i = 0;; i++) {
        for (unsigned t = 0; t < count; t++) { /* a star may take nothing */
            now[t + 1] |= now[t] && is_star(&rule->tokens[t]);
        }
        if (i == length) {
            return now[count];
        }
        bool alive = anew;
        memset(next, 0, count + 1);
        next[0] = anew && text[i] == '/';
        for (unsigned t = 0; t < count; t++) {
            const struct token *token = &rule->tokens[t];
            if (now[t] && token_takes(token, (unsigned char)text[i])) {
                next[is_star(token) ? t : t + 1] = true;
                alive = true;
            }
        }
        if (!alive) {
            return false;
        }
        bool *swap = now;
        now = next;
        next = swap;
    }
}

static bool match(const struct rule *rule, const char *text, size_t length)
{
    if (rule->wild) {
        return match_text(rule, text, length, false);
    }
    return strlen(rule->pattern) == length && memcmp(rule->pattern, text, length) == 0;
}

/* The last `count` components; NULL where there are fewer. */
static const char *last_components(const char *path, unsigned count)
{
    const char *at = path + strlen(path);
    while (at > path) {
        if (at[-1] == '/' && --count == 0) {
            return at;
        }
        at--;
    }
    return count == 1 ? path : NULL;
}

/* A pattern from the root of `scope`, against `length` bytes of the path. */
static bool match_from(const struct rule *rule, const struct filter_scope *scope, const char *text,
                       size_t length)
{
    size_t outside = scope != NULL && scope->outside != NULL ? strlen(scope->outside) : 0;
    if (outside > 0) {
        char path[2 * PATH_LENGTH_MAX + 4];
        if (outside + 1 + length > sizeof(path)) {
            return false;
        }
        memcpy(path, scope->outside, outside);
        path[outside] = '/';
        memcpy(path + outside + 1, text, length);
        return match(rule, path, outside + 1 + length);
    }
    for (unsigned i = 0; scope != NULL && i < scope->depth; i++) {
        const char *slash = memchr(text, '/', length);
        if (slash == NULL) {
            return false;
        }
        length -= (size_t)(slash + 1 - text);
        text = slash + 1;
    }
    return match(rule, text, length);
}

/* `text` has a slash before it and room for one behind it; `scope` is where the rule stands. */
static bool rule_matches(const struct rule *rule, const struct filter_scope *scope, char *text,
                         bool is_directory)
{
    size_t length = strlen(text);
    if (rule->directories_only && !is_directory) {
        return false;
    }
    size_t behind = is_directory && rule->slash_behind ? 1 : 0; /* "/" stands there */
    text[length] = '/';
    const char *from = text;
    bool matches = false;
    switch (rule->reach) {
    case REACH_NAME:
    case REACH_TAIL:
        text[length] = 0;
        from = last_components(text, rule->slashes + 1);
        return from != NULL && match(rule, from, strlen(from));
    case REACH_PATH:
        from -= rule->slash_before;
        matches = rule->anchored ? match_from(rule, scope, text, length + behind)
                                 : match(rule, from, length + behind + rule->slash_before);
        break;
    case REACH_AFTER:
        matches = match_text(rule, text, length + behind, true); /* it is wild */
        break;
    }
    text[length] = 0;
    return matches;
}

/* The rules about what is sent, or about what is deleted. */
struct question_of {
    enum rule_bits side;
    struct filter_loss loss; /* of what is deleted */
};

static bool is_asked(const struct rule *rule, const struct question_of *question)
{
    unsigned sides = rule->bits & (RULE_HIDES | RULE_PROTECTS);
    if (sides == 0) {
        sides = RULE_HIDES | (question->loss.delete_excluded ? 0 : RULE_PROTECTS);
    }
    bool perished = (rule->bits & RULE_PERISHABLE) != 0 && question->loss.inside;
    return (sides & question->side) != 0 && !perished;
}

enum verdict {
    VERDICT_NONE,
    VERDICT_IN,
    VERDICT_OUT,
};

/* What is asked. */
struct asked_path {
    const struct question_of *question;
    char *text;
    bool is_directory;
};

static enum verdict judge_rule(const struct rule *rule, const struct filter_scope *scope,
                               const struct asked_path *asked)
{
    bool negated = (rule->bits & RULE_NEGATED) != 0;
    if (!is_asked(rule, asked->question) ||
        rule_matches(rule, scope, asked->text, asked->is_directory) == negated) {
        return VERDICT_NONE;
    }
    return (rule->bits & RULE_INCLUDE) != 0 ? VERDICT_IN : VERDICT_OUT;
}

/* What that file of rules says, in the directory at hand and then in those above. */
static enum verdict judge_scopes(unsigned merge, bool alone, const struct filter_scope *scope,
                                 const struct asked_path *asked)
{
    enum verdict verdict = VERDICT_NONE;
    for (; scope != NULL && verdict == VERDICT_NONE; scope = scope->above) {
        const struct scope_list *list = &scope->lists[merge];
        unsigned count = list->rules != NULL ? list->rules->count : 0;
        for (unsigned i = 0; i < count && verdict == VERDICT_NONE; i++) {
            verdict = judge_rule(&list->rules->rules[i], scope, asked);
        }
        if (list->cleared || alone) {
            break;
        }
    }
    return verdict;
}

static bool excludes(const struct filter *filter, const struct filter_scope *scope,
                     const struct asked_path *asked)
{
    enum verdict verdict = VERDICT_NONE;
    for (unsigned i = 0, merge = 0; i < filter->count && verdict == VERDICT_NONE; i++) {
        const struct rule *rule = &filter->rules[i];
        verdict = (rule->bits & RULE_MERGES) != 0
                      ? judge_scopes(merge++, (rule->bits & RULE_ALONE) != 0, scope, asked)
                      : judge_rule(rule, NULL, asked);
    }
    return verdict == VERDICT_OUT;
}

static const struct question_of what_is_sent = {.side = RULE_HIDES};

/* Into a buffer as rule_matches wants it; NULL: too long for the rules. */
static char *prepare(const char *path, char buffer[PATH_LENGTH_MAX + 3])
{
    size_t length = strlen(path);
    if (length > PATH_LENGTH_MAX) {
        return NULL;
    }
    buffer[0] = '/';
    memcpy(buffer + 1, path, length + 1);
    return buffer + 1;
}

bool filter_excludes(const struct filter *filter, const struct filter_scope *scope,
                     const char *path, bool is_directory)
{
    char buffer[PATH_LENGTH_MAX + 3];
    const struct asked_path asked = {&what_is_sent, prepare(path, buffer), is_directory};
    return asked.text != NULL && excludes(filter, scope, &asked);
}

bool filter_protects(const struct filter *filter, const struct filter_scope *scope,
                     const char *path, bool is_directory, struct filter_loss loss)
{
    char buffer[PATH_LENGTH_MAX + 3];
    const struct question_of question = {RULE_PROTECTS, loss};
    const struct asked_path asked = {&question, prepare(path, buffer), is_directory};
    return asked.text == NULL || excludes(filter, scope, &asked);
}

bool filter_protects_some(const struct filter *filter, bool delete_excluded)
{
    const struct question_of question = {RULE_PROTECTS, {.delete_excluded = delete_excluded}};
    for (unsigned i = 0; i < filter->count; i++) {
        const struct rule *rule = &filter->rules[i];
        bool merges = (rule->bits & RULE_MERGES) != 0;
        if (merges || ((rule->bits & RULE_INCLUDE) == 0 && is_asked(rule, &question))) {
            return true;
        }
    }
    return false;
}

bool filter_cuts_off(const struct filter *filter, const char *path, bool is_directory)
{
    char buffer[PATH_LENGTH_MAX + 3];
    struct asked_path asked = {&what_is_sent, prepare(path, buffer), true};
    for (char *slash = asked.text; slash != NULL && (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        if (excludes(filter, NULL, &asked)) {
            return true;
        }
        *slash = '/';
    }
    asked.is_directory = is_directory;
    return asked.text != NULL && excludes(filter, NULL, &asked);
}
