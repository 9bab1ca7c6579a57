/* Memory of processes of the host: who touches whose, and who waits for whom (direct.h). */
#include "rnic/base/container.h"
#include "rnic/io/same_host/same_host_private.h"
#include "rnic/io/system/life.h"

#define STUCK_NS          UINT64_C(5000000000) /* a peer that does not move on is waited for */
#define WHILE_NS          200000000u           /* who is only kept from running comes on by then */
#define MOMENT_NS         1000000u             /* for what can be had later, too; */
#define SOON_NS           10000000u            /* so much later, and then half as much more, */
#define LATEST_NS         3000000000u          /* until it is given up */
#define DIRECT_PART_BYTES (1u << 20)           /* others have their turns in between */

static uint32_t access_directly(struct direct_link *link, const struct direct_access *accesses,
                                uint32_t count)
{
    struct same_host *same_host = CONTAINER_OF(link, struct same_host, direct);
    struct peer *peer = same_host_find(same_host, accesses->path, accesses->target);
    if (peer == NULL) {
        return 0;
    }
    uint32_t together = 1;
    while (together < count &&
           slot_of_qpn(accesses[together].target) == slot_of_qpn(accesses->target) &&
           gid_equal(&accesses[together].path->remote, &accesses->path->remote)) {
        together++;
    }
    uint32_t done = outbox_access(peer->outbox, accesses, together, &link->stores);
    if (outbox_has_wished(peer->outbox)) {
        same_host_remember(same_host, slot_of_qpn(accesses->target), peer);
    }
    return done;
}

static bool is_over(struct same_host *same_host, uint64_t sender, uint32_t thread)
{
    struct registry_inbox inbox;
    uint32_t slot = (uint32_t)(sender % SLOT_COUNT);
    return !same_host_lives(same_host, sender) ||
           !registry_find_inbox(same_host->registry, slot, &inbox) ||
           life_is_stopped(inbox.thread, thread);
}

/* How long whoever is at it is waited for. */
struct wait {
    struct same_host *same_host;
    uint64_t most_ns;
};

static enum direct_patience wait_for(void *context, uint64_t sender, uint32_t thread,
                                     uint64_t waited_ns)
{
    const struct wait *wait = context;
    return is_over(wait->same_host, sender, thread) ? DIRECT_PASS
           : waited_ns < wait->most_ns              ? DIRECT_WAIT
                                                    : DIRECT_GIVE_UP;
}

static enum direct_patience do_not_wait(void *context, uint64_t sender, uint32_t thread,
                                        uint64_t waited_ns)
{
    return DIRECT_GIVE_UP;
}

static bool settle(struct direct_link *link, struct qpn peer, bool waits)
{
    struct same_host *same_host = CONTAINER_OF(link, struct same_host, direct);
    struct registry_inbox inbox = {0};
    if (same_host->direct.table == NULL) {
        return true; /* in a forked child */
    }
    if (peer.value != 0 && !registry_find_inbox(same_host->registry, slot_of_qpn(peer), &inbox)) {
        return true;
    }
    struct wait wait = {same_host, STUCK_NS};
    return inbox_settle(same_host->inbox, inbox.incarnation, waits ? wait_for : do_not_wait, &wait);
}

static bool lets_show(struct direct_link *link, struct memory_key key, const uint8_t *bytes,
                      uint64_t length)
{
    struct same_host *same_host = CONTAINER_OF(link, struct same_host, direct);
    return hot_regions_let_show(&same_host->hot, key, bytes, length);
}

static void withdraw(struct direct_link *link, struct memory_key key)
{
    hot_regions_end(&CONTAINER_OF(link, struct same_host, direct)->hot, key);
}

struct settler {
    struct hot_settler settler; /* first */
    struct wait wait;
};

static bool settle_all(struct hot_settler *settler)
{
    struct wait *wait = &((struct settler *)settler)->wait;
    return inbox_settle(wait->same_host->inbox, 0, wait_for, wait);
}

/* We put no packet meanwhile. */
static bool is_referred_to(struct hot_settler *settler, const uint8_t *bytes, uint64_t length)
{
    const struct same_host *same_host = ((struct settler *)settler)->wait.same_host;
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        const struct peer *peer = same_host->peers[i];
        if (peer != NULL && peer->outbox != NULL && outbox_refers_to(peer->outbox, bytes, length)) {
            return true;
        }
    }
    return false;
}

bool same_host_responds_with(struct packet_sink *sink, const uint8_t *bytes, uint64_t length,
                             struct instant until)
{
    struct same_host *same_host = CONTAINER_OF(sink, struct same_host, sink);
    for (uint32_t i = 0; same_host->has_responded && i < SLOT_COUNT; i++) {
        const struct peer *peer = same_host->peers[i];
        if (peer != NULL && peer->outbox != NULL &&
            outbox_responds_with(peer->outbox, bytes, length, until)) {
            return true;
        }
    }
    return false;
}

void same_host_revoke(struct packet_sink *sink, const uint8_t *bytes, uint64_t length,
                      struct instant until)
{
    struct same_host *same_host = CONTAINER_OF(sink, struct same_host, sink);
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        if (same_host->peers[i] != NULL && same_host->peers[i]->outbox != NULL) {
            outbox_revoke(same_host->peers[i]->outbox, bytes, length, until);
        }
    }
}

static struct settler make_settler(struct same_host *same_host, uint64_t most_ns)
{
    return (struct settler){{settle_all, is_referred_to}, {same_host, most_ns}};
}

/* Its lane is opened before the first packet. */
static void connect_to(struct direct_link *link, const struct path *path, struct qpn peer,
                       unsigned rights)
{
    struct same_host *same_host = CONTAINER_OF(link, struct same_host, direct);
    bool is_other = slot_of_qpn(peer) != registry_slot(same_host->registry);
    if (same_host_find(same_host, path, peer) != NULL && is_other && rights != 0) {
        struct settler settler = make_settler(same_host, MOMENT_NS);
        hot_regions_expect(&same_host->hot, &settler.settler);
    }
}

/* Where memory can be read it can be written. */
void same_host_let_access(struct same_host *same_host)
{
    struct direct_shown *shown = inbox_shown(same_host->inbox);
    shown->identity = same_host->identity;
    same_host->table = direct_table_of(shown);
    same_host->direct = (struct direct_link){.table = &same_host->table,
                                             .part_bytes = DIRECT_PART_BYTES,
                                             .qpns_each = SLOT_QPNS,
                                             .access = access_directly,
                                             .settle = settle,
                                             .lets_show = lets_show,
                                             .connect = connect_to,
                                             .withdraw = withdraw};
    same_host->grant_later_ns = SOON_NS;
    if (direct_makes_common()) {
        hot_regions_init(&same_host->hot, shown);
    } else {
        same_host->direct.common.lead = DIRECT_NEVER;
    }
}

struct instant same_host_next_grant(const struct same_host *same_host)
{
    bool any = same_host->hot.shown != NULL && inbox_wishes(same_host->inbox) != same_host->wishes;
    return any ? same_host->grant_after : INSTANT_NEVER;
}

void same_host_grant_wishes(struct same_host *same_host, struct instant now)
{
    struct settler settler = make_settler(same_host, MOMENT_NS);
    struct memory_key keys[HOT_REGIONS_WISHES];
    uint32_t lanes[HOT_REGIONS_WISHES], count = 0;
    uint32_t heard = inbox_wishes(same_host->inbox);
    for (uint32_t lane = 0;
         count < HOT_REGIONS_WISHES && inbox_next_wish(same_host->inbox, &lane, &keys[count]);
         lane++) {
        lanes[count++] = lane;
    }
    bool granted = hot_regions_grant(&same_host->hot, keys, count, &settler.settler);
    bool given_up = same_host->grant_later_ns >= LATEST_NS;
    for (uint32_t i = 0; i < count && (granted || given_up); i++) {
        inbox_clear_wish(same_host->inbox, lanes[i], keys[i]);
    }
    if (granted || given_up) {
        same_host->wishes = count < HOT_REGIONS_WISHES ? heard : same_host->wishes;
        same_host->grant_later_ns = SOON_NS;
    } else {
        same_host->grant_after = instant_after(now, same_host->grant_later_ns);
        same_host->grant_later_ns += same_host->grant_later_ns / 2;
    }
}

void same_host_keep_memory(struct same_host *same_host)
{
    struct settler settler = make_settler(same_host, WHILE_NS);
    hot_regions_end_all(&same_host->hot, &settler.settler);
}

void same_host_is_to_fork(struct same_host *same_host)
{
    hot_regions_is_to_fork(&same_host->hot);
}

void same_host_has_forked(struct same_host *same_host)
{
    atomic_store(&same_host->hot.forks, false);
}
