/* Preloaded into a test's server: who makes a directory waits for ever, as on a network file system
 * whose server is gone. */
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC visibility push(default)
int mkdirat(int directory, const char *name, mode_t mode)
{
    for (;;) {
        pause();
    }
}
