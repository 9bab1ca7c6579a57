/* What members say to each other of a call, inside of rpc's requests and replies.
 *
 * Pure functions of bytes.
 *
 *     request:  0 u16 magic    4 u32 caller's rank   16 u64 number, of the caller's calls
 *               2 u8 version   8 u64 caller          24 u64 procedure
 *               3 u8 radix                           32 u32 milliseconds that the whole call has
 *              36 ranks below this member, then the call's bytes
 *     reply:    0 u16 magic    4 failures, then what the others have replied, combined
 *               2 u8 version
 *               3 u8 1 if anybody has replied with bytes, else 0
 *
 * What a member refuses, it has not run and not handed on; the code is then the status. */
#ifndef WEIR_GROUP_CALL_MESSAGE_H
#define WEIR_GROUP_CALL_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/group/failures.h"
#include "weir/group/ranks.h"

#define CALL_REQUEST_LENGTH 36u
#define CALL_REPLY_LENGTH   4u
#define CALL_RADIX_LEAST    2u
#define CALL_RADIX_MOST     64u

struct call_request {
    unsigned radix;
    uint32_t caller_rank;
    uint64_t caller, number; /* together: the call */
    uint64_t procedure;
    uint32_t total_ms;
    struct ranks below;
    const uint8_t *bytes;
    size_t length;
};

/* The header; ranks and bytes follow. */
void call_request_pack(const struct call_request *request, uint8_t ret_bytes[CALL_REQUEST_LENGTH]);
/* NULL, or what is wrong with it: then there are no ranks to fini. */
const char *call_request_parse(const uint8_t *bytes, size_t length,
                               struct call_request *ret_request);

struct call_reply {
    bool has_bytes;
    struct failures failures;
    const uint8_t *bytes;
    size_t length;
};

void call_reply_pack(const struct call_reply *reply, uint8_t ret_bytes[CALL_REPLY_LENGTH]);
/* NULL, or what is wrong with it: then there are no failures to fini. */
const char *call_reply_parse(const uint8_t *bytes, size_t length, const struct ranks *asked,
                             struct call_reply *ret_reply);

#endif
