/* What there is to send: the sources in order, and below a directory its entries, depth first.
 *
 * Here: names, kinds and errors. Not here: reading files. Symbolic links below a source are never
 * followed. A directory that cannot be read is one failed step, and the walk goes on. */
#ifndef TOOLS_TRANSFER_WALK_H
#define TOOLS_TRANSFER_WALK_H

#include <stdbool.h>
#include <sys/stat.h>

struct walk;

struct walk_options {
    int root;      /* sources are relative to it; borrowed */
    bool confined; /* nothing outside root is touched (a server) */
    bool recursive;
    bool devices, specials; /* also these; specials are FIFOs and sockets */
};

enum walk_kind {
    WALK_FILE,
    WALK_DIRECTORY, /* its entries follow, then WALK_LEAVE */
    WALK_LEAVE,
    WALK_SYMLINK,
    WALK_SPECIAL, /* a device, FIFO or socket */
    WALK_FAILED,
    WALK_END,
};

struct walk_step {
    enum walk_kind kind;
    unsigned source;  /* which of them, from 0 */
    const char *name; /* last component; empty for a source that has none: "/", "." or ".." */
    const char *path; /* as the user would write it */
    struct stat status;
    const char *target; /* WALK_SYMLINK */
    int error;          /* WALK_FAILED: errno, or a WALK_ERROR below */
};

enum {
    WALK_ERROR_SPECIAL = 10000, /* a device, socket or FIFO: left out */
    WALK_ERROR_SPECIAL_SOURCE,  /* a source itself is such a thing */
    WALK_ERROR_TEMPORARY,       /* its name is one of a file under way: left out */
    WALK_ERROR_NOT_RECURSIVE,   /* a directory, and recursive is not asked for */
    WALK_ERROR_PARENT,          /* the path of a confined source has ".." in it */
};

/* `sources` are borrowed until the walk is destroyed. NULL: no memory. */
struct walk *walk_create(const struct walk_options *options, const char *const *sources,
                         unsigned count);
void walk_destroy(struct walk *walk);
/* What `ret_step` points to is the walk's until the next call. */
void walk_next(struct walk *walk, struct walk_step *ret_step);
/* Opens the file of the last step for reading: a descriptor, or -errno. It may be another file than
 * the step saw; not another kind. */
int walk_open_file(struct walk *walk, const struct walk_step *step, struct stat *ret_status);
/* What the last step saw, which must not be WALK_LEAVE, for its attributes: a descriptor, which may
 * be one of O_PATH, or -errno. */
int walk_hold(struct walk *walk, const struct walk_step *step);
/* How many directories the walk is in. */
unsigned walk_depth(const struct walk *walk);
/* Right after WALK_DIRECTORY: as if the directory had not been seen, without WALK_LEAVE. */
void walk_leave_out(struct walk *walk);
/* Leaves out what remains of the directories deeper than `depth`; their WALK_LEAVEs still come. */
void walk_prune(struct walk *walk, unsigned depth);

const char *walk_error_text(int error);

/* The last component of a path, into 256 bytes: empty for "/", "." and "..", trailing slashes left
 * out. False when it is longer than a name can be. */
bool walk_base_name(const char *path, char ret_name[256]);

#endif
