/* PSNs that have gone once round: what was long ago must not be taken for what is now. */
#include "rnic/device/pair_test.h"
#include "rnic/transport/qp_private.h"

#define MTU_BYTES 256u
#define LONGEST   (1u << 31) /* half of all PSNs, as one READ */

static uint32_t reach_all(struct packet_sink *sink, const struct path *path, struct qpn destination)
{
    return REFERENCE_MAX;
}

static bool read_nothing(struct payload_reader *reader, uint32_t offset,
                         const struct payload_place *places, uint32_t count)
{
    return true;
}

static struct pair *create(void)
{
    struct pair_options options = pair_defaults;
    options.mtu = PATH_MTU_256;
    return pair_create(&options);
}

static uint32_t build(struct pair_side *to, struct packet packet, uint8_t form, uint8_t *ret_bytes)
{
    packet.opcode = OPCODE(SERVICE_RC, form);
    packet.pkey = PKEY_DEFAULT;
    packet.destination = qp_number(to->qp);
    packet.psn = to->qp->responder.expected;
    packet.remote_key = to->key;
    return packet_build(&packet, ret_bytes);
}

/* A WRITE that takes so many PSNs, at the next; what is answered is lost. */
static void pass(struct pair_side *to, uint32_t psns)
{
    uint8_t bytes[PACKET_HEADER_MAX];
    struct arrival arrival = {.path = pair_path(to->index)};
    struct payload_reader reader = {read_nothing};
    struct payload_reference reference = {&reader, psns * MTU_BYTES, 8};
    struct packet packet = {
        .remote_address = PAIR_BUFFER_ADDRESS,
        .dma_length = psns * MTU_BYTES,
        .payload_length = psns * MTU_BYTES,
    };
    uint32_t length = build(to, packet, FORM_WRITE_ONLY, bytes);
    device_receive_reference(to->device, to->pair->now, &arrival, bytes, length, &reference);
    (void)device_advance(to->device, to->pair->now, 64);
    to->flight_count = 0;
}

/* It has the PSN of an atomic that the responder had not forgotten, and is acknowledged. */
static void the_psn_of_an_atomic_comes_again(void **state)
{
    struct pair *pair = create();
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct psn first = a->qp->requester.frontier;
    pair_post_simple(a, WORK_FETCH_ADD, 1, 0, 0, 8);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    for (uint32_t psns = 1, step; psns < PSN_MASK + 1; psns += step) {
        uint32_t most = REFERENCE_MAX / MTU_BYTES;
        step = psns == 1 ? most - 1 : most;
        pass(b, step);
    }
    assert_int_equal(b->qp->responder.expected.value, first.value);
    a->qp->requester.unacked = a->qp->requester.frontier = a->qp->requester.cursor = first;
    pair_post_receive(b, 2, 0, 100);
    pair_post_simple(a, WORK_SEND, 3, 0, 0, 100);
    pair_run(pair);
    (void)pair_expect(b->receives, 2, COMPLETION_SUCCESS);
    (void)pair_expect(a->sends, 3, COMPLETION_SUCCESS);
    pair_destroy(pair);
}

static enum fate lose_all(struct pair *pair, int side, uint32_t number, const struct packet *packet)
{
    pair->knob = packet->info->operation == OPERATION_ACKNOWLEDGE ? packet->psn.value : pair->knob;
    return FATE_LOSE;
}

static void receive(struct pair_side *to, struct packet packet, uint8_t form)
{
    uint8_t bytes[PACKET_HEADER_MAX];
    struct arrival arrival = {.path = pair_path(to->index)};
    uint32_t length = build(to, packet, form, bytes);
    device_receive(to->device, to->pair->now, &arrival, bytes, length);
}

/* No PSN is left that is before them all: who looks for it comes to an end. */
static void reads_that_take_every_psn(void **state)
{
    static const uint32_t lengths[] = {MTU_BYTES, LONGEST, LONGEST - MTU_BYTES};
    struct pair *pair = create();
    struct pair_side *b = &pair->sides[1];
    struct region_attributes region = {
        .domain = b->domain,
        .length = LONGEST,
        .bytes = b->buffer, /* and not read beyond it */
        .access = ACCESS_REMOTE_READ,
    };
    struct memory_key narrow = b->key;
    assert_int_equal(memory_register(device_memory(b->device), &region, &b->key), STATUS_OK);
    b->sink.reach = reach_all;
    b->sink.withdraw = pair_withdraw;
    pair->script = lose_all;
    struct psn first = b->qp->responder.expected;
    pair_post_receive(b, 1, 0, 0);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        receive(b, (struct packet){.dma_length = lengths[i]}, FORM_READ_REQUEST);
    }
    assert_int_equal(b->qp->responder.expected.value, first.value);
    receive(b, (struct packet){.ack_request = true}, FORM_SEND_ONLY);
    pair_run(pair);
    (void)pair_expect(b->receives, 1, COMPLETION_SUCCESS);
    assert_int_equal(pair->knob, first.value);
    assert_int_equal(memory_deregister(device_memory(b->device), b->key), STATUS_OK);
    b->key = narrow;
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_psn_of_an_atomic_comes_again),
        cmocka_unit_test(reads_that_take_every_psn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
