/* How a file gets its name: written without one, checked, then placed at once.
 *
 * A file under way has no name at all (O_TMPFILE), so a process that is killed leaves nothing.
 * Where the file system cannot do that, and for the moment of replacing an existing file, it is
 * called
 * ".weir-" and 16 hex digits, locked by the one who writes it; place_sweep removes those whose
 * writer is dead. An existing name is replaced only by force, only where it is a regular
 * file or a symbolic link, and then by rename(2).
 *
 * Functions return 0 or an errno; what failed leaves nothing behind. */
#ifndef TOOLS_TRANSFER_PLACE_H
#define TOOLS_TRANSFER_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define PLACE_TEMPORARY_LENGTH 22

struct place {
    int directory; /* borrowed until place_commit or place_abandon */
    int fd;        /* -1: nothing under way */
    bool force;
    bool named; /* the temporary name exists */
    uint64_t length;
    char name[256];
    char temporary[PLACE_TEMPORARY_LENGTH + 1];
};

struct place_attributes {
    mode_t mode; /* the permission bits; others are ignored */
    struct timespec mtime;
    bool fsync;
};

/* Fails early with EEXIST where `name` exists and force is not given; in any case with EISDIR
 * where it is a directory, EMEDIUMTYPE where it is neither a file nor a symbolic link, and EILSEQ
 * where it is one that place_sweep would remove. `place` need not be initialized. */
int place_begin(struct place *place, int directory, const char *name, bool force);
int place_write(struct place *place, const void *bytes, size_t length, uint64_t offset);
/* Sets the file's length, mode and mtime, then its name. The place is over, whatever comes out. */
int place_commit(struct place *place, uint64_t length, const struct place_attributes *attributes);
void place_abandon(struct place *place);

/* A symbolic link, the same way. */
int place_symlink(int directory, const char *name, const char *target,
                  const struct place_attributes *attributes, bool force);

/* Removes what dead writers left in the directory. Errors are nobody's concern. */
void place_sweep(int directory);
bool place_is_temporary(const char *name);

/* For tests: do as if the file system had no O_TMPFILE. */
extern bool place_without_tmpfile;

#endif
