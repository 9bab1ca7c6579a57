#include "rnic/transport/trouble.h"

#include "rnic/transport/qp_private.h"
#include "rnic/transport/qp_state.h"
#include "rnic/wire/psn.h"

#define IP_AND_UDP_IPV4  (20u + 8u)
#define IP_AND_UDP_IPV6  (40u + 8u)
#define GOODBYE_HEARD_NS UINT64_C(200000000) /* until an application has read its event */
#define RECENT           65536 /* PSNs: of responses and unreliable packets, which nobody answers */

static bool is_unanswered(const struct qp *qp, struct psn psn)
{
    const struct requester *requester = &qp->requester;
    int32_t ahead = psn_distance(requester->unacked, psn);
    return service_is_reliable(qp->service) && qp_state_sends(qp_state_now(qp)) && ahead >= 0 &&
           ahead < psn_distance(requester->unacked, requester->frontier);
}

static bool is_recent(struct psn psn, struct psn next)
{
    int32_t behind = psn_distance(psn, next);
    return behind > 0 && behind < RECENT;
}

/* The longest packet of this queue pair fits after all. */
static bool all_fit(const struct qp *qp, const struct trouble *trouble)
{
    uint32_t before = gid_is_ipv4(&trouble->remote) ? IP_AND_UDP_IPV4 : IP_AND_UDP_IPV6;
    uint32_t longest = RETH_LENGTH + qp_mtu(qp);
    if (qp->service == SERVICE_UD) {
        longest = DETH_LENGTH + qp->environment->datagram_max;
    }
    return trouble->mtu >= before + BTH_LENGTH + IMMDT_LENGTH + longest + ICRC_LENGTH;
}

static bool is_of(const struct qp *qp, const struct trouble *trouble)
{
    if (qp->service == SERVICE_UD || trouble->source.value != 0) {
        return qp->service == SERVICE_UD && qpn_equal(trouble->source, qp->number);
    }
    return qpn_equal(trouble->destination, qp->attributes.destination) &&
           gid_equal(&trouble->remote, &qp->attributes.path.remote);
}

/* A message that the interface has refused has failed already, with the PSN that is next. */
static bool hear_of_unanswered(struct qp *qp, const struct trouble *trouble)
{
    struct requester *requester = &qp->requester;
    bool refused = trouble->certain && psn_equal(trouble->psn, requester->frontier);
    if (!refused && !is_recent(trouble->psn, requester->frontier)) {
        return false;
    }
    bool news = requester->way_takes == 0 || trouble->mtu < requester->way_takes;
    if (trouble->kind == TROUBLE_TOO_LONG && qp_state_now(qp) != QP_SQE && news) {
        requester->way_takes = (uint16_t)trouble->mtu; /* or all would fit */
        qp_raise(qp, EVENT_PATH_ERROR);
    }
    return true;
}

bool trouble_ends(struct qp *qp)
{
    if (!qp->peer_died || !qp_state_sends(qp_state_now(qp)) ||
        send_queue_head(qp->sends) == send_queue_tail(qp->sends)) {
        return false;
    }
    if (instant_before(qp->environment->now, qp->death_counts_from)) {
        qp_set_deadline(qp, qp->death_counts_from);
        return false;
    }
    environment_count(qp->environment, COUNTER_PEERS_DIED);
    qp_fail_send(qp, COMPLETION_RETRY_EXCEEDED);
    return true;
}

void trouble_await_goodbye(struct qp *qp)
{
    qp->death_counts_from = INSTANT_NEVER;
}

void trouble_goodbye(struct qp *qp)
{
    qp->death_counts_from = instant_after(qp->environment->now, GOODBYE_HEARD_NS);
    (void)trouble_ends(qp);
}

void trouble_peer_died(struct qp *qp)
{
    enum qp_state state = qp_state_now(qp);
    qp->peer_died = service_is_reliable(qp->service) && state >= QP_RTR && state != QP_ERROR;
    (void)trouble_ends(qp);
}

bool trouble_hear(struct qp *qp, const struct trouble *trouble)
{
    if (qp_state_now(qp) < QP_RTR || qp_state_now(qp) == QP_ERROR || !is_of(qp, trouble) ||
        (trouble->kind == TROUBLE_TOO_LONG && all_fit(qp, trouble))) {
        return false;
    }
    if (!service_is_reliable(qp->service)) {
        return hear_of_unanswered(qp, trouble);
    }
    if (trouble->answers || !is_unanswered(qp, trouble->psn)) {
        return is_recent(trouble->psn,
                         trouble->answers ? qp->responder.expected : qp->requester.frontier);
    }
    if (trouble->kind == TROUBLE_TOO_LONG) {
        qp->requester.way_takes = (uint16_t)trouble->mtu;
        if (trouble->certain) {
            environment_count(qp->environment, COUNTER_RETRIES_EXCEEDED);
            qp_fail_send(qp, COMPLETION_RETRY_EXCEEDED);
        }
    }
    return true;
}
