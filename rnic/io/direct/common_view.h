/* Another process's common memory (common.h) as we see it: its file, of which what is touched is
 * mapped here.
 *
 * What the owner says of it is not believed: a part that the file has not is not mapped. A part
 * lies at a place in the file that no other ever has, so what was mapped once stays right. The file
 * cannot be cut short (sealed), so touching what is mapped never faults. */
#ifndef WEIR_IO_COMMON_VIEW_H
#define WEIR_IO_COMMON_VIEW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rnic/transport/direct_table.h"

#define COMMON_VIEW_PARTS  64u /* mapped at a time, */
#define COMMON_VIEW_WAYS   4u  /* each in one of so many places */
#define COMMON_VIEW_MISSES 4096u

struct common_view {
    bool hopeless;   /* nothing will ever be mapped */
    uint32_t misses; /* of parts that are not mapped, since one was: COMMON_VIEW_MISSES of them cost
                      * what it costs to map another instead */
    struct {
        struct direct_common part; /* length 0: nothing is mapped */
        uint8_t *bytes;
    } parts[COMMON_VIEW_PARTS]; /* by offset */
};

/* Where its file is. */
struct common_owner {
    pid_t thread;
    int descriptor;
};

void common_view_init(struct common_view *view);
/* Forgets all. */
void common_view_end(struct common_view *view);
/* Where the part lies here; NULL: nowhere. */
uint8_t *common_view_find(struct common_view *view, const struct common_owner *owner,
                          const struct direct_common *part);

#endif
