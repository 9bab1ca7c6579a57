/* How a file gets its name: written without one, checked, then placed at once.
 *
 * A small file under way has no name at all (O_TMPFILE), so a process that is killed leaves
 * nothing. Where the file system cannot do that, for the moment of replacing an existing file, and
 * where what has come is to outlive its writer (place_begin_kept), it is called ".weir-" and 16 hex
 * digits, locked by the one who writes it; place_sweep removes those whose writer is dead, but for
 * those that have a journal beside them (journal.h) for PLACE_KEPT_S. An existing name is replaced
 * by rename(2), a directory after it was removed.
 *
 * Functions return 0 or an errno, with a failure of attributes.h above it; what failed leaves
 * nothing behind. */
#ifndef TOOLS_TRANSFER_PLACE_H
#define TOOLS_TRANSFER_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "tools/transfer/disk/attributes.h"
#include "tools/transfer/disk/large_pages.h"

#define PLACE_TEMPORARY_LENGTH 22
#define PLACE_JOURNAL_SUFFIX   ".journal"
#define PLACE_JOURNAL_LENGTH   (PLACE_TEMPORARY_LENGTH + 8)
#define PLACE_KEPT_S           (7 * 86400)

/* What may be replaced. */
enum replacing {
    REPLACE_NOTHING,
    REPLACE_FILES, /* all but directories that are not empty */
    REPLACE_TREES, /* these, too */
};

struct clearing;

struct place {
    int directory; /* borrowed until place_commit or place_abandon */
    int fd;        /* -1: nothing under way */
    enum replacing replacing;
    bool tells_at_once; /* see place_tells_at_once; set it after place_begin */
    bool inplace;       /* it is the file of that name, or one made under it, */
    bool is_half;       /* and no more what it was, nor yet what it is to be */
    time_t half_time_s; /* then left so old; see place_begin_inplace */
    bool named;         /* the temporary name exists */
    bool kept;          /* and there may be a journal beside it */
    bool sparse;        /* blocks of zeros are not written; set it after place_begin */
    uint64_t length;
    uint64_t size;   /* what it is to have in the end; 0: not known. Set it after place_begin */
    uint64_t filled; /* all before has been written, from the begin on and in order */
    struct large_pages *large; /* borrowed; NULL: none. Set it after place_begin, with the size */
    uint64_t made;             /* they were asked for up to here */
    const struct clearing *clearing; /* borrowed, may be NULL; with REPLACE_TREES. Set it after
                                        place_begin */
    char name[256];
    char temporary[PLACE_TEMPORARY_LENGTH + 1];
};

/* What place_begin says of the name: 0 or an errno. */
int place_check_target(int directory, const char *name, enum replacing replacing);
/* Fails early with EEXIST or EISDIR where `name` exists and is not to be replaced, and with EILSEQ
 * where it is one that place_sweep would remove. `place` need not be initialized. */
int place_begin(struct place *place, int directory, const char *name, enum replacing replacing);
/* The same where nothing had the name a moment ago; what has it now is found by place_commit. The
 * file is made with this mode where nobody sees it before that. */
int place_begin_absent(struct place *place, int directory, const char *name,
                       enum replacing replacing, mode_t mode);
/* place_kept.c: as place_begin, but under the temporary name that is always the same for `name`,
 * with what an earlier writer left there. `ret_flaw` is NULL, or says why something of that name
 * was removed. EBUSY: somebody is writing it. */
int place_begin_kept(struct place *place, int directory, const char *name, enum replacing replacing,
                     bool *ret_existed, const char **ret_flaw);
/* Of one that was begun so. */
void place_journal_name(const struct place *place, char ret_name[PLACE_JOURNAL_LENGTH + 1]);
/* Lets go of one that was begun so; what it holds stays for the next who begins it. */
void place_leave(struct place *place);
/* Nothing in the file but the first `length` bytes: 0 or an errno. */
int place_cut(struct place *place, uint64_t length);
/* What is there is to read as zeros. */
int place_clear(struct place *place, uint64_t offset, uint64_t length);
/* Its file system tells of a full disk or quota when one writes, and not only when one closes. */
bool place_tells_at_once(int directory);
/* The same into the file that has the name, or one that is made under it; as place_begin where
 * something else has it. If it is not committed it stays half new, marked as that (half_mark.h),
 * and gets a time that is older than `mtime_s`, which it was to have, and not after 1970: nothing
 * takes it for the same or for newer. A writer that is killed leaves only the mark. */
int place_begin_inplace(struct place *place, int directory, const char *name,
                        enum replacing replacing, time_t mtime_s);
/* Nothing but zeros, which need not be written. */
int place_hole(struct place *place, uint64_t offset, uint64_t length);
int place_write(struct place *place, const void *bytes, size_t length, uint64_t offset);
/* Sets the file's length and attributes, then its name. The place is over, whatever comes out.
 * ESTALE: somebody has taken the name away meanwhile of what is written in place, or kept. */
int place_commit(struct place *place, uint64_t length, const struct attributes *attributes);
void place_abandon(struct place *place);

/* What is neither a file nor a directory. */
struct node {
    mode_t type;        /* S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK */
    dev_t device;       /* of a device */
    const char *target; /* of a symbolic link */
};

/* One of these, the same way. */
int place_node(int directory, const char *name, const struct node *node,
               const struct attributes *attributes, enum replacing replacing,
               const struct clearing *clearing);
/* A further name of the file that `fd` holds. */
int place_hard_link(int directory, const char *name, int fd, bool fsync, enum replacing replacing,
                    const struct clearing *clearing);
/* Brings the attributes of what has the name, which must be the one of this status, in line.
 * ESTALE: it is another one now. */
int place_keep(int directory, const char *name, const struct stat *status,
               const struct attributes *attributes, uint32_t *ret_changes);

/* place_sweep.c */
/* The name is that of the file that `fd` holds. To be asked under its lock: only who has locked
 * what has the name takes it away. */
bool place_name_is_of(int directory, const char *name, int fd);
/* Removes what dead writers left in the directory. Errors are nobody's concern. */
void place_sweep(int directory);
/* What has such a name in a directory that is to go itself goes, too, unless somebody writes it;
 * also what could be gone on with. True: it has gone or, if `dry`, would. `lent`: as for
 * clear_unlink. */
bool place_sweep_gone(int directory, const char *name, bool dry, mode_t *lent);
/* One of a file under way, or of its journal. */
bool place_is_temporary(const char *name);
void place_random_name(char ret_name[PLACE_TEMPORARY_LENGTH + 1]);
/* Always the same for this name. */
void place_kept_name(const char *name, char ret_name[PLACE_TEMPORARY_LENGTH + 1]);

/* For tests: do as if the file system had no O_TMPFILE. */
extern bool place_without_tmpfile;

#endif
