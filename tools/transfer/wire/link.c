#include "tools/transfer/wire/link.h"

#include <string.h>

static void hear_nothing(void *user)
{
}

static void receive_nothing(void *user, const void *bytes, size_t length)
{
}

static void notice_nothing(void *user, uint32_t notice, size_t length)
{
}

static void end_no_put(void *user, size_t offset)
{
}

static void close_nothing(void *user, const struct weir_error *reason)
{
}

const struct link_events link_unheard = {
    .opened = hear_nothing,
    .received = receive_nothing,
    .noticed = notice_nothing,
    .put_done = end_no_put,
    .closed = close_nothing,
};

bool link_is_verdict(const char *reason)
{
    return strstr(reason, "broke the protocol") != NULL ||
           strstr(reason, "was changed on its way") != NULL;
}
