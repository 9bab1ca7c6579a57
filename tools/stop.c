#include "tools/stop.h"

#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>

static volatile sig_atomic_t asked;

static void on_signal(int number)
{
    asked = 1;
}

void stop_prepare(void)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) { /* every directory level under way is one */
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

bool stop_asked(void)
{
    return asked != 0;
}
