#include "rnic/base/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

struct item {
    int number;
    struct list_node node;
};

static int number_of(struct list_node *node)
{
    return CONTAINER_OF(node, struct item, node)->number;
}

/* The numbers as one decimal, first digit first. */
static int spell(struct list *list)
{
    int digits = 0;
    LIST_FOR_EACH(node, list)
    {
        digits = digits * 10 + number_of(node);
    }
    return digits;
}

static void keeps_order_at_both_ends(void **state)
{
    struct list list;
    struct item items[4] = {{.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
    list_init(&list);
    assert_true(list_is_empty(&list));
    assert_null(list_first(&list));
    assert_null(list_last(&list));
    assert_null(list_pop_first(&list));

    list_append(&list, &items[1].node);
    list_append(&list, &items[2].node);
    list_prepend(&list, &items[0].node);
    list_insert_before(&items[2].node, &items[3].node);
    assert_int_equal(spell(&list), 1243);
    assert_int_equal(number_of(list_last(&list)), 3);
    assert_null(list_next(&list, &items[2].node));
    assert_ptr_equal(list_next(&list, &items[0].node), &items[1].node);
    assert_int_equal(number_of(list_pop_first(&list)), 1);
    assert_int_equal(spell(&list), 243);
}

static void removal_in_the_middle_and_twice(void **state)
{
    struct list list;
    struct item items[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
    list_init(&list);
    for (int i = 0; i < 3; i++) {
        assert_false(list_node_is_linked(&items[i].node));
        list_append(&list, &items[i].node);
    }
    list_remove(&items[1].node);
    list_remove(&items[1].node);
    assert_false(list_node_is_linked(&items[1].node));
    assert_int_equal(spell(&list), 13);
    list_append(&list, &items[1].node);
    assert_int_equal(spell(&list), 132);
}

static void a_walk_may_remove_where_it_stands(void **state)
{
    struct list list;
    struct item items[4] = {{.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
    list_init(&list);
    for (int i = 0; i < 4; i++) {
        list_append(&list, &items[i].node);
    }
    LIST_FOR_EACH(node, &list)
    {
        if (number_of(node) % 2 == 0) {
            list_remove(node);
        }
    }
    assert_int_equal(spell(&list), 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_order_at_both_ends),
        cmocka_unit_test(removal_in_the_middle_and_twice),
        cmocka_unit_test(a_walk_may_remove_where_it_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
