/* The link between processes of one host: its owner's sleep, see inbox_sleep.h. */
#include "rnic/io/same_host/inbox_sleep.h"
#include "rnic/io/same_host/same_host_private.h"

void same_host_fence_for_all(struct same_host *same_host)
{
    if (same_host->inbox != NULL) {
        inbox_sleep_fence_for_all(inbox_sleep(same_host->inbox));
    }
}

bool same_host_fences_for_all(const struct same_host *same_host)
{
    return same_host->inbox == NULL || inbox_sleep_fences_for_all(inbox_sleep(same_host->inbox));
}

bool same_host_fall_asleep(struct same_host *same_host)
{
    if (same_host->inbox == NULL) {
        return true;
    }
    if (!inbox_fall_asleep(same_host->inbox)) {
        return false;
    }
    if (same_host_has_new_room(same_host)) {
        inbox_sleep_end(inbox_sleep(same_host->inbox));
        return false;
    }
    return true;
}

int same_host_bell(const struct same_host *same_host)
{
    return same_host->inbox != NULL ? inbox_bell(same_host->inbox) : -1;
}

bool same_host_is_asleep(const struct same_host *same_host)
{
    return same_host->inbox == NULL || inbox_sleep_is_on(inbox_sleep(same_host->inbox));
}

void same_host_wake_up(struct same_host *same_host)
{
    if (same_host->inbox != NULL) {
        inbox_sleep_end(inbox_sleep(same_host->inbox));
    }
}

bool same_host_is_crowded(struct same_host *same_host)
{
    return same_host->inbox != NULL && inbox_is_crowded(same_host->inbox);
}
