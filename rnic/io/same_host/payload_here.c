#include "rnic/io/same_host/payload_here.h"

#include <string.h>

#include "rnic/base/check.h"

static bool copy(struct payload_reader *reader, uint32_t offset, const struct payload_place *places,
                 uint32_t count)
{
    const struct payload_here *payload = (const struct payload_here *)reader;
    for (uint32_t i = 0; i < count; i++) {
        CHECK(offset <= payload->length && places[i].length <= payload->length - offset);
        memcpy(places[i].bytes, payload->bytes + offset, places[i].length);
        offset += places[i].length;
    }
    return true;
}

void payload_here_init(struct payload_here *ret_payload, const uint8_t *bytes, uint32_t length)
{
    *ret_payload = (struct payload_here){{copy}, bytes, length};
}
