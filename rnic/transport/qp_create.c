/* How a queue pair begins and ends. Declared in qp_private.h. */
#include "rnic/memory/window.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/reference.h"
#include "rnic/transport/succession.h"

static enum status create_queues(struct qp *qp, const struct qp_init *init)
{
    struct allocator *allocator = qp->environment->allocator;
    enum status status = STATUS_OK;
    qp->sends = init->sends;
    qp->receives = init->receives;
    if (qp->sends == NULL) {
        struct send_queue_limits limits = init->send;
        limits.takes_datagrams = init->service == SERVICE_UD;
        status = send_queue_create(allocator, &limits, &qp->sends);
    }
    if (init->service == SERVICE_XRC) {
        qp->receives_are_shared = true;
    } else if (init->shared_receives != NULL) {
        qp->receives = init->shared_receives;
        qp->receives_are_shared = true;
    } else if (qp->receives == NULL && status == STATUS_OK) {
        status = receive_queue_create(allocator, init->max_receive, init->max_receive_sge,
                                      &qp->receives);
    }
    return status;
}

/* SGEs of a receive at most. */
static uint32_t max_receive_sge(const struct qp_init *init)
{
    const struct receive_queue *receives =
        init->shared_receives != NULL ? init->shared_receives : init->receives;
    if (init->service == SERVICE_XRC) {
        return xrc_domain_is_none(init->xrc_domain) ? 0 : XRC_SGE_MAX;
    }
    uint32_t max_sge = receives != NULL ? receive_queue_max_sge(receives) : init->max_receive_sge;
    if (init->matcher != NULL && max_sge < tag_matcher_max_sge(init->matcher)) {
        max_sge = tag_matcher_max_sge(init->matcher);
    }
    return max_sge;
}

static bool is_rare(const struct qp_init *init)
{
    return init->service == SERVICE_XRC || init->service == SERVICE_UD || init->matcher != NULL;
}

size_t qp_bytes(const struct qp_init *init)
{
    size_t own = is_rare(init) ? sizeof(struct qp) : offsetof(struct qp, rare);
    return own + max_receive_sge(init) * sizeof(struct sge);
}

static struct qp *allocate(struct allocator *allocator, const struct qp_init *init)
{
    bool is_lent = init->memory != NULL;
    struct qp *qp = is_lent ? init->memory : allocator->allocate(allocator, qp_bytes(init));
    if (qp != NULL) {
        qp->is_rare = is_rare(init);
        qp->is_lent = is_lent;
        qp->sends_behind =
            is_lent && (const uint8_t *)init->sends == (const uint8_t *)qp + QP_USUAL_BYTES;
    }
    return qp;
}

static void free_parts(struct qp *qp)
{
    struct allocator *allocator = qp->environment->allocator;
    relay_destroy(qp->environment, qp_relay(qp));
    reads_free(qp->responder.reads, qp->environment);
    allocator->release(allocator, qp->rate);
    if (!qp->receives_are_shared) {
        receive_queue_destroy(qp->receives);
    }
    send_queue_destroy(qp->sends);
    if (!qp->is_lent) {
        allocator->release(allocator, qp);
    }
}

static void count_users(struct qp *qp, int change)
{
    if (!qp->is_target) {
        memory_domain_use(qp->environment->memory, qp->domain, change);
        completion_queue_use(qp->send_completions, change);
    }
    if (qp->service != SERVICE_XRC) {
        completion_queue_use(qp->receive_completions, change);
    }
}

/* The queue pairs of a matcher send its READs and FINs, so their send queues are made for these. */
static bool suits_matcher(const struct qp_init *init)
{
    if (init->matcher == NULL) {
        return true;
    }
    struct send_queue_limits least = tag_send_limits(init->matcher);
    return init->service == SERVICE_RC && init->shared_receives != NULL &&
           init->send.capacity >= least.capacity && init->send.max_sge >= least.max_sge &&
           init->send.max_inline >= least.max_inline;
}

enum status qp_create(struct environment *environment, const struct qp_init *init,
                      struct qpn number, struct qp **ret_qp)
{
    if ((!service_is_reliable(init->service) && init->service != SERVICE_UC &&
         init->service != SERVICE_UD) ||
        (init->service != SERVICE_XRC && !xrc_domain_is_none(init->xrc_domain)) ||
        (xrc_domain_is_none(init->xrc_domain) &&
         !memory_domain_is_alive(environment->memory, init->domain)) ||
        !suits_matcher(init) || init->send.max_sge > OUTGOING_FRAGMENT_MAX ||
        init->max_receive_sge > QUEUE_SGE_MAX) {
        return STATUS_INVALID;
    }
    struct qp *qp = allocate(environment->allocator, init);
    if (qp == NULL) {
        return STATUS_NO_MEMORY;
    }
    qp->environment = environment;
    qp->number = number;
    qp->service = init->service;
    qp->domain = init->domain;
    bool foreign = init->shared_receives != NULL && init->shared_domain.value != 0;
    qp->receive_domain = foreign ? init->shared_domain : init->domain;
    qp->is_target = !xrc_domain_is_none(init->xrc_domain);
    if (qp->is_target) {
        qp->rare.xrc_domain = init->xrc_domain;
    }
    qp->is_deputy = init->is_deputy;
    qp->context = init->context;
    qp->matches_tags = init->matcher != NULL;
    if (qp->matches_tags) {
        qp->rare.matcher = init->matcher;
    }
    qp->signal_all = init->signal_all;
    qp->send_completions = init->send_completions;
    qp->receive_completions = init->receive_completions;
    qp->responder.reads = &environment->no_reads;
    enum status status = create_queues(qp, init);
    if (status == STATUS_OK) {
        uint32_t entries = qp->is_deputy ? environment->max_reads_in : 0; /* else see qp_modify */
        status = reads_reserve(&qp->responder.reads, environment, entries);
    }
    bool relays = xrc_domain_is_shared(init->xrc_domain) && environment->relay_link != NULL;
    if (status == STATUS_OK && relays && !qp->is_deputy) {
        qp->rare.relay = relay_create(environment);
        status = qp->rare.relay != NULL ? STATUS_OK : STATUS_NO_MEMORY;
    }
    if (status != STATUS_OK) {
        qp->sends = init->sends != NULL ? NULL : qp->sends;
        qp->receives = init->receives != NULL ? NULL : qp->receives;
        free_parts(qp);
        return status;
    }
    count_users(qp, 1);
    *ret_qp = qp;
    return STATUS_OK;
}

/* Out of every list; nothing is outstanding any more, and nobody is told. */
static void detach(struct qp *qp)
{
    reference_withdraw(qp, false);
    reference_withdraw(qp, true);
    selective_end(qp);
    responder_abandon(qp);
    cursors_forget(&qp->environment->cursors, qp);
    timers_cancel(&qp->environment->timers, &qp->timer);
    list_remove(&qp->active);
}

void qp_destroy(struct qp *qp)
{
    direct_hold(qp);
    succession_forget(qp);
    tag_forget(qp);
    relay_end(qp, false);
    detach(qp);
    window_forget(qp->environment->memory, qp->number);
    count_users(qp, -1);
    free_parts(qp);
}
