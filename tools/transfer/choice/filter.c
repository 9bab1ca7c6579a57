#include "tools/transfer/choice/filter.h"

#include <stdlib.h>
#include <string.h>

#include "tools/transfer/choice/filter_scope.h"
#include "tools/transfer/choice/pattern.h"

struct rule {
    uint16_t bits; /* of enum rule_bits */
    char *text;    /* as it was given */
    struct pattern pattern;
};

struct filter {
    struct rule *rules;
    unsigned count;
    size_t weight;
    bool absolute;                      /* one of them is */
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
    pattern_clear(&rule->pattern);
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

size_t filter_weight(const struct filter *filter)
{
    return filter->weight;
}

size_t filter_cost(struct span pattern)
{
    const size_t lists = 4 * 32; /* what the allocator adds to each */
    return 2 * sizeof(struct rule) + lists + pattern.length + pattern_cost(pattern);
}

struct span filter_rule(const struct filter *filter, unsigned index, uint16_t *ret_bits)
{
    const struct rule *rule = &filter->rules[index];
    *ret_bits = rule->bits;
    return (struct span){rule->text, strlen(rule->text)};
}

static bool make_rule(struct rule *rule, unsigned bits, struct span text)
{
    *rule = (struct rule){.bits = (uint16_t)bits, .text = strndup(text.bytes, text.length)};
    return rule->text != NULL && ((bits & RULE_MERGES) != 0 || pattern_make(text, &rule->pattern));
}

bool filter_is_of_place(const struct filter *filter)
{
    return filter->merge_count > 0 || filter->absolute;
}

bool filter_is_absolute(const struct filter *filter)
{
    return filter->absolute;
}

void filter_end_with_zeros(struct filter *filter)
{
    for (unsigned i = 0; i < filter->merge_count; i++) {
        filter->rules[filter->merges[i]].bits |= RULE_ZEROS;
    }
}

unsigned filter_merges(const struct filter *filter)
{
    return filter->merge_count;
}

void filter_merge(const struct filter *filter, unsigned index, struct filter_merge *ret_merge)
{
    const struct rule *rule = &filter->rules[filter->merges[index]];
    bool above = rule->text[0] == '/';
    *ret_merge = (struct filter_merge){
        .index = index, .name = rule->text + above, .bits = rule->bits, .above = above};
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

bool filter_has_room(const struct filter *filter, struct span pattern)
{
    return filter->count < FILTER_RULES_MAX &&
           filter->weight + pattern_weight(pattern) <= FILTER_WEIGHT_MAX;
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
        memchr(pattern.bytes, 0, pattern.length) != NULL || !filter_has_room(filter, pattern)) {
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
    filter->absolute |= (bits & RULE_ABSOLUTE) != 0;
    filter->count++;
    filter->weight += pattern_weight(pattern);
    return true;
}

/* --- matching --------------------------------------------------------------------------------- */

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
    const char *path;
    bool is_directory;
    const char *place; /* that the path begins in; NULL or "": the root */
    bool is_placed;
    struct pattern_text text, placed; /* this with the place before it, where that is wanted */
};

/* NULL: too long. */
static struct pattern_text *text_for(const struct rule *rule, struct asked_path *asked)
{
    if ((rule->bits & RULE_ABSOLUTE) == 0 || rule->pattern.reach == REACH_NAME ||
        asked->place == NULL || asked->place[0] == 0) {
        return &asked->text;
    }
    asked->is_placed =
        asked->is_placed || pattern_text_make(asked->place, asked->path, &asked->placed);
    return asked->is_placed ? &asked->placed : NULL;
}

static enum verdict say(const struct rule *rule, bool matches)
{
    if (matches == ((rule->bits & RULE_NEGATED) != 0)) {
        return VERDICT_NONE;
    }
    return (rule->bits & RULE_INCLUDE) != 0 ? VERDICT_IN : VERDICT_OUT;
}

static enum verdict judge_rule(const struct rule *rule, unsigned depth, struct asked_path *asked)
{
    if (!is_asked(rule, asked->question)) {
        return VERDICT_NONE;
    }
    struct pattern_text *text = text_for(rule, asked);
    bool from_root = (rule->bits & RULE_ABSOLUTE) != 0;
    return say(rule, text != NULL && pattern_matches(&rule->pattern, from_root ? 0 : depth, text,
                                                     asked->is_directory));
}

static enum verdict judge_list(const struct scope_list *list, unsigned depth,
                               struct asked_path *asked)
{
    enum verdict verdict = VERDICT_NONE;
    unsigned count = list->rules != NULL ? list->rules->count : 0;
    for (unsigned i = 0; i < count && verdict == VERDICT_NONE; i++) {
        verdict = judge_rule(&list->rules->rules[i], depth, asked);
    }
    return verdict;
}

/* From a directory above the transfer: a pattern with a slash at its start is held against the way
 * from there. */
static enum verdict judge_list_outside(const struct scope_list *list, const char *outside,
                                       struct asked_path *asked)
{
    struct pattern_text text;
    unsigned count = list->rules != NULL ? list->rules->count : 0;
    enum verdict verdict = VERDICT_NONE;
    bool fits = count > 0 && pattern_text_make(outside, asked->path, &text);
    for (unsigned i = 0; i < count && verdict == VERDICT_NONE; i++) {
        const struct rule *rule = &list->rules->rules[i];
        if (!rule->pattern.anchored || (rule->bits & RULE_ABSOLUTE) != 0) {
            verdict = judge_rule(rule, 0, asked);
        } else if (is_asked(rule, asked->question)) {
            verdict =
                say(rule, fits && pattern_matches(&rule->pattern, 0, &text, asked->is_directory));
        }
    }
    return verdict;
}

/* What that file of rules says, in the directory at hand and then in those above. */
static enum verdict judge_scopes(unsigned merge, bool alone, const struct filter_scope *scope,
                                 struct asked_path *asked)
{
    enum verdict verdict = VERDICT_NONE;
    for (; scope != NULL && verdict == VERDICT_NONE; scope = scope->above) {
        const struct scope_list *list = &scope->lists[merge];
        bool outside = scope->outside != NULL && scope->outside[0] != 0;
        verdict = outside ? judge_list_outside(list, scope->outside, asked)
                          : judge_list(list, scope->depth, asked);
        if (list->cleared || alone) {
            break;
        }
    }
    return verdict;
}

static bool excludes(const struct filter *filter, const struct filter_scope *scope,
                     struct asked_path *asked)
{
    enum verdict verdict = VERDICT_NONE;
    for (unsigned i = 0, merge = 0; i < filter->count && verdict == VERDICT_NONE; i++) {
        const struct rule *rule = &filter->rules[i];
        verdict = (rule->bits & RULE_MERGES) != 0
                      ? judge_scopes(merge++, (rule->bits & RULE_ALONE) != 0, scope, asked)
                      : judge_rule(rule, 0, asked);
    }
    return verdict == VERDICT_OUT;
}

static const struct question_of what_is_sent = {.side = RULE_HIDES};

/* False: too long for the rules. */
static bool prepare(const struct question_of *question, const struct filter_scope *scope,
                    const char *path, bool is_directory, struct asked_path *ret_asked)
{
    ret_asked->place = scope != NULL ? scope->place : NULL;
    ret_asked->is_placed = false;
    ret_asked->question = question;
    ret_asked->path = path;
    ret_asked->is_directory = is_directory;
    return pattern_text_make(NULL, path, &ret_asked->text);
}

bool filter_excludes(const struct filter *filter, const struct filter_scope *scope,
                     const char *path, bool is_directory)
{
    struct asked_path asked;
    return prepare(&what_is_sent, scope, path, is_directory, &asked) &&
           excludes(filter, scope, &asked);
}

bool filter_protects(const struct filter *filter, const struct filter_scope *scope,
                     const char *path, bool is_directory, struct filter_loss loss)
{
    struct asked_path asked;
    const struct question_of question = {RULE_PROTECTS, loss};
    return !prepare(&question, scope, path, is_directory, &asked) ||
           excludes(filter, scope, &asked);
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

/* The first rule that matches decides of each from `first` on. True: of one that it is out. */
static bool excludes_one(const struct filter *filter, struct asked_path *asked,
                         const struct prefixes *prefixes, unsigned first)
{
    bool matches[PATH_LENGTH_MAX + 1], decided[PATH_LENGTH_MAX + 1] = {false};
    for (unsigned i = 0; i < filter->count; i++) {
        const struct rule *rule = &filter->rules[i];
        bool negated = (rule->bits & RULE_NEGATED) != 0;
        if ((rule->bits & RULE_MERGES) != 0 || !is_asked(rule, asked->question)) {
            continue;
        }
        pattern_match_prefixes(&rule->pattern, &asked->text, asked->is_directory, prefixes,
                               matches);
        for (unsigned j = first; j < prefixes->count; j++) {
            if (matches[j] != negated && !decided[j] && (rule->bits & RULE_INCLUDE) == 0) {
                return true;
            }
            decided[j] |= matches[j] != negated;
        }
    }
    return false;
}

bool filter_cuts_off(const struct filter *filter, const char *path, bool is_directory,
                     unsigned spared)
{
    struct prefixes prefixes;
    struct asked_path asked;
    if (!prepare(&what_is_sent, NULL, path, is_directory, &asked)) {
        return false;
    }
    pattern_find_prefixes(path, &prefixes);
    return excludes_one(filter, &asked, &prefixes, spared);
}
