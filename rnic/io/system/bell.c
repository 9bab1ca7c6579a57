#include "rnic/io/system/bell.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rnic/io/system/raw_file.h"

#define HIGHEST 127 /* of the numbers of descriptors: what is beyond is the program's */

#ifndef SYS_pidfd_open /* Linux 5.3 */
#define SYS_pidfd_open 434
#endif
#ifndef PIDFD_THREAD /* 6.9 */
#define PIDFD_THREAD O_EXCL
#endif
#ifndef SYS_pidfd_getfd /* 5.6 */
#define SYS_pidfd_getfd 438
#endif

int bell_create(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void bell_hear(int bell)
{
    uint64_t rung;
    ssize_t length = raw_read(bell, &rung, sizeof rung);
    (void)length;
}

/* Of a thread's descriptor, by its folder in /proc. */
static bool is_bell(const char *thread, int descriptor)
{
    static const char kind[] = "anon_inode:[eventfd]";
    char name[40], target[sizeof kind];
    (void)snprintf(name, sizeof name, "/proc/%s/fd/%d", thread, descriptor);
    return readlink(name, target, sizeof target) == (ssize_t)(sizeof kind - 1) &&
           memcmp(target, kind, sizeof kind - 1) == 0;
}

static bool has_file(const char *thread, int number, int file)
{
    struct stat there, here;
    char name[40];
    (void)snprintf(name, sizeof name, "/proc/%s/fd/%d", thread, number);
    return stat(name, &there) == 0 && fstat(file, &here) == 0 && there.st_dev == here.st_dev &&
           there.st_ino == here.st_ino;
}

/* The kernel's handle of the thread; older kernels give one of the process by its first thread
 * alone, which leads nowhere once that has ended. */
static int open_owner(pid_t thread)
{
    static const char line[] = "\nTgid:";
    int owner = (int)syscall(SYS_pidfd_open, thread, PIDFD_THREAD);
    char name[32], text[256];
    if (owner >= 0 || errno != EINVAL) {
        return owner;
    }
    (void)snprintf(name, sizeof name, "/proc/%d/status", (int)thread);
    int file = raw_open(name, O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? raw_read(file, text, sizeof text - 1) : 0;
    if (file >= 0) {
        raw_close(file);
    }
    text[length > 0 ? length : 0] = '\0';
    const char *found = strstr(text, line);
    return found == NULL ? -1 : (int)syscall(SYS_pidfd_open, atoi(found + sizeof line - 1), 0);
}

/* Nothing is copied before it is known to be a bell: to close a copy of a file gives up this
 * process's own locks on it [fcntl(2)]. Its owner may close it meanwhile, and something else may
 * have its number. The owner's file is looked for last: exec closes it, and then the numbers mean
 * something else. */
int bell_borrow(pid_t thread, int bell, int number, int file)
{
    char folder[16];
    (void)snprintf(folder, sizeof folder, "%d", (int)thread);
    if (!is_bell(folder, bell) || !has_file(folder, number, file)) {
        return -1;
    }
    int owner = open_owner(thread);
    if (owner < 0) {
        return -1;
    }
    int copy = (int)syscall(SYS_pidfd_getfd, owner, bell, 0);
    if (copy >= 0 &&
        (copy > HIGHEST || !is_bell("self", copy) || !has_file(folder, number, file))) {
        raw_close(copy);
        copy = -1;
    }
    raw_close(owner);
    return copy;
}

bool bell_ring(int bell)
{
    uint64_t once = 1;
    return bell >= 0 && raw_write(bell, &once, sizeof once) == (ssize_t)sizeof once;
}
