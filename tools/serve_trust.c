/* Whom to serve what. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/serve_private.h"

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

/* Where a client could copy it, and be who it likes. Who serves all that there is, from / on, keeps
 * nothing from them anyway. */
static bool is_given_away(const struct serve *serve, const char *option, const char *path)
{
    char folder[PATH_MAX];
    struct stat status;
    if (path == NULL || realpath(path, folder) == NULL) {
        return false;
    }
    for (char *slash; (slash = strrchr(folder, '/')) > folder;) {
        *slash = 0;
        if (stat(folder, &status) == 0 && is_served(serve, &status)) {
            command_error(serve->command,
                          "%s %s: it is in a folder that is served (%s), for clients to read or "
                          "write: put it elsewhere",
                          option, path, folder);
            return true;
        }
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
