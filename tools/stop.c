#include "tools/stop.h"

#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>

static volatile sig_atomic_t asked;

static void on_signal(int number)
{
    asked = 1;
}

/* A terminal that goes away may say so several times, by its shell and by the kernel; so a second
 * one does not end the process. Who was started by nohup does not hear of it at all. */
static void hear_hangup(void)
{
    const struct sigaction action = {.sa_handler = on_signal};
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        sigaction(SIGHUP, &action, NULL);
    }
}

void stop_prepare(void)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    hear_hangup();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
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
