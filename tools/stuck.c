/* Preloaded into a test's server: who makes a directory, or reads a link, waits for ever, as on a
 * network file system whose server is gone, or for WEIR_STUCK_S seconds. */
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void wait_for_disk(void)
{
    const char *seconds = getenv("WEIR_STUCK_S");
    while (seconds == NULL) {
        pause();
    }
    sleep((unsigned)atoi(seconds));
}

#pragma GCC visibility push(default)
int mkdirat(int directory, const char *name, mode_t mode)
{
    wait_for_disk();
    return (int)syscall(SYS_mkdirat, directory, name, mode);
}

ssize_t readlinkat(int directory, const char *restrict name, char *restrict ret_text, size_t length)
{
    wait_for_disk();
    return syscall(SYS_readlinkat, directory, name, ret_text, length);
}
