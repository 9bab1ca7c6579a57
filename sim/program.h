/* The programs of sends and receives of one queue pair: legal work, and now and then one request
 * that must fail, with the status it must fail with. */
#ifndef WEIR_SIM_PROGRAM_H
#define WEIR_SIM_PROGRAM_H

#include "sim/world.h"

#define PROGRAM_ACCESS_ALL                                                                         \
    (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC)

static inline bool program_is_send(enum work_kind kind)
{
    return kind == WORK_SEND || kind == WORK_SEND_IMMEDIATE || kind == WORK_SEND_INVALIDATE;
}

static inline bool program_is_write(enum work_kind kind)
{
    return kind == WORK_WRITE || kind == WORK_WRITE_IMMEDIATE || kind == WORK_ATOMIC_WRITE;
}

static inline bool program_is_atomic(enum work_kind kind)
{
    return kind == WORK_COMPARE_SWAP || kind == WORK_FETCH_ADD;
}

/* A span of `length` bytes under a key of the host with exactly `access`. False: no room. */
bool program_take(struct world *world, struct space *space, unsigned access, bool foreign,
                  uint32_t length, uint32_t align, struct span *ret_span);

/* Needs both ends' spaces and queue pair numbers. */
void program_plan_pair(struct world *world, struct pair *pair);
void program_plan_datagrams(struct world *world, struct end *end);

/* A key that its requests or receives name may be gone: both ends may fail of it, one is told why,
 * the other that it was not its fault. */
void program_blame_key(struct end *end);

/* Place for the receives of a program or of a shared receive queue. */
void program_intakes_init(struct world *world, struct intakes *intakes, struct end *owner,
                          uint32_t quota);
/* One more receive for a message of `length` bytes. False: no room. */
bool program_add_intake(struct world *world, struct intakes *intakes, struct space *space,
                        uint32_t max_sge, uint32_t length);

/* A tag that names the op, for services that may lose messages. */
uint32_t program_tag(const struct end *end, uint32_t index);
/* The op of a tag among those addressed to `end`; NULL if there is none. */
struct op *program_find(struct world *world, const struct end *end, uint32_t tag,
                        struct end **ret_sender);

#endif
