/* What there is to send: the sources in order, and below a directory its entries, depth first.
 *
 * Here: names, kinds and errors. Not here: reading files. Symbolic links below a source are never
 * followed. A directory that cannot be read is one failed step, and the walk goes on. */
#ifndef TOOLS_TRANSFER_WALK_H
#define TOOLS_TRANSFER_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct walk;
struct filter;
struct listing;
/* A directory that the walk is in, or that is held: it stays open. */
struct walk_folder;

struct walk_options {
    int root;         /* sources are relative to it; borrowed */
    bool confined;    /* nothing outside root is touched (a server) */
    size_t root_name; /* octets of each source that have named the root */
    bool recursive;
    bool one_file_system;        /* a directory of another one than its source has nothing in it */
    bool devices, specials;      /* also these; specials are FIFOs and sockets */
    unsigned depth_max;          /* of directories in each other; 0: any */
    const struct filter *filter; /* borrowed; what it excludes is not seen. NULL: none */
    int rules_root; /* no file of rules above that directory is read; AT_FDCWD: any may be */
    bool sees_all;  /* what it excludes is seen nevertheless: it is for walk_protects only */
    /* What the filter knows the sources by, NULL among them too; NULL: by their own names.
     * Borrowed.
     */
    const char *const *filter_names;
    const struct listing *listing; /* borrowed; of the one source only that. NULL: all */
    bool no_folders;               /* a directory of the list is wrong where not recursive */
    bool matched; /* what is listed at the top is what patterns match: sources themselves */
};

enum walk_kind {
    WALK_FILE,
    WALK_DIRECTORY, /* its entries follow, then WALK_LEAVE */
    WALK_LEAVE,
    WALK_SYMLINK,
    WALK_SPECIAL, /* a device, FIFO or socket */
    WALK_FAILED,
    WALK_EXCLUDED, /* by the rules: nothing that would be sent */
    WALK_END,
};

struct walk_step {
    enum walk_kind kind;
    unsigned source;      /* which of them, from 0 */
    const char *name;     /* last component; empty for a source that has none, see walk_base_name */
    const char *path;     /* as the user would write it */
    const char *relative; /* the part of it that begins with the source's name, or behind it where
                             that is empty */
    const char *below;    /* the part of it below the source; empty for the source */
    struct walk_folder *folder; /* the directory it is in; NULL: it is a source */
    struct walk_folder *inside; /* WALK_DIRECTORY, WALK_LEAVE: the directory itself */
    struct stat status;
    const char *target; /* WALK_SYMLINK; WALK_FAILED: why, or NULL where the error says it */
    int error;          /* WALK_FAILED: errno, or a WALK_ERROR below */
};

enum {
    WALK_ERROR_SPECIAL = 10000, /* a device, socket or FIFO: left out */
    WALK_ERROR_SPECIAL_SOURCE,  /* a source itself is such a thing */
    WALK_ERROR_TEMPORARY,       /* its name is one of a file under way: left out */
    WALK_ERROR_NOT_RECURSIVE,   /* a directory, and recursive is not asked for */
    WALK_ERROR_DEEP,            /* a directory in more others than depth_max */
    WALK_ERROR_PARENT,          /* the path of a confined source has ".." in it */
    WALK_ERROR_RULES,           /* a directory whose files of rules cannot be had */
};

/* `sources` are borrowed, and those that are NULL left out, until the walk is destroyed. NULL: no
 * memory. */
struct walk *walk_create(const struct walk_options *options, const char *const *sources,
                         unsigned count);
void walk_destroy(struct walk *walk);
/* What `ret_step` points to is the walk's until the next call; walk_keep makes it last. */
void walk_next(struct walk *walk, struct walk_step *ret_step);
/* What rules have taken so far, as filter_work. */
uint64_t walk_work(const struct walk *walk);
/* Copies of the step's texts, and its directories held, until walk_drop. False: no memory. */
bool walk_keep(const struct walk_step *step, struct walk_step *ret_kept);
void walk_drop(struct walk_step *kept);
/* Opens the step's file for reading: a descriptor, or -errno. It may be another file than the step
 * saw; not another kind. */
int walk_open_file(struct walk *walk, const struct walk_step *step, struct stat *ret_status);
/* The same in one call of the system, for one who looks at it after he has read it: what has the
 * name now is opened, whatever that is. -ESTALE: somebody else may have put it there, and it takes
 * walk_open_file. */
int walk_open_at_once(struct walk *walk, const struct walk_step *step);
/* What the step saw, which must not be WALK_LEAVE, for its attributes: a descriptor, which may be
 * one of O_PATH, or -errno. */
int walk_hold(struct walk *walk, const struct walk_step *step);
/* A descriptor of source number `source` as a directory, or -errno. */
int walk_open_source(const struct walk *walk, unsigned source);

int walk_folder_fd(const struct walk_folder *folder);
/* It is of another file system, of which nothing comes: see one_file_system. */
bool walk_folder_is_elsewhere(const struct walk_folder *folder);
/* For the one who works on the steps. */
struct walk_mark {
    bool gone;             /* the directory is to go */
    bool touched;          /* something in it went */
    bool keeps;            /* something in it stays */
    struct timespec mtime; /* before it did */
    mode_t lent;           /* see clear_unlink */
};
struct walk_mark *walk_folder_mark(struct walk_folder *folder);
/* Directories that are open, on account of the walk or because they are held. */
unsigned walk_folders(const struct walk *walk);
/* What remains of it need not come; its WALK_LEAVE still does, and that of each below it. */
void walk_prune(struct walk_folder *folder);
/* As if the directory had not been seen: nothing of it need come, WALK_LEAVE included. */
void walk_leave_out(struct walk_folder *folder);
/* A step that walk_prune or walk_leave_out meant: it came before that was said. */
bool walk_is_unwanted(const struct walk_step *step);

/* walk_text.c */
const char *walk_error_text(int error);
/* Of a step that is WALK_FAILED. */
const char *walk_failure_text(const struct walk_step *step);

/* See filter.h; not for a source. */
struct filter_loss;
bool walk_protects(struct walk *walk, const struct walk_step *step, const struct filter_loss *loss);

/* The last component of a path, into 256 bytes: empty for ".", ".." and what ends with a slash,
 * which means a directory's contents, as for rsync. False when it is longer than a name can be. */
bool walk_base_name(const char *path, char ret_name[256]);

#endif
