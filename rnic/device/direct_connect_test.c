/* The link to memory of the host hears of whom a queue pair is connected to. */
#include "rnic/device/pair_test.h"

struct end {
    struct direct_link link; /* first */
    struct direct_table table;
    struct direct_entry qps[1], keys[1];
    uint32_t connected;
    unsigned rights; /* of the peer of the queue pair connected last, */
    struct qpn peer;
};

static void connect_to(struct direct_link *link, const struct path *path, struct qpn peer,
                       unsigned rights)
{
    struct end *end = (struct end *)link;
    end->connected++;
    end->rights = rights;
    end->peer = peer;
}

static struct end ends[2];

static struct pair_options options_for(enum service service)
{
    struct pair_options options = pair_defaults;
    options.service = service;
    return options;
}

static struct pair *connect_pair(enum service service)
{
    struct pair_options options = options_for(service);
    for (int i = 0; i < 2; i++) {
        memset(&ends[i], 0, sizeof ends[i]);
        ends[i].table = (struct direct_table){ends[i].qps, ends[i].keys, 1, 1};
        ends[i].link = (struct direct_link){
            .table = &ends[i].table, .part_bytes = 1, .qpns_each = 1, .connect = connect_to};
        options.direct[i] = &ends[i].link;
    }
    return pair_create(&options);
}

static void who_is_connected_is_told_once(void **state)
{
    struct pair *pair = connect_pair(SERVICE_RC);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ends[i].connected, 1); /* it has gone on to RTS since */
        assert_int_equal(ends[i].peer.value, qp_number(pair->sides[1 - i].qp).value);
        assert_int_equal(ends[i].rights, ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE);
    }
    pair_destroy(pair);
}

static void what_never_goes_directly_is_not_told(void **state)
{
    struct pair *pair = connect_pair(SERVICE_UC);
    assert_int_equal(ends[0].connected + ends[1].connected, 0);
    pair_destroy(pair);
}

/* As in a forked child. */
static void who_has_no_table_any_more_is_not_told(void **state)
{
    struct pair *pair = connect_pair(SERVICE_RC);
    struct pair_side *side = &pair->sides[0];
    struct pair_options options = options_for(SERVICE_RC);
    pair_modify(side, QP_RESET);
    pair_connect_side(pair, 0, &options);
    assert_int_equal(ends[0].connected, 2);
    pair_modify(side, QP_RESET);
    ends[0].link.table = NULL;
    pair_connect_side(pair, 0, &options);
    assert_int_equal(ends[0].connected, 2);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_connected_is_told_once),
        cmocka_unit_test(what_never_goes_directly_is_not_told),
        cmocka_unit_test(who_has_no_table_any_more_is_not_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
