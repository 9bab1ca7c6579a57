#include "rnic/cm/cm_world_test.h"

#include "rnic/cm/cm_private.h"

#define NAMES 200000u

struct hashed {
    uint32_t hash;
    uint32_t id;
};

static int by_hash(const void *a, const void *b)
{
    uint32_t first = ((const struct hashed *)a)->hash;
    uint32_t second = ((const struct hashed *)b)->hash;
    return (first > second) - (first < second);
}

/* Two ids of one peer whose hashes are equal: among so many there are some. */
static void find_twins(struct cm_connection *probe, uint32_t ret_ids[2])
{
    struct hashed *all = calloc(NAMES, sizeof *all);
    assert_non_null(all);
    for (uint32_t id = 0; id < NAMES; id++) {
        cm_table_name_by_id(probe, id);
        all[id] = (struct hashed){probe->by_remote_id.hash, id};
    }
    qsort(all, NAMES, sizeof *all, by_hash);
    uint32_t i = 1;
    while (i < NAMES && all[i].hash != all[i - 1].hash) {
        i++;
    }
    assert_true(i < NAMES);
    ret_ids[0] = all[i - 1].id;
    ret_ids[1] = all[i].id;
    free(all);
}

static struct cm_connection *find(struct cm *cm, uint32_t id)
{
    struct gid peer = world_gid(0);
    return cm_table_find_by_remote_id(cm, &peer, id);
}

static void names_of_one_hash_share_a_chain(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm *cm = world->hosts[1].cm;
    for (int round = 0; round < 2; round++) {
        struct cm_connection *connections[2] = {cm_table_take(cm), cm_table_take(cm)};
        connections[0]->path.remote = connections[1]->path.remote = world_gid(0);
        uint32_t ids[2];
        find_twins(connections[0], ids);
        cm_table_name_by_id(connections[0], ids[0]);
        cm_table_name_by_id(connections[1], ids[1]);
        assert_ptr_equal(find(cm, ids[0]), connections[0]);
        assert_ptr_equal(find(cm, ids[1]), connections[1]);
        struct gid other = world_gid(2);
        assert_null(cm_table_find_by_remote_id(cm, &other, ids[0]));
        cm_table_give(connections[round]);
        assert_null(find(cm, ids[round]));
        assert_ptr_equal(find(cm, ids[1 - round]), connections[1 - round]);
        cm_table_give(connections[1 - round]);
        assert_null(find(cm, ids[1 - round]));
    }
    world_end(world, NULL, NULL);
}

/* However much of it was needed on the way. */
static void what_is_established_and_idle_has_nothing_of_the_pools(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->rules[0] = (struct rule){"A>B RTU", .lose = 1};
    struct cm_connection *a = world_connect(world, 100);
    struct cm_connection *b = NULL;
    for (uint64_t ms = 1001; ms < 20000; ms++) {
        world_run(world, ms);
        b = world->hosts[1].connection;
    }
    assert_int_equal(a->state, CM_ESTABLISHED);
    assert_int_equal(b->state, CM_ESTABLISHED);
    for (int side = 0; side < 2; side++) {
        struct cm_connection *connection = side == 0 ? a : b;
        assert_null(connection->mad);
        assert_null(connection->pending);
        assert_int_equal(connection->cm->mads.touched, 1);
        assert_true(connection->cm->pending.touched <= 2);
    }
    assert_int_equal(cm_disconnect(a, world_now(world)), STATUS_OK);
    world_end(world, a, b);
}

static void ids_carry_the_prefix(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm *cm = world->hosts[1].cm;
    struct cm_connection *connections[8];
    for (int i = 0; i < 8; i++) {
        connections[i] = cm_table_take(cm);
        assert_int_equal(connections[i]->local_id >> 20, 5);
        assert_true(cm_table_is_ours(cm, connections[i]->local_id));
        assert_ptr_equal(cm_table_find(cm, connections[i]->local_id), connections[i]);
    }
    assert_null(cm_table_take(cm));
    assert_false(cm_table_is_ours(cm, 4u << 20));
    for (int i = 0; i < 8; i++) {
        cm_table_give(connections[i]);
    }
    world_end(world, NULL, NULL);
}

/* What an observer can do about ids that come from a linear generator (xoshiro256**): the lower
 * bits of an id, unscrambled, are sums of bits of its state. A row is such a sum of the 256 bits
 * that the state had at first, and in the last word its value. */
#define ROW_WORDS    5
#define ID_BITS      20u
#define KNOWN_BITS   13u /* of the state's second word, by an id */
#define IDS_SEEN     40
#define INVERSE_OF_9 UINT32_C(954437177)
#define INVERSE_OF_5 UINT32_C(3435973837)

struct row {
    uint64_t words[ROW_WORDS];
};

static void add_row(struct row *to, const struct row *row)
{
    for (int i = 0; i < ROW_WORDS; i++) {
        to->words[i] ^= row->words[i];
    }
}

static void step(struct row (*state)[64])
{
    struct row shifted[64] = {0}, last[64];
    memcpy(shifted + 17, state[1], 47 * sizeof shifted[0]);
    for (int i = 0; i < 64; i++) {
        add_row(&state[2][i], &state[0][i]);
        add_row(&state[3][i], &state[1][i]);
        add_row(&state[1][i], &state[2][i]);
        add_row(&state[0][i], &state[3][i]);
        add_row(&state[2][i], &shifted[i]);
        last[(i + 45) % 64] = state[3][i];
    }
    memcpy(state[3], last, sizeof last);
}

/* False: it contradicts those before. `basis` has a row for each highest bit, where one is. */
static bool fits(struct row *basis, struct row row)
{
    for (int bit = 255; bit >= 0; bit--) {
        if ((row.words[bit / 64] >> bit % 64 & 1) == 0) {
            continue;
        }
        if ((basis[bit].words[bit / 64] >> bit % 64 & 1) == 0) {
            basis[bit] = row;
            return true;
        }
        add_row(&row, &basis[bit]);
    }
    return row.words[4] == 0;
}

static void ids_tell_nothing_of_the_next_ones(void **state)
{
    struct world *world = world_create(1, IDS_SEEN);
    struct cm_connection *connections[IDS_SEEN];
    static struct row generator[4][64], basis[256];
    bool consistent = true;
    for (int i = 0; i < 256; i++) {
        generator[i / 64][i % 64].words[i / 64] = UINT64_C(1) << i % 64;
    }
    for (int i = 0; i < IDS_SEEN; i++) {
        connections[i] = cm_table_take(world->hosts[1].cm);
        uint32_t rotated = connections[i]->local_id * INVERSE_OF_9 & ((1u << ID_BITS) - 1);
        uint32_t known = (rotated >> 7) * INVERSE_OF_5;
        for (unsigned bit = 0; bit < KNOWN_BITS; bit++) {
            struct row row = generator[1][bit];
            row.words[4] = known >> bit & 1;
            consistent = consistent && fits(basis, row);
        }
        step(generator);
    }
    assert_false(consistent);
    for (int i = 0; i < IDS_SEEN; i++) {
        cm_table_give(connections[i]);
    }
    world_end(world, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_one_hash_share_a_chain),
        cmocka_unit_test(what_is_established_and_idle_has_nothing_of_the_pools),
        cmocka_unit_test(ids_carry_the_prefix),
        cmocka_unit_test(ids_tell_nothing_of_the_next_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
