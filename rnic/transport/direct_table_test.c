/* What a table grants, and to whom. */
#include "rnic/transport/direct_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/random.h"
#include "rnic/memory/access.h"

#define ENTRIES 16u
#define BYTES   UINT64_C(0x500000)

static struct direct_entry qps[ENTRIES], keys[ENTRIES];
static const struct direct_table table = {qps, keys, ENTRIES, ENTRIES};

static struct direct_seen seen;

static struct gid gid_of(uint8_t host)
{
    return (struct gid){{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = host}};
}

static struct direct_qp some_qp(void)
{
    return (struct direct_qp){
        .number = {35},
        .destination = {77},
        .local = gid_of(1),
        .remote = gid_of(2),
        .domain = 3,
        .first_psn = {100},
        .rights = ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ,
        .mtu_shift = 10,
    };
}

static struct direct_key some_key(void)
{
    return (struct direct_key){
        .key = {0x705},
        .domain = 3,
        .address = 0x1000,
        .length = 0x200,
        .bytes = BYTES,
        .rights = ACCESS_REMOTE_WRITE,
    };
}

static const struct path path = {
    .local = {{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 2}},
    .remote = {{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}},
};

static struct direct_access some_access(void)
{
    return (struct direct_access){
        .path = &path,
        .initiator = {77},
        .target = {35},
        .first_psn = {100},
        .mtu_shift = 10,
        .write = true,
        .key = {0x705},
        .address = 0x1100,
        .length = 0x100,
        .offset = 0x40,
        .part = 0x20,
    };
}

static int show(void **state)
{
    memset(qps, 0, sizeof qps);
    memset(keys, 0, sizeof keys);
    memset(&seen, 0, sizeof seen);
    direct_table_show_qp(&table, &(struct direct_qp){.number = {0}}); /* as good as nothing */
    struct direct_qp qp = some_qp();
    struct direct_key key = some_key();
    direct_table_show_qp(&table, &qp);
    direct_table_show_key(&table, &key);
    return 0;
}

static void expect(bool granted, struct direct_access access)
{
    struct direct_there there = {.bytes = 1};
    assert_int_equal(direct_table_grants(&table, &seen, &access, 1, &there), granted);
    assert_int_equal(there.bytes, granted ? BYTES + 0x140 : 0);
}

static void what_fits_is_granted(void **state)
{
    expect(true, some_access());
}

static void of_a_batch_all_before_the_first_that_does_not(void **state)
{
    struct direct_key second = some_key();
    struct direct_access accesses[4] = {some_access(), some_access(), some_access(), some_access()};
    struct direct_there there[4];
    second.key.value = 0x805;
    second.bytes += 0x10000;
    direct_table_show_key(&table, &second);
    accesses[1].key = second.key;
    accesses[2].address++;
    accesses[2].length--;
    assert_int_equal(direct_table_grants(&table, &seen, accesses, 4, there), 4);
    assert_int_equal(there[0].bytes, BYTES + 0x140);
    assert_int_equal(there[1].bytes, BYTES + 0x140 + 0x10000);
    assert_int_equal(there[2].bytes, BYTES + 0x141);
    assert_int_equal(there[3].bytes, BYTES + 0x140);
    accesses[2].address = 0;
    assert_int_equal(direct_table_grants(&table, &seen, accesses, 4, there), 2);
    assert_int_equal(there[2].bytes, 0);
    accesses[1].key.value = 0x905;
    assert_int_equal(direct_table_grants(&table, &seen, accesses, 4, there), 1);
}

static void each_is_held_against_its_own_queue_pair(void **state)
{
    struct direct_qp second = some_qp();
    struct direct_access accesses[3] = {some_access(), some_access(), some_access()};
    struct direct_there there[3];
    second.number.value++;
    second.rights = 0;
    direct_table_show_qp(&table, &second);
    assert_int_equal(direct_table_grants(&table, &seen, accesses, 3, there), 3);
    accesses[1].target = second.number;
    assert_int_equal(direct_table_grants(&table, &seen, accesses, 3, there), 1);
    assert_int_equal(there[1].bytes, 0);
    second.rights = some_qp().rights;
    direct_table_show_qp(&table, &second);
    assert_int_equal(direct_table_grants(&table, &seen, accesses, 3, there), 3);
    accesses[1].initiator.value++;
    assert_int_equal(direct_table_grants(&table, &seen, accesses, 3, there), 1);
    accesses[1] = accesses[0];
    accesses[2].initiator.value++;
    assert_int_equal(direct_table_grants(&table, &seen, accesses, 3, there), 2);
}

#define REFUSES(change)                                                                            \
    do {                                                                                           \
        struct direct_access access = some_access();                                               \
        access.change;                                                                             \
        expect(false, access);                                                                     \
    } while (0)

static void what_a_packet_would_not_get_is_not_granted(void **state)
{
    struct path other = path;
    other.local = gid_of(3);
    REFUSES(target.value = 36);
    REFUSES(target.value = 35 + ENTRIES); /* the same place */
    REFUSES(target.value = 0);
    REFUSES(initiator.value = 78);
    REFUSES(path = &other);
    REFUSES(first_psn.value = 101);
    REFUSES(mtu_shift = 12);
    REFUSES(key.value = 0x704); /* an old variant */
    REFUSES(key.value = 0);
    REFUSES(write = false);
    REFUSES(address = 0xfff);
    REFUSES(address = 0x1101);
    REFUSES(address = UINT64_MAX);
    REFUSES(length = UINT32_MAX);
}

static void rights_domain_and_window_are_looked_at(void **state)
{
    struct direct_qp qp = some_qp();
    struct direct_key key = some_key();
    qp.rights = ACCESS_REMOTE_READ;
    direct_table_show_qp(&table, &qp);
    expect(false, some_access());
    qp = some_qp();
    qp.domain = 4;
    direct_table_show_qp(&table, &qp);
    expect(false, some_access());
    (void)show(state);
    assert_true(direct_table_hide_key(&table, key.key));
    key.qpn = (struct qpn){36};
    direct_table_show_key(&table, &key);
    expect(false, some_access());
    assert_true(direct_table_hide_key(&table, key.key));
    key.qpn = (struct qpn){35};
    direct_table_show_key(&table, &key);
    expect(true, some_access());
}

static void what_is_hidden_is_gone(void **state)
{
    struct memory_key stale = {0x704};
    struct qpn other = {35 + ENTRIES};
    assert_false(direct_table_hide_key(&table, stale));
    assert_false(direct_table_hide_qp(&table, other));
    expect(true, some_access());
    assert_true(direct_table_hide_key(&table, some_key().key));
    assert_false(direct_table_hide_key(&table, some_key().key));
    expect(false, some_access());
    (void)show(state);
    assert_true(direct_table_hide_qp(&table, some_qp().number));
    expect(false, some_access());
}

static void a_place_that_is_taken_stays_so(void **state)
{
    struct direct_key second = some_key();
    second.key.value = 0x705 + (ENTRIES << 8);
    second.bytes = 1;
    direct_table_show_key(&table, &second);
    assert_false(direct_table_hide_key(&table, second.key));
    expect(true, some_access());
}

static void what_has_been_seen_is_looked_at_again_when_it_changes(void **state)
{
    struct direct_qp qp = some_qp();
    struct direct_key key = some_key();
    expect(true, some_access());
    qp.rights = 0;
    direct_table_show_qp(&table, &qp);
    expect(false, some_access());
    qp = some_qp();
    direct_table_show_qp(&table, &qp);
    expect(true, some_access());
    assert_true(direct_table_hide_key(&table, key.key));
    expect(false, some_access());
    key.length = 1;
    direct_table_show_key(&table, &key);
    expect(false, some_access());
}

static void what_is_being_written_is_not_granted(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct direct_entry *entry = i == 0 ? &qps[35 % ENTRIES] : &keys[7];
        atomic_fetch_add(&entry->words[0], 1);
        expect(false, some_access());
        atomic_fetch_add(&entry->words[0], 1);
        expect(true, some_access());
    }
}

static void nonsense_harms_nobody(void **state)
{
    struct random random;
    random_seed(&random, 5);
    for (uint32_t round = 0; round < 10000; round++) {
        uint64_t *words = (uint64_t *)(void *)(round % 2 == 0 ? qps : keys);
        words[random_below(&random, ENTRIES * DIRECT_ENTRY_WORDS)] = random_u64(&random);
        struct direct_access access = some_access();
        access.length = (uint32_t)random_u64(&random);
        access.address = random_u64(&random);
        struct direct_there there;
        (void)direct_table_grants(&table, &seen, &access, 1, &there);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_fits_is_granted, show),
        cmocka_unit_test_setup(of_a_batch_all_before_the_first_that_does_not, show),
        cmocka_unit_test_setup(each_is_held_against_its_own_queue_pair, show),
        cmocka_unit_test_setup(what_a_packet_would_not_get_is_not_granted, show),
        cmocka_unit_test_setup(rights_domain_and_window_are_looked_at, show),
        cmocka_unit_test_setup(what_is_hidden_is_gone, show),
        cmocka_unit_test_setup(a_place_that_is_taken_stays_so, show),
        cmocka_unit_test_setup(what_has_been_seen_is_looked_at_again_when_it_changes, show),
        cmocka_unit_test_setup(what_is_being_written_is_not_granted, show),
        cmocka_unit_test_setup(nonsense_harms_nobody, show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
