#include "rnic/transport/reads.h"

#include "rnic/transport/environment.h"

enum status reads_reserve(struct reads **reads, struct environment *environment, uint32_t count)
{
    struct allocator *allocator = environment->allocator;
    if (count == 0) {
        return STATUS_OK;
    }
    if (*reads != &environment->no_reads) {
        return replay_reserve(&(*reads)->replay, allocator, count);
    }
    struct reads *fresh = allocator->allocate(allocator, sizeof *fresh);
    if (fresh == NULL) {
        return STATUS_NO_MEMORY;
    }
    enum status status = replay_init(&fresh->replay, allocator, count);
    if (status != STATUS_OK) {
        allocator->release(allocator, fresh);
        return status;
    }
    pace_reset(&fresh->pace);
    *reads = fresh;
    return STATUS_OK;
}

void reads_free(struct reads *reads, struct environment *environment)
{
    if (reads != &environment->no_reads) {
        replay_fini(&reads->replay, environment->allocator);
        environment->allocator->release(environment->allocator, reads);
    }
}
