#include "rnic/io/system/entries.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES_BYTES 4096

/* What getdents64 writes. */
struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t length;
    uint8_t type;
    char name[];
};

static bool have(int folder, entries_test *test, const void *context)
{
    _Alignas(struct entry) char entries[ENTRIES_BYTES];
    long filled;
    while ((filled = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
        for (long at = 0; at < filled;) {
            const struct entry *entry = (const struct entry *)(entries + at);
            if (entry->name[0] != '.' && test(folder, entry->name, context)) {
                return true;
            }
            at += entry->length;
        }
    }
    return filled < 0;
}

bool entries_have(const char *path, entries_test *test, const void *context)
{
    int folder = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        return true;
    }
    bool found = have(folder, test, context);
    syscall(SYS_close, folder);
    return found;
}
