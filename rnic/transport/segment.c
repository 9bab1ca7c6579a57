/* The opcodes of request messages as a table. */
#include "rnic/transport/segment.h"

#include "rnic/base/check.h"

struct forms {
    uint8_t first, middle, last, only;
};

static const struct forms request_forms[WORK_KIND_COUNT] = {
    [WORK_SEND] = {FORM_SEND_FIRST, FORM_SEND_MIDDLE, FORM_SEND_LAST, FORM_SEND_ONLY},
    [WORK_SEND_IMMEDIATE] = {FORM_SEND_FIRST, FORM_SEND_MIDDLE, FORM_SEND_LAST_IMMEDIATE,
                             FORM_SEND_ONLY_IMMEDIATE},
    [WORK_SEND_INVALIDATE] = {FORM_SEND_FIRST, FORM_SEND_MIDDLE, FORM_SEND_LAST_INVALIDATE,
                              FORM_SEND_ONLY_INVALIDATE},
    [WORK_WRITE] = {FORM_WRITE_FIRST, FORM_WRITE_MIDDLE, FORM_WRITE_LAST, FORM_WRITE_ONLY},
    [WORK_WRITE_IMMEDIATE] = {FORM_WRITE_FIRST, FORM_WRITE_MIDDLE, FORM_WRITE_LAST_IMMEDIATE,
                              FORM_WRITE_ONLY_IMMEDIATE},
};

uint8_t segment_request_opcode(enum service service, enum work_kind kind, bool first, bool last)
{
    CHECK(kind <= WORK_WRITE_IMMEDIATE);
    const struct forms *forms = &request_forms[kind];
    return OPCODE(service, first && last ? forms->only
                           : first       ? forms->first
                           : last        ? forms->last
                                         : forms->middle);
}
