/* Whom to serve what. */
#include <limits.h>

#include "tools/serve_private.h"

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
    return load_keys(serve);
}
