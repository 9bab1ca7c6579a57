#include "rnic/io/same_host/responses.h"

#include <stddef.h>

static void merge(struct response *rest, const struct response *response, uint64_t consumed)
{
    if (rest->produced <= consumed) {
        *rest = *response;
    } else {
        rest->start = response->start < rest->start ? response->start : rest->start;
        rest->end = response->end > rest->end ? response->end : rest->end;
        rest->produced = response->produced; /* and put when the oldest was */
    }
    rest->place = RESPONSES_ANY_PLACE;
}

void responses_add(struct responses *responses, const struct response *response, uint64_t consumed)
{
    struct response *slot = &responses->kept[responses->count++ % RESPONSES_KEPT];
    if (slot->end != 0 && slot->produced > consumed) {
        merge(&responses->rest, slot, consumed);
    }
    *slot = *response;
    responses->produced = response->produced;
}

/* `length` may be that of a region that covers all addresses. */
static bool concerns(const struct response *response, uint64_t start, uint64_t length,
                     struct instant until, uint64_t consumed)
{
    bool overlaps =
        response->start < start ? response->end > start : response->start - start < length;
    return response->end != 0 && response->produced > consumed && overlaps &&
           !instant_before(until, response->put);
}

struct response *responses_find(struct responses *responses, const uint8_t *bytes, uint64_t length,
                                struct instant until, uint64_t consumed)
{
    uint64_t start = (uintptr_t)bytes;
    if (responses->produced <= consumed) {
        return NULL;
    }
    for (uint32_t i = 0; i < RESPONSES_KEPT; i++) {
        if (concerns(&responses->kept[i], start, length, until, consumed)) {
            return &responses->kept[i];
        }
    }
    return concerns(&responses->rest, start, length, until, consumed) ? &responses->rest : NULL;
}
