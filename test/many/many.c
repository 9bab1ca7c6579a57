/* One of many processes that are connected with each other and with peers elsewhere: it listens,
 * connects where it is told, and moves data over each connection, round after round, until it is
 * told to stop. Each round ends with the digest that the receiver has computed. Plain verbs and
 * rdma_cm, so it runs on any device.
 *
 * usage: many PORT NAME [PAUSE_MS [SERVE]]     SERVE: goes on when standard input ends
 *
 * Reads:  connect ADDRESS PORT COUNT | mark | stop
 * Writes: listening
 *         up KEY    a connection that we made
 *         in KEY    one that was made to us
 *         down KEY ROUNDS DIGEST NS REASON, out KEY ROUNDS DIGEST NS REASON
 *                   their ends; REASON "done": as told; DIGEST is of all rounds that ended, as
 *                   this end has computed it from what it sent or received
 *         passed NS                           since `mark`, each that is up has ended another round
 *         stopped                             all that we made are down
 * KEY is NAME-NUMBER of whoever made it; NS a time of the monotonic clock. A digest that differs
 * ends the process with status 1, anything unexpected with 2. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#define CHUNK           (16u << 10)
#define CHUNKS          16u /* in a round */
#define WINDOW          4u /* chunks that are sent at once; there is a receive for each of a round */
#define LINKS_MAX       8192u
#define KEY_MAX         24u
#define COMPLETIONS_MAX 16384
#define RESOLVE_MS      5000
#define ROUND_ENDS      1u /* immediate data */
#define LINK_ENDS       2u

struct link {
    struct rdma_cm_id *id;
    char key[KEY_MAX];
    bool active, up, over;
    bool leaving;  /* it ends as told */
    bool answered; /* this round: the answer may overtake the last acknowledgements, if those are
                      lost */
    uint8_t *buffer;
    struct ibv_mr *memory;
    uint64_t *answer;             /* behind the chunks: the digest that is sent or received */
    uint64_t seed, digest, whole; /* digests: of this round, and of all that ended */
    uint32_t sent, completed;     /* chunks of this round */
    uint64_t rounds, rounds_at_mark;
    int64_t resume_ms; /* when the next round begins; 0: one is under way */
};

static struct {
    struct rdma_event_channel *channel;
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_comp_channel *completions;
    struct ibv_cq *queue;
    struct link *links[LINKS_MAX];
    uint32_t link_count, made;
    const char *name;
    int pause_ms;
    bool marked, stopping;
} here;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "many %s: %s: %s\n", here.name, what, strerror(errno));
        exit(2);
    }
}

static uint32_t index_of(const struct link *link)
{
    uint32_t index = 0;
    while (here.links[index] != link) {
        index++;
    }
    return index;
}

static uint64_t mix(uint64_t state, uint64_t word)
{
    state = (state ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return state ^ state >> 29;
}

static uint64_t digest_of(uint64_t digest, const uint8_t *bytes)
{
    for (uint32_t at = 0; at < CHUNK; at += 8) {
        uint64_t word;
        memcpy(&word, bytes + at, 8);
        digest = mix(digest, word);
    }
    return digest;
}

static void fill(struct link *link, uint8_t *bytes)
{
    for (uint32_t at = 0; at < CHUNK; at += 8) {
        link->seed = mix(link->seed + 1, at);
        memcpy(bytes + at, &link->seed, 8);
    }
}

/* Ends */

static void tell_end(const struct link *link, const char *reason)
{
    if (link->active || link->up) {
        say("%s %s %" PRIu64 " %016" PRIx64 " %" PRId64 " %s", link->active ? "down" : "out",
            link->key, link->rounds, link->whole, now_ns(), reason);
    }
}

/* Not inside an event of its own: rdma_destroy_id waits for that to be acknowledged. */
static void end(struct link *link, const char *reason)
{
    if (link->over) {
        return;
    }
    tell_end(link, link->leaving ? "done" : reason);
    link->over = true;
    if (link->id->qp != NULL) {
        rdma_destroy_qp(link->id);
    }
    if (link->memory != NULL) {
        must(ibv_dereg_mr(link->memory) == 0, "ibv_dereg_mr");
    }
    must(rdma_destroy_id(link->id) == 0, "rdma_destroy_id");
    free(link->buffer);
}

/* Data */

static void post_receive(struct link *link, uint32_t place, uint32_t length)
{
    struct ibv_sge piece = {(uintptr_t)(link->buffer + place * CHUNK), length, link->memory->lkey};
    struct ibv_recv_wr wish = {
        .wr_id = (uint64_t)index_of(link) << 8 | place, .sg_list = &piece, .num_sge = 1};
    struct ibv_recv_wr *bad;
    errno = ibv_post_recv(link->id->qp, &wish, &bad);
    must(errno == 0, "ibv_post_recv");
}

/* A queue pair that has just failed takes it, and says so by completion. */
static void post_send(struct link *link, uint32_t place, uint32_t length, uint32_t immediate)
{
    struct ibv_sge piece = {(uintptr_t)(link->buffer + place * CHUNK), length, link->memory->lkey};
    struct ibv_send_wr wish = {
        .wr_id = (uint64_t)index_of(link) << 8 | place,
        .sg_list = &piece,
        .num_sge = length > 0 ? 1 : 0,
        .opcode = immediate != 0 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
        .imm_data = htonl(immediate),
        .send_flags = IBV_SEND_SIGNALED,
    };
    struct ibv_send_wr *bad;
    errno = ibv_post_send(link->id->qp, &wish, &bad);
    must(errno == 0, "ibv_post_send");
}

static void send_chunk(struct link *link)
{
    uint32_t place = link->sent % WINDOW;
    fill(link, link->buffer + place * CHUNK);
    link->digest = digest_of(link->digest, link->buffer + place * CHUNK);
    link->sent++;
    post_send(link, place, CHUNK, link->sent == CHUNKS ? ROUND_ENDS : 0);
}

static void begin_round(struct link *link)
{
    link->resume_ms = 0;
    if (here.stopping) {
        link->leaving = true;
        post_send(link, 0, 0, LINK_ENDS);
        return;
    }
    link->sent = link->completed = 0;
    link->digest = 0;
    link->answered = false;
    post_receive(link, CHUNKS, sizeof *link->answer);
    while (link->sent < WINDOW) {
        send_chunk(link);
    }
}

static void end_round(struct link *link)
{
    if (*link->answer != link->digest) {
        fprintf(stderr,
                "many %s: %s: round %" PRIu64 ": digest %" PRIx64 ", the peer has %" PRIx64 "\n",
                here.name, link->key, link->rounds, link->digest, *link->answer);
        exit(1);
    }
    link->rounds++;
    link->whole = mix(link->whole, link->digest);
    link->resume_ms = now_ns() / 1000000 + here.pause_ms;
    if (here.pause_ms == 0) {
        begin_round(link);
    }
}

static void complete_active(struct link *link, const struct ibv_wc *wc)
{
    if (link->leaving) {
        must(rdma_disconnect(link->id) == 0, "rdma_disconnect");
        return;
    }
    if (wc->opcode & IBV_WC_RECV) {
        link->answered = true;
    } else if (++link->completed + WINDOW <= CHUNKS) {
        send_chunk(link);
    }
    if (link->answered && link->completed == CHUNKS) {
        end_round(link);
    }
}

static void complete_passive(struct link *link, const struct ibv_wc *wc)
{
    if (!(wc->opcode & IBV_WC_RECV)) {
        return;
    }
    uint32_t place = wc->wr_id & 0xff,
             said = (wc->wc_flags & IBV_WC_WITH_IMM) ? ntohl(wc->imm_data) : 0;
    if (said == LINK_ENDS) {
        link->leaving = true;
        return;
    }
    link->digest = digest_of(link->digest, link->buffer + place * CHUNK);
    post_receive(link, place, CHUNK);
    if (said == ROUND_ENDS) {
        *link->answer = link->digest;
        link->rounds++;
        link->whole = mix(link->whole, link->digest);
        link->digest = 0;
        post_send(link, CHUNKS, sizeof *link->answer, 0);
    }
}

static void take_completions(void)
{
    struct ibv_cq *queue;
    void *context;
    struct ibv_wc wc;
    if (here.completions == NULL || ibv_get_cq_event(here.completions, &queue, &context) != 0) {
        return;
    }
    ibv_ack_cq_events(queue, 1);
    must(ibv_req_notify_cq(queue, 0) == 0, "ibv_req_notify_cq");
    while (ibv_poll_cq(queue, 1, &wc) == 1) {
        struct link *link = here.links[wc.wr_id >> 8];
        if (link->over) {
            continue;
        }
        if (wc.status == IBV_WC_WR_FLUSH_ERR) {
            continue; /* what it comes of has an event or a completion of its own */
        }
        if (wc.status != IBV_WC_SUCCESS) {
            end(link, wc.status == IBV_WC_RETRY_EXC_ERR ? "retries" : ibv_wc_status_str(wc.status));
        } else if (link->active) {
            complete_active(link, &wc);
        } else {
            complete_passive(link, &wc);
        }
    }
}

/* Connections */

static struct link *add(struct rdma_cm_id *id, bool active)
{
    must(here.link_count < LINKS_MAX, "too many connections");
    struct link *link = calloc(1, sizeof *link);
    must(link != NULL, "calloc");
    link->id = id;
    link->active = active;
    id->context = link;
    here.links[here.link_count++] = link;
    return link;
}

static void use_device(struct ibv_context *context)
{
    if (here.context != NULL) {
        must(here.context == context, "two devices");
        return;
    }
    here.context = context;
    here.domain = ibv_alloc_pd(context);
    here.completions = ibv_create_comp_channel(context);
    must(here.domain != NULL && here.completions != NULL, "ibv_create_comp_channel");
    must(fcntl(here.completions->fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
    here.queue = ibv_create_cq(context, COMPLETIONS_MAX, NULL, here.completions, 0);
    must(here.queue != NULL && ibv_req_notify_cq(here.queue, 0) == 0, "ibv_create_cq");
}

static void prepare(struct link *link)
{
    use_device(link->id->verbs);
    size_t size = (CHUNKS + 1) * CHUNK;
    struct ibv_qp_init_attr attributes = {
        .send_cq = here.queue,
        .recv_cq = here.queue,
        .cap = {.max_send_wr = WINDOW + 2,
                .max_recv_wr = CHUNKS + 2,
                .max_send_sge = 1,
                .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    link->buffer = calloc(1, size);
    must(link->buffer != NULL, "calloc");
    link->answer = (uint64_t *)(link->buffer + (size_t)CHUNKS * CHUNK);
    link->memory = ibv_reg_mr(here.domain, link->buffer, size, IBV_ACCESS_LOCAL_WRITE);
    must(link->memory != NULL, "ibv_reg_mr");
    must(rdma_create_qp(link->id, here.domain, &attributes) == 0, "rdma_create_qp");
    for (uint32_t place = 0; place < CHUNKS && !link->active; place++) {
        post_receive(link, place, CHUNK);
    }
}

static struct rdma_conn_param parameters_of(const struct link *link)
{
    return (struct rdma_conn_param){
        .private_data = link->key,
        .private_data_len = KEY_MAX,
        .retry_count = 7,
        .rnr_retry_count = 7,
    };
}

static void connect_to(const char *address, uint16_t port)
{
    struct rdma_cm_id *id;
    struct sockaddr_storage name = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&name;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&name;
    if (inet_pton(AF_INET, address, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(port);
    } else {
        must(inet_pton(AF_INET6, address, &six->sin6_addr) == 1, address);
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(port);
    }
    must(rdma_create_id(here.channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
    struct link *link = add(id, true);
    snprintf(link->key, sizeof link->key, "%s-%" PRIu32, here.name, here.made++);
    link->seed = mix((uint64_t)getpid(), here.made);
    must(rdma_resolve_addr(id, NULL, (struct sockaddr *)&name, RESOLVE_MS) == 0,
         "rdma_resolve_addr");
}

static void accept_link(struct rdma_cm_id *id, const struct rdma_cm_event *event)
{
    struct link *link = add(id, false);
    struct rdma_conn_param parameters = parameters_of(link);
    if (event->param.conn.private_data_len >= KEY_MAX) {
        memcpy(link->key, event->param.conn.private_data, KEY_MAX - 1);
    }
    prepare(link);
    must(rdma_accept(id, &parameters) == 0, "rdma_accept");
}

static void established(struct link *link)
{
    link->up = true;
    say(link->active ? "up %s" : "in %s", link->key);
    if (link->active) {
        begin_round(link);
    }
}

static void take_event(void)
{
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(here.channel, &event) != 0) {
        return;
    }
    struct link *link = event->id->context;
    struct rdma_conn_param parameters;
    const char *ends = NULL;
    switch (event->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        must(rdma_resolve_route(link->id, RESOLVE_MS) == 0, "rdma_resolve_route");
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        prepare(link);
        parameters = parameters_of(link);
        must(rdma_connect(link->id, &parameters) == 0, "rdma_connect");
        break;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        accept_link(event->id, event);
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        established(link);
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
        ends = "disconnected";
        break;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
    default:
        ends = rdma_event_str(event->event);
        break;
    }
    must(rdma_ack_cm_event(event) == 0, "rdma_ack_cm_event");
    if (ends != NULL) {
        take_completions(); /* what the peer has said before */
        end(link, ends);
    }
}

/* Orders */

static void obey(const char *order)
{
    char address[64];
    unsigned port, count;
    if (sscanf(order, "connect %63s %u %u", address, &port, &count) == 3) {
        while (count-- > 0) {
            connect_to(address, (uint16_t)port);
        }
    } else if (strcmp(order, "mark") == 0) {
        here.marked = true;
        for (uint32_t i = 0; i < here.link_count; i++) {
            here.links[i]->rounds_at_mark = here.links[i]->rounds;
        }
    } else if (strcmp(order, "stop") == 0) {
        here.stopping = true;
    } else {
        must(false, order);
    }
}

/* False: there are no more. */
static bool take_orders(void)
{
    static char bytes[4096];
    static size_t length;
    ssize_t more = read(STDIN_FILENO, bytes + length, sizeof bytes - length);
    if (more <= 0) {
        return false;
    }
    length += (size_t)more;
    char *line = bytes, *newline;
    while ((newline = memchr(line, '\n', length - (size_t)(line - bytes))) != NULL) {
        *newline = '\0';
        obey(line);
        line = newline + 1;
    }
    length -= (size_t)(line - bytes);
    memmove(bytes, line, length);
    return true;
}

/* Begins rounds whose pause is over; tells how long to wait for the next, and what has been asked.
 */
static int look_around(void)
{
    int64_t now = now_ns() / 1000000, next = now + 1000;
    bool passed = here.marked, stopped = here.stopping;
    for (uint32_t i = 0; i < here.link_count; i++) {
        struct link *link = here.links[i];
        if (link->over || !link->active) {
            continue;
        }
        if (link->up && link->resume_ms != 0 && (link->resume_ms <= now || here.stopping)) {
            begin_round(link);
        }
        next = link->resume_ms != 0 && link->resume_ms < next ? link->resume_ms : next;
        passed = passed && link->rounds > link->rounds_at_mark;
        stopped = false;
    }
    if (passed) {
        here.marked = false;
        say("passed %" PRId64, now_ns());
    }
    if (stopped) {
        here.stopping = false;
        say("stopped");
    }
    return (int)(next - now);
}

int main(int argc, char **argv)
{
    struct rdma_cm_id *listener;
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    here.name = argc > 2 ? argv[2] : "";
    must(argc >= 3, "usage: many PORT NAME [PAUSE_MS [SERVE]]");
    here.pause_ms = argc > 3 ? atoi(argv[3]) : 0;
    any.sin6_port = htons((uint16_t)atoi(argv[1]));
    here.channel = rdma_create_event_channel();
    must(here.channel != NULL && fcntl(here.channel->fd, F_SETFL, O_NONBLOCK) == 0,
         "rdma_create_event_channel");
    must(rdma_create_id(here.channel, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
    must(rdma_bind_addr(listener, (struct sockaddr *)&any) == 0, "rdma_bind_addr");
    must(rdma_listen(listener, 512) == 0, "rdma_listen");
    say("listening");
    bool orders = true;
    while (orders || argc > 4) {
        struct pollfd watched[] = {
            {.fd = here.channel->fd, .events = POLLIN},
            {.fd = here.completions != NULL ? here.completions->fd : -1, .events = POLLIN},
            {.fd = orders ? STDIN_FILENO : -1, .events = POLLIN},
        };
        int wait_ms = look_around();
        must(poll(watched, 3, wait_ms) >= 0 || errno == EINTR, "poll");
        if (watched[0].revents != 0) {
            take_event();
        }
        if (watched[1].revents != 0) {
            take_completions();
        }
        if (watched[2].revents != 0) {
            orders = take_orders();
        }
    }
    return 0;
}
