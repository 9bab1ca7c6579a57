/* rsockets against each other within a process, and against peers that break the rules: those
 * speak rdma_cm and verbs themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rnic/rdmacm/rsocket_codec.h"
#include "rnic/rdmacm/rsocket_pair_test.h"

#define PATIENCE_MS 20000

static void half_close_loses_no_bytes(void **state)
{
    int client;
    int server;
    char bytes[16];
    connect_both(&client, &server);
    assert_int_equal(rsend(client, "question", 8, 0), 8);
    assert_int_equal(rshutdown(client, SHUT_WR), 0);
    assert_int_equal(rsend(client, "more", 4, 0), -1);
    assert_int_equal(rrecv(server, bytes, sizeof bytes, MSG_WAITALL), 8);
    assert_int_equal(rrecv(server, bytes, sizeof bytes, 0), 0);
    assert_int_equal(rsend(server, "answer", 6, 0), 6);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rrecv(client, bytes, 3, MSG_PEEK), 3);
    assert_int_equal(rrecv(client, bytes, sizeof bytes, MSG_WAITALL), 6);
    assert_memory_equal(bytes, "answer", 6);
    assert_int_equal(rrecv(client, bytes, sizeof bytes, 0), 0);
    assert_int_equal(rclose(client), 0);
}

static void polling_mixes_with_ordinary_descriptors(void **state)
{
    int client;
    int server;
    int ends[2];
    char byte;
    connect_both(&client, &server);
    assert_int_equal(pipe(ends), 0);
    struct pollfd both[] = {{server, POLLIN, 0}, {ends[0], POLLIN, 0}};
    assert_int_equal(rpoll(both, 2, 20), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(rpoll(both, 2, PATIENCE_MS), 1);
    assert_int_equal(both[1].revents, POLLIN);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(rsend(client, "y", 1, 0), 1);
    assert_int_equal(rpoll(both, 2, PATIENCE_MS), 1);
    assert_int_equal(both[0].revents, POLLIN);
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(server, &readable);
    FD_SET(ends[0], &readable);
    struct timeval timeout = {10, 0};
    int most = server > ends[0] ? server : ends[0];
    assert_int_equal(rselect(most + 1, &readable, NULL, NULL, &timeout), 1);
    assert_true(FD_ISSET(server, &readable));
    assert_int_equal(rfcntl(server, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(rrecv(server, &byte, 1, 0), 1);
    assert_int_equal(rrecv(server, &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
    rclose(server);
    rclose(client);
    close(ends[0]);
    close(ends[1]);
}

/* A peer that has gone is no reason to wait: what is sent now fails at once. */
static void who_waits_to_write_hears_that_the_peer_has_gone(void **state)
{
    int client;
    int server;
    char byte;
    fd_set writable;
    struct timeval timeout = {PATIENCE_MS / 1000, 0};
    connect_both(&client, &server);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rrecv(client, &byte, 1, 0), 0);
    FD_ZERO(&writable);
    FD_SET(client, &writable);
    assert_int_equal(rselect(client + 1, NULL, &writable, NULL, &timeout), 1);
    assert_true(FD_ISSET(client, &writable));
    struct pollfd ready = {client, POLLOUT, 0};
    assert_int_equal(rpoll(&ready, 1, PATIENCE_MS), 1);
    assert_int_equal(ready.revents, POLLOUT | POLLHUP);
    assert_int_equal(rsend(client, "x", 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    assert_int_equal(rclose(client), 0);
}

static void events_have_two_names(void **state)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    struct pollfd ready = {listener, POLLRDNORM, 0};
    assert_int_equal(rconnect(client, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(rpoll(&ready, 1, PATIENCE_MS), 1);
    assert_int_equal(ready.revents, POLLRDNORM);
    int server = raccept(listener, NULL, NULL);
    assert_int_equal(rsend(client, "x", 1, 0), 1);
    struct pollfd both[] = {{server, POLLRDNORM, 0}, {client, POLLWRNORM, 0}};
    assert_true(rpoll(both, 1, PATIENCE_MS) == 1 && rpoll(both, 2, PATIENCE_MS) == 2);
    assert_int_equal(both[0].revents, POLLRDNORM);
    assert_int_equal(both[1].revents, POLLWRNORM);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(listener), 0);
}

/* As accept(2) has it on Linux. */
static void what_is_accepted_has_no_flags(void **state)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    assert_int_equal(rfcntl(listener, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(rfcntl(listener, F_SETFD, FD_CLOEXEC), 0);
    assert_int_equal(rconnect(client, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(rpoll(&ready, 1, PATIENCE_MS), 1);
    int server = raccept(listener, NULL, NULL);
    assert_true(server >= 0);
    assert_int_equal(rfcntl(server, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(rfcntl(server, F_GETFD), 0);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(listener), 0);
}

static void nobody_listens(void **state)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    rclose(listener);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rconnect(client, (struct sockaddr *)&address, sizeof address), -1);
    assert_int_equal(errno, ECONNREFUSED);
    socklen_t length = sizeof address;
    assert_int_equal(rgetpeername(client, (struct sockaddr *)&address, &length), -1);
    assert_int_equal(errno, ENOTCONN);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(client), -1);
    assert_int_equal(errno, EBADF);
}

/* The connection stays the parent's; the child has rsockets of its own. */
static void a_child_closes_what_it_inherits(void **state)
{
    int client;
    int server;
    int status;
    char byte;
    connect_both(&client, &server);
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_MS / 1000);
        bool refuses = rsend(client, "x", 1, 0) == -1 && rrecv(server, &byte, 1, 0) == -1;
        bool closes = rclose(client) == 0 && rclose(server) == 0;
        connect_both(&client, &server);
        bool works = rsend(client, "x", 1, 0) == 1 && rrecv(server, &byte, 1, 0) == 1;
        _exit(refuses && closes && works ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(rsend(client, "x", 1, 0), 1);
    assert_int_equal(rrecv(server, &byte, 1, 0), 1);
    rclose(client);
    rclose(server);
}

/* As servers do that fork: the child has no use for the listener, and the parent goes on with it.
 */
static void a_child_closes_the_listener(void **state)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    int status;
    assert_int_equal(rfcntl(listener, F_SETFL, O_NONBLOCK), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_MS / 1000);
        _exit(rclose(listener) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(raccept(listener, NULL, NULL), -1);
    assert_int_equal(errno, EAGAIN);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rfcntl(listener, F_SETFL, 0), 0);
    assert_int_equal(rconnect(client, (struct sockaddr *)&address, sizeof address), 0);
    int server = raccept(listener, NULL, NULL);
    assert_true(server >= 0);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(listener), 0);
}

#define LONG_LENGTH (4u << 20)

/* As many as the buffer that was asked for has places, with nobody reading meanwhile. */
static void a_late_reader_finds_every_datagram(void **state)
{
    enum {
        COUNT = 384,
        LENGTH = 1000,
        BUFFER = 1 << 19
    };
    const int buffer = BUFFER;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    struct sockaddr *name = (struct sockaddr *)&address;
    uint8_t bytes[2048] = {0};
    bool seen[COUNT] = {false};
    int reader = rsocket(AF_INET, SOCK_DGRAM, 0);
    int writer = rsocket(AF_INET, SOCK_DGRAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(rsetsockopt(reader, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer), 0);
    assert_int_equal(rbind(reader, name, length), 0);
    assert_int_equal(rgetsockname(reader, name, &length), 0);
    assert_int_equal(rconnect(writer, name, length), 0);
    assert_int_equal(rsend(writer, bytes, 1, 0), 1);
    assert_int_equal(rrecvfrom(reader, bytes, sizeof bytes, 0, name, &length), 1);
    assert_int_equal(rsendto(reader, bytes, 1, 0, name, length), 1);
    assert_int_equal(rrecv(writer, bytes, sizeof bytes, 0), 1);
    for (uint32_t i = 0; i < COUNT; i++) {
        memcpy(bytes, &i, sizeof i);
        assert_int_equal(rsend(writer, bytes, LENGTH, 0), LENGTH);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        struct pollfd wait = {.fd = reader, .events = POLLIN};
        uint32_t number;
        assert_int_equal(rpoll(&wait, 1, PATIENCE_MS), 1);
        assert_int_equal(rrecv(reader, bytes, sizeof bytes, MSG_DONTWAIT), LENGTH);
        memcpy(&number, bytes, sizeof number);
        assert_true(number < COUNT && !seen[number]);
        seen[number] = true;
    }
    assert_int_equal(rclose(writer), 0);
    assert_int_equal(rclose(reader), 0);
}

static void *send_much(void *context)
{
    int socket = *(int *)context;
    static const char bytes[LONG_LENGTH]; /* two threads send it */
    return (void *)(uintptr_t)(rsend(socket, bytes, sizeof bytes, 0) == sizeof bytes);
}

/* Each end sends with one thread and receives with another: more than either's buffers hold. */
static void both_ways_at_once(void **state)
{
    int ends[2];
    pthread_t senders[2];
    static char bytes[LONG_LENGTH];
    connect_both(&ends[0], &ends[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&senders[i], NULL, send_much, &ends[i]), 0);
    }
    for (size_t taken[2] = {0}; taken[0] < sizeof bytes || taken[1] < sizeof bytes;) {
        for (int i = 0; i < 2; i++) {
            struct pollfd wait = {ends[i], POLLIN, 0};
            if (taken[i] < sizeof bytes && rpoll(&wait, 1, 1) == 1) {
                ssize_t part = rrecv(ends[i], bytes, sizeof bytes - taken[i], 0);
                assert_true(part > 0);
                taken[i] += (size_t)part;
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        void *done;
        pthread_join(senders[i], &done);
        assert_non_null(done);
    }
    rclose(ends[0]);
    rclose(ends[1]);
}

/* A peer without manners. */
struct rogue {
    struct rdma_cm_id *id;
    int server; /* the rsocket that it is connected with */
    struct rsocket_hello theirs;
    struct ibv_mr *region;
    uint8_t bytes[64]; /* a table, and what it sends */
};

static void rogue_prepare(struct rogue *rogue, const struct sockaddr_in *address)
{
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
    };
    memset(rogue->bytes, 0, sizeof rogue->bytes);
    assert_int_equal(rdma_create_id(NULL, &rogue->id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(rogue->id, NULL, (struct sockaddr *)address, 2000), 0);
    assert_int_equal(rdma_resolve_route(rogue->id, 2000), 0);
    assert_int_equal(rdma_create_qp(rogue->id, NULL, &init), 0);
    rogue->region = ibv_reg_mr(rogue->id->pd, rogue->bytes, sizeof rogue->bytes,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(rogue->region);
}

/* `version` and the key of its tables are what it likes. */
static int rogue_greet(struct rogue *rogue, uint8_t version, uint32_t key)
{
    uint8_t bytes[RSOCKET_HELLO_LENGTH];
    const struct rsocket_hello hello = {
        .credits = 8,
        .table = {(uintptr_t)rogue->bytes, key, RSOCKET_TARGETS},
        .buffer = {(uintptr_t)rogue->bytes, key, sizeof rogue->bytes},
    };
    struct rdma_conn_param param = {
        .private_data = bytes,
        .private_data_len = sizeof bytes,
        .retry_count = 7,
        .rnr_retry_count = 7,
    };
    rsocket_hello_build(&hello, bytes);
    bytes[0] = version;
    return rdma_connect(rogue->id, &param);
}

/* Without receives. The listener's buffer and queue are as short as can be. */
static void rogue_connect_deaf(struct rogue *rogue, bool has_memory)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    const int least = 1;
    assert_int_equal(rsetsockopt(listener, SOL_SOCKET, SO_RCVBUF, &least, sizeof least), 0);
    assert_int_equal(rsetsockopt(listener, SOL_RDMA, RDMA_RQSIZE, &least, sizeof least), 0);
    rogue_prepare(rogue, &address);
    uint32_t key = rogue->region->rkey;
    assert_int_equal(rogue_greet(rogue, 1, has_memory ? key : key ^ 0x5a5a5a5a), 0);
    const struct rdma_conn_param *answer = &rogue->id->event->param.conn;
    assert_true(
        rsocket_hello_parse(answer->private_data, answer->private_data_len, &rogue->theirs));
    rogue->server = raccept(listener, NULL, NULL);
    assert_true(rogue->server >= 0);
    rclose(listener);
}

static void rogue_listen(struct rogue *rogue)
{
    for (int i = 0; i < 8; i++) {
        struct ibv_recv_wr *bad;
        struct ibv_recv_wr work = {0};
        assert_int_equal(ibv_post_recv(rogue->id->qp, &work, &bad), 0);
    }
}

static void rogue_connect(struct rogue *rogue, bool has_memory)
{
    rogue_connect_deaf(rogue, has_memory);
    rogue_listen(rogue);
}

static void rogue_write(struct rogue *rogue, const struct rsocket_place *place, uint32_t immediate)
{
    struct ibv_send_wr *bad;
    struct ibv_sge sge = {(uintptr_t)rogue->bytes, place->length, rogue->region->lkey};
    struct ibv_send_wr work = {
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
        .imm_data = htonl(immediate),
        .sg_list = &sge,
        .num_sge = place->length == 0 ? 0 : 1,
        .wr = {.rdma = {.remote_addr = place->address, .rkey = place->key}},
    };
    assert_int_equal(ibv_post_send(rogue->id->qp, &work, &bad), 0);
}

static void rogue_leave(struct rogue *rogue)
{
    rclose(rogue->server);
    rdma_destroy_qp(rogue->id);
    ibv_dereg_mr(rogue->region);
    rdma_destroy_id(rogue->id);
}

static void expect_the_end(struct rogue *rogue)
{
    char byte;
    struct pollfd wait = {rogue->server, POLLIN, 0};
    assert_int_equal(rpoll(&wait, 1, PATIENCE_MS), 1);
    assert_true((wait.revents & POLLERR) != 0);
    assert_int_equal(rrecv(rogue->server, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, ECONNRESET);
    assert_int_equal(rsend(rogue->server, "x", 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, ECONNRESET);
}

/* One message without data, after which the connection must be over. */
static void expect_breach(uint32_t immediate)
{
    struct rogue rogue;
    int error = 0;
    socklen_t length = sizeof error;
    const struct rsocket_place nothing = {0};
    rogue_connect(&rogue, true);
    rogue_write(&rogue, &nothing, immediate);
    expect_the_end(&rogue);
    assert_int_equal(rgetsockopt(rogue.server, SOL_SOCKET, SO_ERROR, &error, &length), 0);
    assert_int_equal(error, EPROTO);
    rogue_leave(&rogue);
}

static void another_version_is_rejected(void **state)
{
    struct rogue rogue;
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    rogue_prepare(&rogue, &address);
    assert_int_equal(rogue_greet(&rogue, 2, rogue.region->rkey), -1);
    assert_int_equal(errno, ECONNREFUSED);
    struct pollfd wait = {listener, POLLIN, 0};
    assert_int_equal(rpoll(&wait, 1, 20), 0);
    rogue.server = listener;
    rogue_leave(&rogue);
}

static void credits_beyond_what_was_offered(void **state)
{
    expect_breach(rsocket_message_encode(RSOCKET_CREDITS, 9));
}

static void data_longer_than_the_window(void **state)
{
    expect_breach(rsocket_message_encode(RSOCKET_DATA, RSOCKET_VALUE_MAX));
}

static void data_without_bytes(void **state)
{
    expect_breach(rsocket_message_encode(RSOCKET_DATA, 0));
}

static void an_operation_that_is_reserved(void **state)
{
    expect_breach(UINT32_C(5) << 29);
}

static void data_in_the_window_is_welcome(void **state)
{
    struct rogue rogue;
    char bytes[8];
    rogue_connect(&rogue, true);
    struct rsocket_place place = rogue.theirs.buffer;
    place.length = 5;
    memcpy(rogue.bytes, "hello", 5);
    rogue_write(&rogue, &place, rsocket_message_encode(RSOCKET_DATA, 5));
    assert_int_equal(rrecv(rogue.server, bytes, sizeof bytes, 0), 5);
    assert_memory_equal(bytes, "hello", 5);
    rogue_leave(&rogue);
}

/* The server's first credits and data go to memory that does not exist. */
static void targets_that_do_not_exist(void **state)
{
    struct rogue rogue;
    char byte;
    rogue_connect(&rogue, false);
    (void)rsend(rogue.server, "lost", 4, 0);
    assert_int_equal(rrecv(rogue.server, &byte, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    rogue_leave(&rogue);
}

static void a_write_outside_of_what_was_granted(void **state)
{
    struct rogue rogue;
    rogue_connect(&rogue, true);
    struct rsocket_place place = rogue.theirs.buffer;
    place.address += 2 * (uint64_t)place.length;
    place.length = 8;
    rogue_write(&rogue, &place, rsocket_message_encode(RSOCKET_DATA, 8));
    expect_the_end(&rogue);
    rogue_leave(&rogue);
}

static struct ibv_wc rogue_next(struct ibv_cq *queue)
{
    struct ibv_wc completion;
    int taken;
    do {
        taken = ibv_poll_cq(queue, 1, &completion);
    } while (taken == 0);
    assert_int_equal(taken, 1);
    assert_int_equal(completion.status, IBV_WC_SUCCESS);
    return completion;
}

/* Its message has arrived when this returns. */
static void rogue_say(struct rogue *rogue, enum rsocket_operation operation, uint32_t value)
{
    const struct rsocket_place nothing = {0};
    rogue_write(rogue, &nothing, rsocket_message_encode(operation, value));
    (void)rogue_next(rogue->id->send_cq);
}

static void *shut_down(void *context)
{
    assert_int_equal(rshutdown(*(int *)context, SHUT_WR), 0);
    return NULL;
}

/* All but one of the control messages are on their way when the end is to be said, and credits that
 * have just become due take the last one. */
static void the_end_is_said_after_credits(void **state)
{
    enum {
        HALF = 2048,
        QUEUE = 16
    };
    struct rogue rogue;
    char bytes[HALF];
    struct rsocket_message said;
    pthread_t thread;
    rogue_connect_deaf(&rogue, true);
    struct pollfd now = {rogue.server, POLLIN, 0};
    assert_int_equal(rpoll(&now, 1, 0), 0); /* the other half of the buffer is granted */
    for (int i = 0; i < 2; i++) {
        rogue_say(&rogue, RSOCKET_DATA, HALF);
        assert_int_equal(rrecv(rogue.server, bytes, HALF, 0), HALF);
    }
    assert_int_equal(rpoll(&now, 1, 0), 0); /* that was the third grant */
    for (int i = 0; i < QUEUE / 2; i++) {
        rogue_say(&rogue, RSOCKET_MAPPING, 0);
    }
    assert_int_equal(pthread_create(&thread, NULL, shut_down, &rogue.server), 0);
    usleep(20000);
    rogue_listen(&rogue);
    do {
        struct ibv_wc completion = rogue_next(rogue.id->recv_cq);
        said = rsocket_message_decode(ntohl(completion.imm_data));
    } while (said.operation != RSOCKET_CONTROL);
    assert_int_equal(said.value, RSOCKET_SHUTDOWN);
    assert_int_equal(pthread_join(thread, NULL), 0);
    rogue_leave(&rogue);
}

static void a_peer_that_goes_without_a_word(void **state)
{
    struct rogue rogue;
    rogue_connect(&rogue, true);
    assert_int_equal(rdma_disconnect(rogue.id), 0);
    expect_the_end(&rogue);
    rogue_leave(&rogue);
}

int main(void)
{
    alarm(60); /* who waits for what never comes */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_close_loses_no_bytes),
        cmocka_unit_test(polling_mixes_with_ordinary_descriptors),
        cmocka_unit_test(who_waits_to_write_hears_that_the_peer_has_gone),
        cmocka_unit_test(events_have_two_names),
        cmocka_unit_test(what_is_accepted_has_no_flags),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(a_child_closes_what_it_inherits),
        cmocka_unit_test(a_child_closes_the_listener),
        cmocka_unit_test(both_ways_at_once),
        cmocka_unit_test(a_late_reader_finds_every_datagram),
        cmocka_unit_test(another_version_is_rejected),
        cmocka_unit_test(credits_beyond_what_was_offered),
        cmocka_unit_test(data_longer_than_the_window),
        cmocka_unit_test(data_without_bytes),
        cmocka_unit_test(an_operation_that_is_reserved),
        cmocka_unit_test(targets_that_do_not_exist),
        cmocka_unit_test(data_in_the_window_is_welcome),
        cmocka_unit_test(a_write_outside_of_what_was_granted),
        cmocka_unit_test(the_end_is_said_after_credits),
        cmocka_unit_test(a_peer_that_goes_without_a_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
