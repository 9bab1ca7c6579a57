#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/disk/confine.h"
#include "tools/transfer/disk/place.h"

/* Nobody else can have put anything into it. */
static const char *flaw_of(const struct stat *status)
{
    if (!S_ISREG(status->st_mode) || status->st_nlink != 1) {
        return "was no file, or had other names";
    }
    if (status->st_uid != geteuid()) {
        return "belonged to somebody else";
    }
    return (status->st_mode & 022) != 0 ? "could be written to by others" : NULL;
}

/* One try: a descriptor, -EAGAIN after something in the way was removed, or -errno. */
static int open_kept(struct place *place, bool *ret_existed, const char **ret_flaw)
{
    struct stat status;
    int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK;
    int fd = confine_open(place->directory, place->temporary, flags | O_CREAT | O_EXCL, 0600,
                          CONFINE_NO_SYMLINKS);
    *ret_existed = fd == -EEXIST;
    if (*ret_existed) {
        fd = confine_open(place->directory, place->temporary, flags, 0, CONFINE_NO_SYMLINKS);
    }
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno == EWOULDBLOCK ? EBUSY : errno;
        if (!*ret_existed && error != EBUSY) { /* no sweep could lock it either, to take it away */
            unlinkat(place->directory, place->temporary, 0);
        }
        close(fd);
        return -error;
    }
    /* before it was locked, a sweep may have taken it, or its writer given it its own name */
    if (fd >= 0 &&
        (!place_name_is_of(place->directory, place->temporary, fd) || fstat(fd, &status) != 0)) {
        close(fd);
        return -EAGAIN;
    }
    const char *flaw = fd >= 0 ? flaw_of(&status) : "could not be opened";
    if (flaw == NULL || !*ret_existed) {
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    *ret_flaw = flaw;
    return unlinkat(place->directory, place->temporary, 0) == 0 || errno == ENOENT ? -EAGAIN
                                                                                   : -errno;
}

int place_begin_kept(struct place *place, int directory, const char *name, enum replacing replacing,
                     bool *ret_existed, const char **ret_flaw)
{
    int error = place_check_target(directory, name, replacing);
    *place = (struct place){.directory = directory, .fd = -1, .replacing = replacing};
    *ret_flaw = NULL;
    if (error != 0 || strlen(name) >= sizeof(place->name)) {
        return error != 0 ? error : ENAMETOOLONG;
    }
    strcpy(place->name, name);
    place_kept_name(name, place->temporary);
    int fd = -EAGAIN;
    for (unsigned i = 0; i < 4 && fd == -EAGAIN; i++) {
        fd = open_kept(place, ret_existed, ret_flaw);
    }
    if (fd < 0) {
        return -fd;
    }
    place->fd = fd;
    place->named = place->kept = true;
    return 0;
}

void place_journal_name(const struct place *place, char ret_name[PLACE_JOURNAL_LENGTH + 1])
{
    snprintf(ret_name, PLACE_JOURNAL_LENGTH + 1, "%s" PLACE_JOURNAL_SUFFIX, place->temporary);
}

void place_leave(struct place *place)
{
    place->named = place->kept = false;
    place_abandon(place);
}

int place_cut(struct place *place, uint64_t length)
{
    place->length = length;
    return ftruncate(place->fd, (off_t)length) == 0 ? 0 : errno;
}
