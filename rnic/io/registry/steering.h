/* Which process's socket the kernel gives a packet to: all share UDP port 4791 by SO_REUSEPORT, and
 * a classic BPF program picks the socket by the destination QPN; for MADs by the service that a
 * REQ asks for, else by the receiver's communication id.
 *
 * The program names sockets by their place in the kernel's group, which the registry records. After
 * several deaths at once the record can be wrong: then packets reach the wrong process, which hands
 * them on (handoff.h) and calls steering_correct. So steering is speed, never correctness. */
#ifndef WEIR_IO_STEERING_H
#define WEIR_IO_STEERING_H

#include "rnic/io/registry/registry.h"
#include "rnic/io/udp/udp.h"

struct steering {
    struct registry *registry;
    struct udp *udp;
    uint64_t corrections;
};

/* Opens the link with its place in the groups recorded. As udp_create. */
enum status steering_open(struct steering *steering, struct registry *registry,
                          const struct udp_config *config, const char **ret_message) MUST_USE;
/* Sockets of this user share the port that no process of the registry has: those of another
 * registry, in another /dev/shm, or of one whose file has been removed and that /proc does not
 * show. Neither side's packets find their owners then. */
bool steering_has_strangers(const struct steering *steering) MUST_USE;
/* Closes the link, before the registry is closed. `last_reader` (may be NULL) gets what still came:
 * for a moment the kernel takes us for others. It must not call the registry. */
void steering_close(struct steering *steering, struct udp_receiver *last_reader);
/* The kernel gave us a packet for `slot`. Looks for what is wrong with the record and mends it,
 * unless the record has changed lately: packets that were queued before prove nothing. */
void steering_correct(struct steering *steering, enum udp_family family, uint32_t slot);

#endif
