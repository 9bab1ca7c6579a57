/* Files of keys, one a line: NAME, 64 hexadecimal digits, and for a server what their owner may:
 *
 *   backup 0f3c...  root=/srv/backup
 *   reader 77aa...  read-only root=/srv/pub
 *
 * Lines that are empty or begin with "#" are none. A file that others may read or write is refused.
 */
#ifndef TOOLS_TRUST_KEYS_H
#define TOOLS_TRUST_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/trust/secret.h"

#define KEYS_MAX         4096
#define KEYS_WHY_LENGTH  512
#define KEYS_LINE_LENGTH 8192

struct key {
    char name[SECRET_NAME_MAX + 1];
    struct secret secret;
    bool read_only;
    char *root; /* NULL: the server's */
    int user;   /* the caller's own; -1 when loaded */
};

struct keys {
    struct key *list;
    unsigned count;
};

/* False: ret_why names the file and the line. */
bool keys_load(const char *path, struct keys *ret_keys, char ret_why[KEYS_WHY_LENGTH]);
void keys_free(struct keys *keys);
/* NULL: none is called so. */
const struct key *keys_find(const struct keys *keys, const char *name);
/* Makes the file, with mode 0600 and one new key in it. It must not be there yet. "-" is standard
 * output. */
bool keys_create(const char *path, const char *name, char ret_why[KEYS_WHY_LENGTH]);

#endif
