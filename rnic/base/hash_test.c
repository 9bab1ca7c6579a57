#include "rnic/base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/base/container.h"
#include "rnic/base/heap.h"
#include "rnic/base/random.h"

enum {
    NODES = 1000,
    CAPACITY = 300 /* chains are longer than one in the end */
};

struct thing {
    struct hash_node node;
    bool in;
};

static void *refuse(struct allocator *allocator, size_t size)
{
    return NULL;
}

static void bounds(void **state)
{
    struct allocator poor = {refuse, NULL};
    struct hash hash = {0};
    assert_int_equal(hash_init(&hash, &poor, 2), STATUS_NO_MEMORY);
    assert_int_equal(hash_init(&hash, heap_allocator(), 0), STATUS_INVALID);
    assert_int_equal(hash_init(&hash, heap_allocator(), UINT32_MAX), STATUS_INVALID);
    hash_fini(&hash);
    assert_int_equal(hash_init(&hash, heap_allocator(), 1), STATUS_OK);
    assert_null(hash_find(&hash, 0));
    struct hash_node node = {.hash = 5};
    hash_insert(&hash, &node);
    assert_ptr_equal(hash_find(&hash, 5), &node);
    assert_null(hash_find(&hash, 4));
    hash_fini(&hash);
    hash_fini(&hash);
}

static bool is_found(const struct hash *hash, const struct thing *thing)
{
    struct hash_node *node = hash_find(hash, thing->node.hash);
    while (node != NULL && node != &thing->node) {
        assert_int_equal(node->hash, thing->node.hash);
        node = hash_find_next(node);
    }
    return node != NULL;
}

/* Hashes come twice and more; nodes come and go, while it grows and after. */
static void finds_what_is_in_and_nothing_else(void **state)
{
    static struct thing things[NODES];
    struct random random;
    struct hash hash;
    random_seed(&random, 3);
    assert_int_equal(hash_init(&hash, heap_allocator(), CAPACITY), STATUS_OK);
    for (int i = 0; i < NODES; i++) {
        uint32_t value = (uint32_t)random_below(&random, i % 2 == 0 ? 50 : UINT32_MAX);
        things[i] = (struct thing){.node.hash = value};
    }
    for (int step = 0; step < 20000; step++) {
        struct thing *thing = &things[random_below(&random, (uint64_t)step / 20 + 1)];
        assert_int_equal(is_found(&hash, thing), thing->in);
        if (thing->in) {
            hash_remove(&hash, &thing->node);
        } else {
            hash_insert(&hash, &thing->node);
        }
        thing->in = !thing->in;
    }
    uint32_t count = 0;
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(is_found(&hash, &things[i]), things[i].in);
        count += things[i].in;
    }
    assert_int_equal(hash.count, count);
    assert_int_equal(hash.used, CAPACITY);
    hash_fini(&hash);
}

/* What is not needed is not touched. */
static void grows_with_its_nodes(void **state)
{
    static struct hash_node nodes[100];
    struct hash hash;
    assert_int_equal(hash_init(&hash, heap_allocator(), 1000), STATUS_OK);
    for (uint32_t i = 0; i < 100; i++) {
        nodes[i] = (struct hash_node){.hash = i};
        hash_insert(&hash, &nodes[i]);
    }
    assert_int_equal(hash.used, 100);
    for (uint32_t i = 0; i < 100; i++) {
        assert_null(hash.chains[i]->next); /* one each, as these hashes are spread evenly */
    }
    hash_fini(&hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds),
        cmocka_unit_test(finds_what_is_in_and_nothing_else),
        cmocka_unit_test(grows_with_its_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
