/* Every call that is given an object of the host's library reaches that library, with it; and ours
 * never do. WEIR_HOST_VERBS names fake_host.c's object. */
#include "rnic/verbs/world_test.h"

#include <stdlib.h>
#include <string.h>

#include "rnic/verbs/host_calls.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *ret_type);

#define NUMBER(name) number_of_##name,
enum number {
    NUMBER_NONE,
    HOST_CALLS(NUMBER)
};

typedef long anything(void *, long, long, long, long, long);
static const struct {
    const char *name;
    anything *call;
    long number;
} calls[] = {
#define ROW(name) {#name, (anything *)(void *)&name, number_of_##name},
    HOST_CALLS(ROW)
#undef ROW
};

static bool takes_a_device(const char *name)
{
    return strcmp(name, "ibv_open_device") == 0 || strcmp(name, "ibv_get_device_guid") == 0 ||
           strcmp(name, "ibv_get_device_index") == 0;
}

static bool takes_a_context(const char *name)
{
    static const char *const names[] = {
        "ibv_close_device",
        "ibv_query_device",
        "ibv_query_port",
        "ibv_query_gid",
        "_ibv_query_gid_ex",
        "_ibv_query_gid_table",
        "ibv_query_pkey",
        "ibv_get_pkey_index",
        "ibv_alloc_pd",
        "ibv_create_cq",
        "ibv_create_comp_channel",
        "ibv_get_async_event",
        "ibv_import_pd",
        "ibv_import_dm",
        "ibv_init_ah_from_wc",
        "ibv_query_gid_type",
        "ibv_resolve_eth_l2_from_gid",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_special(const char *name)
{
    return strcmp(name, "ibv_get_device_list") == 0 || strcmp(name, "ibv_free_device_list") == 0 ||
           strcmp(name, "ibv_import_device") == 0 || strcmp(name, "ibv_ack_async_event") == 0 ||
           strcmp(name, "ibv_fork_init") == 0 || strcmp(name, "ibv_is_fork_initialized") == 0;
}

static void objects_of_the_host_go_to_its_library(void **state)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    assert_non_null(list);
    assert_int_equal(count, 2);
    assert_string_equal(list[0]->name, "weir0");
    assert_string_equal(ibv_get_device_name(list[1]), "fake0");
    void *context[2] = {list[1]};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        void *object[8] = {context};
        void **given = takes_a_device(calls[i].name)    ? (void **)list[1]
                       : takes_a_context(calls[i].name) ? context
                                                        : object;
        if (is_special(calls[i].name)) {
            continue;
        }
        given[1] = NULL;
        (void)calls[i].call(given, 0, 0, 0, 0, 0);
        if ((long)given[1] != calls[i].number) {
            fail_msg("%s did not reach the host's library", calls[i].name);
        }
    }
    struct ibv_device *fake = list[1];
    ibv_free_device_list(list);
    assert_ptr_equal(((void **)fake)[2], fake); /* its own list was given back */
}

static void events_and_descriptors_of_the_host_go_there(void **state)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    void *context[2] = {list[1]};
    void *object[2] = {context};
    struct ibv_async_event event = {.element.qp = (struct ibv_qp *)object,
                                    .event_type = IBV_EVENT_QP_FATAL};
    ibv_ack_async_event(&event);
    assert_int_equal((int)event.event_type, number_of_ibv_ack_async_event);
    event.event_type = IBV_EVENT_WQ_FATAL;
    ibv_ack_async_event(&event);
    assert_int_equal((int)event.event_type, number_of_ibv_ack_async_event);
    assert_int_equal(ibv_fork_init(), number_of_ibv_fork_init); /* its devices pin memory */
    assert_int_equal((long)ibv_import_device(1000), number_of_ibv_import_device + 1000);
    ibv_free_device_list(list);
}

static void ours_stay_ours(void **state)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    assert_non_null(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    assert_non_null(pd);
    assert_int_equal(ibv_dealloc_pd(pd), 0);
    assert_int_equal(ibv_close_device(context), 0);
    ibv_free_device_list(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_of_the_host_go_to_its_library),
        cmocka_unit_test(events_and_descriptors_of_the_host_go_there),
        cmocka_unit_test(ours_stay_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
