/* The engine of a process: one device, one cm, the UDP link, the registry's slot, and a background
 * thread, created at the first acquire and ended with the last release.
 *
 * Who polls, drives: see rnic/device/engine.h, whose table this fills. The background thread
 * sleeps until a packet, a deadline or a wake-up; while application threads have been driving
 * lately it does not even watch the sockets. It blocks every signal. Nothing here spins.
 *
 * After fork the child has no engine: its first acquire makes a fresh one; handles from before the
 * fork are dead in the child (loop_is_ours tells). */
#ifndef WEIR_IO_LOOP_H
#define WEIR_IO_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/status.h"
#include "rnic/device/engine.h"
#include "rnic/queue/event.h"
#include "rnic/wire/ids.h"

struct registry;

/* The process's engine, one more user of it. DENIED, IN_USE: UDP port 4791 or the registry is not
 * to be had; loop_last_error says why in words. */
enum status loop_acquire(struct engine **ret_engine) MUST_USE;
/* The last release ends the thread and destroys device and cm, which must be empty by then. In a
 * child of the process that acquired it does nothing. */
void loop_release(struct engine *engine);
/* False in a forked child of the process that acquired it. */
bool loop_is_ours(const struct engine *engine);
/* Why the last loop_acquire of this process failed; "" if none did. */
const char *loop_last_error(void);

/* NULL where loop_is_ours says no; the calls that claim take that. */
struct registry *loop_registry(struct engine *engine);

/* The host joins or leaves an IP multicast group on an interface, by count of users; see groups.h.
 * CLOSED where loop_is_ours says no. UNSUPPORTED: our sockets are bound to addresses (WEIR_BIND),
 * and hear no group. */
enum status loop_join_group(struct engine *engine, const struct gid *group,
                            uint32_t interface_index) MUST_USE;
void loop_leave_group(struct engine *engine, const struct gid *group, uint32_t interface_index);

/* `wake` is called, under the engine's lock, when cm has queued an event where none was: it must
 * not call cm back, but may post to a notify. NULL: nobody. Takes effect before it returns. */
void loop_set_cm_wake(struct engine *engine, void (*wake)(void *context), void *context);
/* `changed` is called by the background thread, without the engine's lock, when addresses or links
 * of the host may have changed. NULL: nobody. */
void loop_set_address_watch(struct engine *engine, void (*changed)(void));
/* Where the device's async events go, raised under the engine's lock; NULL: nowhere. */
void loop_set_event_sink(struct engine *engine, struct event_sink *sink);

/* What carries packets to processes of this host, and why, in words; static. NULL where
 * loop_is_ours says no. */
const char *loop_describe_same_host(struct engine *engine);

/* Packets that were sent again since the engine began; 0 where loop_is_ours says no. */
uint64_t loop_retransmissions(struct engine *engine);
/* Packets that went and came by the network, and through this host's memory, where what was done in
 * a peer's memory without a packet counts as one. 0 where loop_is_ours says no. */
void loop_count_carried(struct engine *engine, uint64_t *ret_network, uint64_t *ret_memory);
/* Every counter there is: the device's, the link's, the registry's, the thread's. Names are static
 * and lower case ("udp_packets_sent"). */
typedef void loop_statistics_visitor(void *context, const char *name, uint64_t value);
void loop_statistics(struct engine *engine, loop_statistics_visitor *visit, void *context);

#endif
