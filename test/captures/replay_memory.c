/* Keys where they were: the n-th registration of a table takes number n, a number that is freed
 * when all are in use comes again at once with another variant, and variants of a window are its
 * user's choice. So any key can be had by asking for it often enough. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/memory/window.h"
#include "test/captures/replay_private.h"

static struct place *find_place(struct world *world, uint32_t key)
{
    for (uint32_t i = 0; i < world->place_count; i++) {
        if (world->places[i].key.value == key) {
            return &world->places[i];
        }
    }
    return NULL;
}

static struct place *add_place(struct world *world, uint32_t key)
{
    assert_true(world->place_count < PLACES_MAX);
    struct place *place = &world->places[world->place_count++];
    place->key.value = key;
    place->attributes.domain = world->domain;
    return place;
}

static unsigned rights_of(const struct packet *packet)
{
    switch (packet->info->operation) {
    case OPERATION_READ_REQUEST:
        return ACCESS_REMOTE_READ;
    case OPERATION_WRITE:
        return ACCESS_REMOTE_WRITE | ACCESS_LOCAL_WRITE;
    default:
        return ACCESS_REMOTE_ATOMIC | ACCESS_LOCAL_WRITE;
    }
}

/* The region grows until it holds what the packet names. */
static void derive_place(struct world *world, const struct packet *packet)
{
    struct place *place = find_place(world, packet->remote_key.value);
    uint64_t length = packet->info->has_atomic ? 8 : packet->dma_length;
    if (place == NULL) {
        place = add_place(world, packet->remote_key.value);
        place->attributes.address = packet->remote_address;
    }
    struct region_attributes *region = &place->attributes;
    uint64_t first =
        region->address < packet->remote_address ? region->address : packet->remote_address;
    uint64_t end = region->address + region->length, packet_end = packet->remote_address + length;
    region->address = first;
    region->length = (end > packet_end ? end : packet_end) - first;
    region->access |= rights_of(packet);
}

static void collect_places(struct world *world)
{
    const struct replay_connection *connection = world->connection;
    bool listed = connection->region_count != 0;
    for (uint32_t i = 0; listed && world->side == 0 && i < connection->region_count; i++) {
        const struct replay_region *region = &connection->regions[i];
        struct place *place = add_place(world, region->key);
        place->attributes.address = region->address;
        place->attributes.length = region->length;
        place->attributes.access = region->access;
    }
    for (uint32_t i = 0; !listed && i < world->capture->pcap.count; i++) {
        const struct packet *packet = &world->capture->frames[i].packet;
        if (!is_peers(world, &world->capture->frames[i])) {
            continue;
        }
        if (packet->info->has_reth || packet->info->has_atomic) {
            derive_place(world, packet);
        }
        struct place *place =
            packet->info->has_invalidate ? find_place(world, packet->invalidate.value) : NULL;
        if (place != NULL) {
            place->is_window = true;
        }
    }
}

uint32_t replay_key_numbers(struct world *world)
{
    uint32_t highest = 0;
    collect_places(world);
    for (uint32_t i = 0; i < world->place_count; i++) {
        uint32_t number = world->places[i].key.value >> 8;
        highest = number > highest ? number : highest;
    }
    world->number_count = highest + world->place_count + 1;
    assert_true(world->number_count <= NUMBERS_MAX);
    return world->number_count;
}

/* A region at that number, with any variant. */
static struct memory_key register_at(struct world *world, uint32_t number,
                                     const struct region_attributes *attributes)
{
    struct memory_key *key = &world->numbers[number].key;
    if (key->value != 0) {
        assert_int_equal(memory_deregister(world->memory, *key), STATUS_OK);
    }
    assert_int_equal(memory_register(world->memory, attributes, key), STATUS_OK);
    assert_int_equal(key->value >> 8, number);
    return *key;
}

static void place_window(struct world *world, struct place *place, uint32_t parent)
{
    struct number *number = &world->numbers[place->key.value >> 8];
    struct region_attributes attributes = place->attributes;
    attributes.access |= ACCESS_BIND_WINDOW | ACCESS_LOCAL_WRITE;
    place->parent = register_at(world, parent, &attributes);
    if (!number->is_window) {
        assert_int_equal(memory_deregister(world->memory, number->key), STATUS_OK);
        assert_int_equal(window_allocate(world->memory, world->domain, WINDOW_TYPE_2, &number->key),
                         STATUS_OK);
        assert_int_equal(number->key.value >> 8, place->key.value >> 8);
        number->is_window = true;
    }
}

void replay_place_keys(struct world *world)
{
    struct region_attributes nothing = {.domain = world->domain};
    for (uint32_t i = 1; i <= world->number_count; i++) {
        (void)register_at(world, i, &nothing);
    }
    for (uint32_t i = 0; i < world->place_count; i++) {
        struct place *place = &world->places[i];
        place->attributes.domain = world->domain;
        place->attributes.bytes = calloc(1, place->attributes.length + 1);
        assert_non_null(place->attributes.bytes);
        if (place->is_window) {
            place_window(world, place, world->number_count - 1 - i);
            continue;
        }
        for (int tries = 0; tries < 256; tries++) {
            if (register_at(world, place->key.value >> 8, &place->attributes).value ==
                place->key.value) {
                break;
            }
        }
        assert_int_equal(world->numbers[place->key.value >> 8].key.value, place->key.value);
    }
    world->local = calloc(1, LOCAL_LENGTH);
    assert_non_null(world->local);
    struct region_attributes local = {.domain = world->domain,
                                      .address = LOCAL_ADDRESS,
                                      .length = LOCAL_LENGTH,
                                      .bytes = world->local,
                                      .access = ACCESS_LOCAL_WRITE};
    world->local_key = register_at(world, world->number_count, &local);
}

void replay_remove_keys(struct world *world)
{
    for (uint32_t i = 1; i <= world->number_count; i++) {
        if (world->numbers[i].is_window) {
            assert_int_equal(window_free(world->memory, world->numbers[i].key), STATUS_OK);
        }
    }
    for (uint32_t i = 1; i <= world->number_count; i++) {
        if (!world->numbers[i].is_window) {
            assert_int_equal(memory_deregister(world->memory, world->numbers[i].key), STATUS_OK);
        }
    }
    for (uint32_t i = 0; i < world->place_count; i++) {
        free(world->places[i].attributes.bytes);
    }
    for (uint32_t i = 0; i < world->wanted_count; i++) {
        free(world->wanted[i].bytes);
    }
    free(world->local);
}

/* A window that is asked for under a new key was invalidated at home, if the peer did not. */
static void open_window(struct world *world, const struct place *place)
{
    struct number *number = &world->numbers[place->key.value >> 8];
    struct qpn qpn = qp_number(world->qp);
    if (number->bound && number->key.value == place->key.value) {
        return;
    }
    if (number->bound) {
        enum status status = window_invalidate(world->memory, world->domain, qpn, number->key);
        assert_true(status == STATUS_OK || status == STATUS_STATE);
    }
    struct window_bind bind = {
        .window = number->key,
        .key = place->key,
        .region = place->parent,
        .address = place->attributes.address,
        .length = place->attributes.length,
        .access = place->attributes.access & ~(unsigned)ACCESS_LOCAL_WRITE,
    };
    assert_int_equal(window_bind(world->memory, world->domain, qpn, &bind), STATUS_OK);
    number->key = place->key;
    number->bound = true;
}

uint8_t *replay_memory(struct world *world, const struct packet *packet, uint64_t length)
{
    struct place *place = find_place(world, packet->remote_key.value);
    if (place == NULL) {
        return NULL;
    }
    if (place->is_window) {
        open_window(world, place);
    }
    uint64_t offset = packet->remote_address - place->attributes.address;
    bool inside = offset <= place->attributes.length && length <= place->attributes.length - offset;
    return inside ? place->attributes.bytes + offset : NULL;
}
