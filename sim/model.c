#include "sim/model.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/memory/window.h"

void *scratch_take(struct scratch *scratch, size_t size)
{
    size = (size + 63) / 64 * 64;
    CHECK(scratch->size - scratch->used >= size);
    void *memory = scratch->bytes + scratch->used;
    scratch->used += size;
    memset(memory, 0, size);
    return memory;
}

static uint64_t choose_address(struct dice *dice, const uint8_t *bytes, uint32_t length)
{
    switch (dice_below(dice, 5)) {
    case 0:
        return 0;
    case 1: /* the last byte there is, minus none */
        return UINT64_MAX - length - dice_below(dice, 3);
    case 2:
        return dice_next(dice) >> 2;
    default:
        (void)bytes;
        return UINT64_C(0x7f0000000000) + ((uint64_t)dice_below(dice, 1u << 20) << 12);
    }
}

struct territory *model_claim(struct scratch *scratch, struct space *space, struct dice *dice,
                              uint32_t length, unsigned access, bool foreign)
{
    uint32_t padded = (length + 63) / 64 * 64 + GUARD_BYTES;
    if (SPACE_SIZE - space->used < padded || space->territory_count == TERRITORY_MAX) {
        return NULL;
    }
    if (space->used == 0) {
        dice_fill(dice, space->bytes, GUARD_BYTES);
        memcpy(space->shadow, space->bytes, GUARD_BYTES);
        space->used = GUARD_BYTES;
    }
    struct territory *territory = scratch_take(scratch, sizeof *territory);
    uint32_t skew = dice_below(dice, 8) * 8; /* the region need not begin on a line */
    uint32_t offset = space->used;
    dice_fill(dice, space->bytes + offset, padded);
    memcpy(space->shadow + offset, space->bytes + offset, padded);
    space->used += padded;
    *territory = (struct territory){
        .space = space,
        .offset = offset + skew,
        .length = length,
        .address = choose_address(dice, space->bytes + offset, length) & ~UINT64_C(7),
        .access = access,
        .foreign = foreign,
        .alive = true,
    };
    territory->length -= skew < length ? skew : 0;
    struct region_attributes attributes = {
        .domain = foreign ? space->foreign_domain : space->domain,
        .address = territory->address,
        .length = territory->length,
        .bytes = space->bytes + territory->offset,
        .access = access | ACCESS_BIND_WINDOW,
    };
    if (memory_register(device_memory(space->host->device), &attributes, &territory->key) !=
        STATUS_OK) {
        return NULL;
    }
    space->territories[space->territory_count++] = territory;
    return territory;
}

bool model_take(struct territory *territory, uint32_t length, uint32_t align, struct span *ret_span)
{
    uint32_t used = (territory->used + align - 1) / align * align;
    if (territory->length < used || territory->length - used < length) {
        return false;
    }
    territory->used = used + length;
    *ret_span = (struct span){territory, territory->offset + used, length};
    return true;
}

static void freeze(struct scratch *scratch, struct space *space, uint32_t offset, uint32_t length)
{
    if (space->frozen_count == FROZEN_MAX || length == 0) {
        return;
    }
    uint8_t *copy = scratch_take(scratch, length);
    memcpy(copy, space->bytes + offset, length);
    space->frozen[space->frozen_count++] = (struct frozen){offset, length, copy};
}

bool model_prepare_bind(const struct span *span, unsigned type, unsigned access,
                        struct window_bind *ret_bind)
{
    struct space *space = span->territory->space;
    struct memory_key key;
    if (space->opening_count == OPENING_MAX ||
        window_allocate(device_memory(space->host->device), space->domain, (enum window_type)type,
                        &key) != STATUS_OK) {
        return false;
    }
    space->openings[space->opening_count++] = (struct opening){key, span->territory};
    *ret_bind = (struct window_bind){
        .window = key,
        .key = {key.value ^ 1},
        .region = span->territory->key,
        .address = model_address(span),
        .length = span->length,
        .access = access,
    };
    return true;
}

bool model_open(const struct span *span, struct qpn qpn, unsigned type, unsigned access,
                struct memory_key *ret_key)
{
    struct space *space = span->territory->space;
    struct window_bind bind;
    if (!model_prepare_bind(span, type, access, &bind)) {
        return false;
    }
    CHECK(window_bind(device_memory(space->host->device), space->domain, qpn, &bind) == STATUS_OK);
    *ret_key = bind.key;
    return true;
}

void model_shut(struct space *space, const struct territory *territory)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < space->opening_count; i++) {
        struct opening *opening = &space->openings[i];
        if (territory == NULL || opening->territory == territory) {
            CHECK(window_free(device_memory(space->host->device), opening->key) == STATUS_OK);
        } else {
            space->openings[kept++] = *opening;
        }
    }
    space->opening_count = kept;
}

void model_deregister(struct scratch *scratch, struct territory *territory)
{
    if (!territory->alive) {
        return;
    }
    struct memory *memory = device_memory(territory->space->host->device);
    model_shut(territory->space, territory);
    CHECK(memory_deregister(memory, territory->key) == STATUS_OK);
    territory->alive = false;
    freeze(scratch, territory->space, territory->offset, territory->length);
}

void model_freeze_space(struct scratch *scratch, struct space *space)
{
    for (uint32_t i = 0; i < space->territory_count; i++) {
        space->territories[i]->alive = false;
    }
    space->frozen_count = 0;
    freeze(scratch, space, 0, space->used);
}

void model_gather(const struct span *spans, uint32_t count, uint8_t *ret_bytes, uint32_t length)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(ret_bytes + at, model_bytes(&spans[i]), spans[i].length);
        at += spans[i].length;
    }
    CHECK(at == length);
}

/* The part of span `index` that bytes skip .. skip + length fall into: false if none does. */
static bool overlap(const struct span *span, uint32_t begin, uint32_t skip, uint32_t length,
                    uint32_t *ret_in_span, uint32_t *ret_in_bytes, uint32_t *ret_length)
{
    uint32_t first = begin > skip ? begin : skip;
    uint32_t last = begin + span->length < skip + length ? begin + span->length : skip + length;
    if (first >= last) {
        return false;
    }
    *ret_in_span = first - begin;
    *ret_in_bytes = first - skip;
    *ret_length = last - first;
    return true;
}

bool model_scattered_equal(const struct span *spans, uint32_t count, uint32_t skip,
                           const uint8_t *bytes, uint32_t length, uint32_t *ret_at)
{
    uint32_t begin = 0;
    for (uint32_t i = 0; i < count; begin += spans[i++].length) {
        uint32_t in_span, in_bytes, part;
        if (!overlap(&spans[i], begin, skip, length, &in_span, &in_bytes, &part)) {
            continue;
        }
        const uint8_t *actual = model_bytes(&spans[i]) + in_span;
        if (memcmp(actual, bytes + in_bytes, part) != 0) {
            uint32_t at = 0;
            while (actual[at] == bytes[in_bytes + at]) {
                at++;
            }
            *ret_at = in_bytes + at;
            return false;
        }
    }
    return true;
}

void model_apply(const struct span *spans, uint32_t count, uint32_t skip, const uint8_t *bytes,
                 uint32_t length)
{
    uint32_t begin = 0;
    for (uint32_t i = 0; i < count; begin += spans[i++].length) {
        uint32_t in_span, in_bytes, part;
        if (overlap(&spans[i], begin, skip, length, &in_span, &in_bytes, &part)) {
            memcpy(model_shadow(&spans[i]) + in_span, bytes + in_bytes, part);
        }
    }
}

void model_allow(const struct span *spans, uint32_t count, uint32_t skip, const uint8_t *bytes,
                 uint32_t length)
{
    uint32_t begin = 0;
    for (uint32_t i = 0; i < count; begin += spans[i++].length) {
        uint32_t in_span, in_bytes, part;
        if (!overlap(&spans[i], begin, skip, length, &in_span, &in_bytes, &part)) {
            continue;
        }
        const uint8_t *actual = model_bytes(&spans[i]) + in_span;
        uint8_t *shadow = model_shadow(&spans[i]) + in_span;
        for (uint32_t at = 0; at < part; at++) {
            if (actual[at] == bytes[in_bytes + at]) {
                shadow[at] = actual[at];
            }
        }
    }
}

void model_accept(const struct span *spans, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        memcpy(model_shadow(&spans[i]), model_bytes(&spans[i]), spans[i].length);
    }
}
