/* The folders that are served: one, or several by name. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/serve_private.h"

#define READ_ONLY ",read-only"

int serve_open_folder(const struct serve *serve, const char *option, const char *folder,
                      char ret_path[PATH_MAX])
{
    int fd = -1;
    if (realpath(folder, ret_path) != NULL) {
        fd = open(ret_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0) {
        command_error(serve->command, "%s%s: %s", option, folder, strerror(errno));
    }
    return fd;
}

/* NAME=DIR and what follows; a DIR alone with an equals sign in it has a slash before that. */
static bool has_name(const char *text)
{
    const char *equals = strchr(text, '=');
    const char *slash = strchr(text, '/');
    return equals != NULL && (slash == NULL || equals < slash);
}

static bool take_name(const char *text, struct session_root *root)
{
    size_t length = strcspn(text, "=");
    if (length >= sizeof(root->name)) {
        return false;
    }
    memcpy(root->name, text, length);
    root->name[length] = 0;
    return secret_name_is_valid(root->name) && strcmp(root->name, ".") != 0 &&
           strcmp(root->name, "..") != 0;
}

static bool is_known(const struct serve *serve, const char *name)
{
    for (unsigned i = 0; i < serve->service.root_count; i++) {
        if (strcmp(serve->roots[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void show(struct serve *serve, const struct session_root *root, const char *path)
{
    size_t used = strlen(serve->shown);
    snprintf(serve->shown + used, sizeof(serve->shown) - used, "%s%s=%s%s", used > 0 ? ", " : "",
             root->name, path, root->read_only ? " (read-only)" : "");
}

static int open_named(struct serve *serve, const char *text)
{
    struct session_root *root = &serve->roots[serve->service.root_count];
    const char *folder = text + strcspn(text, "=") + 1;
    size_t length = strlen(folder), flag = strlen(READ_ONLY);
    char copy[PATH_MAX], path[PATH_MAX];
    if (!has_name(text) || !take_name(text, root) || is_known(serve, root->name)) {
        return command_usage_error(serve->command,
                                   "--root '%s': of several each wants a name of its own, of "
                                   "letters, digits, '.', '_', '-' and '@': NAME=DIR",
                                   text);
    }
    root->read_only = length > flag && strcmp(folder + length - flag, READ_ONLY) == 0;
    length -= root->read_only ? flag : 0;
    if (length >= sizeof(copy)) {
        return command_usage_error(serve->command, "--root '%s': the path is too long", text);
    }
    memcpy(copy, folder, length);
    copy[length] = 0;
    root->root = serve_open_folder(serve, "--root ", copy, path);
    if (root->root < 0) {
        return EXIT_SETUP;
    }
    serve->service.root_count++;
    show(serve, root, path);
    return -1;
}

int serve_open_roots(struct serve *serve)
{
    const struct serve_options *options = &serve->options;
    if (options->root_count == 0 || (options->root_count == 1 && !has_name(options->roots[0]))) {
        const char *folder = options->root_count > 0 ? options->roots[0] : ".";
        serve->service.root = serve_open_folder(serve, "--root ", folder, serve->shown);
        return serve->service.root >= 0 ? -1 : EXIT_SETUP;
    }
    serve->service.roots = serve->roots;
    for (unsigned i = 0; i < options->root_count; i++) {
        int code = open_named(serve, options->roots[i]);
        if (code >= 0) {
            return code;
        }
    }
    return -1;
}
