/* Who has not replied to a call, and why: entries for ranges of ranks, in any order until settled.
 */
#ifndef WEIR_GROUP_FAILURES_H
#define WEIR_GROUP_FAILURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/group.h>

#include "weir/group/ranks.h"

struct failures {
    struct weir_group_failure *entries;
    size_t count, capacity;
    uint32_t total; /* ranks */
};

void failures_fini(struct failures *failures);
/* One that goes on where the last ends, and is like it, makes that longer. False: no memory; none
 * is added. */
bool failures_add(struct failures *failures, struct weir_group_failure failure);
/* For each of the ranks; some may have been added if there is no memory. */
bool failures_add_ranks(struct failures *failures, const struct ranks *ranks,
                        enum weir_status status, uint32_t code);
bool failures_join(struct failures *failures, const struct failures *others);
/* Ascending, and neighbors that are alike made one. */
void failures_settle(struct failures *failures);

/* On the wire: u32 entries, then each as u32 first, count, status, code. Of settled ones. */
size_t failures_packed_length(const struct failures *failures);
void failures_pack(const struct failures *failures, uint8_t *ret_bytes);
/* NULL, or what is wrong. All of them are of `asked`. Only after NULL there is something to fini.
 */
const char *failures_parse(const uint8_t *bytes, size_t length, const struct ranks *asked,
                           struct failures *ret_failures, size_t *ret_length);

#endif
