/* Payloads by reference between two devices: what is read whole, what is taken apart, and what
 * comes as bytes after all. What networks do to them is the simulator's matter. */
#include "rnic/device/pair_test.h"

#define LENGTH (100u * 1024u) /* a hundred packets */
#define HERE   0u
#define THERE  (2u << 20)

static uint32_t reach_all(struct packet_sink *sink, const struct path *path, struct qpn destination)
{
    return REFERENCE_MAX;
}

static uint32_t reach_some(struct packet_sink *sink, const struct path *path,
                           struct qpn destination)
{
    return 10000; /* nine packets, and no part of one */
}

static struct pair *create(const struct pair_options *options)
{
    struct pair *pair = pair_create(options);
    for (int i = 0; i < 2; i++) {
        pair->sides[i].sink.reach = reach_all;
        pair->sides[i].sink.withdraw = pair_withdraw;
        pair_fill(&pair->sides[i], HERE, LENGTH, (uint32_t)i + 1);
    }
    return pair;
}

static uint64_t count(const struct pair *pair, int side, enum counter counter)
{
    return device_counters(pair->sides[side].device)->values[counter];
}

static void expect_same(const struct pair *pair, int from, int to, uint32_t length)
{
    assert_memory_equal(pair->sides[from].buffer + HERE, pair->sides[to].buffer + THERE, length);
}

/* A SEND, a WRITE or a READ of `length` bytes, that arrives; returns when it was done. */
static struct instant move(struct pair *pair, enum work_kind kind, uint32_t length)
{
    bool read = kind == WORK_READ;
    uint64_t id = (uint64_t)kind + 100;
    pair_post_receive(&pair->sides[1], 7, THERE, LENGTH);
    pair_post_simple(&pair->sides[0], kind, id, read ? THERE : HERE, read ? HERE : THERE, length);
    pair_run(pair);
    struct completion completion = pair_expect(pair->sides[0].sends, id, COMPLETION_SUCCESS);
    expect_same(pair, read ? 1 : 0, read ? 0 : 1, length);
    return completion.time;
}

static const enum work_kind kinds[] = {WORK_SEND, WORK_SEND_IMMEDIATE, WORK_WRITE,
                                       WORK_WRITE_IMMEDIATE, WORK_READ};

static void a_message_is_one_packet(void **state)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct pair *pair = create(&pair_defaults);
        (void)move(pair, kinds[i], LENGTH);
        int from = kinds[i] == WORK_READ;
        assert_int_equal(pair->sides[0].sent, 1);
        assert_int_equal(pair->sides[1].sent, 1);
        assert_int_equal(count(pair, from, COUNTER_REFERENCES_SENT), 1);
        assert_int_equal(count(pair, 1 - from, COUNTER_REFERENCES_READ), 1);
        (void)move(pair, kinds[i],
                   LENGTH - 1); /* PSNs are those of a hundred packets at both ends */
        assert_int_equal(count(pair, 0, COUNTER_RETRANSMITTED_PACKETS), 0);
        assert_int_equal(count(pair, 1, COUNTER_OUT_OF_SEQUENCE), 0);
        pair_destroy(pair);
    }
}

static void as_many_packets_as_the_link_reaches(void **state)
{
    struct pair *pair = create(&pair_defaults);
    pair->sides[0].sink.reach = reach_some;
    (void)move(pair, WORK_WRITE, LENGTH);
    assert_int_equal(count(pair, 0, COUNTER_REFERENCES_SENT),
                     11); /* of nine packets; one is left */
    assert_int_equal(pair->sides[0].sent, 12);
    (void)move(pair, WORK_SEND, 1024); /* one packet anyway */
    assert_int_equal(count(pair, 0, COUNTER_REFERENCES_SENT), 11);
    pair_destroy(pair);
}

static void what_cannot_be_read_comes_as_bytes(void **state)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct pair *pair = create(&pair_defaults);
        struct instant begun = pair->now;
        pair->sides[0].unreadable = pair->sides[1].unreadable = true;
        struct instant done = move(pair, kinds[i], LENGTH);
        bool read = kinds[i] == WORK_READ;
        assert_int_equal(count(pair, read ? 0 : 1, COUNTER_REFERENCES_UNREADABLE), 1);
        assert_int_equal(count(pair, read ? 1 : 0, COUNTER_REFERENCES_SENT), 1);
        assert_int_equal(count(pair, 0, COUNTER_TIMEOUTS), 0); /* it is asked for at once */
        assert_true(instant_elapsed_ns(begun, done) < 100 * PAIR_DELAY_NS);
        pair->sides[0].unreadable = pair->sides[1].unreadable = false;
        (void)move(pair, kinds[i], LENGTH);
        assert_int_equal(count(pair, read ? 1 : 0, COUNTER_REFERENCES_SENT), 2);
        pair_destroy(pair);
    }
}

static bool declined(struct watcher *watcher, const struct qp *qp, uint32_t offset,
                     const uint8_t *data, uint32_t length)
{
    (void)watcher;
    assert_true(length <= path_mtu_bytes(pair_defaults.mtu));
    return false;
}

static void begins(struct watcher *watcher, const struct qp *qp, uint8_t *bytes, uint32_t length)
{
}

static void ends(struct watcher *watcher, const struct qp *qp, uint8_t *place)
{
}

static void send_ends(struct watcher *watcher, const struct qp *qp, const struct send_slot *slot)
{
}

static void missing(struct watcher *watcher, const struct qp *qp)
{
}

/* Who looks over the responder's shoulder sees ordinary packets. */
static void what_is_watched_is_taken_apart(void **state)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct pair *pair = create(&pair_defaults);
        struct watcher watcher = {.not_ready = missing,
                                  .write_begins = begins,
                                  .write_data = declined,
                                  .write_ends = ends,
                                  .send_ends = send_ends};
        bool read = kinds[i] == WORK_READ;
        device_set_watcher(pair->sides[read ? 0 : 1].device, &watcher);
        (void)move(pair, kinds[i], LENGTH - 5);
        assert_int_equal(count(pair, read ? 0 : 1, COUNTER_REFERENCES_UNFOLDED), 1);
        assert_int_equal(count(pair, 0, COUNTER_RETRANSMITTED_PACKETS), 0);
        if (!read && kinds[i] != WORK_WRITE) {
            struct completion completion =
                pair_expect(pair->sides[1].receives, 7, COMPLETION_SUCCESS);
            assert_int_equal(completion.has_immediate,
                             kinds[i] == WORK_SEND_IMMEDIATE || kinds[i] == WORK_WRITE_IMMEDIATE);
        }
        pair_destroy(pair);
    }
}

/* As with bytes: the ends do not agree on what a full packet is. */
static void other_path_mtu_is_refused(void **state)
{
    struct pair *pair = create(&pair_defaults);
    struct pair_options other = pair_defaults;
    other.mtu = PATH_MTU_2048;
    struct qp_attributes reset = {.state = QP_RESET};
    assert_int_equal(device_modify_qp(pair->sides[0].device, pair->now, pair->sides[0].qp, &reset,
                                      QP_SET_STATE, NULL),
                     STATUS_OK);
    pair_connect_side(pair, 0, &other);
    pair_post_receive(&pair->sides[1], 7, THERE, LENGTH);
    pair_post_simple(&pair->sides[0], WORK_SEND, 1, HERE, 0, LENGTH);
    pair_run(pair);
    (void)pair_expect(pair->sides[0].sends, 1, COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    assert_int_equal(count(pair, 1, COUNTER_REFERENCES_READ), 0);
    pair_destroy(pair);
}

/* Memory that is none has no address that anybody could read. */
static void memory_that_is_none_is_sent_as_zeroes(void **state)
{
    struct pair *pair = create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct memory_key none;
    assert_int_equal(memory_register_null(device_memory(a->device), a->domain, &none), STATUS_OK);
    struct sge sges[] = {pair_sge(a, HERE, 10000), {0, 20000, none}, pair_sge(a, HERE, 10000)};
    struct send_request request = pair_request(a, WORK_WRITE, 1, sges, THERE);
    request.sge_count = 3;
    pair_post(a, &request);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    static const uint8_t zeroes[20000];
    expect_same(pair, 0, 1, 10000);
    assert_memory_equal(b->buffer + THERE + 10000, zeroes, sizeof zeroes);
    assert_memory_equal(b->buffer + THERE + 30000, a->buffer + HERE, 10000);

    struct memory_key there;
    assert_int_equal(memory_register_null(device_memory(b->device), b->domain, &there), STATUS_OK);
    struct sge into[] = {{0, 20000, there}, pair_sge(b, THERE, LENGTH)};
    struct receive_request receive = {.id = 2, .sges = into, .sge_count = 2};
    assert_int_equal(qp_post_receive(b->qp, &receive), STATUS_OK);
    pair_post_simple(a, WORK_SEND, 3, HERE, 0, LENGTH);
    pair_run(pair);
    (void)pair_expect(b->receives, 2, COMPLETION_SUCCESS);
    assert_memory_equal(b->buffer + THERE, a->buffer + HERE + 20000, LENGTH - 20000);
    assert_int_equal(memory_deregister(device_memory(a->device), none), STATUS_OK);
    assert_int_equal(memory_deregister(device_memory(b->device), there), STATUS_OK);
    pair_destroy(pair);
}

static enum fate lose_all_of_a(struct pair *pair, int side, uint32_t number,
                               const struct packet *packet)
{
    return side == 0 ? FATE_LOSE : FATE_DELIVER;
}

/* After the last completion nobody reads what the application may have changed. */
static void what_is_flushed_is_withdrawn(void **state)
{
    struct pair *pair = create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    (void)move(pair, WORK_WRITE, LENGTH);
    pair->script = lose_all_of_a;
    pair_post_simple(a, WORK_WRITE, 1, HERE, THERE, LENGTH);
    pair_post_simple(b, WORK_READ, 2, THERE, HERE, LENGTH);
    pair_run_for(pair, 4 * PAIR_DELAY_NS);
    struct qp_attributes error = {.state = QP_ERROR};
    assert_int_equal(device_modify_qp(a->device, pair->now, a->qp, &error, QP_SET_STATE, NULL),
                     STATUS_OK);
    (void)pair_expect(a->sends, 1, COMPLETION_FLUSHED);
    assert_int_equal(a->withdrawn[false], 1);
    assert_int_equal(a->withdrawn[true], 1);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_one_packet),
        cmocka_unit_test(as_many_packets_as_the_link_reaches),
        cmocka_unit_test(what_cannot_be_read_comes_as_bytes),
        cmocka_unit_test(what_is_watched_is_taken_apart),
        cmocka_unit_test(other_path_mtu_is_refused),
        cmocka_unit_test(memory_that_is_none_is_sent_as_zeroes),
        cmocka_unit_test(what_is_flushed_is_withdrawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
