/* The responder before a requester that is not ours: one that asks for what it likes again, from
 * wherever it likes, as long as the specification lets it, while packets are lost, come twice and
 * late, and the link is full. What was executed stays executed once, each answer says what is so
 * when it leaves, and responses bring what they should. [IBA 9.7] */
#include "rnic/device/pair_test.h"

#define MTU          1024u
#define OPS          300u
#define SENT_MAX     200u
#define READS        4u
#define SOURCE       0u /* what is read, and never written */
#define SOURCE_SIZE  32768u
#define TARGET       65536u
#define TARGET_SIZE  8192u
#define COUNTER      131072u
#define LANDING      200000u
#define LANDING_EACH 4096u

struct op {
    enum operation operation;
    struct psn first;
    uint32_t length, offset, psns;
    uint64_t original; /* what an atomic finds, once it is executed */
};

/* A packet that has left, maybe lost. */
struct sent {
    uint32_t op, from; /* the PSN within it */
};

struct foreign {
    struct pair *pair;
    struct random random;
    struct op ops[OPS];
    uint32_t count;                     /* begun */
    struct psn start;                   /* of the first */
    uint32_t unacked, cursor, frontier; /* PSNs behind the start */
    uint32_t expected;                  /* what the responder is to expect */
    uint32_t posted, taken, completed;  /* receives */
    uint32_t next_send;
    uint32_t send_ops[OPS]; /* whose n-th receive it is */
    bool losing;
    struct sent sent[SENT_MAX];
    uint32_t sent_count;
    uint64_t counter;
    uint8_t image[TARGET_SIZE];
};

static uint32_t below(struct foreign *f, uint32_t bound)
{
    return (uint32_t)random_below(&f->random, bound);
}

static uint32_t begin_of(const struct foreign *f, const struct op *op)
{
    return (op->first.value - f->start.value) & PSN_MASK;
}

static bool is_answered_by_response(const struct op *op)
{
    return op->operation == OPERATION_READ_REQUEST || op->operation == OPERATION_FETCH_ADD;
}

static struct op *op_at(struct foreign *f, uint32_t place)
{
    for (uint32_t i = f->count; i-- > 0;) {
        uint32_t begin = begin_of(f, &f->ops[i]);
        if (place >= begin && place < begin + f->ops[i].psns) {
            return &f->ops[i];
        }
    }
    return NULL;
}

static uint8_t content(const struct op *op, uint32_t at)
{
    return (uint8_t)(op->first.value * 31 + at * 7 + 1);
}

static void begin_op(struct foreign *f)
{
    static const enum operation operations[] = {OPERATION_SEND, OPERATION_WRITE,
                                                OPERATION_READ_REQUEST, OPERATION_FETCH_ADD};
    struct op *op = &f->ops[f->count++];
    *op =
        (struct op){.operation = operations[below(f, 4)], .first = psn_add(f->start, f->frontier)};
    op->length = below(f, below(f, 3) == 0 ? 9 : 4 * MTU);
    if (op->operation == OPERATION_FETCH_ADD) {
        op->length = sizeof(uint64_t);
    } else if (op->operation == OPERATION_READ_REQUEST && below(f, 3) == 0) {
        op->length = below(f, 16 * MTU);
    }
    op->psns = op->length == 0 ? 1 : (op->length + MTU - 1) / MTU;
    bool reads = op->operation == OPERATION_READ_REQUEST;
    op->offset = below(f, (reads ? SOURCE_SIZE : TARGET_SIZE) - op->length);
    if (op->operation == OPERATION_SEND) {
        f->send_ops[f->next_send++] = f->count - 1;
    }
    f->frontier += op->psns;
}

static uint8_t opcode_of_part(const struct op *op, uint32_t part)
{
    bool first = part == 0, last = part + 1 == op->psns;
    if (op->operation == OPERATION_READ_REQUEST) {
        return OPCODE(SERVICE_RC, FORM_READ_REQUEST);
    }
    if (op->operation == OPERATION_FETCH_ADD) {
        return OPCODE(SERVICE_RC, FORM_FETCH_ADD);
    }
    bool sends = op->operation == OPERATION_SEND;
    uint8_t base = sends ? FORM_SEND_FIRST : FORM_WRITE_FIRST;
    return OPCODE(SERVICE_RC, base + (first && last ? 4 : first ? 0 : last ? 2 : 1));
}

/* The responder gets it. */
static void arrive(struct foreign *f, struct sent sent)
{
    const struct op *op = &f->ops[sent.op];
    struct pair_side *a = &f->pair->sides[0];
    uint32_t place = begin_of(f, op) + sent.from, offset = sent.from * MTU;
    bool demands = is_answered_by_response(op);
    uint32_t left = op->length - offset;
    uint32_t payload = demands ? 0 : left < MTU ? left : MTU;
    struct packet packet = {
        .opcode = opcode_of_part(op, sent.from),
        .pkey = PKEY_DEFAULT,
        .ack_request = sent.from + 1 == op->psns,
        .destination = qp_number(a->qp),
        .psn = psn_add(op->first, sent.from),
        .remote_key = a->key,
        .payload_length = payload,
        .swap_or_add = 3,
    };
    packet.remote_address = PAIR_BUFFER_ADDRESS +
                            (op->operation == OPERATION_READ_REQUEST ? SOURCE + op->offset + offset
                             : op->operation == OPERATION_FETCH_ADD  ? COUNTER
                                                                     : TARGET + op->offset);
    packet.dma_length = op->operation == OPERATION_READ_REQUEST ? left : op->length;
    uint8_t bytes[PACKET_HEADER_MAX + MTU + 4] = {0};
    uint32_t length = packet_build(&packet, bytes);
    for (uint32_t i = 0; i < payload; i++) {
        bytes[length + i] = content(op, offset + i);
    }
    if (place == f->expected) {
        bool needs = op->operation == OPERATION_SEND && sent.from == 0;
        if (!needs || f->taken < f->posted) {
            f->taken += needs;
            f->expected += op->operation == OPERATION_READ_REQUEST ? op->psns - sent.from : 1;
            assert_true(op->operation != OPERATION_READ_REQUEST || sent.from == 0);
            if (op->operation == OPERATION_FETCH_ADD) {
                f->ops[sent.op].original = f->counter;
                f->counter += 3;
            } else if (op->operation == OPERATION_WRITE) {
                memcpy(f->image + op->offset + offset, bytes + length, payload);
            }
        }
    }
    struct arrival arrival = {.path = pair_path(0)};
    device_receive(a->device, f->pair->now, &arrival, bytes,
                   length + payload + packet_pad(payload));
}

static void leave(struct foreign *f, struct sent sent)
{
    f->sent[f->sent_count++ % SENT_MAX] = sent;
    if (!f->losing || below(f, 12) != 0) {
        arrive(f, sent);
    }
    if (f->losing && below(f, 15) == 0) {
        arrive(f, sent);
    }
}

static uint32_t reads_out(struct foreign *f)
{
    uint32_t count = 0;
    for (uint32_t place = f->unacked; place < f->cursor;) {
        const struct op *op = op_at(f, place);
        count += is_answered_by_response(op);
        place = begin_of(f, op) + op->psns;
    }
    return count;
}

static void send_next(struct foreign *f)
{
    if (f->cursor == f->frontier && f->count < OPS && f->frontier - f->unacked < 40) {
        begin_op(f);
    }
    struct op *op = op_at(f, f->cursor);
    if (op == NULL || (is_answered_by_response(op) && reads_out(f) == READS)) {
        return;
    }
    uint32_t from = f->cursor - begin_of(f, op);
    leave(f, (struct sent){(uint32_t)(op - f->ops), from});
    f->cursor += op->operation == OPERATION_READ_REQUEST ? op->psns - from : 1;
}

/* What lies before `place` is answered, but for responses. */
static void answered_before(struct foreign *f, uint32_t place)
{
    while (f->unacked < place) {
        const struct op *op = op_at(f, f->unacked);
        if (is_answered_by_response(op)) {
            f->cursor = f->unacked; /* missing */
            return;
        }
        f->unacked++;
    }
    f->cursor = f->cursor < f->unacked ? f->unacked : f->cursor;
}

static void take_response(struct foreign *f, uint32_t place, const struct packet *packet,
                          const struct op *op)
{
    uint32_t part = place - begin_of(f, op);
    assert_int_equal(op->operation, OPERATION_READ_REQUEST);
    uint32_t left = op->length - part * MTU;
    assert_int_equal(packet->payload_length, left < MTU ? left : MTU);
    assert_int_equal(packet->info->last, part + 1 == op->psns);
    const struct pair_side *a = &f->pair->sides[0];
    assert_memory_equal(packet->payload, a->buffer + SOURCE + op->offset + part * MTU,
                        packet->payload_length);
}

static void take_answer(struct foreign *f, const struct packet *packet)
{
    uint32_t place = (packet->psn.value - f->start.value) & PSN_MASK;
    bool told = !f->losing || below(f, 10) != 0;
    switch (packet->info->operation) {
    case OPERATION_ACKNOWLEDGE:
        if (packet->aeth.kind == AETH_ACK) {
            uint32_t next = (place + 1) & PSN_MASK;
            assert_true(next <= f->expected);
            for (uint32_t i = next; i < f->expected; i++) { /* READs, of which it says nothing */
                assert_true(is_answered_by_response(op_at(f, i)));
            }
            assert_true(next == 0 || next <= f->unacked ||
                        !is_answered_by_response(op_at(f, place)));
            if (told && next > f->unacked) {
                answered_before(f, next);
            }
            return;
        }
        assert_int_equal(place, f->expected);
        assert_true(packet->aeth.kind == AETH_RNR_NAK || packet->aeth.value == NAK_SEQUENCE);
        if (told && place >= f->unacked && place < f->frontier) {
            answered_before(f, place);
            f->cursor = f->unacked;
        }
        return;
    case OPERATION_READ_RESPONSE:
        assert_true(place < f->expected);
        take_response(f, place, packet, op_at(f, place));
        break;
    case OPERATION_ATOMIC_ACKNOWLEDGE:
        assert_true(place < f->expected);
        assert_int_equal(op_at(f, place)->operation, OPERATION_FETCH_ADD);
        assert_int_equal(packet->original, op_at(f, place)->original);
        break;
    default:
        fail();
    }
    if (told && place >= f->unacked) {
        answered_before(f, place);
        f->unacked += place == f->unacked;
        f->cursor = f->cursor < f->unacked ? f->unacked : f->cursor;
    }
}

static void take_answers(struct foreign *f)
{
    struct pair_side *a = &f->pair->sides[0];
    a->sink_room = f->losing ? below(f, 12) : UINT32_MAX;
    (void)device_advance(a->device, f->pair->now, 1 + below(f, 64));
    for (uint32_t i = 0; i < a->flight_count; i++) {
        struct packet packet;
        assert_int_equal(packet_parse(a->flight[i].bytes, a->flight[i].length, &packet),
                         REFUSED_NOT);
        take_answer(f, &packet);
    }
    a->flight_count = 0;
}

static void post_receive(struct foreign *f)
{
    if (f->posted < OPS && f->posted - f->completed < 8) {
        pair_post_receive(&f->pair->sides[0], f->posted, LANDING + f->posted * LANDING_EACH,
                          LANDING_EACH);
        f->posted++;
    }
}

static void take_receives(struct foreign *f)
{
    const struct pair_side *a = &f->pair->sides[0];
    struct completion completion;
    while (completion_queue_poll(a->receives, 1, &completion) == 1) {
        const struct op *op = &f->ops[f->send_ops[f->completed]];
        assert_int_equal(completion.id, f->completed);
        assert_int_equal(completion.status, COMPLETION_SUCCESS);
        assert_int_equal(completion.byte_length, op->length);
        for (uint32_t i = 0; i < op->length; i++) {
            assert_int_equal(a->buffer[LANDING + f->completed * LANDING_EACH + i], content(op, i));
        }
        f->completed++;
    }
}

static void step(struct foreign *f)
{
    switch (below(f, 8)) {
    case 0:
        post_receive(f);
        break;
    case 1:
        if (f->losing && f->sent_count > 0) { /* an echo */
            uint32_t most = f->sent_count < SENT_MAX ? f->sent_count : SENT_MAX;
            arrive(f, f->sent[(f->sent_count - 1 - below(f, most)) % SENT_MAX]);
        }
        break;
    case 2:
        if (below(f, 6) == 0) {
            f->cursor = f->unacked; /* patience is over */
        }
        break;
    case 3:
    case 4:
        f->pair->now.ns += below(f, 100000);
        take_answers(f);
        take_receives(f);
        break;
    default:
        send_next(f);
        break;
    }
}

static void serve(uint64_t seed)
{
    struct foreign *f = calloc(1, sizeof *f);
    struct pair_options options = pair_defaults;
    f->start = psn_make(0xffffff - 300u); /* they wrap */
    options.first_psn = f->start.value - 1000u;
    f->pair = pair_create(&options);
    struct pair_side *a = &f->pair->sides[0];
    random_seed(&f->random, seed);
    pair_fill(a, SOURCE, SOURCE_SIZE, (uint32_t)seed);
    for (uint32_t i = 0; f->count < OPS || f->unacked < f->frontier; i++) {
        assert_true(i < 20000);
        f->losing = i < 15000;
        step(f);
        assert_int_equal(qp_current_state(a->qp), QP_RTS);
    }
    take_receives(f);
    assert_memory_equal(a->buffer + TARGET, f->image, TARGET_SIZE);
    uint64_t counter;
    memcpy(&counter, a->buffer + COUNTER, sizeof counter);
    assert_int_equal(counter, f->counter);
    pair_destroy(f->pair);
    free(f);
}

static void a_requester_that_is_not_ours_is_served(void **state)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        serve(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_requester_that_is_not_ours_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
