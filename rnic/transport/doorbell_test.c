/* Doorbells rung by several threads while another answers: no work is left unseen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "rnic/base/container.h"
#include "rnic/transport/doorbell.h"

#define RINGERS    3
#define LINKS      4
#define RINGS_EACH 20000u

struct payload_place {
    struct doorbell_link link;
    atomic_uint posted;
    unsigned seen;
};

struct shared {
    struct doorbell doorbell;
    struct payload_place places[LINKS];
};

static void *ring(void *argument)
{
    struct shared *shared = argument;
    for (unsigned i = 0; i < RINGS_EACH; i++) {
        struct payload_place *place = &shared->places[i % LINKS];
        atomic_fetch_add_explicit(&place->posted, 1, memory_order_relaxed);
        (void)doorbell_ring(&shared->doorbell, &place->link);
    }
    return NULL;
}

static unsigned answer_all(struct shared *shared)
{
    unsigned seen = 0;
    struct doorbell_link *link = doorbell_take(&shared->doorbell);
    while (link != NULL) {
        struct payload_place *place = CONTAINER_OF(link, struct payload_place, link);
        link = doorbell_answer(link);
        unsigned posted = atomic_load_explicit(&place->posted, memory_order_relaxed);
        seen += posted - place->seen;
        place->seen = posted;
    }
    return seen;
}

static void no_ring_is_lost(void **state)
{
    static struct shared shared;
    pthread_t threads[RINGERS];
    for (int i = 0; i < RINGERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ring, &shared), 0);
    }
    unsigned seen = 0;
    while (seen < RINGERS * RINGS_EACH) {
        seen += answer_all(&shared);
    }
    for (int i = 0; i < RINGERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    (void)answer_all(&shared);
    assert_int_equal(seen, RINGERS * RINGS_EACH);
    assert_false(doorbell_is_rung(&shared.doorbell));
}

static void links_come_in_the_order_of_their_rings(void **state)
{
    struct shared shared = {.places = {{.posted = 0}}};
    for (int i = 0; i < LINKS; i++) {
        assert_true(doorbell_ring(&shared.doorbell, &shared.places[i].link));
    }
    assert_false(doorbell_ring(&shared.doorbell, &shared.places[0].link));
    struct doorbell_link *link = doorbell_take(&shared.doorbell);
    for (int i = 0; i < LINKS; i++) {
        assert_ptr_equal(link, &shared.places[i].link);
        link = doorbell_answer(link);
    }
    assert_null(link);
    assert_null(doorbell_take(&shared.doorbell));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_ring_is_lost),
        cmocka_unit_test(links_come_in_the_order_of_their_rings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
