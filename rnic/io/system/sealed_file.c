#include "rnic/io/system/sealed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rnic/io/system/beyond_streams.h"
#include "rnic/io/system/raw_file.h"
#include "rnic/io/system/shortage.h"

#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* More than a file may have is asked for at the price of a signal. */
static bool may_be_so_long(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

static int create(const char *name, uint64_t bytes)
{
    int file = may_be_so_long(bytes)
                   ? beyond_streams(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING))
                   : -1;
    if (file >= 0 && ftruncate(file, (off_t)bytes) != 0) {
        raw_close(file);
        file = -1;
    }
    return file;
}

static bool seal(int file, int more)
{
    return fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | more) == 0;
}

int sealed_file_create(const char *name, uint64_t bytes)
{
    int file = create(name, bytes);
    if (file >= 0 && !seal(file, 0)) {
        raw_close(file);
        file = -1;
    }
    return file;
}

int sealed_file_create_to_show(const char *name, uint64_t bytes, void **ret_bytes)
{
    int file = create(name, bytes);
    void *mapped =
        file < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED && (seal(file, F_SEAL_FUTURE_WRITE) || seal(file, 0))) {
        *ret_bytes = mapped;
        return file;
    }
    if (mapped != MAP_FAILED) {
        munmap(mapped, bytes);
    }
    if (file >= 0) {
        raw_close(file);
    }
    return -1;
}

static enum status status_of_errno(void)
{
    return errno == EACCES || errno == EPERM ? STATUS_DENIED
           : is_shortage(errno)              ? STATUS_NO_MEMORY
                                             : STATUS_NOT_FOUND;
}

static bool has_link(const char *name, const char *link)
{
    char target[PATH_MAX];
    ssize_t length = readlink(name, target, sizeof target);
    return length == (ssize_t)strlen(link) && memcmp(target, link, (size_t)length) == 0;
}

/* What the number names in another namespace of processes may be anything, and opening a terminal
 * or a device has effects. */
int sealed_file_open(pid_t thread, int descriptor, const char *link, struct stat *ret_stat,
                     enum status *ret_status)
{
    char name[64];
    (void)snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)thread, descriptor);
    errno = 0;
    int file = has_link(name, link)
                   ? beyond_streams(raw_open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY))
                   : -1;
    if (file < 0) {
        *ret_status = status_of_errno();
        return -1;
    }
    int seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file, ret_stat) != 0) {
        *ret_status = STATUS_NOT_FOUND;
        raw_close(file);
        return -1;
    }
    return file;
}
