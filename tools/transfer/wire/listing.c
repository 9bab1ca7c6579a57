#include "tools/transfer/wire/listing.h"

#include <stdlib.h>
#include <string.h>

/* A directory comes before what is below it, and that before all else. */
static int rank(char byte)
{
    return byte == 0 ? 0 : byte == '/' ? 1 : 1 + (unsigned char)byte;
}

static int compare(const char *one, const char *other)
{
    while (*one == *other && *one != 0) {
        one++;
        other++;
    }
    return rank(*one) - rank(*other);
}

static int compare_paths(const void *one, const void *other)
{
    return compare(*(char *const *)one, *(char *const *)other);
}

/* The path's components, and a slash behind them where it is `open`, into `bytes`, where there is
 * room for all of it. False: not sound. */
static bool clean(struct span path, bool open, char *bytes)
{
    const char *from = path.bytes, *end = from + path.length;
    char *to = bytes;
    bool slash = false;
    while (from < end) {
        const char *next = memchr(from, '/', (size_t)(end - from));
        size_t length = (size_t)((next != NULL ? next : end) - from);
        bool idle = length == 0 || (length == 1 && *from == '.');
        if (!idle && !name_is_valid(from, length)) {
            return false;
        }
        if (!idle) {
            to += to > bytes;
            memcpy(to, from, length);
            to += length;
            *to = '/';
        }
        slash = idle || next != NULL;
        from += length + 1;
    }
    if (open && slash) {
        *to++ = '/';
    }
    *to = 0;
    return true;
}

bool listing_is_path(struct span path)
{
    char bytes[PATH_LENGTH_MAX + 2];
    return path.length <= PATH_LENGTH_MAX && clean(path, false, bytes);
}

static bool add(struct listing *listing, struct span path, bool open)
{
    char bytes[PATH_LENGTH_MAX + 2];
    if (path.length > PATH_LENGTH_MAX || listing->length + path.length > LISTING_LENGTH_MAX ||
        !clean(path, open, bytes)) {
        return false;
    }
    if (listing->count == listing->capacity) {
        unsigned capacity = 2 * listing->capacity + 16;
        char **paths = realloc(listing->paths, capacity * sizeof(*paths));
        if (paths == NULL) {
            return false;
        }
        listing->paths = paths;
        listing->capacity = capacity;
    }
    listing->paths[listing->count] = strdup(bytes);
    if (listing->paths[listing->count] == NULL) {
        return false;
    }
    listing->count++;
    listing->length += path.length + 1;
    return true;
}

bool listing_add(struct listing *listing, struct span path)
{
    return add(listing, path, false);
}

bool listing_add_open(struct listing *listing, struct span path)
{
    return add(listing, path, true);
}

bool listing_add_next(struct listing *listing, struct span path)
{
    unsigned before = listing->count;
    return listing_add_open(listing, path) &&
           (before == 0 || compare(listing->paths[before - 1], listing->paths[before]) < 0);
}

size_t listing_cost(size_t length)
{
    return length + 1 + 2 * sizeof(char *) + 32; /* its place among the others, and the heap's */
}

void listing_sort(struct listing *listing)
{
    unsigned kept = 0;
    if (listing->count > 0) {
        qsort(listing->paths, listing->count, sizeof(*listing->paths), compare_paths);
    }
    for (unsigned i = 0; i < listing->count; i++) {
        if (kept > 0 && strcmp(listing->paths[kept - 1], listing->paths[i]) == 0) {
            free(listing->paths[i]);
        } else {
            listing->paths[kept++] = listing->paths[i];
        }
    }
    listing->count = kept;
}

void listing_clear(struct listing *listing)
{
    for (unsigned i = 0; i < listing->count; i++) {
        free(listing->paths[i]);
    }
    free(listing->paths);
    *listing = (struct listing){0};
}

struct listing_part listing_all(const struct listing *listing)
{
    return (struct listing_part){.end = listing->count};
}

/* It says something of the directory of the part itself. */
static bool is_of_itself(const char *path, const struct listing_part *part)
{
    return strlen(path) <= part->depth || path[part->depth] == '/';
}

/* The name in the part's directory that the path begins with is this one. */
static bool has_name(const char *path, const struct listing_part *part, const char *name,
                     size_t length)
{
    const char *other = path + part->depth;
    return strncmp(other, name, length) == 0 && (other[length] == '/' || other[length] == 0);
}

/* Those that have the name, from `first` on, which may be one of them. */
static struct listing_part below(const struct listing *listing, const struct listing_part *part,
                                 unsigned first, const char *name)
{
    size_t length = strlen(name);
    struct listing_part found = {first, first, part->depth + length + 1};
    while (found.end < part->end && has_name(listing->paths[found.end], part, name, length)) {
        found.end++;
    }
    return found;
}

bool listing_next(const struct listing *listing, struct listing_part *part, char ret_name[256],
                  struct listing_part *ret_below, bool *ret_itself)
{
    while (part->first < part->end && is_of_itself(listing->paths[part->first], part)) {
        part->first++;
    }
    if (part->first == part->end) {
        return false;
    }
    const char *name = listing->paths[part->first] + part->depth;
    size_t length = strcspn(name, "/"); /* 255 at most: it is sound */
    memcpy(ret_name, name, length);
    ret_name[length] = 0;
    *ret_below = below(listing, part, part->first, ret_name);
    *ret_itself = is_of_itself(listing->paths[part->first], ret_below);
    part->first = ret_below->end;
    return true;
}

/* From `first` on, and before `end`, the first that is not before the path, without the `depth`
 * bytes that they have in common. */
static unsigned lower_bound(const struct listing *listing, const struct listing_part *part,
                            const char *path)
{
    unsigned first = part->first, end = part->end;
    while (first < end) {
        unsigned middle = first + (end - first) / 2;
        const char *other = listing->paths[middle];
        if (strlen(other) < part->depth || compare(other + part->depth, path) < 0) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

struct listing_part listing_find(const struct listing *listing, const struct listing_part *part,
                                 const char *name)
{
    return below(listing, part, lower_bound(listing, part, name), name);
}

bool listing_opens(const struct listing *listing, const struct listing_part *part)
{
    for (unsigned i = part->first; i < part->end && is_of_itself(listing->paths[i], part); i++) {
        const char *path = listing->paths[i];
        if (path[0] != 0 && path[strlen(path) - 1] == '/') {
            return true;
        }
    }
    return false;
}

bool listing_goes_on(const struct listing *listing, const struct listing_part *part)
{
    return part->first < part->end && !is_of_itself(listing->paths[part->end - 1], part);
}

static bool has(const struct listing *listing, const char *path)
{
    const struct listing_part all = listing_all(listing);
    unsigned at = lower_bound(listing, &all, path);
    return at < listing->count && strcmp(listing->paths[at], path) == 0;
}

/* The same path with a slash behind it; or without one. */
static bool has_either(const struct listing *listing, char *path, size_t length)
{
    bool found = has(listing, path);
    memcpy(path + length, "/", 2);
    found = found || has(listing, path);
    path[length] = 0;
    return found;
}

bool listing_holds(const struct listing *listing, const char *path, bool recursive)
{
    char above[PATH_LENGTH_MAX + 2];
    size_t length = strlen(path);
    if (length > PATH_LENGTH_MAX || listing->count == 0) {
        return false;
    }
    memcpy(above, path, length + 1);
    if (has_either(listing, above, length)) {
        return true;
    }
    while (length > 0) {
        while (length > 0 && above[length - 1] != '/') {
            length--;
        }
        above[length] = 0; /* with its slash; of the source's own there is none */
        if (has(listing, length > 0 ? above : "/")) {
            return true;
        }
        length -= length > 0;
        above[length] = 0;
        if (!recursive || has(listing, above)) {
            return recursive;
        }
    }
    return false;
}

bool listing_leads(const struct listing *listing, const char *path)
{
    size_t length = strlen(path);
    const struct listing_part all = listing_all(listing);
    const struct listing_part inside = {.depth = length > 0 ? length + 1 : 0};
    for (unsigned i = lower_bound(listing, &all, path);
         i < all.end && (length == 0 || has_name(listing->paths[i], &all, path, length)); i++) {
        if (!is_of_itself(listing->paths[i], &inside)) {
            return true;
        }
    }
    return false;
}

bool listing_meets(const struct listing *listing, const char *path, bool recursive)
{
    return listing_leads(listing, path) || listing_holds(listing, path, recursive);
}
