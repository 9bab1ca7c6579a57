#include "tools/transfer/choice/expand.h"

#include <fnmatch.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char wildcards[] = "*?[";

bool expand_is_pattern(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strpbrk(slash != NULL ? slash : path, wildcards) != NULL;
}

static bool is_there(const char *base, const char *name)
{
    char path[2 * PATH_MAX];
    struct stat status;
    int length = snprintf(path, sizeof(path), "%s%s", base, name);
    return length < (int)sizeof(path) && lstat(path, &status) == 0;
}

/* Or a link to one, for where no directories are wanted links are followed. */
static bool is_directory(const char *base, const char *name)
{
    char path[2 * PATH_MAX];
    struct stat status;
    int length = snprintf(path, sizeof(path), "%s%s", base, name);
    return length < (int)sizeof(path) && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* `base` as it stands, and `name` as a pattern. */
static bool make_pattern(const char *base, const char *name, char ret_pattern[3 * PATH_MAX])
{
    size_t at = 0;
    if (2 * strlen(base) + strlen(name) >= (size_t)3 * PATH_MAX) {
        return false;
    }
    for (; *base != 0; base++) {
        if (strchr("*?[\\", *base) != NULL) {
            ret_pattern[at++] = '\\';
        }
        ret_pattern[at++] = *base;
    }
    strcpy(ret_pattern + at, name);
    return true;
}

static bool add_matches(struct listing *names, const char *base, const char *pattern,
                        bool directories)
{
    char text[3 * PATH_MAX];
    glob_t found = {0};
    if (!make_pattern(base, pattern, text)) {
        return false;
    }
    int code = glob(text, GLOB_NOSORT, NULL, &found);
    bool whole = code == 0 || code == GLOB_NOMATCH;
    unsigned before = names->count;
    for (size_t i = 0; i < found.gl_pathc && whole; i++) {
        const char *name = found.gl_pathv[i] + strlen(base);
        if (directories || !is_directory(base, name)) {
            whole =
                names->count < LISTED_MAX && listing_add(names, (struct span){name, strlen(name)});
        }
    }
    if (whole && found.gl_pathc == 0 &&
        names->count == before) { /* it is told as what is not there */
        whole = listing_add(names, (struct span){pattern, strlen(pattern)});
    }
    globfree(&found);
    return whole;
}

bool expand(struct listing *listing, const char *base, bool directories)
{
    struct listing names = {0};
    bool whole = true;
    for (unsigned i = 0; i < listing->count && whole; i++) {
        const char *path = listing->paths[i];
        whole = !expand_is_pattern(path) || is_there(base, path)
                    ? listing_add(&names, (struct span){path, strlen(path)})
                    : add_matches(&names, base, path, directories);
    }
    listing_clear(listing);
    *listing = names;
    listing_sort(listing);
    return whole;
}

static bool may_give(const char *pattern, const char *path, bool recursive)
{
    char name[NAME_LENGTH_MAX + 1];
    const char *slash = strrchr(pattern, '/');
    size_t above = slash != NULL ? (size_t)(slash + 1 - pattern) : 0;
    if (strncmp(pattern, path, above) != 0) {
        return false;
    }
    size_t length = strcspn(path + above, "/");
    if (length > NAME_LENGTH_MAX || (path[above + length] != 0 && !recursive)) {
        return false;
    }
    memcpy(name, path + above, length);
    name[length] = 0;
    return fnmatch(pattern + above, name, FNM_PERIOD) == 0; /* as glob(3) has it */
}

bool expand_may_give(const struct listing *listing, const char *path, bool recursive)
{
    for (unsigned i = 0; i < listing->count; i++) {
        const char *pattern = listing->paths[i];
        if (expand_is_pattern(pattern) && may_give(pattern, path, recursive)) {
            return true;
        }
    }
    return false;
}
