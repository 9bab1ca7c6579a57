/* Whom to serve what. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/serve_private.h"

/* Of a path, with those of all links on the way. */
#define STEPS_MAX PATH_MAX

static bool is_folder(int fd, const struct stat *folder)
{
    struct stat status;
    return fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == folder->st_dev &&
           status.st_ino == folder->st_ino;
}

static bool is_served(const struct serve *serve, const struct stat *folder)
{
    bool served = is_folder(serve->service.root, folder);
    for (unsigned i = 0; i < serve->service.root_count && !served; i++) {
        served = is_folder(serve->roots[i].root, folder);
    }
    for (unsigned i = 0; i < serve->keys.count && !served; i++) {
        served = is_folder(serve->keys.list[i].user, folder);
    }
    return served;
}

/* A folder by its real path, or one above it, is served. Who serves all that there is, from / on,
 * keeps nothing from clients anyway. */
static bool is_in_served(const struct serve *serve, char folder[PATH_MAX])
{
    struct stat status;
    for (char *slash; folder[0] == '/' && folder[1] != 0; *slash = 0) {
        if (stat(folder, &status) == 0 && is_served(serve, &status)) {
            return true;
        }
        slash = strrchr(folder, '/');
    }
    return false;
}

/* One step on a path: from the real folder `at` to what has this name there; a link's target comes
 * before the rest instead. False: there is no such file. */
static bool go_on(char at[PATH_MAX], const char *name, size_t length, char rest[PATH_MAX])
{
    char next[2 * PATH_MAX], whole[2 * PATH_MAX];
    snprintf(next, sizeof(next), "%s/%.*s", at, (int)length, name);
    ssize_t link = readlink(next, whole, PATH_MAX);
    size_t used = link > 0 ? (size_t)link : 0;
    if (link < 0 && realpath(next, at) == NULL) {
        return false;
    }
    if (link > 0 && whole[0] == '/') {
        at[0] = 0;
    }
    snprintf(whole + used, sizeof(whole) - used, "%s", name + length);
    return snprintf(rest, PATH_MAX, "%s", whole) < PATH_MAX;
}

/* Where a client could copy it, and be who it likes; or put another one in its place, or in that of
 * a link on the way to it. */
static bool is_given_away(const struct serve *serve, const char *option, const char *path)
{
    char at[PATH_MAX] = "", rest[PATH_MAX], folder[PATH_MAX];
    bool is_known = path != NULL && (path[0] == '/' || realpath(".", at) != NULL) &&
                    snprintf(rest, sizeof(rest), "%s", path) < (int)sizeof(rest);
    for (unsigned steps = 0; is_known && steps < STEPS_MAX; steps++) {
        const char *name = rest + strspn(rest, "/");
        size_t length = strcspn(name, "/");
        bool is_made = length > 2 || strncmp(name, "..", length) != 0; /* by somebody */
        strcpy(folder, at);
        if (is_made && is_in_served(serve, folder)) {
            command_error(serve->command,
                          "%s %s: it is in a folder that is served (%s), for clients to read or "
                          "write: put it elsewhere",
                          option, path, folder);
            return true;
        }
        is_known = length > 0 && go_on(at, name, length, rest);
    }
    return false;
}

static bool load_keys(struct serve *serve)
{
    char why[KEYS_WHY_LENGTH], path[PATH_MAX];
    if (serve->options.keys == NULL) {
        return true;
    }
    if (!keys_load(serve->options.keys, &serve->keys, why)) {
        command_error(serve->command, "--keys %s", why);
        return false;
    }
    for (unsigned i = 0; i < serve->keys.count; i++) {
        struct key *key = &serve->keys.list[i];
        if (key->root != NULL &&
            (key->user = serve_open_folder(serve, "root=", key->root, path)) < 0) {
            return false;
        }
    }
    return true;
}

bool serve_load_trust(struct serve *serve)
{
    char why[CERTIFICATES_WHY_LENGTH];
    const struct certificate_files *files = &serve->options.certificates;
    if (files->certificate != NULL && !certificates_load(files, true, &serve->certificates, why)) {
        command_error(serve->command, "%s", why);
        return false;
    }
    const char *doubt =
        files->certificate != NULL ? certificates_doubt(&serve->certificates) : NULL;
    if (doubt != NULL) {
        command_error(serve->command, "note: %s: %s", files->certificate, doubt);
    }
    return load_keys(serve) && !is_given_away(serve, "--keys", serve->options.keys) &&
           !is_given_away(serve, "--certificate-key", files->key) &&
           !is_given_away(serve, "--client-ca", files->authorities);
}
