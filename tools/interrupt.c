/* Preloaded into a test's client: who has deleted a name is interrupted in that instant, as if by
 * Ctrl-C. */
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC visibility push(default)
int unlinkat(int directory, const char *name, int flags)
{
    long result = syscall(SYS_unlinkat, directory, name, flags);
    raise(SIGINT);
    return (int)result;
}
