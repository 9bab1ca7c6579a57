/* rsockets against peers that break the rules, or keep them in their own time: those speak rdma_cm
 * and verbs themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <string.h>
#include <unistd.h>

#include "rnic/rdmacm/rsocket_codec.h"
#include "rnic/rdmacm/rsocket_pair_test.h"

#define PATIENCE_MS 20000

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

/* What the rogue hears last, when it listens at last. */
static unsigned rogue_hears_the_end(struct rogue *rogue)
{
    struct rsocket_message said;
    rogue_listen(rogue);
    do {
        struct ibv_wc completion = rogue_next(rogue->id->recv_cq);
        said = rsocket_message_decode(ntohl(completion.imm_data));
    } while (said.operation != RSOCKET_CONTROL);
    return said.value;
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
    assert_int_equal(rogue_hears_the_end(&rogue), RSOCKET_SHUTDOWN);
    assert_int_equal(pthread_join(thread, NULL), 0);
    rogue_leave(&rogue);
}

/* Both ends stop sending at once: the one must not go before the other has its last bytes. */
static void an_end_that_meets_the_other_waits_for_the_peer(void **state)
{
    struct rogue rogue;
    pthread_t thread;
    rogue_connect_deaf(&rogue, true);
    assert_int_equal(rsend(rogue.server, "last", 4, 0), 4);
    assert_int_equal(pthread_create(&thread, NULL, shut_down, &rogue.server), 0);
    usleep(20000); /* its end is on its way, most likely */
    rogue_say(&rogue, RSOCKET_CONTROL, RSOCKET_SHUTDOWN);
    usleep(20000);
    /* One word of it or the other: ours may not have been first. */
    assert_int_not_equal(rogue_hears_the_end(&rogue), RSOCKET_KEEPALIVE);
    assert_memory_equal(rogue.bytes, "last", 4);
    assert_int_equal(pthread_join(thread, NULL), 0);
    rogue_leave(&rogue);
}

/* The peer's end comes while ours waits for a place. */
static void an_end_that_comes_second_is_said(void **state)
{
    enum {
        HALF = 2048
    };
    struct rogue rogue;
    char bytes[HALF];
    pthread_t thread;
    rogue_connect_deaf(&rogue, true);
    struct pollfd now = {rogue.server, POLLIN, 0};
    assert_int_equal(rpoll(&now, 1, 0), 0); /* the other half of the buffer is granted */
    for (int i = 0; i < 3; i++) {
        rogue_say(&rogue, RSOCKET_DATA, HALF);
        assert_int_equal(rrecv(rogue.server, bytes, HALF, 0), HALF);
    }
    assert_int_equal(rpoll(&now, 1, 0), 0); /* that was the fourth: there is no place for more */
    assert_int_equal(pthread_create(&thread, NULL, shut_down, &rogue.server), 0);
    usleep(20000);
    rogue_say(&rogue, RSOCKET_CONTROL, RSOCKET_SHUTDOWN);
    usleep(20000);
    assert_int_equal(rogue_hears_the_end(&rogue), RSOCKET_DISCONNECT);
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
        cmocka_unit_test(another_version_is_rejected),
        cmocka_unit_test(credits_beyond_what_was_offered),
        cmocka_unit_test(data_longer_than_the_window),
        cmocka_unit_test(data_without_bytes),
        cmocka_unit_test(an_operation_that_is_reserved),
        cmocka_unit_test(targets_that_do_not_exist),
        cmocka_unit_test(data_in_the_window_is_welcome),
        cmocka_unit_test(a_write_outside_of_what_was_granted),
        cmocka_unit_test(the_end_is_said_after_credits),
        cmocka_unit_test(an_end_that_meets_the_other_waits_for_the_peer),
        cmocka_unit_test(an_end_that_comes_second_is_said),
        cmocka_unit_test(a_peer_that_goes_without_a_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
