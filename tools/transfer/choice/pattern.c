#include "tools/transfer/choice/pattern.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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

static bool read_tokens(struct pattern *pattern)
{
    pattern->tokens = malloc((strlen(pattern->text) + 1) * sizeof(*pattern->tokens));
    for (const char *at = pattern->text; pattern->tokens != NULL && *at != 0;) {
        struct token *token = &pattern->tokens[pattern->count++];
        at = read_token(at, token);
        pattern->slash_tokens += token->kind == TOKEN_BYTE && token->byte == '/';
    }
    return pattern->tokens != NULL;
}

static void choose_reach(struct pattern *pattern, bool anchored)
{
    const char *stars = pattern->wild ? strstr(pattern->text, "**") : NULL;
    bool begins = stars == pattern->text && stars != NULL && !anchored;
    size_t length = strlen(pattern->text);
    pattern->slash_before = begins;
    pattern->slash_behind =
        stars != NULL && length >= 3 && strcmp(pattern->text + length - 3, "***") == 0;
    if (anchored || begins) {
        pattern->reach = REACH_PATH;
    } else if (stars != NULL) {
        pattern->reach = REACH_AFTER;
    } else {
        pattern->reach = pattern->slashes > 0 ? REACH_TAIL : REACH_NAME;
    }
}

bool pattern_make(struct span text, struct pattern *ret_pattern)
{
    bool anchored = text.length > 0 && ((const char *)text.bytes)[0] == '/';
    struct pattern *pattern = ret_pattern;
    *pattern = (struct pattern){.anchored = anchored};
    pattern->text = strndup((const char *)text.bytes + anchored, text.length - anchored);
    if (pattern->text == NULL) {
        return false;
    }
    size_t length = strlen(pattern->text);
    if (length > 0 && pattern->text[length - 1] == '/') {
        pattern->text[length - 1] = 0;
        pattern->directories_only = true;
    }
    for (const char *at = pattern->text; *at != 0; at++) {
        pattern->slashes += *at == '/';
    }
    pattern->wild = strpbrk(pattern->text, "*[?") != NULL;
    choose_reach(pattern, anchored);
    return !pattern->wild || read_tokens(pattern);
}

void pattern_clear(struct pattern *pattern)
{
    free(pattern->text);
    free(pattern->tokens);
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
 * `anew`: what follows any of the slashes may match, too. Of each beginning of the text, by its
 * length, whether it matches. */
static void match_beginnings(const struct pattern *pattern, const char *text, size_t length,
                             bool anew, bool *ret_matches)
{
    bool at[2][PATH_LENGTH_MAX + 1];
    bool *now = at[0], *next = at[1];
    unsigned count = pattern->count;
    memset(ret_matches, 0, length + 1);
    memset(now, 0, count + 1);
    now[0] = true;
    for (size_t i = 0;; i++) {
        for (unsigned t = 0; t < count; t++) { /* a star may take nothing */
            now[t + 1] |= now[t] && is_star(&pattern->tokens[t]);
        }
        ret_matches[i] = now[count];
        if (i == length) {
            return;
        }
        bool alive = anew;
        memset(next, 0, count + 1);
        next[0] = anew && text[i] == '/';
        for (unsigned t = 0; t < count; t++) {
            const struct token *token = &pattern->tokens[t];
            if (now[t] && token_takes(token, (unsigned char)text[i])) {
                next[is_star(token) ? t : t + 1] = true;
                alive = true;
            }
        }
        if (!alive) {
            return;
        }
        bool *swap = now;
        now = next;
        next = swap;
    }
}

/* A path, and one that leads to it. */
#define TEXT_MAX (2 * PATH_LENGTH_MAX + 4)

static bool match_text(const struct pattern *pattern, const char *text, size_t length, bool anew)
{
    bool matches[TEXT_MAX + 1];
    match_beginnings(pattern, text, length, anew, matches);
    return matches[length];
}

static bool match(const struct pattern *pattern, const char *text, size_t length)
{
    if (pattern->wild) {
        return match_text(pattern, text, length, false);
    }
    return strlen(pattern->text) == length && memcmp(pattern->text, text, length) == 0;
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

/* A pattern from `root`, against `length` bytes of the path. */
static bool match_from(const struct pattern *pattern, const struct pattern_root *root,
                       const char *text, size_t length)
{
    size_t outside = root != NULL && root->outside != NULL ? strlen(root->outside) : 0;
    if (outside > 0) {
        char path[TEXT_MAX];
        if (outside + 1 + length > sizeof(path)) {
            return false;
        }
        memcpy(path, root->outside, outside);
        path[outside] = '/';
        memcpy(path + outside + 1, text, length);
        return match(pattern, path, outside + 1 + length);
    }
    for (unsigned i = 0; root != NULL && i < root->depth; i++) {
        const char *slash = memchr(text, '/', length);
        if (slash == NULL) {
            return false;
        }
        length -= (size_t)(slash + 1 - text);
        text = slash + 1;
    }
    return match(pattern, text, length);
}

bool pattern_matches(const struct pattern *pattern, const struct pattern_root *root, char *path,
                     bool is_directory)
{
    size_t length = strlen(path);
    if (pattern->directories_only && !is_directory) {
        return false;
    }
    size_t behind = is_directory && pattern->slash_behind ? 1 : 0; /* "/" stands there */
    path[length] = '/';
    const char *from = path;
    bool matches = false;
    switch (pattern->reach) {
    case REACH_NAME:
    case REACH_TAIL:
        path[length] = 0;
        from = last_components(path, pattern->slashes + 1);
        return from != NULL && match(pattern, from, strlen(from));
    case REACH_PATH:
        from -= pattern->slash_before;
        matches = pattern->anchored ? match_from(pattern, root, path, length + behind)
                                    : match(pattern, from, length + behind + pattern->slash_before);
        break;
    case REACH_AFTER:
        matches = match_text(pattern, path, length + behind, true); /* it is wild */
        break;
    }
    path[length] = 0;
    return matches;
}

/* --- the beginnings of a path ----------------------------------------------------------------- */

void pattern_find_prefixes(const char *path, struct prefixes *ret_prefixes)
{
    size_t length = strlen(path);
    ret_prefixes->count = 0;
    for (size_t i = 0; i <= length; i++) {
        if (path[i] == '/' || path[i] == 0) {
            ret_prefixes->ends[ret_prefixes->count++] = (uint16_t)i;
        }
    }
}

/* The last component of each. */
static void match_names(const struct pattern *pattern, const char *path,
                        const struct prefixes *prefixes, bool *ret_matches)
{
    size_t start = 0;
    for (unsigned i = 0; i < prefixes->count; i++) {
        ret_matches[i] = match(pattern, path + start, prefixes->ends[i] - start);
        start = prefixes->ends[i] + 1u;
    }
}

/* One without wildcards takes as many components as it has, whole ones. */
static void match_plain_tails(const struct pattern *pattern, const char *path,
                              const struct prefixes *prefixes, bool *ret_matches)
{
    size_t length = strlen(pattern->text);
    for (unsigned i = 0; i < prefixes->count; i++) {
        size_t end = prefixes->ends[i];
        size_t start = end >= length ? end - length : 0;
        ret_matches[i] = end >= length && (start == 0 || path[start - 1] == '/') &&
                         memcmp(path + start, pattern->text, length) == 0;
    }
}

/* `before`: with the slash that stands before the path. */
static void match_whole(const struct pattern *pattern, const char *path, bool is_directory,
                        const struct prefixes *prefixes, unsigned before, bool *ret_matches)
{
    bool matches[TEXT_MAX + 1];
    bool anew = pattern->reach != REACH_PATH;
    size_t length = prefixes->ends[prefixes->count - 1] + 1u + before; /* and the slash behind */
    match_beginnings(pattern, path - before, length, anew, matches);
    for (unsigned i = 0; i < prefixes->count; i++) {
        bool directory = is_directory || i + 1 < prefixes->count;
        size_t behind = directory && pattern->slash_behind ? 1 : 0;
        ret_matches[i] = matches[prefixes->ends[i] + behind + before];
    }
}

void pattern_match_prefixes(const struct pattern *pattern, char *path, bool is_directory,
                            const struct prefixes *prefixes, bool *ret_matches)
{
    unsigned last = prefixes->count - 1;
    size_t length = prefixes->ends[last];
    memset(ret_matches, 0, prefixes->count * sizeof(*ret_matches));
    path[length] = '/';
    if (pattern->reach == REACH_NAME) {
        match_names(pattern, path, prefixes, ret_matches);
    } else if (!pattern->wild && pattern->reach == REACH_TAIL) {
        match_plain_tails(pattern, path, prefixes, ret_matches);
    } else if (!pattern->wild) {
        for (unsigned i = 0; i < prefixes->count; i++) {
            ret_matches[i] = match(pattern, path, prefixes->ends[i]);
        }
    } else if (pattern->reach != REACH_TAIL || pattern->slash_tokens == pattern->slashes) {
        match_whole(pattern, path, is_directory, prefixes, pattern->slash_before, ret_matches);
    }
    path[length] = 0;
    if (pattern->directories_only && !is_directory) {
        ret_matches[last] = false;
    }
}
