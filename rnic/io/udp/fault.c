#include "rnic/io/udp/fault.h"

#include <stdlib.h>
#include <string.h>

/* The binary digits of a geometrically distributed number are independent of each other. With
 * probability p of a fault the one worth 2^k is set with q^(2^k) / (1 + q^(2^k)), q = 1 - p. */
static void set_probability(struct fault_kind *kind, double probability)
{
    double spares = 1 - probability; /* q^(2^k) */
    for (uint32_t k = 0; k < FAULT_DIGITS; k++) {
        kind->digits[k] = (uint64_t)(spares / (1 + spares) * 4294967296.0);
        spares *= spares;
    }
    kind->spared = probability > 0 ? 0 : UINT64_MAX;
}

static void draw(struct fault *fault, struct fault_kind *kind)
{
    kind->spared = 0;
    for (uint32_t k = 0; k < FAULT_DIGITS; k++) {
        if (kind->digits[k] != 0 && random_u64(&fault->random) >> 32 < kind->digits[k]) {
            kind->spared |= UINT64_C(1) << k;
        }
    }
}

static bool happens(struct fault *fault, struct fault_kind *kind)
{
    if (kind->spared > 0) {
        kind->spared -= kind->spared != UINT64_MAX;
        return false;
    }
    draw(fault, kind);
    return true;
}

static enum status parse_one(const char *item, size_t length, struct fault *fault)
{
    const struct {
        const char *name;
        struct fault_kind *kind;
    } rows[] = {
        {"loss=", &fault->loss},
        {"reorder=", &fault->reorder},
        {"duplicate=", &fault->duplicate},
        {"corrupt=", &fault->corrupt},
    };
    char *end;
    if (strncmp(item, "seed=", 5) == 0) {
        random_seed(&fault->random, strtoull(item + 5, &end, 0));
        return end == item + length && length > 5 ? STATUS_OK : STATUS_INVALID;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t name_length = strlen(rows[i].name);
        if (strncmp(item, rows[i].name, name_length) != 0) {
            continue;
        }
        double value = strtod(item + name_length, &end);
        if (end != item + length || length == name_length || !(value >= 0 && value <= 1)) {
            return STATUS_INVALID;
        }
        set_probability(rows[i].kind, value);
        return STATUS_OK;
    }
    return STATUS_INVALID;
}

enum status fault_parse(const char *text, struct fault *ret_fault)
{
    struct fault fault;
    struct fault_kind *const kinds[] = {&fault.loss, &fault.reorder, &fault.duplicate,
                                        &fault.corrupt};
    random_seed(&fault.random, 1);
    for (size_t i = 0; i < 4; i++) {
        set_probability(kinds[i], 0);
    }
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        enum status status = parse_one(text, length, &fault);
        if (status != STATUS_OK) {
            return status;
        }
        text += length + (text[length] == ',');
    }
    for (size_t i = 0; i < 4; i++) {
        if (kinds[i]->spared == 0) {
            draw(&fault, kinds[i]);
        }
    }
    *ret_fault = fault;
    return STATUS_OK;
}

struct fault_verdict fault_decide(struct fault *fault)
{
    return (struct fault_verdict){
        .lose = happens(fault, &fault->loss),
        .delay = happens(fault, &fault->reorder),
        .duplicate = happens(fault, &fault->duplicate),
        .corrupt = happens(fault, &fault->corrupt),
    };
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void spare(struct fault_kind *kind, uint64_t count)
{
    kind->spared -= kind->spared != UINT64_MAX ? count : 0;
}

uint32_t fault_spares(struct fault *fault, uint32_t count, struct fault_verdict *ret_verdict)
{
    uint64_t least = smaller(smaller(fault->loss.spared, fault->reorder.spared),
                             smaller(fault->duplicate.spared, fault->corrupt.spared));
    uint32_t spared = (uint32_t)smaller(least, count);
    spare(&fault->loss, spared);
    spare(&fault->reorder, spared);
    spare(&fault->duplicate, spared);
    spare(&fault->corrupt, spared);
    if (spared < count) {
        *ret_verdict = fault_decide(fault);
    }
    return spared;
}

void fault_corrupt(struct fault *fault, uint8_t *bytes, size_t length)
{
    uint64_t bit = random_below(&fault->random, length * 8);
    bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

uint32_t fault_delay(struct fault *fault)
{
    return 1 + (uint32_t)random_below(&fault->random, 8);
}
