/* Creation: what a configuration must be, an allocator that refuses, and that nothing is left. */
#include "rnic/device/pair_test.h"

/* Refuses the allocation number `refused`, counted from 0; counts what is not given back. */
struct stingy {
    struct allocator allocator;
    uint32_t made, refused;
    int alive;
};

static void *stingy_allocate(struct allocator *allocator, size_t size)
{
    struct stingy *stingy = CONTAINER_OF(allocator, struct stingy, allocator);
    if (stingy->made++ == stingy->refused) {
        return NULL;
    }
    stingy->alive++;
    return heap_allocator()->allocate(heap_allocator(), size);
}

static void stingy_release(struct allocator *allocator, void *memory)
{
    struct stingy *stingy = CONTAINER_OF(allocator, struct stingy, allocator);
    stingy->alive -= memory != NULL;
    heap_allocator()->release(heap_allocator(), memory);
}

static bool never_emit(struct packet_sink *sink, const struct outgoing *outgoing)
{
    return false;
}

static struct packet_sink closed_sink = {.emit = never_emit};

static struct device_config sound_config(struct allocator *allocator)
{
    return (struct device_config){
        .allocator = allocator,
        .sink = &closed_sink,
        .first_qpn = {0x100},
        .qpn_count = 4,
        .max_regions = 4,
        .max_reads_in = 4,
    };
}

/* What a peer may ask for takes memory once it is known. */
static enum status make_ready(struct device *device, struct qp *qp)
{
    struct qp_attributes attributes = {
        .state = QP_INIT, .port = 1, .path_mtu = PATH_MTU_1024, .max_reads_in = 4};
    unsigned initial = QP_SET_STATE | QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS;
    unsigned ready = QP_SET_STATE | QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION |
                     QP_SET_RECEIVE_PSN | QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER;
    struct instant now = {1};
    assert_int_equal(device_modify_qp(device, now, qp, &attributes, initial, NULL), STATUS_OK);
    attributes.state = QP_RTR;
    enum status status = device_modify_qp(device, now, qp, &attributes, ready, NULL);
    assert_int_equal(qp_current_state(qp), status == STATUS_OK ? QP_RTR : QP_INIT);
    return status;
}

static enum status create_all(struct allocator *allocator)
{
    struct device_config config = sound_config(allocator);
    struct device *device;
    enum status status = device_create(&config, &device);
    if (status != STATUS_OK) {
        return status;
    }
    struct memory *memory = device_memory(device);
    struct domain domain;
    assert_int_equal(memory_allocate_domain(memory, &domain), STATUS_OK);
    struct completion_queue *completions;
    assert_int_equal(completion_queue_create(heap_allocator(), 4, NULL, &completions), STATUS_OK);
    struct qp_init init = {
        .service = SERVICE_RC,
        .domain = domain,
        .send_completions = completions,
        .receive_completions = completions,
        .send = {.capacity = 1, .max_sge = 1},
        .max_receive = 1,
        .max_receive_sge = 1,
    };
    struct qp *qp;
    status = device_create_qp(device, &init, &qp);
    if (status == STATUS_OK) {
        assert_int_equal(completion_queue_users(completions), 2);
        assert_int_equal(memory_free_domain(memory, domain), STATUS_BUSY);
        status = make_ready(device, qp);
        device_destroy_qp(device, qp);
    }
    assert_int_equal(completion_queue_users(completions), 0);
    assert_int_equal(memory_free_domain(memory, domain), STATUS_OK);
    completion_queue_destroy(completions);
    device_destroy(device);
    return status;
}

static void a_refused_allocation_leaves_nothing(void **state)
{
    enum status status = STATUS_NO_MEMORY;
    uint32_t refused = 0;
    for (; status != STATUS_OK; refused++) {
        struct stingy stingy = {{stingy_allocate, stingy_release}, 0, refused, 0};
        status = create_all(&stingy.allocator);
        assert_true(status == STATUS_OK || status == STATUS_NO_MEMORY);
        assert_int_equal(stingy.alive, 0);
    }
    assert_true(refused > 5);
}

/* And is the caller's again when the queue pair has gone, or could not be made. */
static void a_queue_pair_lies_where_it_is_told_to(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0];
    uint64_t memory[128] = {0}, before[128];
    struct qp_init init = {
        .service = SERVICE_RC,
        .domain = a->domain,
        .send_completions = a->sends,
        .receive_completions = a->receives,
        .send = {.capacity = 1, .max_sge = 1},
        .max_receive = 1,
        .max_receive_sge = 1,
    };
    assert_int_equal(qp_bytes(&init), QP_USUAL_BYTES);
    assert_in_range(QP_USUAL_BYTES + send_queue_bytes(&init.send), 1, sizeof memory);
    for (int lend_queue = 0; lend_queue < 2; lend_queue++) {
        memset(memory, 0, sizeof memory);
        init.memory = memory;
        init.sends = NULL;
        if (lend_queue != 0) {
            assert_int_equal(
                send_queue_create_in((uint8_t *)memory + QP_USUAL_BYTES, &init.send, &init.sends),
                STATUS_OK);
        }
        struct qp *qp;
        memcpy(before, memory, sizeof memory);
        assert_int_equal(device_create_qp(a->device, &init, &qp), STATUS_OK);
        assert_ptr_equal(qp, memory);
        if (lend_queue == 0) {
            assert_memory_equal(memory + QP_USUAL_BYTES / 8, before + QP_USUAL_BYTES / 8,
                                sizeof memory - QP_USUAL_BYTES);
        }
        assert_int_equal(make_ready(a->device, qp), STATUS_OK);
        device_destroy_qp(a->device, qp);
    }
    init.receives = NULL;
    init.sends = NULL;
    init.send.max_sge = QUEUE_SGE_MAX + 1;
    struct qp *qp;
    assert_int_equal(device_create_qp(a->device, &init, &qp), STATUS_INVALID);
    pair_destroy(pair);
}

static void unsound_configurations_are_invalid(void **state)
{
    struct device *device;
    struct device_config config = sound_config(heap_allocator());
    config.qpn_count = 0;
    assert_int_equal(device_create(&config, &device), STATUS_INVALID);
    config = sound_config(heap_allocator());
    config.first_qpn.value = 1; /* that is QP1 */
    assert_int_equal(device_create(&config, &device), STATUS_INVALID);
    config = sound_config(heap_allocator());
    config.qpn_count = 1u << 24;
    assert_int_equal(device_create(&config, &device), STATUS_INVALID);
    config = sound_config(heap_allocator());
    config.max_reads_in = 256;
    assert_int_equal(device_create(&config, &device), STATUS_INVALID);
}

static void numbers_run_out(void **state)
{
    struct pair *pair = pair_create(&pair_defaults); /* 256 numbers, one taken */
    struct pair_side *a = &pair->sides[0];
    struct qp_init init = {
        .service = SERVICE_UC,
        .domain = a->domain,
        .send_completions = a->sends,
        .receive_completions = a->receives,
    };
    struct qp *qps[256];
    for (int i = 0; i < 255; i++) {
        assert_int_equal(device_create_qp(a->device, &init, &qps[i]), STATUS_OK);
    }
    assert_int_equal(device_create_qp(a->device, &init, &qps[255]), STATUS_FULL);
    init.service = SERVICE_RD;
    uint8_t bytes[BTH_LENGTH] = {0}; /* whatever a packet says, and whoever is gone */
    bytes_store_u24(bytes + 5, qp_number(qps[0]).value);
    device_expect(a->device, bytes);
    device_destroy_qp(a->device, qps[0]);
    device_expect(a->device, bytes);
    memset(bytes, 0xff, sizeof bytes);
    device_expect(a->device, bytes);
    device_expect(a->device, bytes);
    assert_int_equal(device_create_qp(a->device, &init, &qps[0]), STATUS_INVALID);
    for (int i = 1; i < 255; i++) {
        device_destroy_qp(a->device, qps[i]);
    }
    pair_destroy(pair);
}

static void attributes_come_back(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0];
    struct qp_attributes attributes;
    qp_query(a->qp, &attributes);
    assert_int_equal(attributes.state, QP_RTS);
    assert_int_equal(attributes.timeout, pair_defaults.timeout);
    assert_int_equal(attributes.path_mtu, pair_defaults.mtu);
    assert_int_equal(attributes.destination.value, qp_number(pair->sides[1].qp).value);
    assert_int_equal(qp_service(a->qp), SERVICE_RC);
    assert_int_equal(qp_domain(a->qp).value, a->domain.value);
    assert_ptr_equal(qp_context(a->qp), a);
    pair_destroy(pair);
}

struct counting_alarm {
    struct device_alarm alarm;
    uint64_t expired_ns;
};

static void note_time(struct device_alarm *alarm, struct instant now)
{
    CONTAINER_OF(alarm, struct counting_alarm, alarm)->expired_ns = now.ns;
}

/* Once, at its time, unless it is moved or taken back. */
static void alarms(void **state)
{
    struct device_config config = sound_config(heap_allocator());
    struct counting_alarm early = {.alarm.expire = note_time};
    struct counting_alarm late = {.alarm.expire = note_time};
    struct device *device;
    assert_int_equal(device_create(&config, &device), STATUS_OK);
    assert_true(instant_is_never(device_next_deadline(device)));
    device_set_alarm(device, &late.alarm, (struct instant){100});
    device_set_alarm(device, &early.alarm, (struct instant){900});
    device_set_alarm(device, &early.alarm, (struct instant){50});
    assert_int_equal(device_next_deadline(device).ns, 50);
    device_advance(device, (struct instant){49}, 1);
    assert_int_equal(early.expired_ns, 0);
    device_advance(device, (struct instant){60}, 1);
    assert_int_equal(early.expired_ns, 60);
    assert_int_equal(device_next_deadline(device).ns, 100);
    device_set_alarm(device, &late.alarm, INSTANT_NEVER);
    device_advance(device, (struct instant){1000}, 1);
    assert_int_equal(early.expired_ns, 60);
    assert_int_equal(late.expired_ns, 0);
    device_destroy(device);
}

/* A peer that is told one queue pair's number knows nothing of the next one's, and no number comes
 * again before all others had their turn. */
static void numbers_come_in_no_order_and_rest_before_reuse(void **state)
{
    enum {
        NUMBERS = 1000
    };
    struct device_config config = sound_config(heap_allocator());
    config.qpn_count = NUMBERS;
    struct device *device;
    assert_int_equal(device_create(&config, &device), STATUS_OK);
    struct domain domain;
    assert_int_equal(memory_allocate_domain(device_memory(device), &domain), STATUS_OK);
    struct completion_queue *completions;
    assert_int_equal(completion_queue_create(heap_allocator(), 4, NULL, &completions), STATUS_OK);
    struct qp_init init = {.service = SERVICE_RC,
                           .domain = domain,
                           .send_completions = completions,
                           .receive_completions = completions,
                           .send = {.capacity = 1, .max_sge = 1},
                           .max_receive = 1,
                           .max_receive_sge = 1};
    bool seen[NUMBERS] = {false};
    uint32_t last = 0, consecutive = 0;
    for (int i = 0; i < NUMBERS; i++) {
        struct qp *qp;
        assert_int_equal(device_create_qp(device, &init, &qp), STATUS_OK);
        uint32_t number = qp_number(qp).value - config.first_qpn.value;
        assert_in_range(number, 0, NUMBERS - 1);
        assert_false(seen[number]);
        seen[number] = true;
        consecutive += number == (last + 1) % NUMBERS;
        last = number;
        device_destroy_qp(device, qp);
    }
    assert_in_range(consecutive, 0, 10);
    completion_queue_destroy(completions);
    assert_int_equal(memory_free_domain(device_memory(device), domain), STATUS_OK);
    device_destroy(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alarms),
        cmocka_unit_test(a_refused_allocation_leaves_nothing),
        cmocka_unit_test(a_queue_pair_lies_where_it_is_told_to),
        cmocka_unit_test(unsound_configurations_are_invalid),
        cmocka_unit_test(numbers_run_out),
        cmocka_unit_test(numbers_come_in_no_order_and_rest_before_reuse),
        cmocka_unit_test(attributes_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
