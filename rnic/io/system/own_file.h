/* Which file a descriptor of ours had when it was opened: a program that closes what it has not
 * opened may have its number for a file of its own. */
#ifndef WEIR_IO_OWN_FILE_H
#define WEIR_IO_OWN_FILE_H

#include <stdbool.h>
#include <sys/stat.h>

struct own_file {
    dev_t device;
    ino_t inode;
};

static inline bool own_file_remember(int descriptor, struct own_file *ret_file)
{
    struct stat facts;
    if (fstat(descriptor, &facts) != 0) {
        return false;
    }
    *ret_file = (struct own_file){facts.st_dev, facts.st_ino};
    return true;
}

static inline bool own_file_is_at(int descriptor, const struct own_file *file)
{
    struct stat facts;
    return fstat(descriptor, &facts) == 0 && facts.st_ino == file->inode &&
           facts.st_dev == file->device;
}

#endif
