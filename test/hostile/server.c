/* The victim: a verbs program that serves honest clients while somebody else shoots at its port.
 *
 * It holds places: memory that one client may write to, between guards that nobody may touch, and
 * beside memory without remote rights. Every message of a client at a sheltered address (see
 * client.c) must come whole and in its order. It ends on SIGTERM: 0 if all of that held.
 *
 * Not here: what a stranger may do to a connection whose packets it reads. Those may break, and
 * their clients come back. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "test/hostile/message.h"

#define PLACES      192u /* clients at a time, strangers that were let in included */
#define GUARD_BYTES 4096u
#define GUARD       0xa5
#define RECEIVES    16u
#define INBOX_BYTES (RECEIVES * MESSAGE_MAX)
#define SENT        0xffffu /* in place of a receive's index */
#define DATAGRAMS   256u

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
    struct rdma_cm_id *id; /* NULL: free */
    uint32_t generation;   /* of its user: completions of former ones are told apart by it */
    uint64_t born;         /* order of arrival */
    bool established, sheltered, unreliable;
    uint64_t sequence; /* expected next */
};

static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener, *datagrams;
static struct ibv_comp_channel *wakes;
static struct ibv_cq *queue;
static struct ibv_srq *shared; /* of datagrams */
static struct rdma_cm_id *datagram_id;
static uint8_t datagram_inbox[DATAGRAMS][40 + DATAGRAM_LENGTH];
static struct ibv_pd *datagram_pd;
static struct ibv_mr *datagram_region;
static struct place places[PLACES];
static uint64_t born;
static volatile sig_atomic_t stopping;
static struct {
    uint64_t requests, turned_away, messages, sheltered_messages, datagrams, forged, errors;
    uint64_t accepted_streams;
} seen;
static uint64_t faults;

static void fault(const char *what, uint64_t value)
{
    fprintf(stderr, "server: FAULT: %s (%" PRIu64 ")\n", what, value);
    faults++;
}

static void need(bool truth, const char *what)
{
    if (!truth) {
        fprintf(stderr, "server: no %s: %s\n", what, strerror(errno));
        exit(2);
    }
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

static void make_place(struct place *place, struct ibv_context *context)
{
    place->memory = malloc(sizeof *place->memory);
    need(place->memory != NULL, "memory");
    memset(place->memory, GUARD, sizeof *place->memory);
    place->pd = ibv_alloc_pd(context);
    need(place->pd != NULL, "protection domain");
    place->open = ibv_reg_mr(place->pd, place->memory->open, PLACE_BYTES,
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
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

static bool make_qp(struct place *place, struct rdma_cm_id *id, bool unreliable)
{
    struct ibv_qp_init_attr init = {
        .send_cq = queue,
        .recv_cq = queue,
        .qp_type = unreliable ? IBV_QPT_UC : IBV_QPT_RC,
        .cap = {.max_send_wr = 2, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
    };
    if (rdma_create_qp(id, place->pd, &init) != 0) {
        return false;
    }
    place->id = id;
    for (uint32_t i = 0; i < RECEIVES; i++) {
        if (post_receive(place, i) != 0) {
            return false;
        }
    }
    return true;
}

static void take_request(const struct rdma_cm_event *event)
{
    struct rdma_cm_id *id = event->id;
    const uint8_t *said = event->param.conn.private_data;
    bool unreliable = event->param.conn.private_data_len > 0 && said[0] == 'U';
    struct place *place = find_place();
    seen.requests++;
    if (place == NULL || !make_qp(place, id, unreliable)) {
        if (place != NULL) {
            place->id = NULL;
            place->generation++;
        }
        if (id->qp != NULL) {
            rdma_destroy_qp(id);
        }
        rdma_reject(id, NULL, 0);
        rdma_destroy_id(id);
        return;
    }
    memset(place->memory->open, 0, PLACE_BYTES);
    place->established = false;
    place->unreliable = unreliable;
    place->sheltered = is_sheltered(id);
    place->born = ++born;
    place->sequence = 0;
    id->context = place;
    struct place_name name = {(uintptr_t)place->memory->open, place->open->rkey};
    struct rdma_conn_param answer = {.private_data = &name,
                                     .private_data_len = sizeof name,
                                     .responder_resources = 4,
                                     .initiator_depth = 4,
                                     .rnr_retry_count = 7};
    if (rdma_accept(id, &answer) != 0) {
        leave(place); /* the peer has taken its request back */
    }
}

/* Datagrams have one queue pair, of the first that asks; the others are told its number. */
static void take_question(const struct rdma_cm_event *event)
{
    struct rdma_conn_param answer = {.qp_num = datagram_id != NULL ? datagram_id->qp->qp_num : 0};
    if (datagram_id == NULL) {
        struct ibv_qp_init_attr init = {
            .send_cq = queue,
            .recv_cq = queue,
            .srq = shared,
            .qp_type = IBV_QPT_UD,
            .cap = {.max_send_wr = 1, .max_send_sge = 1},
        };
        need(rdma_create_qp(event->id, datagram_pd, &init) == 0, "queue pair for datagrams");
        datagram_id = event->id;
        answer.qp_num = datagram_id->qp->qp_num;
        need(rdma_accept(event->id, &answer) == 0, "accepting datagrams");
        return;
    }
    (void)rdma_accept(event->id, &answer); /* who asked and went away is not answered */
    rdma_destroy_id(event->id);
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
            take_question(&request);
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

static void repost_datagram(uint32_t index)
{
    struct ibv_sge sge = {(uintptr_t)datagram_inbox[index], sizeof datagram_inbox[index],
                          datagram_region->lkey};
    struct ibv_recv_wr wr = {.wr_id = UINT64_MAX - index, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad;
    need(ibv_post_srq_recv(shared, &wr, &bad) == 0, "room for a datagram's receive");
}

static void take_datagram(const struct ibv_wc *wc)
{
    uint32_t index = (uint32_t)(UINT64_MAX - wc->wr_id);
    uint64_t sequence;
    if (wc->status != IBV_WC_SUCCESS) {
        return; /* flushed: we are ending */
    }
    if (message_is_whole(datagram_inbox[index] + 40, wc->byte_len - 40, &sequence)) {
        seen.datagrams++;
    } else {
        seen.forged++;
    }
    repost_datagram(index);
}

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
    if (whole && !place->unreliable) {
        (void)post_echo(place, place->memory->inbox + index * MESSAGE_MAX);
    }
    (void)post_receive(place, index); /* both fail where the queue pair has */
}

static void take_completions(void)
{
    struct ibv_wc wcs[64];
    int count;
    while ((count = ibv_poll_cq(queue, 64, wcs)) > 0) {
        for (int i = 0; i < count; i++) {
            if (wcs[i].wr_id > UINT64_MAX - DATAGRAMS) {
                take_datagram(&wcs[i]);
            } else {
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

/* rsockets */

static int open_rsocket(int type, uint16_t port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int descriptor = rsocket(AF_INET6, type, 0);
    need(descriptor >= 0 && rbind(descriptor, (struct sockaddr *)&any, sizeof any) == 0, "rsocket");
    rfcntl(descriptor, F_SETFL, O_NONBLOCK);
    return descriptor;
}

/* Echoes what the latest client of the stream says, and every datagram. */
static void *serve_rsockets(void *unused)
{
    int stream = open_rsocket(SOCK_STREAM, SOCKET_PORT), client = -1;
    int packets = open_rsocket(SOCK_DGRAM, SOCKET_DATAGRAMS);
    need(rlisten(stream, 4) == 0, "listening rsocket");
    while (!stopping) {
        uint8_t bytes[2048];
        struct pollfd polled[3] = {{stream, POLLIN, 0}, {packets, POLLIN, 0}, {client, POLLIN, 0}};
        rpoll(polled, client >= 0 ? 3 : 2, 100);
        int next = raccept(stream, NULL, NULL);
        if (next >= 0) {
            if (client >= 0) {
                rclose(client);
            }
            client = next;
            rfcntl(client, F_SETFL, O_NONBLOCK);
            seen.accepted_streams++;
        }
        ssize_t length = client >= 0 ? rrecv(client, bytes, sizeof bytes, 0) : -1;
        if (length > 0) {
            (void)!rsend(client, bytes, (size_t)length, 0);
        } else if (length == 0 || (client >= 0 && errno != EAGAIN && errno != EWOULDBLOCK)) {
            rclose(client);
            client = -1;
        }
        struct sockaddr_storage from;
        socklen_t size = sizeof from;
        length = rrecvfrom(packets, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &size);
        if (length > 0) {
            (void)!rsendto(packets, bytes, (size_t)length, MSG_DONTWAIT, (struct sockaddr *)&from,
                           size);
        }
    }
    rclose(stream);
    rclose(packets);
    if (client >= 0) {
        rclose(client);
    }
    return NULL;
}

/* The whole */

static struct rdma_cm_id *listen_at(enum rdma_port_space space, uint16_t port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
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
    queue = ibv_create_cq(context, PLACES * (RECEIVES + 2) + DATAGRAMS + 16, NULL, wakes, 0);
    need(queue != NULL && ibv_req_notify_cq(queue, 0) == 0, "completion queue");
    for (uint32_t i = 0; i < PLACES; i++) {
        make_place(&places[i], context);
    }
    datagram_pd = ibv_alloc_pd(context);
    datagram_region =
        ibv_reg_mr(datagram_pd, datagram_inbox, sizeof datagram_inbox, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_srq_init_attr init = {.attr = {.max_wr = DATAGRAMS, .max_sge = 1}};
    shared = ibv_create_srq(datagram_pd, &init);
    need(datagram_region != NULL && shared != NULL, "shared receive queue");
    for (uint32_t i = 0; i < DATAGRAMS; i++) {
        repost_datagram(i);
    }
    channel = rdma_create_event_channel();
    need(channel != NULL, "event channel");
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
    if (datagram_id != NULL) {
        rdma_destroy_qp(datagram_id);
        rdma_destroy_id(datagram_id);
    }
    rdma_destroy_id(listener);
    rdma_destroy_id(datagrams);
    rdma_destroy_event_channel(channel);
    check_guards();
    for (uint32_t i = 0; i < PLACES; i++) {
        free_place(&places[i]);
    }
    ibv_destroy_srq(shared);
    ibv_dereg_mr(datagram_region);
    ibv_dealloc_pd(datagram_pd);
    ibv_destroy_cq(queue);
    ibv_destroy_comp_channel(wakes);
}

static void report(void)
{
    printf("server: %" PRIu64 " requests, %" PRIu64 " made room for others; %" PRIu64
           " messages, %" PRIu64 " of them sheltered; %" PRIu64 " datagrams; %" PRIu64
           " rsocket streams; %" PRIu64 " forged messages in exposed connections, %" PRIu64
           " receives failed; %" PRIu64 " faults\n",
           seen.requests, seen.turned_away, seen.messages, seen.sheltered_messages, seen.datagrams,
           seen.accepted_streams, seen.forged, seen.errors, faults);
}

int main(void)
{
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
