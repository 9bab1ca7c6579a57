#include <unistd.h>

int canary(void);

int canary(void)
{
    return getpid();
}
