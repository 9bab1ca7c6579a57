#include "rnic/io/system/complaints.h"

static bool is_alike(const struct trouble *a, const struct trouble *b)
{
    return a->kind == b->kind && a->answers == b->answers && gid_equal(&a->remote, &b->remote) &&
           qpn_equal(a->destination, b->destination) && qpn_equal(a->source, b->source);
}

bool complaints_has(const struct complaints *complaints, const struct trouble *trouble)
{
    const struct complaints_ring *ring = &complaints->certain;
    for (uint32_t i = 0; i < ring->count; i++) {
        const struct complaint *waiting = &ring->waiting[(ring->first + i) % COMPLAINTS_WAITING];
        if (is_alike(&waiting->trouble, trouble)) {
            return true;
        }
    }
    return false;
}

void complaints_add(struct complaints *complaints, const struct complaint *complaint)
{
    struct complaints_ring *ring =
        complaint->trouble.certain ? &complaints->certain : &complaints->hearsay;
    if (ring->count == COMPLAINTS_WAITING) {
        complaints->lost++;
        return;
    }
    ring->waiting[(ring->first + ring->count++) % COMPLAINTS_WAITING] = *complaint;
}

bool complaints_wait(const struct complaints *complaints)
{
    return complaints->certain.count + complaints->hearsay.count > 0;
}

bool complaints_take(struct complaints *complaints, struct complaint *ret_complaint)
{
    struct complaints_ring *ring =
        complaints->certain.count > 0 ? &complaints->certain : &complaints->hearsay;
    if (ring->count == 0) {
        return false;
    }
    *ret_complaint = ring->waiting[ring->first];
    ring->first = (ring->first + 1) % COMPLAINTS_WAITING;
    ring->count--;
    return true;
}
