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
    uint8_t kind; /* of enum token_kind */
    uint8_t byte;
    uint16_t class; /* which of the pattern's */
};

/* Bytes that a class takes. */
struct byte_set {
    uint64_t bits[4];
};

/* --- classes ---------------------------------------------------------------------------------- */

static bool has(const struct byte_set *set, unsigned char byte)
{
    return (set->bits[byte / 64] >> (byte % 64) & 1) != 0;
}

static void take_range(struct byte_set *set, unsigned first, unsigned last)
{
    for (unsigned byte = first; byte <= last; byte++) {
        set->bits[byte / 64] |= (uint64_t)1 << (byte % 64);
    }
}

/* False: there is no such name. */
static bool take_named(struct byte_set *set, const char *name, size_t length)
{
    bool is_known = false;
    static const struct {
        const char *name;
        int (*is)(int byte);
    } kinds[] = {{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl},
                 {"digit", isdigit}, {"graph", isgraph}, {"lower", islower}, {"print", isprint},
                 {"punct", ispunct}, {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        bool named = strlen(kinds[i].name) == length && memcmp(kinds[i].name, name, length) == 0;
        is_known |= named;
        for (unsigned byte = 0; named && byte < 256; byte++) {
            set->bits[byte / 64] |= (uint64_t)(kinds[i].is((int)byte) != 0) << (byte % 64);
        }
    }
    return is_known;
}

/* One byte of a class, which a backslash may quote; NULL at the pattern's end. */
static const char *class_byte(const char *at, unsigned char *ret_byte)
{
    at += *at == '\\';
    *ret_byte = (unsigned char)*at;
    return *at != 0 ? at + 1 : NULL;
}

/* One item of a class: a byte, a range, or a name in "[:" and ":]". Returns what is behind it, or
 * NULL where it makes the whole pattern match nothing. */
static const char *class_item(const char *at, struct byte_set *set)
{
    unsigned char first, last;
    if (at[0] == '[' && at[1] == ':') {
        const char *name = at + 2, *end = strchr(name, ']');
        if (end == NULL) {
            return NULL;
        }
        if (end > name && end[-1] == ':') {
            return take_named(set, name, (size_t)(end - 1 - name)) ? end + 1 : NULL;
        } /* else the bracket is a byte like any other */
    }
    at = class_byte(at, &first);
    take_range(set, first, first); /* also of a range that ends before it */
    if (at != NULL && at[0] == '-' && at[1] != 0 && at[1] != ']') {
        at = class_byte(at + 1, &last);
        take_range(set, first, last);
    }
    return at;
}

/* From behind the "["; returns what is behind the "]", or NULL where there is none. */
static const char *read_class(const char *at, struct byte_set *ret_set)
{
    struct byte_set set = {{0}};
    bool negated = *at == '!' || *at == '^';
    at += negated;
    do { /* a "]" that comes first is one of the bytes */
        at = class_item(at, &set);
    } while (at != NULL && *at != 0 && *at != ']');
    for (unsigned i = 0; i < 4; i++) {
        ret_set->bits[i] = negated ? ~set.bits[i] : set.bits[i];
    }
    ret_set->bits['/' / 64] &= ~((uint64_t)1 << ('/' % 64));
    return at != NULL && *at == ']' ? at + 1 : NULL;
}

/* --- patterns --------------------------------------------------------------------------------- */

/* The token at `at`, and what is behind it; a class is put at `set`. */
static const char *read_token(const char *at, struct token *ret_token, struct byte_set *set)
{
    *ret_token = (struct token){.kind = TOKEN_BYTE, .byte = (uint8_t)*at};
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
        const char *end = read_class(at + 1, set);
        ret_token->kind = end != NULL ? TOKEN_CLASS : TOKEN_MISTAKEN;
        return end != NULL ? end : at + strlen(at);
    }
    if (*at == '\\') {
        ret_token->kind = at[1] != 0 ? TOKEN_BYTE : TOKEN_MISTAKEN;
        ret_token->byte = (uint8_t)at[1];
        return at[1] != 0 ? at + 2 : at + 1;
    }
    return at + 1;
}

static size_t count_brackets(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        count += text[i] == '[';
    }
    return count;
}

size_t pattern_weight(struct span text)
{
    return text.length + (CLASS_WEIGHT - 1) * count_brackets(text.bytes, text.length);
}

size_t pattern_cost(struct span text)
{
    return text.length * (1 + sizeof(struct token)) +
           count_brackets(text.bytes, text.length) * sizeof(struct byte_set);
}

static bool read_tokens(struct pattern *pattern)
{
    size_t length = strlen(pattern->text);
    uint16_t classes = 0;
    pattern->tokens = malloc((length + 1) * sizeof(*pattern->tokens));
    pattern->classes =
        malloc((count_brackets(pattern->text, length) + 1) * sizeof(*pattern->classes));
    if (pattern->tokens == NULL || pattern->classes == NULL) {
        return false;
    }
    for (const char *at = pattern->text; *at != 0;) {
        struct token *token = &pattern->tokens[pattern->count++];
        at = read_token(at, token, &pattern->classes[classes]);
        token->class = classes;
        classes += token->kind == TOKEN_CLASS;
        pattern->slash_tokens += token->kind == TOKEN_BYTE && token->byte == '/';
    }
    return true;
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
    free(pattern->classes);
}

/* --- the path --------------------------------------------------------------------------------- */

bool pattern_text_make(const char *above, const char *path, struct pattern_text *ret_text)
{
    size_t before = above != NULL ? strlen(above) + 1 : 0, length = strlen(path);
    if (length > PATH_LENGTH_MAX || before + length > PATTERN_TEXT_MAX) {
        return false;
    }
    char *at = ret_text->bytes;
    *at++ = '/';
    if (above != NULL) {
        memcpy(at, above, before - 1);
        at[before - 1] = '/';
    }
    memcpy(at + before, path, length);
    memcpy(at + before + length, "/", 2);
    ret_text->length = before + length;
    const char *slash = memrchr(ret_text->bytes, '/', ret_text->length + 1);
    ret_text->name = (size_t)(slash + 1 - ret_text->bytes);
    ret_text->is_read = false;
    return true;
}

static void set_bit(uint64_t *bits, size_t at)
{
    bits[at / 64] |= (uint64_t)1 << (at % 64);
}

/* Position i is before byte i of the path with its slashes; there is one more behind the last. */
static void read_text(struct pattern_text *text)
{
    uint16_t rows = 1;
    text->is_read = true;
    text->words = PATTERN_WORDS(text->length);
    size_t size = text->words * sizeof(text->bits[0]);
    memset(text->rows, 0, sizeof(text->rows));
    memset(text->starts, 0, size);
    memset(text->names, 0, size);
    for (size_t i = 0; i < text->length + 2; i++) {
        unsigned char byte = (unsigned char)text->bytes[i];
        if (text->rows[byte] == 0) {
            memset(text->bits + (rows - 1u) * text->words, 0, size);
            text->rows[byte] = rows++;
        }
        set_bit(text->bits + (text->rows[byte] - 1u) * text->words, i);
        set_bit(byte == '/' ? text->starts : text->names, byte == '/' ? i + 1 : i);
    }
}

/* Behind `depth` components; false: there are no more of them. */
static bool find_start(const struct pattern_text *text, unsigned depth, size_t *ret_start)
{
    const char *at = text->bytes + 1, *end = at + text->length;
    while (depth > 0 && at != NULL) {
        at = memchr(at, '/', (size_t)(end - at));
        at = at != NULL ? at + 1 : NULL;
        depth--;
    }
    *ret_start = at != NULL ? (size_t)(at - text->bytes) : 0;
    return at != NULL;
}

/* Where the last `count` components begin; 0: there are fewer. */
static size_t last_components(const struct pattern_text *text, unsigned count)
{
    size_t at = text->name;
    while (--count > 0 && at > 1) {
        do {
            at--;
        } while (text->bytes[at - 1] != '/');
    }
    return count == 0 ? at : 0;
}

/* --- matching --------------------------------------------------------------------------------- */

/* Which positions of the path may be reached through the tokens so far. */
struct reached {
    struct pattern_text *text;
    size_t first; /* word that has any */
    uint64_t bits[PATTERN_WORDS_MAX];
};

/* Those with a bit in `taken`, by one byte. False: there are none. */
static bool take_bytes(struct reached *reached, const uint64_t *taken)
{
    uint64_t carry = 0, any = 0;
    for (size_t i = reached->first; i < reached->text->words; i++) {
        uint64_t moved = reached->bits[i] & taken[i];
        reached->bits[i] = moved << 1 | carry;
        carry = moved >> 63;
        any |= reached->bits[i];
    }
    return any != 0;
}

static bool take_class(struct reached *reached, const struct byte_set *class)
{
    uint64_t carry = 0, any = 0;
    for (size_t i = reached->first; i < reached->text->words; i++) {
        uint64_t moved = 0;
        for (uint64_t left = reached->bits[i]; left != 0; left &= left - 1) {
            size_t at = 64 * i + (size_t)__builtin_ctzll(left);
            bool is_in = has(class, (unsigned char)reached->text->bytes[at]);
            moved |= is_in ? left & -left : 0;
        }
        reached->bits[i] = moved << 1 | carry;
        carry = moved >> 63;
        any |= reached->bits[i];
    }
    return any != 0;
}

/* And from each through as many bytes that are no slashes as there are: an addition carries through
 * them. */
static void take_star(struct reached *reached)
{
    const uint64_t *names = reached->text->names;
    uint64_t carry = 0;
    for (size_t i = reached->first; i < reached->text->words; i++) {
        uint64_t from = reached->bits[i] & names[i], sum = from + names[i];
        uint64_t over = sum < from;
        sum += carry;
        carry = over | (sum < carry);
        reached->bits[i] |= sum ^ names[i];
    }
}

static void take_stars(struct reached *reached)
{
    uint64_t first = reached->bits[reached->first];
    for (size_t i = reached->first; i < reached->text->words; i++) {
        reached->bits[i] = i > reached->first ? ~(uint64_t)0 : ~((first & -first) - 1);
    }
}

/* All ways through the pattern at once, from the positions reached. False: none leads to its end.
 */
static bool take_tokens(const struct pattern *pattern, struct reached *reached)
{
    struct pattern_text *text = reached->text;
    bool any = true;
    for (unsigned i = 0; i < pattern->count && any; i++) {
        const struct token *token = &pattern->tokens[i];
        while (reached->bits[reached->first] == 0) {
            reached->first++;
        }
        switch ((enum token_kind)token->kind) {
        case TOKEN_BYTE:
            any = text->rows[token->byte] != 0 &&
                  take_bytes(reached, text->bits + (text->rows[token->byte] - 1u) * text->words);
            break;
        case TOKEN_ANY:
            any = take_bytes(reached, text->names);
            break;
        case TOKEN_CLASS:
            any = take_class(reached, &pattern->classes[token->class]);
            break;
        case TOKEN_STAR:
            take_star(reached);
            break;
        case TOKEN_STARS:
            take_stars(reached);
            break;
        case TOKEN_MISTAKEN:
            any = false;
            break;
        }
    }
    return any;
}

static void begin(struct pattern_text *text, struct reached *ret_reached)
{
    if (!text->is_read) {
        read_text(text);
    }
    ret_reached->text = text;
    ret_reached->first = 0;
}

static void begin_at(struct pattern_text *text, size_t start, struct reached *ret_reached)
{
    begin(text, ret_reached);
    memset(ret_reached->bits, 0, text->words * sizeof(ret_reached->bits[0]));
    set_bit(ret_reached->bits, start);
    ret_reached->first = start / 64;
}

static void begin_at_components(struct pattern_text *text, struct reached *ret_reached)
{
    begin(text, ret_reached);
    memcpy(ret_reached->bits, text->starts, text->words * sizeof(ret_reached->bits[0]));
}

static bool is_reached(const struct reached *reached, size_t position)
{
    return (reached->bits[position / 64] >> (position % 64) & 1) != 0;
}

static bool is_plain_match(const struct pattern *pattern, const char *from, const char *end)
{
    size_t length = strlen(pattern->text);
    return length == (size_t)(end - from) && memcmp(pattern->text, from, length) == 0;
}

bool pattern_matches(const struct pattern *pattern, unsigned depth, struct pattern_text *text,
                     bool is_directory)
{
    struct reached reached;
    size_t end = text->length + 1, start = 0;
    bool found = true;
    if (pattern->directories_only && !is_directory) {
        return false;
    }
    if (pattern->reach == REACH_NAME || pattern->reach == REACH_TAIL) {
        start = last_components(text, pattern->slashes + 1);
        found = start > 0;
    } else if (pattern->anchored) {
        found = find_start(text, depth, &start);
    }
    if (!found || !pattern->wild) {
        return found && is_plain_match(pattern, text->bytes + start, text->bytes + end);
    }
    if (pattern->reach == REACH_AFTER) {
        begin_at_components(text, &reached);
    } else {
        begin_at(text, start, &reached); /* for a leading "**", at the slash before the path */
    }
    bool behind = is_directory && pattern->slash_behind;
    return take_tokens(pattern, &reached) && is_reached(&reached, end + behind);
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

/* One without wildcards takes as many components as it has, whole ones. */
static void match_plain(const struct pattern *pattern, const char *path,
                        const struct prefixes *prefixes, bool *ret_matches)
{
    size_t length = strlen(pattern->text);
    for (unsigned i = 0; i < prefixes->count; i++) {
        size_t end = prefixes->ends[i];
        size_t start = end >= length ? end - length : 0;
        ret_matches[i] = end >= length && (start == 0 || !pattern->anchored) &&
                         path[(ptrdiff_t)start - 1] == '/' &&
                         memcmp(path + start, pattern->text, length) == 0;
    }
}

static void match_wild(const struct pattern *pattern, struct pattern_text *text, bool is_directory,
                       const struct prefixes *prefixes, bool *ret_matches)
{
    struct reached reached;
    if (pattern->reach == REACH_PATH) {
        begin_at(text, pattern->anchored ? 1 : 0, &reached);
    } else {
        begin_at_components(text, &reached);
    }
    bool any = take_tokens(pattern, &reached);
    for (unsigned i = 0; i < prefixes->count; i++) {
        bool directory = is_directory || i + 1 < prefixes->count;
        bool behind = directory && pattern->slash_behind;
        ret_matches[i] = any && is_reached(&reached, prefixes->ends[i] + 1u + behind);
    }
}

void pattern_match_prefixes(const struct pattern *pattern, struct pattern_text *text,
                            bool is_directory, const struct prefixes *prefixes, bool *ret_matches)
{
    memset(ret_matches, 0, prefixes->count * sizeof(*ret_matches));
    if (!pattern->wild) {
        match_plain(pattern, text->bytes + 1, prefixes, ret_matches);
    } else if (pattern->reach != REACH_TAIL || pattern->slash_tokens == pattern->slashes) {
        match_wild(pattern, text, is_directory, prefixes, ret_matches);
    }
    if (pattern->directories_only && !is_directory) {
        ret_matches[prefixes->count - 1] = false;
    }
}
