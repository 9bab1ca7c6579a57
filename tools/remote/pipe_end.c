#include <poll.h>
#include <unistd.h>

#include "tools/remote/pipe.h"

bool pipe_has_ended(void)
{
    char bytes[256];
    struct pollfd look = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&look, 1, 0) > 0 && read(STDIN_FILENO, bytes, sizeof(bytes)) <= 0;
}

void pipe_wait(int fd, int timeout_ms)
{
    struct pollfd look[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    poll(look, 2, timeout_ms);
}
