#include "rnic/io/fault.h"

#include <stdlib.h>
#include <string.h>

static bool happens(struct fault *fault, uint64_t probability)
{
    return probability != 0 && random_u64(&fault->random) >> 32 < probability;
}

static enum status parse_one(const char *item, size_t length, struct fault *fault)
{
    const struct {
        const char *name;
        uint64_t *probability;
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
        *rows[i].probability = (uint64_t)(value * 4294967296.0);
        return STATUS_OK;
    }
    return STATUS_INVALID;
}

enum status fault_parse(const char *text, struct fault *ret_fault)
{
    struct fault fault = {0};
    random_seed(&fault.random, 1);
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        enum status status = parse_one(text, length, &fault);
        if (status != STATUS_OK) {
            return status;
        }
        text += length + (text[length] == ',');
    }
    *ret_fault = fault;
    return STATUS_OK;
}

struct fault_verdict fault_decide(struct fault *fault)
{
    return (struct fault_verdict){
        .lose = happens(fault, fault->loss),
        .delay = happens(fault, fault->reorder),
        .duplicate = happens(fault, fault->duplicate),
        .corrupt = happens(fault, fault->corrupt),
    };
}

uint32_t fault_spares(struct fault *fault, uint32_t count, struct fault_verdict *ret_verdict)
{
    for (uint32_t i = 0; i < count; i++) {
        struct fault_verdict verdict = fault_decide(fault);
        if (fault_befalls(&verdict)) {
            *ret_verdict = verdict;
            return i;
        }
    }
    return count;
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
