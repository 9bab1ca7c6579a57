#include "tools/transfer/choice/filter_scope.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/disk/confine.h"

static int refuse(int error, const char *name, unsigned line, const char *text,
                  char ret_why[SCOPE_WHY_LENGTH])
{
    char place[24] = "";
    if (line > 0) {
        snprintf(place, sizeof(place), ", line %u", line);
    }
    snprintf(ret_why, SCOPE_WHY_LENGTH,
             "its rules cannot be had, and so it is left alone: %.100s%s: %s", name, place, text);
    return error;
}

static int check_plain(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return errno;
    }
    return S_ISREG(status.st_mode) ? 0 : S_ISLNK(status.st_mode) ? ELOOP : EINVAL;
}

/* A plain file for reading, or -errno; EINVAL: it is something else. Looked at before it is opened:
 * opening a device or a FIFO does something. */
static int open_plain(int directory, const char *name)
{
    int path = confine_open(directory, name, O_PATH | O_NOFOLLOW, 0, CONFINE_NO_SYMLINKS);
    if (path < 0) {
        return path;
    }
    int error = check_plain(path);
    int fd = error == 0 ? confine_reopen(path) : -error;
    close(path);
    if (fd == -ENOENT) { /* there is no /proc here */
        fd = confine_open(directory, name, O_RDONLY | O_NONBLOCK, 0, CONFINE_NO_SYMLINKS);
        error = fd >= 0 ? check_plain(fd) : 0;
        if (error != 0) {
            close(fd);
            return -error;
        }
    }
    return fd;
}

/* All of it, up to `room`, with a NUL behind; NULL with 0: there is no such file. */
static int read_whole(int directory, const struct filter_merge *merge, size_t room, char **ret_text,
                      size_t *ret_length, char ret_why[SCOPE_WHY_LENGTH])
{
    int error = 0;
    const char *name = merge->name;
    int fd = open_plain(directory, name);
    *ret_text = NULL;
    if (fd == -ENOENT) {
        return 0;
    }
    if (fd < 0) {
        return refuse(-fd, name, 0,
                      fd == -ELOOP    ? "a symbolic link is not followed"
                      : fd == -EINVAL ? "not a plain file"
                                      : strerror(-fd),
                      ret_why);
    }
    char *text = malloc(room + 2);
    size_t length = 0;
    ssize_t count = 1;
    while (text != NULL && count > 0 && length <= room) {
        count = read(fd, text + length, room + 1 - length);
        length += count > 0 ? (size_t)count : 0;
    }
    if (text == NULL) {
        error = refuse(ENOMEM, name, 0, "not enough memory", ret_why);
    } else if (count < 0) {
        error = errno;
        refuse(error, name, 0, strerror(error), ret_why);
    } else if (length > room) {
        error = refuse(E2BIG, name, 0, "more than 256 KiB, with those of the directories above",
                       ret_why);
    } else if ((merge->bits & RULE_ZEROS) == 0 && memchr(text, 0, length) != NULL) {
        error = refuse(EINVAL, name, 0, "it has a byte 0", ret_why);
    }
    close(fd);
    if (error != 0) {
        free(text);
        return error;
    }
    text[length] = 0;
    *ret_text = text;
    *ret_length = length;
    return 0;
}

/* NULL: it is taken; else what is wrong with it. */
static const char *take_line(struct filter_scope *scope, struct scope_list *list, unsigned bits,
                             const char *text, char why[FILTER_WHY_LENGTH])
{
    struct filter_line line = {.kind = LINE_RULE, .bits = filter_given_bits(bits), .text = text};
    if (text[0] == 0 || ((bits & RULE_WORDS) == 0 && filter_is_idle(text))) {
        return NULL;
    }
    if ((bits & RULE_CVS) == RULE_CVS && strcmp(text, "!") == 0) {
        line.kind = LINE_CLEAR;
    } else if ((bits & RULE_PATTERNS) == 0 &&
               !filter_parse_line(text, filter_given_bits(bits), &line, why)) {
        return why;
    }
    if (line.kind == LINE_CLEAR) {
        if (list->rules != NULL) {
            filter_clear(list->rules);
        }
        list->cleared = true;
        return NULL;
    }
    if ((line.bits & RULE_ABSOLUTE) != 0 && scope->place == NULL) {
        return "the system does not say where it is, which a rule with '/' asks for";
    }
    if (line.kind != LINE_RULE || (line.bits & RULE_MERGES) != 0) {
        return "a file of rules in a directory cannot name another, nor CVS's own";
    }
    if (list->rules == NULL) {
        list->rules = filter_create();
    }
    const struct span pattern = {line.text, strlen(line.text)};
    size_t before = list->rules != NULL ? filter_weight(list->rules) : 0;
    if (list->rules == NULL || scope->rules == FILTER_RULES_MAX ||
        !filter_add(list->rules, line.bits, pattern)) {
        return "the pattern is too long, or with the directories above there are too many rules";
    }
    scope->rules++;
    scope->weight += filter_weight(list->rules) - before;
    if (scope->weight > FILTER_WEIGHT_MAX) {
        return "with the directories above, the rules are too long";
    }
    return NULL;
}

static int read_list(struct filter_scope *scope, const struct filter_merge *merge, int directory,
                     char ret_why[SCOPE_WHY_LENGTH])
{
    char why[FILTER_WHY_LENGTH];
    const char *wrong = NULL;
    char *text;
    size_t length;
    unsigned number = 1;
    const char *ends = (merge->bits & RULE_WORDS) != 0   ? " \t\v\f\r\n"
                       : (merge->bits & RULE_ZEROS) != 0 ? ""
                                                         : "\r\n";
    int error =
        read_whole(directory, merge, SCOPE_LENGTH_MAX - scope->length, &text, &length, ret_why);
    if (error != 0 || text == NULL) {
        return error;
    }
    scope->length += length;
    for (char *line = text; line <= text + length && wrong == NULL;) {
        char *next = line + strcspn(line, ends);
        bool is_line = *next == '\n';
        *next = 0;
        wrong = take_line(scope, &scope->lists[merge->index], merge->bits, line, why);
        number += is_line && wrong == NULL;
        line = next + 1;
    }
    if (wrong != NULL) {
        error = refuse(EINVAL, merge->name, number, wrong, ret_why);
    }
    free(text);
    return error;
}

void filter_scope_free(struct filter_scope *scope)
{
    for (unsigned i = 0; scope != NULL && i < scope->count; i++) {
        filter_destroy(scope->lists[i].rules);
    }
    if (scope != NULL) {
        free(scope->own_place);
        free(scope->outside);
        free(scope);
    }
}

void filter_scope_free_up(struct filter_scope *scope, const struct filter_scope *end)
{
    while (scope != NULL && scope != end) {
        struct filter_scope *above = (struct filter_scope *)scope->above;
        filter_scope_free(scope);
        scope = above;
    }
}

/* `above_only`: those files that are looked for above the transfer, too. */
static int read_scope(const struct filter *filter, const struct filter_scope *above, int directory,
                      bool above_only, struct filter_scope **ret_scope,
                      char ret_why[SCOPE_WHY_LENGTH])
{
    struct filter_merge merge = {.index = 0};
    unsigned count = filter_merges(filter);
    struct filter_scope *scope = calloc(1, sizeof(*scope) + count * sizeof(scope->lists[0]));
    int error = 0;
    if (scope == NULL) {
        return refuse(ENOMEM, "directory", 0, "not enough memory", ret_why);
    }
    scope->above = above;
    scope->place = above != NULL ? above->place : NULL;
    scope->rules = above != NULL ? above->rules : 0;
    scope->weight = above != NULL ? above->weight : 0;
    scope->length = above != NULL ? above->length : 0;
    scope->count = count;
    for (unsigned i = 0; i < count && error == 0; i++) {
        filter_merge(filter, i, &merge);
        if (merge.above || !above_only) {
            error = read_list(scope, &merge, directory, ret_why);
        }
    }
    if (error != 0) {
        filter_scope_free(scope);
        return error;
    }
    *ret_scope = scope;
    return 0;
}

int filter_scope_read(const struct filter *filter, const struct filter_scope *above, int directory,
                      unsigned depth, struct filter_scope **ret_scope,
                      char ret_why[SCOPE_WHY_LENGTH])
{
    int error = read_scope(filter, above, directory, false, ret_scope, ret_why);
    if (error == 0) {
        (*ret_scope)->depth = depth;
    }
    return error;
}

/* --- above the transfer ------------------------------------------------------------------------
 */

static bool looks_above(const struct filter *filter)
{
    struct filter_merge merge;
    for (unsigned i = 0; i < filter_merges(filter); i++) {
        filter_merge(filter, i, &merge);
        if (merge.above) {
            return true;
        }
    }
    return false;
}

/* As the system names it. */
static bool path_of(int fd, char ret_path[PATH_MAX])
{
    char name[40];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, ret_path, PATH_MAX - 1);
    ret_path[length > 0 ? length : 0] = 0;
    return ret_path[0] == '/';
}

/* A way from a root to the directory at its end. */
struct way {
    int root; /* AT_FDCWD: the system's */
    bool named;
    char path[PATH_MAX]; /* as the system names it */
    size_t start;        /* the root's part of it */
};

/* The directory whose path ends at `end`: a descriptor, or -errno. */
static int open_on_way(struct way *way, char *end)
{
    const char *below = way->path + way->start + 1;
    char byte = *end;
    *end = 0;
    int fd;
    if (way->root == AT_FDCWD) {
        fd = open(way->path[0] != 0 ? way->path : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        fd = fd >= 0 ? fd : -errno;
    } else {
        fd = confine_open(way->root, end >= below ? below : ".", O_PATH | O_DIRECTORY, 0,
                          CONFINE_NO_SYMLINKS);
    }
    *end = byte;
    return fd;
}

static int read_one_outside(const struct filter *filter, struct way *way, char *end,
                            struct filter_scope **scope, char ret_why[SCOPE_WHY_LENGTH])
{
    const char *below = end + 1; /* from there to the directory */
    struct filter_scope *one = NULL;
    int fd = open_on_way(way, end);
    if (fd < 0) {
        return refuse(-fd, "a directory above it", 0, strerror(-fd), ret_why);
    }
    int error = read_scope(filter, *scope, fd, true, &one, ret_why);
    close(fd);
    if (error != 0) {
        return error;
    }
    const char *last = strrchr(below, '/');
    size_t length = !way->named ? strlen(below) : last != NULL ? (size_t)(last - below) : 0;
    one->outside = strndup(below, length);
    *scope = one;
    return one->outside != NULL ? 0 : refuse(ENOMEM, "directory", 0, "not enough memory", ret_why);
}

static int find_way(struct way *way, int directory, char ret_why[SCOPE_WHY_LENGTH])
{
    char top[PATH_MAX] = "";
    if ((way->root != AT_FDCWD && !path_of(way->root, top)) || !path_of(directory, way->path)) {
        return refuse(ENOENT, "a directory above it", 0, "the system does not say its path",
                      ret_why);
    }
    way->start = strcmp(top, "/") == 0 ? 0 : strlen(top);
    const char *at = way->path + way->start;
    if (strncmp(way->path, top, way->start) != 0 || (at[0] != '/' && at[0] != 0)) {
        return refuse(EXDEV, "a directory above it", 0, "it is not in the root", ret_why);
    }
    return 0;
}

static struct filter_scope *make_place(const struct filter *filter, const struct way *way)
{
    struct filter_scope *scope =
        calloc(1, sizeof(*scope) + filter_merges(filter) * sizeof(scope->lists[0]));
    const char *below = way->path + way->start;
    below += *below == '/';
    const char *last = strrchr(below, '/');
    size_t length = !way->named ? strlen(below) : last != NULL ? (size_t)(last - below) : 0;
    if (scope != NULL) {
        scope->count = filter_merges(filter);
        scope->own_place = strndup(below, length);
        scope->place = scope->own_place;
    }
    if (scope != NULL && scope->own_place == NULL) {
        free(scope);
        return NULL;
    }
    return scope;
}

int filter_scope_place(const struct filter *filter, int root, int directory, bool named,
                       struct filter_scope **ret_scope, char ret_why[SCOPE_WHY_LENGTH])
{
    struct way way = {.root = root, .named = named};
    *ret_scope = NULL;
    if (!filter_is_of_place(filter)) {
        return 0;
    }
    int error = find_way(&way, directory, ret_why);
    if (error != 0) { /* no rule may ask, but for those in files, which are refused then */
        return filter_is_absolute(filter) ? error : 0;
    }
    *ret_scope = make_place(filter, &way);
    return *ret_scope != NULL ? 0 : refuse(ENOMEM, "directory", 0, "not enough memory", ret_why);
}

const struct filter_scope *filter_scope_outermost(const struct filter_scope *scope)
{
    while (scope != NULL && scope->above != NULL) {
        scope = scope->above;
    }
    return scope != NULL && scope->own_place != NULL ? scope : NULL;
}

int filter_scope_read_outside(const struct filter *filter, int root, int directory, bool named,
                              struct filter_scope **ret_scope, char ret_why[SCOPE_WHY_LENGTH])
{
    struct way way = {.root = root, .named = named};
    struct filter_scope *scope = NULL;
    *ret_scope = NULL;
    int error = filter_scope_place(filter, root, directory, named, &scope, ret_why);
    if (error == 0 && looks_above(filter)) {
        error = find_way(&way, directory, ret_why);
    }
    char *at = way.path + way.start;
    if (at[0] == 0 || at[1] == 0) { /* the root itself, or nobody asks */
        at = NULL;
    }
    for (; at != NULL && error == 0; at = strchr(at + 1, '/')) {
        error = read_one_outside(filter, &way, at, &scope, ret_why);
    }
    if (error != 0) {
        filter_scope_free_up(scope, NULL);
        return error;
    }
    *ret_scope = scope;
    return 0;
}
