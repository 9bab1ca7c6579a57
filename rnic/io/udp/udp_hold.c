/* Who waits since enough of what he gave waits in this host; how much that is, backlog.h says. */
#include <linux/sockios.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "rnic/base/container.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/system/raw_file.h"
#include "rnic/io/udp/address.h"
#include "rnic/io/udp/udp_private.h"

/* Wi-Fi gathers what it sends for some milliseconds, and shares its queue by itself: Linux keeps
 * one for each flow there. */
static bool is_wireless(const struct gid *local)
{
    struct address_table table;
    const struct address *address =
        address_read(&table) == STATUS_OK ? address_find(&table, local) : NULL;
    if (address == NULL) {
        return false;
    }
    char path[64];
    snprintf(path, sizeof path, "/sys/class/net/%s/phy80211", address->interface);
    int descriptor = raw_open(path, O_PATH | O_CLOEXEC);
    if (descriptor >= 0) {
        raw_close(descriptor);
    }
    return descriptor >= 0;
}

static bool leaves_by_radio(struct udp *udp, const struct gid *local)
{
    if (!udp->radio.known || !gid_equal(&udp->radio.local, local)) {
        udp->radio.known = true;
        udp->radio.local = *local;
        udp->radio.is_wireless = is_wireless(local);
    }
    return udp->radio.is_wireless;
}

uint64_t udp_hold_ns(struct packet_sink *sink, const struct path *path, struct qpn destination,
                     uint64_t *mark)
{
    struct udp *udp = CONTAINER_OF(sink, struct udp, sink);
    enum udp_family family = udp_family_of(&path->remote);
    uint16_t source_port = udp_source_port(udp, family, path, destination);
    struct backlog *backlog = udp_backlog(udp, family, source_port);
    int waiting = 0;
    uint64_t ns = 0;
    if (backlog_asks(backlog) &&
        ioctl(udp_sending_socket(udp, family, source_port), SIOCOUTQ, &waiting) == 0) {
        ns = backlog_hear(backlog, clock_now(), (uint32_t)waiting, *mark);
    }
    if (ns > 0 && leaves_by_radio(udp, &path->local)) {
        backlog_let_pass(backlog);
        ns = 0;
    }
    *mark = ns == 0 ? backlog_mark(backlog) : *mark;
    udp->counters.held += ns != 0;
    return ns;
}
