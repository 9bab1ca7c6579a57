#include <unistd.h>

int canary(void);

int canary(void)
{
    return close(0);
}
