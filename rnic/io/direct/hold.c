#include "rnic/io/direct/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ATTEMPTS 100 /* while other threads map and unmap */

/* What is newer than some systems' headers. */
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFDIO_MOVE /* Linux 6.8 */
#define UFFD_FEATURE_MOVE                (1 << 16)
#define UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES ((__u64)1 << 1)
struct uffdio_move {
    __u64 dst, src, len, mode;
    __s64 move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif

/* Not the C library's, which may be bound late, or be a point where a thread is cancelled. */
static bool control(int hold, unsigned long request, void *argument)
{
    return syscall(SYS_ioctl, hold, request, argument) == 0;
}

/* Never with UFFD_USER_MODE_ONLY: a system call that touches held memory would fail. */
static int open_any(void)
{
    int hold = -1;
#ifdef SYS_userfaultfd
    hold = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
#endif
    if (hold < 0) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        if (device >= 0) {
            hold = (int)syscall(SYS_ioctl, device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
            close(device);
        }
    }
    return hold;
}

int hold_open(void)
{
    int hold = open_any();
    struct uffdio_api api = {
        .api = UFFD_API,
        .features =
            UFFD_FEATURE_MOVE | UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
    };
    if (hold >= 0 && !control(hold, UFFDIO_API, &api)) {
        close(hold);
        hold = -1;
    }
    return hold;
}

static struct uffdio_range range_of(uint8_t *bytes, uint64_t length)
{
    return (struct uffdio_range){.start = (uintptr_t)bytes, .len = length};
}

static bool watch(int hold, uint8_t *bytes, uint64_t length, uint64_t mode)
{
    struct uffdio_register watched = {.range = range_of(bytes, length), .mode = mode};
    return control(hold, UFFDIO_REGISTER, &watched);
}

enum status hold_absent(int hold, uint8_t *bytes, uint64_t length)
{
    return watch(hold, bytes, length, UFFDIO_REGISTER_MODE_MISSING) ? STATUS_OK
           : errno == ENOMEM                                        ? STATUS_NO_MEMORY
                                                                    : STATUS_DENIED;
}

static enum status status_of(int64_t error)
{
    return error == -EBUSY || error == -EAGAIN ? STATUS_BUSY
           : error == -ENOMEM                  ? STATUS_NO_MEMORY
                                               : STATUS_DENIED;
}

enum status hold_move(int hold, uint8_t *to, uint8_t *from, uint64_t length, uint64_t *ret_moved)
{
    uint64_t done = 0;
    enum status status = STATUS_OK;
    for (int attempts = 0; done < length && status == STATUS_OK;) {
        struct uffdio_move move = {
            .dst = (uintptr_t)to + done,
            .src = (uintptr_t)from + done,
            .len = length - done,
            .mode = UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES,
        };
        bool moved = control(hold, UFFDIO_MOVE, &move);
        if (moved || move.move > 0) {
            done += moved ? length - done : (uint64_t)move.move;
            attempts = 0;
        } else if (move.move != -EAGAIN || ++attempts == ATTEMPTS) {
            status = status_of(move.move);
        }
    }
    *ret_moved = done;
    return status;
}

bool hold_copy(int hold, uint8_t *to, uint8_t *from, uint64_t length)
{
    uint64_t done = 0;
    for (int attempts = 0; done < length && attempts < ATTEMPTS; attempts++) {
        struct uffdio_copy copy = {
            .dst = (uintptr_t)to + done,
            .src = (uintptr_t)from + done,
            .len = length - done,
        };
        bool copied = control(hold, UFFDIO_COPY, &copy);
        done += copied ? length - done : copy.copy > 0 ? (uint64_t)copy.copy : 0;
    }
    return done == length;
}

bool hold_writers(int hold, uint8_t *bytes, uint64_t length)
{
    struct uffdio_writeprotect protect = {
        .range = range_of(bytes, length),
        .mode = UFFDIO_WRITEPROTECT_MODE_WP,
    };
    if (!watch(hold, bytes, length, UFFDIO_REGISTER_MODE_WP)) {
        return false;
    }
    if (!control(hold, UFFDIO_WRITEPROTECT, &protect)) {
        hold_release(hold, bytes, length);
        return false;
    }
    return true;
}

void hold_release(int hold, uint8_t *bytes, uint64_t length)
{
    struct uffdio_range range = range_of(bytes, length);
    (void)control(hold, UFFDIO_UNREGISTER, &range);
    hold_wake(hold, bytes, length);
}

void hold_wake(int hold, uint8_t *bytes, uint64_t length)
{
    struct uffdio_range range = range_of(bytes, length);
    (void)control(hold, UFFDIO_WAKE, &range);
}
