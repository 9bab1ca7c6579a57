/* What posts may leave any errno behind, also where it succeeds: no call that moves data over a
 * stream may take that for why nothing has come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "rnic/rdmacm/rsocket_pair_test.h"

#define SIZE  (64u << 20)
#define PIECE 65536u

static atomic_uint posts;

static int (*plain_post)(struct ibv_qp *qp, struct ibv_send_wr *work, struct ibv_send_wr **bad);

static int post(struct ibv_qp *qp, struct ibv_send_wr *work, struct ibv_send_wr **bad)
{
    int result = plain_post(qp, work, bad);
    errno = ETIMEDOUT;
    atomic_fetch_add(&posts, 1);
    return result;
}

static void spoil_errno(void)
{
    int count;
    struct ibv_context **contexts = rdma_get_devices(&count);
    assert_non_null(contexts);
    for (int i = 0; i < count; i++) {
        plain_post = contexts[i]->ops.post_send;
        contexts[i]->ops.post_send = post;
    }
    rdma_free_devices(contexts);
}

struct mover {
    int descriptor;
    bool sends;
    size_t moved;
    int error;
};

static void *move(void *context)
{
    struct mover *mover = context;
    static char outgoing[PIECE];
    char incoming[PIECE];
    while (mover->moved < SIZE) {
        ssize_t part = mover->sends ? rsend(mover->descriptor, outgoing, PIECE, 0)
                                    : rrecv(mover->descriptor, incoming, PIECE, 0);
        if (part <= 0) {
            mover->error = part < 0 ? errno : ECONNRESET;
            rshutdown(mover->descriptor, SHUT_RDWR); /* nobody waits for the rest */
            break;
        }
        mover->moved += (size_t)part;
    }
    return NULL;
}

static void posts_do_not_say_why_nothing_came(void **state)
{
    (void)state;
    pthread_t threads[4];
    int ends[2];
    connect_both(&ends[0], &ends[1]);
    spoil_errno();
    struct mover movers[4] = {{.descriptor = ends[0], .sends = true},
                              {.descriptor = ends[0]},
                              {.descriptor = ends[1], .sends = true},
                              {.descriptor = ends[1]}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, move, &movers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(movers[i].error, 0);
        assert_true(movers[i].moved >= SIZE);
    }
    assert_true(atomic_load(&posts) > 0);
    rclose(ends[0]);
    rclose(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(posts_do_not_say_why_nothing_came)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
