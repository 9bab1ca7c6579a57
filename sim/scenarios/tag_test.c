/* Tag matching at the receiver: A sends messages with headers, B sorts them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/bytes.h"
#include "sim/scenario.h"

#define EAGER      3
#define RENDEZVOUS 1
#define NO_TAG     0

#define BUFFER_AT 4096u /* in B's memory: where tagged messages go */
#define SOURCE_AT 8192u /* in A's: what a rendezvous is about */

static struct scenario s;
static struct tag_matcher *matcher;
static struct receive_queue *receives;
static struct domain other; /* the queue pair's: receives and buffers are of B's */

static void replace_queue_pair(void)
{
    struct allocator *allocator = &s.b.host->storage.allocator;
    const struct tag_config config = {
        .allocator = allocator, .max_tags = 4, .max_sge = 2, .completions = s.b.completions};
    device_destroy_qp(s.b.host->device, s.b.qp);
    assert_int_equal(tag_matcher_create(&config, &matcher), STATUS_OK);
    assert_int_equal(receive_queue_create(allocator, 8, 1, &receives), STATUS_OK);
    assert_int_equal(memory_allocate_domain(device_memory(s.b.host->device), &other), STATUS_OK);
    struct qp_init init = {
        .service = SERVICE_RC,
        .domain = other,
        .shared_domain = s.b.domain,
        .send_completions = s.b.completions,
        .receive_completions = s.b.completions,
        .shared_receives = receives,
        .matcher = matcher,
        .send = tag_send_limits(matcher),
    };
    assert_int_equal(device_create_qp(s.b.host->device, &init, &s.b.qp), STATUS_OK);
    struct qp_attributes attributes = {.state = QP_INIT, .port = 1};
    assert_int_equal(
        device_modify_qp(s.b.host->device, s.simulator.now, s.b.qp, &attributes,
                         QP_SET_STATE | QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS, NULL),
        STATUS_OK);
}

static int start(void **state)
{
    (void)state;
    scenario_start(&s);
    replace_queue_pair();
    scenario_connect(&s);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    device_destroy_qp(s.b.host->device, s.b.qp);
    s.b.qp = NULL;
    tag_matcher_destroy(matcher);
    receive_queue_destroy(receives);
    assert_int_equal(memory_free_domain(device_memory(s.b.host->device), other), STATUS_OK);
    scenario_stop(&s);
    return 0;
}

static uint32_t add(uint64_t id, uint64_t tag, uint32_t length, uint32_t unexpected)
{
    struct sge sge = {BUFFER_AT, length, s.b.key};
    struct tag_operation operation = {.synchronizes = true, .unexpected = unexpected};
    struct tag_buffer buffer = {
        .id = 1000 + id, .tag = tag, .mask = UINT64_MAX, .sges = &sge, .sge_count = 1};
    uint32_t handle;
    assert_int_equal(tag_add(matcher, &operation, &buffer, &handle), STATUS_OK);
    return handle;
}

static void synchronize(uint32_t unexpected)
{
    tag_synchronize(matcher,
                    &(struct tag_operation){.synchronizes = true, .unexpected = unexpected});
}

static void post_receive(uint64_t id, uint32_t length)
{
    struct sge sge = {0, length, s.b.key};
    struct receive_request request = {.id = 1000 + id, .sges = &sge, .sge_count = 1};
    assert_int_equal(receive_queue_post(receives, &request), STATUS_OK);
}

static void send(uint64_t id, uint8_t operation, uint64_t tag, uint32_t length)
{
    memset(s.a.bytes, 0, TAG_HEADER_LENGTH);
    s.a.bytes[0] = operation;
    bytes_store_u64(s.a.bytes + 8, tag);
    struct work work = {.kind = WORK_SEND, .id = id, .length = length};
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
    scenario_run(&s);
}

static void send_rendezvous(uint64_t id, uint64_t tag, uint32_t length)
{
    bytes_store_u64(s.a.bytes + 16, SOURCE_AT);
    bytes_store_u32(s.a.bytes + 24, s.a.key.value);
    bytes_store_u32(s.a.bytes + 28, length);
    send(id, RENDEZVOUS, tag, TAG_RENDEZVOUS_LENGTH);
}

static void a_message_goes_where_its_tag_is_wanted(void **state)
{
    (void)state;
    s.polls = false;
    add(1, 11, 100, 0);
    add(2, 22, 100, 0);
    send(1, EAGER, 22, 100);
    struct completion completion;
    assert_int_equal(completion_queue_poll(s.b.completions, 1, &completion), 1);
    assert_int_equal(completion.id, 1002);
    assert_int_equal(completion.kind, COMPLETED_TAG_RECEIVE);
    assert_int_equal(completion.tag_flags, TAG_MATCHED | TAG_DATA_VALID);
    assert_int_equal(completion.tag, 22);
    assert_int_equal(completion.byte_length, 84);
    assert_memory_equal(s.b.bytes + BUFFER_AT, s.a.bytes + TAG_HEADER_LENGTH, 84);
}

/* The match is told when it happens, the data when it is there. */
static void a_long_message_completes_twice(void **state)
{
    (void)state;
    add(1, 11, 1000, 0);
    send(1, EAGER, 11, 616);
    expect_trace(&s, "A>B SEND_FIRST psn=7\n"
                     "A>B SEND_MIDDLE psn=8\n"
                     "A>B SEND_LAST psn=9\n"
                     "B>A ACK psn=9\n"
                     "B receive 1 success length=0\n"
                     "B receive 1 success length=600\n"
                     "A send 1 success\n");
    assert_memory_equal(s.b.bytes + BUFFER_AT, s.a.bytes + TAG_HEADER_LENGTH, 600);
}

/* Whole, in the order of posting. */
static void others_go_to_the_receives(void **state)
{
    (void)state;
    add(1, 11, 100, 0);
    post_receive(5, 100);
    post_receive(6, 100);
    send(1, EAGER, 12, 50);
    send(2, NO_TAG, 11, 60);
    expect_trace(&s, "A>B SEND_ONLY psn=7\n"
                     "B>A ACK psn=7\n"
                     "B receive 5 success length=50\n"
                     "A send 1 success\n"
                     "A>B SEND_ONLY psn=8\n"
                     "B>A ACK psn=8\n"
                     "B receive 6 success length=60\n"
                     "A send 2 success\n");
}

/* Else the second message would overtake the first, which waits in the application. */
static void a_buffer_posted_in_doubt_matches_after_synchronizing(void **state)
{
    (void)state;
    post_receive(5, 100);
    post_receive(6, 100);
    send(1, EAGER, 11, 50);
    add(1, 11, 100, 0);
    send(2, EAGER, 11, 50);
    forget_trace(&s);
    synchronize(1);
    post_receive(7, 100);
    send(3, EAGER, 11, 50); /* two were unexpected, the application knows of one */
    synchronize(3);
    send(4, EAGER, 11, 50);
    expect_trace(&s, "A>B SEND_ONLY psn=9\n"
                     "B>A ACK psn=9\n"
                     "B receive 7 success length=50\n"
                     "A send 3 success\n"
                     "A>B SEND_ONLY psn=10\n"
                     "B>A ACK psn=10\n"
                     "B receive 1 success length=34\n"
                     "A send 4 success\n");
}

static void a_rendezvous_is_fetched(void **state)
{
    (void)state;
    add(1, 11, 600, 0);
    scenario_receive(&s.a, 9, 100);
    scenario_lose(&s, "B>A READ_REQUEST");
    send_rendezvous(1, 11, 600);
    expect_trace(&s, "A>B SEND_ONLY psn=7\n"
                     "B>A ACK psn=7\n"
                     "B>A READ_REQUEST psn=100 length=600 lost\n"
                     "B receive 1 success length=0\n"
                     "A send 1 success\n"
                     "B>A READ_REQUEST psn=100 length=600\n"
                     "A>B READ_RESPONSE_FIRST psn=100\n"
                     "A>B READ_RESPONSE_MIDDLE psn=101\n"
                     "A>B READ_RESPONSE_LAST psn=102\n"
                     "B>A SEND_ONLY psn=103\n"
                     "B receive 1 success length=600\n"
                     "A>B ACK psn=103\n"
                     "A receive 9 success length=32\n");
    assert_memory_equal(s.b.bytes + BUFFER_AT, s.a.bytes + SOURCE_AT, 600);
}

/* Whatever length a peer names: the headers come instead of the data. */
static void a_rendezvous_that_does_not_fit_is_told(void **state)
{
    (void)state;
    add(1, 11, 599, 0);
    send_rendezvous(1, 11, 600);
    add(2, 11, 100, 0);
    send_rendezvous(2, 11, UINT32_MAX);
    expect_trace(&s, "A>B SEND_ONLY psn=7\n"
                     "B>A ACK psn=7\n"
                     "B receive 1 rendezvous incomplete\n"
                     "A send 1 success\n"
                     "A>B SEND_ONLY psn=8\n"
                     "B>A ACK psn=8\n"
                     "B receive 2 rendezvous incomplete\n"
                     "A send 2 success\n");
    assert_memory_equal(s.b.bytes + BUFFER_AT, s.a.bytes, TAG_RENDEZVOUS_LENGTH);
}

/* Its bytes may lie in memory that the peer writes to: the length is that which was looked at. */
static void a_rendezvous_that_changes_is_fetched_as_it_was(void **state)
{
    (void)state;
    uint8_t header[TAG_RENDEZVOUS_LENGTH] = {RENDEZVOUS};
    uint8_t opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY);
    struct packet packet = {.opcode = opcode,
                            .info = opcode_lookup(opcode),
                            .payload = header,
                            .payload_length = sizeof header};
    bytes_store_u64(header + 8, 11);
    bytes_store_u64(header + 16, SOURCE_AT);
    bytes_store_u32(header + 24, s.a.key.value);
    bytes_store_u32(header + 28, 100);
    add(1, 11, 100, 0);
    assert_true(tag_begin(s.b.qp, &packet));
    bytes_store_u32(header + 28, 30000);
    tag_executed(s.b.qp, &packet);
    scenario_receive(&s.a, 9, 100);
    host_wake(s.b.host, 0);
    scenario_run(&s);
    expect_trace(&s, "B>A READ_REQUEST psn=100 length=100\n"
                     "A>B READ_RESPONSE_ONLY psn=100\n"
                     "B>A SEND_ONLY psn=101\n"
                     "B receive 1 success length=100\n"
                     "A>B ACK psn=101\n"
                     "A receive 9 success length=32\n");
}

static void without_a_receive_an_unexpected_message_waits(void **state)
{
    (void)state;
    struct work work = {.kind = WORK_SEND, .id = 1, .length = 50};
    memset(s.a.bytes, 0, TAG_HEADER_LENGTH);
    s.a.bytes[0] = EAGER;
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
    scenario_run_for(&s, 5);
    post_receive(5, 100);
    scenario_run(&s);
    expect_trace(&s, "0us A>B SEND_ONLY psn=7\n"
                     "1us B>A RNR_NAK psn=7\n"
                     "12us A>B SEND_ONLY psn=7\n"
                     "13us B>A ACK psn=7\n"
                     "13us B receive 5 success length=50\n"
                     "14us A send 1 success\n");
}

static void a_buffer_is_removed_once(void **state)
{
    (void)state;
    s.polls = false;
    struct tag_operation operation = {.id = 77, .signaled = true};
    struct completion completion;
    uint32_t handle = add(1, 11, 100, 0);
    tag_remove(matcher, &operation, handle);
    assert_int_equal(completion_queue_poll(s.b.completions, 1, &completion), 1);
    assert_int_equal(completion.kind, COMPLETED_TAG_REMOVE);
    assert_int_equal(completion.status, COMPLETION_SUCCESS);
    add(2, 11, 100, 0); /* in any place */
    tag_remove(matcher, &operation, handle);
    assert_int_equal(completion_queue_poll(s.b.completions, 1, &completion), 1);
    assert_int_equal(completion.status, COMPLETION_TAG_ERROR);
}

static void there_is_room_for_so_many(void **state)
{
    (void)state;
    struct tag_operation operation = {.id = 1};
    struct tag_buffer buffer = {.id = 1};
    uint32_t handle;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tag_add(matcher, &operation, &buffer, &handle), STATUS_OK);
    }
    assert_int_equal(tag_add(matcher, &operation, &buffer, &handle), STATUS_FULL);
    buffer.sge_count = 3;
    assert_int_equal(tag_add(matcher, &operation, &buffer, &handle), STATUS_INVALID);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_message_goes_where_its_tag_is_wanted),
        TEST(a_long_message_completes_twice),
        TEST(others_go_to_the_receives),
        TEST(a_buffer_posted_in_doubt_matches_after_synchronizing),
        TEST(a_rendezvous_is_fetched),
        TEST(a_rendezvous_that_changes_is_fetched_as_it_was),
        TEST(a_rendezvous_that_does_not_fit_is_told),
        TEST(without_a_receive_an_unexpected_message_waits),
        TEST(a_buffer_is_removed_once),
        TEST(there_is_room_for_so_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
