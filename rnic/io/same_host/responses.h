/* Payloads of responses that stay in our memory until the owner of a lane has read them: where they
 * lie. So memory that is taken back is known not to be read any more, or is withdrawn from just
 * those who read it. The latest are known one by one, those before them as one range. */
#ifndef WEIR_IO_RESPONSES_H
#define WEIR_IO_RESPONSES_H

#include <stdint.h>

#include "rnic/base/time.h"

#define RESPONSES_KEPT      64u
#define RESPONSES_ANY_PLACE UINT32_MAX

struct response {
    uint64_t start, end; /* addresses; both 0: none */
    uint64_t produced;   /* the ring's, behind its record */
    struct instant put;
    uint32_t place; /* among the withdrawals */
};

/* Zeroed: none. */
struct responses {
    struct response kept[RESPONSES_KEPT];
    struct response rest; /* of any place */
    uint64_t count;       /* ever */
    uint64_t produced;    /* of the latest */
};

/* `consumed`: what the owner has given back of the ring. */
void responses_add(struct responses *responses, const struct response *response, uint64_t consumed);
/* One that has some of these bytes, was put until then and may still be read; NULL: there is none.
 */
struct response *responses_find(struct responses *responses, const uint8_t *bytes, uint64_t length,
                                struct instant until, uint64_t consumed);

#endif
