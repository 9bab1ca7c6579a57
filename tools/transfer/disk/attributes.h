/* What a file has besides its contents: owner, mode, time, extended attributes, ACLs.
 *
 * Here: its kind, reading the others off a file, and giving them to one. Not here: names of owners
 * (owners.h). ACLs are extended attributes of the system's, "system.posix_acl_access" and
 * "..._default", and travel as such; the kernel checks them when they are set. The one who gives
 * them decides: what was not asked for, or takes a privilege that is not to be used (`super`), is
 * left out, as rsync does without root. */
#ifndef TOOLS_TRANSFER_ATTRIBUTES_H
#define TOOLS_TRANSFER_ATTRIBUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "tools/transfer/wire/protocol.h"

#define XATTRS_COUNT_MAX  1024
#define XATTRS_LENGTH_MAX (1u << 20) /* names and values of one file together */

struct xattr {
    char name[NAME_LENGTH_MAX + 1];
    uint8_t *value;
    size_t length;
};

struct xattrs {
    struct xattr *list;
    unsigned count;
    size_t length;
    bool open; /* the last one's value goes on */
};

struct attributes {
    unsigned preserve;           /* bits of enum preserve */
    const struct wishes *wishes; /* how times are compared */
    bool super;                  /* owners, set-ID bits and any extended attribute may be set */
    bool fsync;
    bool dry; /* changes are only to be told */
    mode_t mode;
    struct timespec mtime;
    uint32_t uid, gid;           /* where they are preserved; ID_UNKNOWN is a failure then */
    const struct xattrs *xattrs; /* NULL: none */
};

/* Of a file's mode. */
enum entry_kind entry_kind_of(mode_t mode);

void xattrs_clear(struct xattrs *xattrs);
/* Takes a piece of a value, which comes in order. 0, E2BIG, EINVAL or ENOMEM. */
int xattrs_add(struct xattrs *xattrs, struct span name, struct span value, bool more);
/* What rsync notes of a file that it may not give its attributes to, which it sends to nobody. */
bool attributes_are_rsyncs(const char *name);
/* Reads those that `preserve` names off the descriptor, also one of O_PATH. 0 or an errno. */
int xattrs_read(int fd, unsigned preserve, bool super, struct xattrs *ret_xattrs);

/* Which attribute could not be given. */
enum attributes_failure {
    FAILURE_OWNER = 1 << 16,
    FAILURE_XATTR = 2 << 16,
    FAILURE_ACL = 3 << 16,
    FAILURE_UNKNOWN = 4 << 16, /* the owner has a name only, and nobody here has it */
    FAILURE_ERRNO = 0xffff,
};

/* Gives them to a file, a directory, or what a descriptor of O_PATH holds: a symbolic link or a
 * device, too. 0 or an errno, with an enum attributes_failure above it where that says more. */
int attributes_apply(int fd, const struct attributes *attributes);
/* All of them can be told from a file's status. */
bool attributes_show_in_status(const struct attributes *attributes);
/* What attributes_apply would change: bits of enum change. `status` is that of what `fd` holds,
 * which is not looked at if attributes_show_in_status. */
uint32_t attributes_changes(int fd, const struct stat *status, const struct attributes *attributes);
/* Those of them that something just made has not: its ACL and extended attributes. Bits of enum
 * change. */
uint32_t attributes_of_new(const struct attributes *attributes);
/* The mode alone, of what is no symbolic link. */
int attributes_set_mode(int fd, mode_t mode);

#endif
