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

/* Appends the path's components to `bytes`, where there is room for all of it. False: not sound. */
static bool clean(struct span path, char *bytes)
{
    const char *from = path.bytes, *end = from + path.length;
    char *to = bytes;
    while (from < end) {
        const char *slash = memchr(from, '/', (size_t)(end - from));
        size_t length = (size_t)((slash != NULL ? slash : end) - from);
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
        from += length + 1;
    }
    *to = 0;
    return true;
}

bool listing_is_path(struct span path)
{
    char bytes[PATH_LENGTH_MAX + 2];
    return path.length <= PATH_LENGTH_MAX && clean(path, bytes);
}

bool listing_add(struct listing *listing, struct span path)
{
    char bytes[PATH_LENGTH_MAX + 2];
    if (path.length > PATH_LENGTH_MAX || listing->length + path.length > LISTING_LENGTH_MAX ||
        !clean(path, bytes)) {
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

bool listing_add_next(struct listing *listing, struct span path)
{
    unsigned before = listing->count;
    return listing_add(listing, path) &&
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

bool listing_next(const struct listing *listing, struct listing_part *part, char ret_name[256],
                  struct listing_part *ret_below, bool *ret_itself)
{
    while (part->first < part->end && strlen(listing->paths[part->first]) <= part->depth) {
        part->first++; /* the directory itself */
    }
    if (part->first == part->end) {
        return false;
    }
    const char *name = listing->paths[part->first] + part->depth;
    size_t length = strcspn(name, "/"); /* 255 at most: it is sound */
    *ret_itself = name[length] == 0;
    *ret_below = (struct listing_part){
        .first = part->first, .end = part->first, .depth = part->depth + length + 1};
    memcpy(ret_name, name, length);
    ret_name[length] = 0;
    while (ret_below->end < part->end) {
        const char *other = listing->paths[ret_below->end] + part->depth;
        if (strncmp(other, ret_name, length) != 0 || (other[length] != '/' && other[length] != 0)) {
            break;
        }
        ret_below->end++;
    }
    part->first = ret_below->end;
    return true;
}

/* "a" of "a/b", and "" of all. */
static bool leads_to(const char *path, const char *other)
{
    size_t length = strlen(path);
    return length == 0 ||
           (strncmp(path, other, length) == 0 && (other[length] == '/' || other[length] == 0));
}

bool listing_holds(const struct listing *listing, const char *path, bool recursive)
{
    char above[PATH_LENGTH_MAX + 1];
    size_t length = strlen(path);
    if (length >= sizeof(above) || listing->count == 0) {
        return false;
    }
    memcpy(above, path, length + 1);
    for (char *slash = above + length; slash != NULL;
         slash = recursive ? strrchr(above, '/') : NULL) {
        char *const key = above;
        *slash = 0;
        if (bsearch(&key, listing->paths, listing->count, sizeof(key), compare_paths) != NULL) {
            return true;
        }
    }
    return recursive && listing->paths[0][0] == 0;
}

bool listing_meets(const struct listing *listing, const char *path, bool recursive)
{
    unsigned first = 0, end = listing->count;
    while (first < end) { /* the first that is not before it */
        unsigned middle = first + (end - first) / 2;
        if (compare(listing->paths[middle], path) < 0) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    if (first < listing->count && leads_to(path, listing->paths[first])) {
        return true;
    }
    return recursive && listing_holds(listing, path, true);
}
