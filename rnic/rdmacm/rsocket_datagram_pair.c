/* The queue pairs of a datagram rsocket, and their completions. All pairs share the places to send
 * from; each has receive buffers of its own. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rnic/rdmacm/rsocket_datagram_private.h"

#define POLL_BATCH   16
#define WORK_RECEIVE (UINT64_C(1) << 32)

bool datagram_can_send(struct datagram *datagram)
{
    return atomic_load(&datagram->places) > 0;
}

bool datagram_has_message(struct datagram *datagram)
{
    return atomic_load(&datagram->waiting) > 0;
}

bool datagram_all_sent(struct datagram *datagram)
{
    return atomic_load(&datagram->places) == datagram->base.sizes.send_queue;
}

static int post_receive(struct datagram_pair *pair, uint32_t slot)
{
    struct ibv_recv_wr *bad;
    struct ibv_sge sge = {
        .addr = (uintptr_t)pair->receive_buffer + (size_t)slot * DATAGRAM_STRIDE,
        .length = DATAGRAM_STRIDE,
        .lkey = pair->receive_region->lkey,
    };
    struct ibv_recv_wr work = {.wr_id = WORK_RECEIVE | slot, .sg_list = &sge, .num_sge = 1};
    return cma_error(ibv_post_recv(pair->id->qp, &work, &bad));
}

int datagram_post(struct datagram_peer *peer, uint32_t place, uint32_t length)
{
    struct datagram_pair *pair = peer->pair;
    struct ibv_send_wr *bad;
    struct ibv_sge sge = {
        .addr = (uintptr_t)pair->owner->send_buffer + (size_t)place * LOW_WATER,
        .length = length,
        .lkey = pair->send_region->lkey,
    };
    struct ibv_send_wr work = {
        .wr_id = place,
        .opcode = IBV_WR_SEND,
        .sg_list = &sge,
        .num_sge = 1,
        .wr = {.ud = {.ah = peer->vector, .remote_qpn = peer->qpn, .remote_qkey = RDMA_UDP_QKEY}},
    };
    return cma_error(ibv_post_send(pair->id->qp, &work, &bad));
}

static int create_queues(struct datagram_pair *pair)
{
    const struct rsocket_sizes *sizes = &pair->owner->base.sizes;
    struct rdma_cm_id *id = pair->id;
    pair->channel = ibv_create_comp_channel(id->verbs);
    if (pair->channel == NULL || fcntl(pair->channel->fd, F_SETFL, O_NONBLOCK) != 0) {
        return -1;
    }
    pair->queue =
        ibv_create_cq(id->verbs, sizes->send_queue + sizes->receive_queue, pair, pair->channel, 0);
    if (pair->queue == NULL) {
        return -1;
    }
    struct ibv_qp_init_attr init = {
        .qp_context = pair,
        .send_cq = pair->queue,
        .recv_cq = pair->queue,
        .qp_type = IBV_QPT_UD,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = sizes->send_queue,
                .max_recv_wr = sizes->receive_queue,
                .max_send_sge = 1,
                .max_recv_sge = 1},
    };
    return rdma_create_qp(id, NULL, &init);
}

static int create_memory(struct datagram_pair *pair)
{
    const struct rsocket_sizes *sizes = &pair->owner->base.sizes;
    size_t length = (size_t)sizes->receive_queue * DATAGRAM_STRIDE;
    struct ibv_port_attr port;
    int error = ibv_query_port(pair->id->verbs, pair->id->port_num, &port);
    if (error != 0) {
        return cma_error(error);
    }
    pair->payload_max = (128u << port.active_mtu) - pair->header_length;
    pair->receive_buffer = calloc(1, length);
    pair->messages = calloc(sizes->receive_queue, sizeof *pair->messages);
    if (pair->receive_buffer == NULL || pair->messages == NULL) {
        return cma_error(ENOMEM);
    }
    pair->receive_region =
        ibv_reg_mr(pair->id->pd, pair->receive_buffer, length, IBV_ACCESS_LOCAL_WRITE);
    pair->send_region = ibv_reg_mr(pair->id->pd, pair->owner->send_buffer,
                                   (size_t)sizes->send_queue * LOW_WATER, IBV_ACCESS_LOCAL_WRITE);
    if (pair->receive_region == NULL || pair->send_region == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < sizes->receive_queue; i++) {
        if (post_receive(pair, i) != 0) {
            return -1;
        }
    }
    return 0;
}

static int set_up(struct datagram_pair *pair, const struct sockaddr *local)
{
    struct epoll_event event = {.events = EPOLLIN};
    memcpy(&pair->local, local, rsocket_address_length(local));
    pair->header_length = (uint32_t)rsocket_datagram_build(local, pair->header);
    if (rdma_create_id(NULL, &pair->id, NULL, RDMA_PS_UDP) != 0 ||
        rdma_bind_addr(pair->id, (struct sockaddr *)&pair->local) != 0 ||
        create_queues(pair) != 0 || create_memory(pair) != 0) {
        return -1;
    }
    /* Who waits already is to hear of what comes here, too. */
    ibv_req_notify_cq(pair->queue, 0);
    pair->is_armed = true;
    return epoll_ctl(pair->owner->epoll, EPOLL_CTL_ADD, pair->channel->fd, &event);
}

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family) {
        return false;
    }
    return a->sa_family == AF_INET
               ? ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
                     ((const struct sockaddr_in *)b)->sin_addr.s_addr
               : IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)a)->sin6_addr,
                                    &((const struct sockaddr_in6 *)b)->sin6_addr);
}

struct datagram_pair *datagram_pair(struct datagram *datagram, const struct sockaddr *local)
{
    LIST_FOR_EACH(node, &datagram->pairs)
    {
        struct datagram_pair *pair = CONTAINER_OF(node, struct datagram_pair, node);
        if (same_host((struct sockaddr *)&pair->local, local)) {
            return pair;
        }
    }
    struct datagram_pair *pair = calloc(1, sizeof *pair);
    if (pair == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    pair->owner = datagram;
    if (set_up(pair, local) != 0) {
        int error = errno;
        datagram_free_pair(pair);
        errno = error;
        return NULL;
    }
    pthread_mutex_lock(&datagram->queue_lock);
    list_append(&datagram->pairs, &pair->node);
    pthread_mutex_unlock(&datagram->queue_lock);
    return pair;
}

void datagram_free_pair(struct datagram_pair *pair)
{
    list_remove(&pair->node);
    if (pair->id != NULL && pair->id->qp != NULL) {
        rdma_destroy_qp(pair->id);
    }
    if (pair->queue != NULL) {
        ibv_destroy_cq(pair->queue);
    }
    if (pair->channel != NULL) {
        ibv_destroy_comp_channel(pair->channel);
    }
    if (pair->receive_region != NULL) {
        ibv_dereg_mr(pair->receive_region);
    }
    if (pair->send_region != NULL) {
        ibv_dereg_mr(pair->send_region);
    }
    if (pair->id != NULL) {
        rdma_destroy_id(pair->id);
    }
    free(pair->receive_buffer);
    free(pair->messages);
    free(pair);
}

static bool keep_message(struct datagram_pair *pair, const struct ibv_wc *completion)
{
    struct datagram *datagram = pair->owner;
    uint32_t slot = (uint32_t)completion->wr_id;
    const uint8_t *bytes = pair->receive_buffer + (size_t)slot * DATAGRAM_STRIDE + GRH_LENGTH;
    struct sockaddr_storage source;
    if (completion->status != IBV_WC_SUCCESS || completion->byte_len < GRH_LENGTH) {
        return false;
    }
    uint32_t length = completion->byte_len - GRH_LENGTH;
    size_t header = rsocket_datagram_parse(bytes, length, &source);
    if (header == 0) {
        return false;
    }
    struct datagram_message *message = &pair->messages[slot];
    *message = (struct datagram_message){
        .pair = pair,
        .source = source,
        .bytes = bytes + header,
        .length = length - (uint32_t)header,
        .slot = slot,
    };
    list_append(&datagram->messages, &message->node);
    atomic_fetch_add(&datagram->waiting, 1);
    return true;
}

static void take_completion(struct datagram_pair *pair, const struct ibv_wc *completion)
{
    struct datagram *datagram = pair->owner;
    if ((completion->wr_id & WORK_RECEIVE) == 0) {
        datagram->free_places[atomic_fetch_add(&datagram->places, 1)] = (uint32_t)completion->wr_id;
    } else if (!keep_message(pair, completion) && completion->status == IBV_WC_SUCCESS) {
        (void)post_receive(pair, (uint32_t)completion->wr_id); /* a buffer less, at worst */
    }
}

/* With queue_lock held. Leaves nothing behind, for no event would tell of it. */
static void poll_queues(struct datagram *datagram)
{
    struct ibv_wc completions[POLL_BATCH];
    LIST_FOR_EACH(node, &datagram->pairs)
    {
        struct datagram_pair *pair = CONTAINER_OF(node, struct datagram_pair, node);
        int taken;
        do {
            taken = ibv_poll_cq(pair->queue, POLL_BATCH, completions);
            for (int i = 0; i < taken; i++) {
                take_completion(pair, &completions[i]);
            }
        } while (taken == POLL_BATCH);
    }
}

/* With queue_lock held. */
static void arm_queues(struct datagram *datagram)
{
    LIST_FOR_EACH(node, &datagram->pairs)
    {
        struct datagram_pair *pair = CONTAINER_OF(node, struct datagram_pair, node);
        if (!pair->is_armed) {
            ibv_req_notify_cq(pair->queue, 0);
            pair->is_armed = true;
        }
    }
    atomic_store(&datagram->is_armed, true);
}

/* With queue_lock held. Everybody looks again. */
static void take_events(struct datagram *datagram)
{
    struct ibv_cq *queue;
    void *context;
    uint64_t tokens;
    int cancel = cancel_hold();
    ssize_t length = raw_read(datagram->forwarded, &tokens, sizeof tokens);
    (void)length; /* the message is on the list */
    LIST_FOR_EACH(node, &datagram->pairs)
    {
        struct datagram_pair *pair = CONTAINER_OF(node, struct datagram_pair, node);
        if (ibv_get_cq_event(pair->channel, &queue, &context) == 0) {
            ibv_ack_cq_events(queue, 1);
            pair->is_armed = false;
        }
    }
    atomic_store(&datagram->is_armed, false);
    pthread_cond_broadcast(&datagram->event_taken);
    rsocket_wake_pollers();
    cancel_restore(cancel);
}

void datagram_take_event(struct rsocket *socket)
{
    struct datagram *datagram = datagram_of(socket);
    pthread_mutex_lock(&datagram->queue_lock);
    if (!datagram->has_sleeper) { /* who sleeps for it takes it */
        take_events(datagram);
    }
    pthread_mutex_unlock(&datagram->queue_lock);
}

/* The sleeper is awake, or cancelled: one of the others may be the next. */
static void stop_sleeping(struct datagram **datagram)
{
    pthread_mutex_lock(&(*datagram)->queue_lock);
    (*datagram)->has_sleeper = false;
    take_events(*datagram);
}

/* With queue_lock held at both ends, but not in between. */
static int be_sleeper(struct datagram *datagram)
{
    struct pollfd wait = {.fd = datagram->epoll, .events = POLLIN};
    __attribute__((cleanup(stop_sleeping))) struct datagram *slept_for = datagram;
    slept_for->has_sleeper = true;
    pthread_mutex_unlock(&datagram->queue_lock);
    engine_about_to_sleep(cma_device()->engine);
    return poll(&wait, 1, -1) < 0 ? errno : 0;
}

/* With queue_lock held, but not while it sleeps. */
static int sleep_for_event(struct datagram *datagram)
{
    if (datagram->has_sleeper) {
        pthread_cond_wait(&datagram->event_taken, &datagram->queue_lock);
        return 0;
    }
    return cma_error(be_sleeper(datagram));
}

static int process(struct datagram *datagram, bool blocks, datagram_test *test)
{
    int result = 0;
    RSOCKET_HOLDS(held, &datagram->queue_lock);
    while (result == 0) {
        poll_queues(datagram);
        if (test(datagram)) {
            break;
        }
        if (atomic_load(&datagram->base.is_closed)) {
            result = cma_error(EBADF);
        } else if (!blocks) {
            result = cma_error(EAGAIN);
        } else if (!atomic_load(&datagram->is_armed)) {
            arm_queues(datagram);
        } else {
            result = sleep_for_event(datagram);
        }
    }
    return result;
}

int datagram_wait(struct datagram *datagram, bool blocks, datagram_test *test)
{
    uint64_t start_us = 0;
    do {
        int result = process(datagram, false, test);
        if (result == 0 || !blocks || errno != EAGAIN) {
            return result;
        }
        start_us = start_us != 0 ? start_us : rsocket_now_us();
    } while (rsocket_now_us() - start_us <= rsocket_config()->polling_time_us);
    return process(datagram, true, test);
}

void datagram_wake(struct datagram *datagram)
{
    const uint64_t one = 1;
    ssize_t written = raw_write(datagram->forwarded, &one, sizeof one);
    (void)written; /* full means that it is readable */
    rsocket_wake_pollers();
}

void datagram_arm(struct rsocket *socket)
{
    struct datagram *datagram = datagram_of(socket);
    pthread_mutex_lock(&datagram->queue_lock);
    if (!atomic_load(&datagram->is_armed)) {
        arm_queues(datagram);
    }
    pthread_mutex_unlock(&datagram->queue_lock);
}

struct datagram_message *datagram_oldest(struct datagram *datagram)
{
    pthread_mutex_lock(&datagram->queue_lock);
    struct list_node *node =
        list_is_empty(&datagram->messages) ? NULL : datagram->messages.head.next;
    pthread_mutex_unlock(&datagram->queue_lock);
    return node == NULL ? NULL : CONTAINER_OF(node, struct datagram_message, node);
}

void datagram_done(struct datagram *datagram, struct datagram_message *message)
{
    pthread_mutex_lock(&datagram->queue_lock);
    list_remove(&message->node);
    atomic_fetch_sub(&datagram->waiting, 1);
    if (message->pair == NULL) {
        free(message);
    } else {
        (void)post_receive(message->pair, message->slot); /* a buffer less, at worst */
    }
    pthread_mutex_unlock(&datagram->queue_lock);
}

void datagram_forward(struct datagram *datagram, const struct sockaddr *source,
                      const uint8_t *bytes, uint32_t length)
{
    const uint64_t one = 1;
    struct datagram_message *message = malloc(sizeof *message + length);
    if (message == NULL) {
        return;
    }
    uint8_t *copy = (uint8_t *)(message + 1);
    *message = (struct datagram_message){.bytes = copy, .length = length};
    memcpy(&message->source, source, rsocket_address_length(source));
    memcpy(copy, bytes, length);
    pthread_mutex_lock(&datagram->queue_lock);
    bool fits = atomic_load(&datagram->waiting) < datagram->base.sizes.receive_queue;
    if (fits) {
        list_append(&datagram->messages, &message->node);
        atomic_fetch_add(&datagram->waiting, 1);
        ssize_t written = raw_write(datagram->forwarded, &one, sizeof one);
        (void)written; /* full means that it is readable */
    }
    pthread_mutex_unlock(&datagram->queue_lock);
    if (!fits) {
        free(message);
    }
}
