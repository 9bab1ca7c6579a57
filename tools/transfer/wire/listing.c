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

bool listing_leads_down(struct span path)
{
    const char *at = path.bytes, *end = at + path.length;
    for (bool more = path.length > 0; more;) {
        const char *slash = memchr(at, '/', (size_t)(end - at));
        size_t length = (size_t)((slash != NULL ? slash : end) - at);
        if (!name_is_valid(at, length)) {
            return false;
        }
        more = slash != NULL;
        at += more ? length + 1 : length;
    }
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

static bool is_itself(const struct listing *listing, const struct listing_part *part)
{
    return part->first < part->end && is_of_itself(listing->paths[part->first], part);
}

bool listing_names_source(const struct listing *listing)
{
    const struct listing_part all = listing_all(listing);
    return is_itself(listing, &all);
}

/* As `compare` for the name in the part's directory that the path begins with. */
static int compare_name(const char *path, const struct listing_part *part, const char *name,
                        size_t length)
{
    if (is_of_itself(path, part)) {
        return -1;
    }
    const char *other = path + part->depth;
    for (size_t i = 0; i < length; i++) {
        if (other[i] != name[i]) {
            return rank(other[i]) - rank(name[i]);
        }
    }
    return other[length] != 0 && other[length] != '/';
}

/* The first in the part that is not before the name or, by `least` of 1, behind it. */
static unsigned bound(const struct listing *listing, const struct listing_part *part,
                      const char *name, size_t length, int least)
{
    unsigned first = part->first, end = part->end;
    while (first < end) {
        unsigned middle = first + (end - first) / 2;
        if (compare_name(listing->paths[middle], part, name, length) < least) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

static struct listing_part find(const struct listing *listing, const struct listing_part *part,
                                const char *name, size_t length)
{
    return (struct listing_part){.first = bound(listing, part, name, length, 0),
                                 .end = bound(listing, part, name, length, 1),
                                 .depth = part->depth + length + 1};
}

struct listing_part listing_find(const struct listing *listing, const struct listing_part *part,
                                 const char *name)
{
    return find(listing, part, name, strlen(name));
}

bool listing_next(const struct listing *listing, struct listing_part *part, char ret_name[256],
                  struct listing_part *ret_below, bool *ret_itself)
{
    while (is_itself(listing, part)) {
        part->first++;
    }
    if (part->first == part->end) {
        return false;
    }
    const char *name = listing->paths[part->first] + part->depth;
    size_t length = strcspn(name, "/"); /* 255 at most: it is sound */
    memcpy(ret_name, name, length);
    ret_name[length] = 0;
    *ret_below = find(listing, part, ret_name, length);
    *ret_itself = is_itself(listing, ret_below);
    part->first = ret_below->end;
    return true;
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

struct listing_trace listing_trace(const struct listing *listing, const char *path, bool recursive)
{
    struct listing_part part = listing_all(listing);
    struct listing_trace trace = {.listed = is_itself(listing, &part)};
    trace.is_held = trace.listed > 0;
    bool above = recursive && trace.is_held, in = false;
    while (*path != 0) {
        size_t length = strcspn(path, "/");
        bool opened = listing_opens(listing, &part);
        part = find(listing, &part, path, length);
        bool itself = is_itself(listing, &part);
        trace.listed += itself;
        trace.is_held = itself || opened || above;
        above |= recursive && itself;
        in |= trace.is_held;
        trace.on_the_way += !in;
        path += length + (path[length] == '/');
    }
    trace.leads = listing_goes_on(listing, &part);
    return trace;
}

bool listing_holds(const struct listing *listing, const char *path, bool recursive)
{
    return listing_trace(listing, path, recursive).is_held;
}

bool listing_leads(const struct listing *listing, const char *path)
{
    return listing_trace(listing, path, false).leads;
}

bool listing_meets(const struct listing *listing, const char *path, bool recursive)
{
    const struct listing_trace trace = listing_trace(listing, path, recursive);
    return trace.leads || trace.is_held;
}
