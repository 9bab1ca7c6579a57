#include "tools/trust/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/trust/crypto.h"

/* What follows the secret. NULL, or what is wrong. */
static const char *take_rights(char *rest, struct key *key)
{
    rest += strspn(rest, " \t");
    while (*rest != 0) {
        if (strncmp(rest, "root=", 5) == 0) { /* to the end of the line, blanks and all */
            key->root = strdup(rest + 5);
            return key->root == NULL || key->root[0] == 0 ? "root= wants a folder" : NULL;
        }
        size_t length = strcspn(rest, " \t");
        if (length != strlen("read-only") || strncmp(rest, "read-only", length) != 0) {
            return "what follows the digits is neither 'read-only' nor 'root=DIR'";
        }
        key->read_only = true;
        rest += length;
        rest += strspn(rest, " \t");
    }
    return NULL;
}

static const char *take_key(char *line, struct key *key)
{
    *key = (struct key){.user = -1};
    size_t name_length = strcspn(line, " \t");
    char *digits = line + name_length + strspn(line + name_length, " \t");
    size_t digit_count = strcspn(digits, " \t");
    char *rest = digits + digit_count;
    if (*rest != 0) {
        *rest++ = 0;
    }
    line[name_length] = 0;
    if (!secret_name_is_valid(line)) {
        return "the name is not of letters, digits and . _ - @, 64 at most";
    }
    if (!secret_parse(digits, &key->secret)) {
        return "behind the name there are not 64 hexadecimal digits";
    }
    strcpy(key->name, line);
    return take_rights(rest, key);
}

/* NULL, or what is wrong with the line. */
static const char *add_line(struct keys *keys, char *line)
{
    struct key key;
    const char *wrong = take_key(line, &key);
    if (wrong == NULL && keys_find(keys, key.name) != NULL) {
        wrong = "a second key of this name";
    } else if (wrong == NULL && keys->count == KEYS_MAX) {
        wrong = "too many keys";
    }
    if (wrong == NULL && (keys->count & (keys->count - 1)) == 0) {
        unsigned capacity = keys->count > 0 ? 2 * keys->count : 1;
        struct key *list = realloc(keys->list, capacity * sizeof(*list));
        keys->list = list != NULL ? list : keys->list;
        wrong = list != NULL ? NULL : "not enough memory";
    }
    if (wrong == NULL) {
        keys->list[keys->count++] = key;
    } else {
        free(key.root);
    }
    crypto_wipe(&key, sizeof(key));
    return wrong;
}

static bool check_owner(int fd, const char *path, char ret_why[KEYS_WHY_LENGTH])
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        snprintf(ret_why, KEYS_WHY_LENGTH, "%.300s: not a file", path);
        return false;
    }
    if ((status.st_mode & 077) != 0 || (status.st_uid != geteuid() && status.st_uid != 0)) {
        snprintf(ret_why, KEYS_WHY_LENGTH,
                 "%.300s: others may read or write it; keys are for nobody else: chmod 600, and "
                 "your own",
                 path);
        return false;
    }
    return true;
}

bool keys_load(const char *path, struct keys *ret_keys, char ret_why[KEYS_WHY_LENGTH])
{
    char line[KEYS_LINE_LENGTH];
    struct keys keys = {0};
    unsigned number = 0;
    const char *wrong = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *stream = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (stream == NULL) {
        snprintf(ret_why, KEYS_WHY_LENGTH, "%.300s: %s", path, strerror(errno));
        return false;
    }
    bool good = check_owner(fd, path, ret_why);
    while (good && wrong == NULL && fgets(line, sizeof(line), stream) != NULL) {
        number++;
        bool whole = strchr(line, '\n') != NULL || feof(stream);
        line[strcspn(line, "\r\n")] = 0;
        if (!whole) { /* its rest could pass for a key */
            wrong = "it is too long";
        } else if (line[0] != 0 && line[0] != '#') {
            wrong = add_line(&keys, line);
        }
    }
    if (wrong == NULL && ferror(stream)) {
        wrong = "behind it the file cannot be read";
    }
    fclose(stream);
    crypto_wipe(line, sizeof(line));
    if (good && wrong == NULL && keys.count == 0) {
        wrong = "there is no key in it";
    }
    if (wrong != NULL) {
        snprintf(ret_why, KEYS_WHY_LENGTH, "%.300s: line %u: %s", path, number, wrong);
    }
    if (!good || wrong != NULL) {
        keys_free(&keys);
        return false;
    }
    *ret_keys = keys;
    return true;
}

void keys_free(struct keys *keys)
{
    for (unsigned i = 0; i < keys->count; i++) {
        free(keys->list[i].root);
    }
    if (keys->list != NULL) {
        crypto_wipe(keys->list, keys->count * sizeof(*keys->list));
    }
    free(keys->list);
    *keys = (struct keys){0};
}

const struct key *keys_find(const struct keys *keys, const char *name)
{
    for (unsigned i = 0; i < keys->count; i++) {
        if (strcmp(keys->list[i].name, name) == 0) {
            return &keys->list[i];
        }
    }
    return NULL;
}

bool keys_create(const char *path, const char *name, char ret_why[KEYS_WHY_LENGTH])
{
    struct secret secret;
    char text[SECRET_TEXT_LENGTH];
    if (!secret_make(&secret)) {
        snprintf(ret_why, KEYS_WHY_LENGTH, "the system has no random bytes");
        return false;
    }
    bool is_output = strcmp(path, "-") == 0;
    int fd = is_output ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                       : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        snprintf(ret_why, KEYS_WHY_LENGTH, "%.300s: %s", path, strerror(errno));
        return false;
    }
    secret_print(&secret, text);
    bool good = dprintf(fd, "%s %s\n", name, text) > 0;
    int error = good ? 0 : errno;
    if (close(fd) != 0 && good) {
        good = false;
        error = errno;
    }
    crypto_wipe(&secret, sizeof(secret));
    crypto_wipe(text, sizeof(text));
    if (!good) {
        snprintf(ret_why, KEYS_WHY_LENGTH, "%.300s: %s", is_output ? "standard output" : path,
                 strerror(error));
    }
    if (!good && !is_output) {
        unlink(path);
    }
    return good;
}
