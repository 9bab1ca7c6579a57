/* The honest clients of server.c, a thread each, until SIGTERM.
 *
 * Those at 10.78.0.3 and fd78::3 are sheltered: nobody reads their packets, so their connections
 * must live to the end with every byte right, and who comes anew must get in. Those at 10.78.0.2
 * and fd78::2 are exposed to an eavesdropper, who may end their connections: they come back. Those
 * at 10.78.0.4 and fd78::4 are intruders: nobody reads their packets either (or he could have his
 * own acknowledged in their name), and they must not get at what belongs to the sheltered. 0 if all
 * of that held and every client got something done. With the name of one as its argument, that
 * one alone, which says how long it had to wait for a connection. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "test/hostile/client.h"
#include "test/hostile/message.h"

#define PATIENCE_MS 60000 /* for a completion; the machine may be busy */
#define EXPOSED_MS  2000  /* of those whose packets may be stolen by a forged answer */
#define VISIT       8u    /* exchanges of one who comes and goes */

const struct client clients[] = {
    {"stream", STREAM, "10.78.0.3", SERVER_IPV4, true, 0},
    {"stream IPv6", STREAM, "fd78::3", SERVER_IPV6, true, 0},
    {"visitor", VISITOR, "10.78.0.3", SERVER_IPV4, true, 0},
    {"window", WINDOW, "10.78.0.3", SERVER_IPV4, true, 0},
    {"extended", EXTENDED, "10.78.0.3", SERVER_IPV4, true, 0},
    {"rsocket", SOCKET, "10.78.0.3", SERVER_IPV4, true, 0},
    {"neighbour's stream", STREAM, "10.78.0.3", SERVER_IPV4, true, NEIGHBOUR},
    {"neighbour's window", WINDOW, "fd78::3", SERVER_IPV6, true, NEIGHBOUR},
    {"neighbour's extended", EXTENDED, "fd78::3", SERVER_IPV6, true, NEIGHBOUR},
    {"exposed stream", STREAM, "10.78.0.2", SERVER_IPV4, false, 0},
    {"exposed stream IPv6", STREAM, "fd78::2", SERVER_IPV6, false, 0},
    {"exposed window", WINDOW, "10.78.0.2", SERVER_IPV4, false, 0},
    {"exposed extended", EXTENDED, "fd78::2", SERVER_IPV6, false, 0},
    {"exposed uncertain", UNCERTAIN, "10.78.0.2", SERVER_IPV4, false, 0},
    {"exposed datagrams", DATAGRAM, "10.78.0.2", SERVER_IPV4, false, 0},
    {"exposed group", GROUP, "10.78.0.2", GROUP_IPV4, false, 0},
    {"exposed neighbour", STREAM, "10.78.0.2", SERVER_IPV4, false, NEIGHBOUR},
    {"intruder", INTRUDER, "10.78.0.4", SERVER_IPV4, false, 0},
    {"intruder by XRC", INTRUDER_EXTENDED, "fd78::4", SERVER_IPV6, false, 0},
    {"neighbour's intruder", INTRUDER, "fd78::4", SERVER_IPV6, false, NEIGHBOUR},
};
#define CLIENTS (sizeof clients / sizeof clients[0])

struct session {
    const struct client *client;
    struct rdma_cm_id *id;
    struct ibv_comp_channel *wakes;
    struct ibv_cq *queue;
    struct ibv_mr *region;
    struct ibv_ah *way; /* of datagrams, with the next two */
    uint32_t qpn, qkey;
    struct place_name place;
    uint8_t bytes[3 * MESSAGE_MAX]; /* sent, read back, the counter's old value */
};

struct result results[CLIENTS];
volatile sig_atomic_t stopping;
static struct place_name places[CLIENTS]; /* of who stays and is sheltered; intruders know them */
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;

static void stop(int number)
{
    stopping = 1;
}

void fault(const struct client *client, const char *what)
{
    fprintf(stderr, "client: FAULT: %s: %s: %s\n", client->name, what, strerror(errno));
    results[client - clients].faults++;
}

void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Sessions */

static void end_session(struct session *session)
{
    struct rdma_cm_id *id = session->id;
    if (session->way != NULL) {
        ibv_destroy_ah(session->way);
    }
    if (id != NULL && id->qp != NULL) {
        if (session->client->kind != GROUP) {
            rdma_disconnect(id);
        }
        rdma_destroy_qp(id);
    }
    if (session->region != NULL) {
        ibv_dereg_mr(session->region);
    }
    if (session->queue != NULL) {
        ibv_destroy_cq(session->queue);
    }
    if (session->wakes != NULL) {
        ibv_destroy_comp_channel(session->wakes);
    }
    if (id != NULL) {
        rdma_destroy_id(id);
    }
    free(session);
}

static int make_objects(struct session *session, enum ibv_qp_type type)
{
    struct rdma_cm_id *id = session->id;
    session->wakes = ibv_create_comp_channel(id->verbs);
    session->queue = ibv_create_cq(id->verbs, 64, NULL, session->wakes, 0);
    if (session->queue == NULL || ibv_req_notify_cq(session->queue, 0) != 0) {
        return -1;
    }
    struct ibv_qp_init_attr init = {
        .send_cq = session->queue,
        .recv_cq = session->queue,
        .qp_type = type,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    if (type == IBV_QPT_XRC_SEND) {
        init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
    }
    if (rdma_create_qp(id, NULL, &init) != 0) {
        return -1;
    }
    session->region =
        ibv_reg_mr(id->pd, session->bytes, sizeof session->bytes, IBV_ACCESS_LOCAL_WRITE);
    return session->region == NULL ? -1 : 0;
}

/* Who is shot at openly comes back soon. */
static int set_patience(struct session *session)
{
    uint8_t timeout = 10; /* 4 ms a try */
    const struct client *client = session->client;
    bool acknowledges =
        client->kind == STREAM || client->kind == WINDOW || client->kind == EXTENDED;
    return client->sheltered || !acknowledges
               ? 0
               : rdma_set_option(session->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                                 sizeof timeout);
}

static const struct {
    enum ibv_qp_type type;
    char wants; /* in the request */
} ways[] = {
    [STREAM] = {IBV_QPT_RC, WANTS_RELIABLE},
    [VISITOR] = {IBV_QPT_RC, WANTS_RELIABLE},
    [WINDOW] = {IBV_QPT_RC, WANTS_WINDOW},
    [EXTENDED] = {IBV_QPT_XRC_SEND, WANTS_EXTENDED},
    [UNCERTAIN] = {IBV_QPT_UC, WANTS_UNRELIABLE},
    [DATAGRAM] = {IBV_QPT_UD, 0},
    [GROUP] = {IBV_QPT_UD, 0},
    [INTRUDER] = {IBV_QPT_RC, WANTS_RELIABLE},
    [INTRUDER_EXTENDED] = {IBV_QPT_XRC_SEND, WANTS_EXTENDED},
};

static int learn_datagram_way(struct session *session, const struct rdma_ud_param *said)
{
    struct ibv_ah_attr attributes = said->ah_attr;
    session->way = ibv_create_ah(session->id->pd, &attributes);
    session->qpn = said->qp_num;
    session->qkey = said->qkey;
    return session->way == NULL ? -1 : 0;
}

static int join_group(struct session *session)
{
    struct sockaddr_storage from = address_of(session->client->from, 0);
    struct sockaddr_storage group = address_of(session->client->to, 0);
    struct rdma_cm_join_mc_attr_ex join = {
        .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
        .join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        .addr = (struct sockaddr *)&group,
    };
    if (rdma_create_id(NULL, &session->id, NULL, RDMA_PS_UDP) != 0 ||
        rdma_bind_addr(session->id, (struct sockaddr *)&from) != 0 ||
        make_objects(session, IBV_QPT_UD) != 0 ||
        rdma_join_multicast_ex(session->id, &join, NULL) != 0) {
        return -1;
    }
    return learn_datagram_way(session, &session->id->event->param.ud);
}

static int make_connection(struct session *session)
{
    const struct client *client = session->client;
    bool datagram = client->kind == DATAGRAM;
    uint16_t port = (uint16_t)((datagram ? DATAGRAM_PORT : STREAM_PORT) + client->ports_after);
    struct sockaddr_storage from = address_of(client->from, 0);
    struct sockaddr_storage to = address_of(client->to, port);
    if (client->kind == GROUP) {
        return join_group(session);
    }
    if (rdma_create_id(NULL, &session->id, NULL, datagram ? RDMA_PS_UDP : RDMA_PS_TCP) != 0 ||
        rdma_resolve_addr(session->id, (struct sockaddr *)&from, (struct sockaddr *)&to, 5000) !=
            0 ||
        rdma_resolve_route(session->id, 5000) != 0 || set_patience(session) != 0 ||
        make_objects(session, ways[client->kind].type) != 0) {
        return -1;
    }
    struct rdma_conn_param said = {.private_data = &ways[client->kind].wants,
                                   .private_data_len = 1,
                                   .responder_resources = 4,
                                   .initiator_depth = 4,
                                   .retry_count = 7,
                                   .rnr_retry_count = 7};
    if (rdma_connect(session->id, &said) != 0) {
        return -1;
    }
    const struct rdma_cm_event *event = session->id->event;
    if (datagram) {
        return learn_datagram_way(session, &event->param.ud);
    }
    if (event->param.conn.private_data_len < sizeof session->place) {
        errno = EPROTO;
        return -1;
    }
    memcpy(&session->place, event->param.conn.private_data, sizeof session->place);
    return 0;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void publish(const struct session *session)
{
    if (session->client->sheltered && session->client->kind != VISITOR) {
        pthread_mutex_lock(&places_lock);
        places[session->client - clients] = session->place;
        pthread_mutex_unlock(&places_lock);
    }
}

/* Under fire it may take some tries. NULL: we are to stop. */
static struct session *begin_session(const struct client *client)
{
    struct result *result = &results[client - clients];
    uint64_t begun = now_ms();
    while (!stopping) {
        struct session *session = calloc(1, sizeof *session);
        if (session == NULL) {
            return NULL;
        }
        session->client = client;
        if (make_connection(session) == 0) {
            uint64_t took = now_ms() - begun;
            result->slowest_ms = took > result->slowest_ms ? took : result->slowest_ms;
            result->connections++;
            publish(session);
            return session;
        }
        end_session(session);
        result->refused++;
        pause_ms(20);
    }
    return NULL;
}

/* Work */

static int await(struct session *session, enum ibv_wc_status *ret_status)
{
    struct ibv_wc wc;
    int patience = session->client->sheltered ? PATIENCE_MS : EXPOSED_MS;
    for (int waited = 0; waited < patience;) {
        int count = ibv_poll_cq(session->queue, 1, &wc);
        if (count != 0) {
            *ret_status = count > 0 ? wc.status : IBV_WC_GENERAL_ERR;
            return 0;
        }
        struct ibv_cq *which;
        void *context;
        struct pollfd polled = {session->wakes->fd, POLLIN, 0};
        if (poll(&polled, 1, 1000) <= 0) {
            waited += 1000;
        } else if (ibv_get_cq_event(session->wakes, &which, &context) == 0) {
            ibv_ack_cq_events(which, 1);
            ibv_req_notify_cq(session->queue, 0);
        }
    }
    errno = ETIMEDOUT;
    return -1;
}

/* Posts and waits. 0: it succeeded. */
static int run(struct session *session, struct ibv_send_wr *wr, uint32_t at, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)session->bytes + at, length, session->region->lkey};
    struct ibv_send_wr *bad;
    enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
    wr->sg_list = &sge;
    wr->num_sge = 1;
    wr->send_flags = IBV_SEND_SIGNALED;
    if (ways[session->client->kind].type == IBV_QPT_XRC_SEND) {
        wr->qp_type.xrc.remote_srqn = session->place.queue;
    }
    if (ibv_post_send(session->id->qp, wr, &bad) != 0 || await(session, &status) != 0) {
        return -1;
    }
    if (status != IBV_WC_SUCCESS && session->client->sheltered) {
        fprintf(stderr, "client: %s: %s\n", session->client->name, ibv_wc_status_str(status));
    }
    errno = EIO;
    return status == IBV_WC_SUCCESS ? 0 : -1;
}

static int count_up(struct session *session, uint64_t expected)
{
    uint64_t old;
    struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
    wr.wr.atomic.remote_addr = session->place.address + COUNTER_AT;
    wr.wr.atomic.rkey = session->place.key;
    wr.wr.atomic.compare_add = 1;
    if (run(session, &wr, 2 * MESSAGE_MAX, sizeof old) != 0) {
        return -1;
    }
    memcpy(&old, session->bytes + 2 * MESSAGE_MAX, sizeof old);
    if (old != expected && session->client->sheltered) {
        fault(session->client, "the counter is not what was counted");
    }
    return 0;
}

/* Sends, and hears the echo. `ends_window`: the send ends the window; then there is a new one. */
static int converse(struct session *session, uint32_t length, bool ends_window)
{
    enum ibv_wc_status status;
    uint8_t *echo = session->bytes + 2 * MESSAGE_MAX;
    struct ibv_sge sge = {(uintptr_t)echo, ECHO_LENGTH, session->region->lkey};
    struct ibv_recv_wr *bad, receive = {.sg_list = &sge, .num_sge = 1};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    if (ends_window) {
        wr.opcode = IBV_WR_SEND_WITH_INV;
        wr.invalidate_rkey = session->place.key;
    }
    /* Two completions, in either order. */
    if (ibv_post_recv(session->id->qp, &receive, &bad) != 0 || run(session, &wr, 0, length) != 0 ||
        await(session, &status) != 0 || status != IBV_WC_SUCCESS) {
        return -1;
    }
    if (session->client->sheltered && memcmp(echo, session->bytes, ECHO_LENGTH) != 0) {
        fault(session->client, "the echo is not what was said");
    }
    if (ends_window) {
        session->place.key = message_next_key(session->place.key);
        publish(session);
    }
    return 0;
}

/* Writes, reads back, compares, counts. 0: all well. */
static int use_memory(struct session *session, uint64_t count, uint32_t length)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
    wr.wr.rdma.remote_addr = session->place.address;
    wr.wr.rdma.rkey = session->place.key;
    memset(session->bytes + MESSAGE_MAX, 0, length);
    if (run(session, &wr, 0, length) != 0) {
        return -1;
    }
    wr.opcode = IBV_WR_RDMA_READ;
    if (run(session, &wr, MESSAGE_MAX, length) != 0 || count_up(session, count) != 0) {
        return -1;
    }
    if (session->client->sheltered &&
        memcmp(session->bytes, session->bytes + MESSAGE_MAX, length) != 0) {
        fault(session->client, "what was written is not what is read");
    }
    return 0;
}

/* 0: all well. */
static int exchange(struct session *session, uint64_t sequence)
{
    uint32_t length = 32 + (uint32_t)(sequence * 977 % (MESSAGE_MAX - 32));
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    switch (session->client->kind) {
    case WINDOW: /* the first message asks for one */
        message_fill(session->bytes, length, sequence);
        return (sequence > 0 && use_memory(session, sequence - 1, length) != 0) ||
                       converse(session, length, sequence > 0) != 0
                   ? -1
                   : 0;
    case EXTENDED:
    case INTRUDER_EXTENDED:
        message_fill(session->bytes, length, sequence);
        return use_memory(session, sequence, length) != 0 || run(session, &wr, 0, length) != 0 ? -1
                                                                                               : 0;
    default:
        message_fill(session->bytes, length, sequence);
        return use_memory(session, sequence, length) != 0 || converse(session, length, false) != 0
                   ? -1
                   : 0;
    }
}

/* Somebody sheltered of the same process. */
static bool find_victim(const struct client *client, uint64_t turn, struct place_name *ret_place)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        const struct client *one = &clients[(turn + i) % CLIENTS];
        pthread_mutex_lock(&places_lock);
        *ret_place = places[one - clients];
        pthread_mutex_unlock(&places_lock);
        if (one->ports_after == client->ports_after && ret_place->address != 0) {
            return true;
        }
    }
    return false;
}

/* Knows the keys, windows and queues of others, and uses them in a connection of its own. 0: it was
 * not let. */
static int intrude(struct session *session, uint64_t turn)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV};
    struct place_name place;
    bool extended = session->client->kind == INTRUDER_EXTENDED;
    struct ibv_send_wr wr = {.opcode = opcodes[turn / CLIENTS % 4]};
    if (exchange(session, 0) != 0 || !find_victim(session->client, turn, &place) || stopping) {
        return -1; /* or it may be ours now: the others end */
    }
    if (wr.opcode == IBV_WR_SEND_WITH_INV) {
        wr.opcode = extended ? IBV_WR_SEND : wr.opcode;
        wr.invalidate_rkey = place.key;
    } else if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = place.address + COUNTER_AT;
        wr.wr.atomic.rkey = place.key;
    } else {
        wr.wr.rdma.remote_addr = place.address;
        wr.wr.rdma.rkey = place.key;
    }
    if (extended && (wr.opcode == IBV_WR_SEND || turn % 2 == 0)) {
        session->place.queue = place.queue;
    }
    if (run(session, &wr, 0, 8) == 0) {
        fault(session->client, "what is somebody else's was open to it");
    }
    return 0;
}

static int send_one(struct session *session, uint64_t sequence)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    uint32_t length = DATAGRAM_LENGTH - (uint32_t)(sequence % 7);
    if (session->way != NULL) {
        wr.wr.ud.ah = session->way;
        wr.wr.ud.remote_qpn = session->qpn;
        wr.wr.ud.remote_qkey = session->qkey;
    }
    message_fill(session->bytes, length, sequence);
    return run(session, &wr, 0, length);
}

static void serve_intruder(const struct client *client)
{
    struct result *result = &results[client - clients];
    struct session *session = begin_session(client);
    if (session != NULL) {
        uint64_t *count =
            intrude(session, result->connections) == 0 ? &result->exchanges : &result->broken;
        __atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
        end_session(session);
        pause_ms(20);
    }
}

static void serve_session(const struct client *client)
{
    struct result *result = &results[client - clients];
    struct session *session = begin_session(client);
    if (session == NULL) {
        return;
    }
    bool reliable = ways[client->kind].type == IBV_QPT_RC || client->kind == EXTENDED;
    for (uint64_t sequence = 0; !stopping; sequence++) {
        if ((reliable ? exchange(session, sequence) : send_one(session, sequence)) != 0) {
            result->broken++;
            if (client->sheltered) {
                fault(client, "an established connection broke");
            }
            break;
        }
        result->exchanges++;
        if (client->kind == VISITOR && sequence == VISIT) {
            break;
        }
        pause_ms(client->kind == VISITOR ? 0 : 1);
    }
    end_session(session);
}

static void *serve(void *which)
{
    const struct client *client = which;
    while (!stopping) {
        if (client->kind == SOCKET) {
            serve_socket(client);
        } else if (client->kind == INTRUDER || client->kind == INTRUDER_EXTENDED) {
            serve_intruder(client);
        } else {
            serve_session(client);
        }
    }
    return NULL;
}

static bool judge(const struct client *client)
{
    const struct result *result = &results[client - clients];
    printf("client: %-20s %8" PRIu64 " exchanges in %5" PRIu64 " connections, %" PRIu64
           " tries refused, %" PRIu64 " broken\n",
           client->name, result->exchanges, result->connections, result->refused, result->broken);
    bool good = result->faults == 0 && result->exchanges > 0;
    if (client->sheltered && client->kind != VISITOR) {
        good = good && result->connections == 1;
    }
    return good;
}

/* Until SIGTERM. What was begun may break: a flood that leaves no room for packets does that. */
static int visit(const char *name)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        if (strcmp(clients[i].name, name) == 0) {
            pthread_t thread;
            pthread_create(&thread, NULL, serve, (void *)&clients[i]);
            while (!stopping && __atomic_load_n(&results[i].connections, __ATOMIC_RELAXED) == 0) {
                pause_ms(10);
            }
            puts("client: connected");
            fflush(stdout);
            pthread_join(thread, NULL);
            (void)judge(&clients[i]);
            printf("client: %" PRIu64 " connections, the slowest in %" PRIu64 " ms\n",
                   results[i].connections, results[i].slowest_ms);
            return results[i].connections > 0 ? 0 : 1;
        }
    }
    fprintf(stderr, "client: who is %s?\n", name);
    return 2;
}

int main(int count, char **arguments)
{
    pthread_t threads[CLIENTS];
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    if (count == 2) {
        return visit(arguments[1]);
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        pthread_create(&threads[i], NULL, serve, (void *)&clients[i]);
    }
    for (int waited = 0; !stopping; waited += 10) {
        size_t ready = 0;
        for (size_t i = 0; i < CLIENTS; i++) {
            ready += __atomic_load_n(&results[i].exchanges, __ATOMIC_RELAXED) > 0;
        }
        if (ready == CLIENTS) {
            puts("client: ready");
            fflush(stdout);
            break;
        }
        stopping = waited > PATIENCE_MS; /* then the table shows who got nowhere */
        pause_ms(10);
    }
    bool good = true;
    for (size_t i = 0; i < CLIENTS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        good = judge(&clients[i]) && good;
    }
    return good ? 0 : 1;
}
