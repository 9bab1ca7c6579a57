#include "rnic/io/direct/sleepers.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rnic/io/system/entries.h"

#define PATH_BYTES 32
#define CALL_BYTES 256

#ifndef SYS_futex_waitv /* Linux 5.16 */
#define SYS_futex_waitv 449
#endif
#ifndef SYS_futex_wait /* 6.7 */
#define SYS_futex_wait 455
#endif

struct range {
    uint64_t start, length;
};

/* The number at *text, decimal or hexadecimal after 0x; moves *text behind it. False: there is
 * none, as in "running". */
static bool take_number(const char **text, uint64_t *ret_number)
{
    const char *at = *text;
    uint64_t base = at[0] == '0' && at[1] == 'x' ? 16 : 10, number = 0;
    at += base == 16 ? 2 : 0;
    const char *first = at;
    for (;; at++) {
        uint64_t digit = *at >= '0' && *at <= '9'                 ? (uint64_t)(*at - '0')
                         : base == 16 && *at >= 'a' && *at <= 'f' ? (uint64_t)(*at - 'a' + 10)
                                                                  : base;
        if (digit == base) {
            break;
        }
        number = number * base + digit;
    }
    *ret_number = number;
    *text = *at == ' ' ? at + 1 : at;
    return at > first;
}

static bool is_in(const struct range *range, uint64_t address)
{
    return address - range->start < range->length;
}

/* Of the call in which a thread sleeps, with the words that it was called with. */
static bool is_sleeping_there(const struct range *range, uint64_t call, const uint64_t *words)
{
    switch (call) {
    case SYS_futex: /* and where it may have been requeued to */
        return (words[1] & FUTEX_PRIVATE_FLAG) == 0 &&
               (is_in(range, words[0]) || is_in(range, words[4]));
    case SYS_futex_wait:
        return (words[3] & FUTEX_PRIVATE_FLAG) == 0 && is_in(range, words[0]);
    case SYS_futex_waitv:
        return true;
    default:
        return false;
    }
}

static bool reads_as_sleeping(const struct range *range, const char *text)
{
    uint64_t call, words[6];
    bool complete = take_number(&text, &call);
    for (uint32_t i = 0; i < 6 && complete; i++) {
        complete = take_number(&text, &words[i]);
    }
    return complete && is_sleeping_there(range, call, words);
}

static bool sleeps(int folder, const char *thread, const void *range)
{
    static const char file[] = "/syscall";
    char path[PATH_BYTES + sizeof file], text[CALL_BYTES];
    uint32_t length = 0;
    for (; thread[length] != '\0' && length < PATH_BYTES; length++) {
        path[length] = thread[length];
    }
    for (uint32_t i = 0; i < sizeof file; i++) {
        path[length + i] = file[i];
    }
    int opened = (int)syscall(SYS_openat, folder, path, O_RDONLY | O_CLOEXEC);
    if (opened < 0) {
        return errno != ENOENT && errno != ESRCH; /* it has ended, or nobody can tell */
    }
    long bytes = syscall(SYS_read, opened, text, sizeof text - 1);
    syscall(SYS_close, opened);
    text[bytes > 0 ? bytes : 0] = '\0';
    return reads_as_sleeping(range, text);
}

bool sleepers_are_in(const uint8_t *bytes, uint64_t length)
{
    const struct range range = {(uintptr_t)bytes, length};
    return entries_have("/proc/self/task", sleeps, &range);
}
