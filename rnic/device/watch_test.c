/* What a watcher is told, and that the bytes of a WRITE are its own until the message ends. */
#include "rnic/base/container.h"
#include "rnic/device/pair_test.h"

#define REMOTE 2097152u
#define LENGTH 5000u

struct witness {
    struct watcher watcher;
    uint8_t *bytes; /* of the WRITE under way; NULL: none */
    uint32_t length, received;
    uint8_t held[LENGTH];
    bool declines; /* the data */
    uint32_t begun, whole, abandoned, missing, too_long, refusals, sends;
    uint64_t excess;
    enum memory_verdict verdict;
    unsigned rights;
};

static struct witness *of(struct watcher *watcher)
{
    return CONTAINER_OF(watcher, struct witness, watcher);
}

static void not_ready(struct watcher *watcher, const struct qp *qp)
{
    of(watcher)->missing++;
}

static void refused(struct watcher *watcher, const struct qp *qp,
                    const struct memory_request *request, enum memory_verdict verdict,
                    unsigned rights)
{
    of(watcher)->refusals++;
    of(watcher)->verdict = verdict;
    of(watcher)->rights = request == NULL ? rights : request->rights;
}

static void too_long(struct watcher *watcher, const struct qp *qp, uint64_t length, uint64_t room)
{
    of(watcher)->too_long++;
    of(watcher)->excess = length - room;
}

static void write_begins(struct watcher *watcher, const struct qp *qp, uint8_t *bytes,
                         uint32_t length)
{
    struct witness *witness = of(watcher);
    assert_null(witness->bytes);
    assert_in_range(length, 1, LENGTH);
    witness->bytes = bytes;
    witness->length = length;
    witness->received = 0;
    witness->begun++;
}

static bool write_data(struct watcher *watcher, const struct qp *qp, uint32_t offset,
                       const uint8_t *data, uint32_t length)
{
    struct witness *witness = of(watcher);
    assert_non_null(witness->bytes);
    assert_int_equal(offset, witness->received);
    assert_true(offset + length <= witness->length);
    memcpy(witness->held + offset, data, length);
    witness->received += length;
    return !witness->declines;
}

static void write_ends(struct watcher *watcher, const struct qp *qp, uint8_t *place)
{
    struct witness *witness = of(watcher);
    assert_non_null(witness->bytes);
    if (place != NULL) {
        assert_int_equal(witness->received, witness->length);
        if (!witness->declines) {
            memcpy(place, witness->held, witness->length);
        }
        witness->whole++;
    } else {
        witness->abandoned++;
    }
    witness->bytes = NULL;
}

static void send_ends(struct watcher *watcher, const struct qp *qp, const struct send_slot *slot)
{
    of(watcher)->sends++;
}

static struct witness witness_make(void)
{
    return (struct witness){.watcher = {
                                .not_ready = not_ready,
                                .too_long = too_long,
                                .refused = refused,
                                .write_begins = write_begins,
                                .write_data = write_data,
                                .write_ends = write_ends,
                                .send_ends = send_ends,
                            }};
}

static enum fate lose_some(struct pair *pair, int side, uint32_t number,
                           const struct packet *packet)
{
    return random_below(&pair->random, 4) == 0   ? FATE_LOSE
           : random_below(&pair->random, 4) == 0 ? FATE_DUPLICATE
                                                 : FATE_DELIVER;
}

static void held_back_bytes_come_whole_through_loss(bool declines)
{
    for (uint64_t seed = 1; seed < 20; seed++) {
        struct pair *pair = pair_create(&pair_defaults);
        struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
        struct witness witness = witness_make();
        witness.declines = declines;
        random_seed(&pair->random, seed);
        pair->script = lose_some;
        device_set_watcher(b->device, &witness.watcher);
        pair_fill(a, 0, LENGTH, 3);
        for (uint64_t id = 0; id < 3; id++) {
            pair_post_simple(a, WORK_WRITE, id, 0, REMOTE, LENGTH);
        }
        pair_run(pair);
        for (uint64_t id = 0; id < 3; id++) {
            (void)pair_expect(a->sends, id, COMPLETION_SUCCESS);
        }
        assert_memory_equal(a->buffer, b->buffer + REMOTE, LENGTH);
        assert_int_equal(witness.begun, 3);
        assert_int_equal(witness.whole, 3);
        assert_int_equal(witness.abandoned, 0);
        pair_destroy(pair);
    }
}

static void bytes_that_are_taken_come_whole(void **state)
{
    held_back_bytes_come_whole_through_loss(false);
}

static void bytes_that_are_declined_go_where_they_belong(void **state)
{
    held_back_bytes_come_whole_through_loss(true);
}

static enum fate lose_last(struct pair *pair, int side, uint32_t number,
                           const struct packet *packet)
{
    return side == 0 && packet->info->last && pair->knob == 0 ? FATE_LOSE : FATE_DELIVER;
}

/* Posts a WRITE from side 0 to side 1, whose last packet is lost until pair->knob is set, and plays
 * until most of it has come; `ret_before` is what the bytes were. */
static void hold_write(struct pair *pair, struct witness *witness, uint8_t ret_before[LENGTH])
{
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    device_set_watcher(b->device, &witness->watcher);
    pair->script = lose_last;
    pair_fill(a, 0, LENGTH, 3);
    pair_fill(b, REMOTE, LENGTH, 4);
    memcpy(ret_before, b->buffer + REMOTE, LENGTH);
    pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, LENGTH);
    while (witness->received < LENGTH * 4 / 5) {
        assert_true(pair_step(pair));
    }
}

/* The region goes away between two packets of a message that was granted. */
static void nothing_is_touched_after_the_region_has_gone(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct witness witness = witness_make();
    uint8_t before[LENGTH];
    hold_write(pair, &witness, before);
    assert_memory_equal(b->buffer + REMOTE, before, LENGTH); /* not yet visible */
    struct memory *memory = device_memory(b->device);
    assert_int_equal(memory_deregister(memory, b->key), STATUS_OK);
    pair->knob = 1;
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_REMOTE_ACCESS_ERROR);
    assert_memory_equal(b->buffer + REMOTE, before, LENGTH);
    assert_int_equal(witness.whole, 0);
    assert_int_equal(witness.abandoned, 1);
    assert_int_equal(witness.refusals, 1);
    assert_int_equal(witness.verdict, MEMORY_NO_KEY);
    struct region_attributes again = {.domain = b->domain, .bytes = b->buffer};
    assert_int_equal(memory_register(memory, &again, &b->key), STATUS_OK); /* for pair_destroy */
    pair_destroy(pair);
}

/* The key leads elsewhere before the message ends: there the bytes belong, as those of packets that
 * come after such a change would. */
static void what_was_held_back_goes_where_the_key_leads(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct witness witness = witness_make();
    uint8_t before[LENGTH], elsewhere[LENGTH];
    hold_write(pair, &witness, before);
    struct region_attributes other = {
        .domain = b->domain,
        .address = PAIR_BUFFER_ADDRESS + REMOTE,
        .length = LENGTH,
        .bytes = elsewhere,
        .access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE,
    };
    assert_int_equal(memory_reregister(device_memory(b->device), b->key, &other), STATUS_OK);
    pair->knob = 1;
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    assert_memory_equal(elsewhere, a->buffer, LENGTH);
    assert_memory_equal(b->buffer + REMOTE, before, LENGTH);
    pair_destroy(pair);
}

struct pages {
    struct memory_probe probe;
    const uint8_t *first; /* those before are gone */
};

static bool is_mapped(struct memory_probe *probe, uint8_t *bytes, uint64_t length, bool write)
{
    return bytes >= CONTAINER_OF(probe, struct pages, probe)->first;
}

/* The region stays, but its pages go before the bytes that were held back are put there. */
static void nothing_is_touched_after_the_pages_have_gone(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct memory *memory = device_memory(b->device);
    struct pages pages = {.probe = {is_mapped}, .first = b->buffer};
    memory_set_probe(memory, &pages.probe);
    struct region_attributes region = {
        .domain = b->domain,
        .address = PAIR_BUFFER_ADDRESS,
        .length = PAIR_BUFFER_LENGTH,
        .bytes = b->buffer,
        .access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_ON_DEMAND,
    };
    assert_int_equal(memory_reregister(memory, b->key, &region), STATUS_OK);
    struct witness witness = witness_make();
    device_set_watcher(b->device, &witness.watcher);
    pair->script = lose_last;
    pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, LENGTH);
    while (witness.received < LENGTH * 4 / 5) {
        assert_true(pair_step(pair));
    }
    pages.first = b->buffer + REMOTE + 1024; /* not those of the last packet */
    pair->knob = 1;
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_REMOTE_ACCESS_ERROR);
    assert_int_equal(witness.whole, 0);
    assert_int_equal(witness.abandoned, 1);
    pair_destroy(pair);
}

static void refusals_and_missing_receives_are_told(void **state)
{
    struct pair_options options = pair_defaults;
    options.access = ACCESS_REMOTE_READ;
    options.rnr_retry_count = 0;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct witness witness = witness_make();
    device_set_watcher(b->device, &witness.watcher);
    pair_post_simple(a, WORK_SEND, 1, 0, 0, 100);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_RNR_RETRY_EXCEEDED);
    assert_int_equal(witness.missing, 1);
    pair_destroy(pair);

    pair = pair_create(&options);
    a = &pair->sides[0];
    device_set_watcher(pair->sides[1].device, &witness.watcher);
    device_set_watcher(a->device, &witness.watcher);
    pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, 100);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    assert_int_equal(witness.refusals, 1);
    assert_int_equal(witness.rights, ACCESS_REMOTE_WRITE);
    assert_int_equal(witness.sends, 1);
    pair_destroy(pair);
}

static void a_message_longer_than_its_receive_is_told(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct witness witness = witness_make();
    device_set_watcher(b->device, &witness.watcher);
    pair_post_receive(b, 2, 0, 100);
    pair_post_simple(a, WORK_SEND, 1, 0, 0, 100);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    assert_int_equal(witness.too_long, 0);
    pair_post_receive(b, 3, 0, 99);
    pair_post_simple(a, WORK_SEND, 4, 0, 0, 100);
    pair_run(pair);
    (void)pair_expect(a->sends, 4, COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    assert_int_equal(witness.too_long, 1);
    assert_int_equal(witness.excess, 1);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_that_are_taken_come_whole),
        cmocka_unit_test(bytes_that_are_declined_go_where_they_belong),
        cmocka_unit_test(nothing_is_touched_after_the_region_has_gone),
        cmocka_unit_test(what_was_held_back_goes_where_the_key_leads),
        cmocka_unit_test(nothing_is_touched_after_the_pages_have_gone),
        cmocka_unit_test(refusals_and_missing_receives_are_told),
        cmocka_unit_test(a_message_longer_than_its_receive_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
