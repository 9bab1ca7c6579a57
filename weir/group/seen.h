/* Which calls have run here: for each of the callers heard last, the greatest number of its calls
 * and those of the 1024 up to it that were seen. What is older counts as seen. So nothing runs
 * twice, however late it comes, unless 4096 other callers were heard in between. */
#ifndef WEIR_GROUP_SEEN_H
#define WEIR_GROUP_SEEN_H

#include <stdbool.h>
#include <stdint.h>

#define SEEN_CALLERS 4096u
#define SEEN_WINDOW  1024u

struct seen_caller;

struct seen {
    struct seen_caller *callers;
    uint32_t count, capacity;
    uint32_t *places; /* of callers, by a hash; capacity * 2 of them */
    uint32_t newest, oldest;
};

enum seen_verdict {
    SEEN_NEW, /* and seen from now on */
    SEEN_BEFORE,
    SEEN_NO_MEMORY,
};

void seen_fini(struct seen *seen);
enum seen_verdict seen_take(struct seen *seen, uint64_t caller, uint64_t number);

#endif
