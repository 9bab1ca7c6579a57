/* The victim: a verbs program that serves honest clients while somebody else shoots at its port.
 *
 * It holds places: memory that one client may write to, between guards that nobody may touch, and
 * beside memory without remote rights. Every message of a client at a sheltered address (see
 * client.c) must come whole and in its order. It ends on SIGTERM: 0 if all of that held. With an
 * argument it is the second process behind the address, and that is added to its ports.
 *
 * Not here: what a stranger may do to a connection whose packets it reads. Those may break, and
 * their clients come back. */
#include "test/hostile/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "test/hostile/message.h"

#define PLACES      192u /* clients at a time, strangers that were let in included */
#define GUARD_BYTES 4096u
#define GUARD       0xa5
#define RECEIVES    16u
#define SENDS       32u /* two for each message; their acknowledgements may be lost for a while */
#define INBOX_BYTES (RECEIVES * MESSAGE_MAX)
#define SENT        0xffffu /* in place of a receive's index */

struct memory {
    uint8_t before[GUARD_BYTES];
    uint8_t open[PLACE_BYTES]; /* the client's */
    uint8_t between[GUARD_BYTES];
    uint8_t inbox[INBOX_BYTES + ECHO_LENGTH]; /* local rights only; the echo stands behind */
    uint8_t after[GUARD_BYTES];
};

struct place {
    struct memory *memory;
    struct ibv_pd *pd;
    struct ibv_mr *open, *inbox;
    struct ibv_mr *extended; /* `open` in the domain of XRC; NULL: its user needs none */
    struct ibv_mw *window;   /* NULL: its user needs none */
    uint32_t window_key;     /* the next one, */
    uint32_t bound_key;      /* and what it is bound under; 0: it is not */
    struct rdma_cm_id *id;   /* NULL: free */
    uint32_t generation;     /* of its user: completions of former ones are told apart by it */
    uint64_t born;           /* order of arrival */
    bool established, sheltered;
    char wants;        /* as its user said */
    uint64_t sequence; /* expected next */
};

static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener, *datagrams;
static struct ibv_comp_channel *wakes;
static struct ibv_cq *queue;
static struct place places[PLACES];
static uint64_t born;
static uint16_t ports_after;
static uint64_t faults;
volatile sig_atomic_t stopping;
struct seen seen;

void fault(const char *what, uint64_t value)
{
    fprintf(stderr, "server: FAULT: %s (%" PRIu64 ")\n", what, value);
    faults++;
}

void need(bool truth, const char *what)
{
    if (!truth) {
        fprintf(stderr, "server: no %s: %s\n", what, strerror(errno));
        exit(2);
    }
}

uint16_t own_port(uint16_t port)
{
    return (uint16_t)(port + ports_after);
}

static void stop(int number)
{
    stopping = 1;
}

/* Memory */

static bool is_guard(const uint8_t *bytes, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++) {
        if (bytes[i] != GUARD) {
            return false;
        }
    }
    return true;
}

static void check_guards(void)
{
    for (uint32_t i = 0; i < PLACES; i++) {
        const struct memory *memory = places[i].memory;
        if (!is_guard(memory->before, GUARD_BYTES) || !is_guard(memory->between, GUARD_BYTES) ||
            !is_guard(memory->after, GUARD_BYTES)) {
            fault("bytes were written where no key allows, at place", i);
        }
    }
}

static struct ibv_mr *open_memory(const struct place *place, struct ibv_pd *pd)
{
    return ibv_reg_mr(pd, place->memory->open, PLACE_BYTES,
                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                          IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
}

static void make_place(struct place *place, struct ibv_context *context)
{
    place->memory = malloc(sizeof *place->memory);
    need(place->memory != NULL, "memory");
    memset(place->memory, GUARD, sizeof *place->memory);
    place->pd = ibv_alloc_pd(context);
    need(place->pd != NULL, "protection domain");
    place->open = open_memory(place, place->pd);
    place->inbox = ibv_reg_mr(place->pd, place->memory->inbox, INBOX_BYTES + ECHO_LENGTH,
                              IBV_ACCESS_LOCAL_WRITE);
    need(place->open != NULL && place->inbox != NULL, "region");
}

static void free_place(struct place *place)
{
    ibv_dereg_mr(place->open);
    ibv_dereg_mr(place->inbox);
    ibv_dealloc_pd(place->pd);
    free(place->memory);
}

/* Connections */

/* A client at one of these addresses has no eavesdropper: 10.78.0.3, fd78::3. */
static bool is_sheltered(struct rdma_cm_id *id)
{
    const struct sockaddr *peer = rdma_get_peer_addr(id);
    if (peer->sa_family == AF_INET) {
        return (ntohl(((const struct sockaddr_in *)peer)->sin_addr.s_addr) & 0xff) == 3;
    }
    return ((const struct sockaddr_in6 *)peer)->sin6_addr.s6_addr[15] == 3;
}

static void leave(struct place *place)
{
    struct rdma_cm_id *id = place->id;
    place->id = NULL;
    place->generation++;
    if (id->qp != NULL) {
        rdma_destroy_qp(id);
    }
    rdma_destroy_id(id);
    if (place->window != NULL) {
        ibv_dealloc_mw(place->window);
        place->window = NULL;
    }
    if (place->extended != NULL) {
        ibv_dereg_mr(place->extended);
        place->extended = NULL;
    }
}

/* Who gives way first: who has not finished connecting for longest, then who was shot at. */
static bool gives_way(const struct place *a, const struct place *b)
{
    return a->established != b->established ? b->established : a->born < b->born;
}

/* A free place, or one that somebody must leave who is not both connected and sheltered. */
static struct place *find_place(void)
{
    struct place *worst = NULL;
    for (uint32_t i = 0; i < PLACES; i++) {
        struct place *place = &places[i];
        if (place->id == NULL) {
            return place;
        }
        if (!(place->established && place->sheltered) &&
            (worst == NULL || gives_way(place, worst))) {
            worst = place;
        }
    }
    if (worst != NULL) {
        leave(worst);
        seen.turned_away++;
    }
    return worst;
}

static uint64_t receive_name(const struct place *place, uint32_t index)
{
    return (uint64_t)place->generation << 32 | (uint64_t)(place - places) << 16 | index;
}

static int post_receive(struct place *place, uint32_t index)
{
    struct ibv_sge sge = {(uintptr_t)place->memory->inbox + index * MESSAGE_MAX, MESSAGE_MAX,
                          place->inbox->lkey};
    struct ibv_recv_wr wr = {.wr_id = receive_name(place, index), .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad;
    return ibv_post_recv(place->id->qp, &wr, &bad);
}

/* One at a time: the client waits for it. */
static int post_echo(struct place *place, const uint8_t *message)
{
    uint8_t *echo = place->memory->inbox + INBOX_BYTES;
    struct ibv_sge sge = {(uintptr_t)echo, ECHO_LENGTH, place->inbox->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = receive_name(place, SENT),
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND,
                                   .send_flags = IBV_SEND_SIGNALED};
    memcpy(echo, message, ECHO_LENGTH);
    return ibv_post_send(place->id->qp, &wr, &bad);
}

/* The message has ended the window that there was, if any; its echo says that there is one again.
 */
static int bind_window(struct place *place)
{
    struct ibv_send_wr *bad, wr = {.wr_id = receive_name(place, SENT),
                                   .opcode = IBV_WR_BIND_MW,
                                   .send_flags = IBV_SEND_SIGNALED};
    wr.bind_mw.mw = place->window;
    wr.bind_mw.rkey = place->bound_key = place->window_key;
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = place->open,
                                                     .addr = (uintptr_t)place->memory->open,
                                                     .length = PLACE_BYTES,
                                                     .mw_access_flags = IBV_ACCESS_REMOTE_WRITE |
                                                                        IBV_ACCESS_REMOTE_READ |
                                                                        IBV_ACCESS_REMOTE_ATOMIC};
    place->window_key = message_next_key(place->window_key);
    seen.windows++;
    return ibv_post_send(place->id->qp, &wr, &bad);
}

static void check_window(const struct place *place, const struct ibv_wc *wc)
{
    bool ended = (wc->wc_flags & IBV_WC_WITH_INV) != 0 && wc->invalidated_rkey == place->bound_key;
    if (place->sheltered && place->bound_key != 0 && !ended) {
        fault("a sheltered message did not end its window, flags", wc->wc_flags);
    }
}

static bool make_window(struct place *place)
{
    place->window = ibv_alloc_mw(place->pd, IBV_MW_TYPE_2);
    if (place->window == NULL) {
        return false;
    }
    place->window_key = ibv_inc_rkey(place->window->rkey);
    place->bound_key = 0;
    return true;
}

static bool make_qp(struct place *place, struct rdma_cm_id *id)
{
    place->id = id;
    if (place->wants == WANTS_EXTENDED) {
        place->extended = open_memory(place, shared_target_domain(place->sheltered));
        return place->extended != NULL && shared_make_target(id, place->sheltered) == 0;
    }
    struct ibv_qp_init_attr init = {
        .send_cq = queue,
        .recv_cq = queue,
        .qp_type = place->wants == WANTS_UNRELIABLE ? IBV_QPT_UC : IBV_QPT_RC,
        .cap = {.max_send_wr = SENDS,
                .max_recv_wr = RECEIVES,
                .max_send_sge = 1,
                .max_recv_sge = 1},
    };
    if (rdma_create_qp(id, place->pd, &init) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < RECEIVES; i++) {
        if (post_receive(place, i) != 0) {
            return false;
        }
    }
    return place->wants != WANTS_WINDOW || make_window(place);
}

static void take_request(const struct rdma_cm_event *event)
{
    struct rdma_cm_id *id = event->id;
    const uint8_t *said = event->param.conn.private_data;
    struct place *place = find_place();
    seen.requests++;
    if (place == NULL) {
        rdma_reject(id, NULL, 0);
        rdma_destroy_id(id);
        return;
    }
    place->sheltered = is_sheltered(id);
    place->wants = event->param.conn.private_data_len > 0 ? (char)said[0] : WANTS_RELIABLE;
    if (!make_qp(place, id)) {
        rdma_reject(id, NULL, 0);
        leave(place);
        return;
    }
    memset(place->memory->open, 0, PLACE_BYTES);
    place->established = false;
    place->born = ++born;
    place->sequence = 0;
    id->context = place;
    struct place_name name = {
        (uintptr_t)place->memory->open,
        place->window != NULL     ? place->window_key
        : place->extended != NULL ? place->extended->rkey
                                  : place->open->rkey,
        shared_target_queue(place->sheltered),
    };
    struct rdma_conn_param answer = {.private_data = &name,
                                     .private_data_len = sizeof name,
                                     .responder_resources = 4,
                                     .initiator_depth = 4,
                                     .rnr_retry_count = 7};
    if (rdma_accept(id, &answer) != 0) {
        leave(place); /* the peer has taken its request back */
    }
}

static void take_event(void)
{
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(channel, &event) != 0) {
        return;
    }
    struct rdma_cm_id *id = event->id;
    struct rdma_cm_id *gone = NULL;
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        struct rdma_cm_event request = *event;
        if (event->listen_id == listener) {
            take_request(&request);
        } else {
            shared_answer(&request);
        }
    } else if (id->context != NULL && ((struct place *)id->context)->id == id) {
        struct place *place = id->context;
        switch (event->event) {
        case RDMA_CM_EVENT_ESTABLISHED:
            place->established = true;
            break;
        case RDMA_CM_EVENT_TIMEWAIT_EXIT:
            break;
        default:
            gone = id;
            break;
        }
    }
    rdma_ack_cm_event(event);
    if (gone != NULL) {
        leave(gone->context);
    }
}

/* Messages */

static void take_message(const struct ibv_wc *wc)
{
    struct place *place = &places[wc->wr_id >> 16 & 0xffff];
    uint32_t index = wc->wr_id & 0xffff;
    uint64_t sequence;
    if (place->id == NULL || place->generation != wc->wr_id >> 32) {
        return;
    }
    if (wc->status != IBV_WC_SUCCESS) {
        seen.errors++;
        if (place->sheltered && place->established && wc->status != IBV_WC_WR_FLUSH_ERR) {
            fault("a sheltered connection failed with status", wc->status);
        }
        return;
    }
    if (index == SENT) {
        return;
    }
    bool whole =
        wc->opcode == IBV_WC_RECV &&
        message_is_whole(place->memory->inbox + index * MESSAGE_MAX, wc->byte_len, &sequence);
    seen.messages++;
    if (place->sheltered) {
        seen.sheltered_messages++;
        if (!whole || sequence != place->sequence) {
            fault("a sheltered message is not what was sent, number", place->sequence);
        }
        place->sequence++;
    } else if (!whole) {
        seen.forged++;
    }
    int error = 0;
    if (whole && place->window != NULL) {
        check_window(place, wc);
        error = bind_window(place);
    }
    if (error == 0 && whole && place->wants != WANTS_UNRELIABLE) {
        error = post_echo(place, place->memory->inbox + index * MESSAGE_MAX);
    }
    if (error != 0 && place->sheltered) {
        fault("a sheltered message cannot be answered", (uint64_t)error);
    }
    (void)post_receive(place, index); /* both fail where the queue pair has */
}

static void take_completions(void)
{
    struct ibv_wc wcs[64];
    int count;
    while ((count = ibv_poll_cq(queue, 64, wcs)) > 0) {
        for (int i = 0; i < count; i++) {
            if (!shared_take(&wcs[i])) {
                take_message(&wcs[i]);
            }
        }
    }
}

static void take_wake(void)
{
    struct ibv_cq *which;
    void *context;
    if (ibv_get_cq_event(wakes, &which, &context) == 0) {
        ibv_ack_cq_events(which, 1);
        ibv_req_notify_cq(queue, 0);
        take_completions();
    }
}

/* The whole */

static struct rdma_cm_id *listen_at(enum rdma_port_space space, uint16_t port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(own_port(port))};
    struct rdma_cm_id *id;
    need(rdma_create_id(channel, &id, NULL, space) == 0 &&
             rdma_bind_addr(id, (struct sockaddr *)&any) == 0 && rdma_listen(id, 64) == 0,
         "listener");
    return id;
}

static void set_up(struct ibv_context *context)
{
    wakes = ibv_create_comp_channel(context);
    need(wakes != NULL, "completion channel");
    int length = (int)(PLACES * (RECEIVES + SENDS) + shared_receives() + 16);
    queue = ibv_create_cq(context, length, NULL, wakes, 0);
    need(queue != NULL && ibv_req_notify_cq(queue, 0) == 0, "completion queue");
    for (uint32_t i = 0; i < PLACES; i++) {
        make_place(&places[i], context);
    }
    channel = rdma_create_event_channel();
    need(channel != NULL, "event channel");
    shared_set_up(channel, context, queue);
    listener = listen_at(RDMA_PS_TCP, STREAM_PORT);
    datagrams = listen_at(RDMA_PS_UDP, DATAGRAM_PORT);
    fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    fcntl(wakes->fd, F_SETFL, O_NONBLOCK);
}

static void tear_down(void)
{
    for (uint32_t i = 0; i < PLACES; i++) {
        if (places[i].id != NULL) {
            leave(&places[i]);
        }
    }
    rdma_destroy_id(listener);
    rdma_destroy_id(datagrams);
    shared_tear_down();
    rdma_destroy_event_channel(channel);
    check_guards();
    for (uint32_t i = 0; i < PLACES; i++) {
        free_place(&places[i]);
    }
    ibv_destroy_cq(queue);
    ibv_destroy_comp_channel(wakes);
}

static void report(void)
{
    printf("server: %" PRIu64 " requests, %" PRIu64 " made room for others; %" PRIu64
           " messages, %" PRIu64 " of them sheltered; %" PRIu64 " to XRC targets; %" PRIu64
           " windows bound; %" PRIu64 " datagrams, %" PRIu64 " to groups; %" PRIu64
           " rsocket streams; %" PRIu64 " forged messages in exposed connections, %" PRIu64
           " receives failed; %" PRIu64 " faults\n",
           seen.requests, seen.turned_away, seen.messages, seen.sheltered_messages, seen.extended,
           seen.windows, seen.datagrams, seen.group_datagrams, seen.accepted_streams, seen.forged,
           seen.errors, faults);
}

int main(int arguments_count, char **arguments)
{
    ports_after = arguments_count > 1 ? (uint16_t)atoi(arguments[1]) : 0;
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    int count;
    struct ibv_context **devices = rdma_get_devices(&count);
    need(devices != NULL && count > 0, "device");
    set_up(devices[0]);
    pthread_t sockets;
    need(pthread_create(&sockets, NULL, serve_rsockets, NULL) == 0, "thread");
    puts("server: ready");
    fflush(stdout);
    for (uint64_t turn = 0; !stopping; turn++) {
        struct pollfd polled[2] = {{channel->fd, POLLIN, 0}, {wakes->fd, POLLIN, 0}};
        poll(polled, 2, 100);
        take_event();
        take_wake();
        if (turn % 4096 == 0) {
            check_guards();
        }
    }
    pthread_join(sockets, NULL);
    tear_down();
    rdma_free_devices(devices);
    report();
    return faults == 0 ? 0 : 1;
}
