/* Packets from processes of this host, through memory instead of a socket.
 *
 * Each process has an inbox: a file in memory with a lane for each process that sends to it. A
 * sender opens it by the receiver's process and descriptor number, takes a free lane and puts
 * packets there (outbox.h); nobody is asked. Packets of one lane stay in order and none is lost
 * while both live. There is no ICRC: nothing crosses a wire.
 *
 * A packet may stand for several (port.h). A long payload then stays where it is: the record says
 * where, and the receiver reads it from the sender's memory (pull.h) while the packet is passed on,
 * if it has not been withdrawn before or meanwhile. A shorter one, and any where the kernel refuses
 * that, stands in the record, and is copied from there to its place.
 *
 * Who looks where: up to INBOX_WATCHED lanes that were busy lately are looked at directly, for the
 * price of one cache line each; a sender to another lane sets a bit. A sender makes a system call
 * only if the owner has said that it sleeps. Not here: which process has which inbox (registry.h),
 * the wake-up itself (handoff.h).
 *
 * Under the engine's lock, but inbox_settle and inbox_is_quiet. */
#ifndef WEIR_IO_INBOX_H
#define WEIR_IO_INBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/status.h"
#include "rnic/io/direct/direct.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/path.h"

#define INBOX_WATCHED 16u

struct inbox;

struct inbox_receiver {
    /* One packet, from the BTH to before the ICRC; borrowed for the call. `reference` not NULL: its
     * headers only, and where the payload is. */
    void (*receive)(struct inbox_receiver *receiver, const struct arrival *arrival,
                    const uint8_t *bytes, uint32_t length,
                    const struct payload_reference *reference);
    /* Such a packet may come after the next: its BTH, of which nothing is to be believed. NULL:
     * nobody wants to know. */
    void (*expect)(struct inbox_receiver *receiver, const uint8_t *bytes);
};

/* Told of a sender who has found no room and has some again. */
struct inbox_room {
    void (*given)(struct inbox_room *room, uint64_t sender);
};

struct inbox_counters {
    uint64_t packets_received;
    uint64_t long_records; /* ... that stand for several, and hold their bytes */
    uint64_t lanes;        /* taken now, as far as known */
    uint64_t reclaimed;    /* of senders that died */
    uint64_t readable;     /* senders ever whose memory we may read, */
    uint64_t opaque;       /* and those who would have it read, but the kernel refuses */
    uint64_t malformed;    /* records that none of ours writes: their lane is closed */
};

/* `incarnation` is random and not 0; `direct`: senders may be let touch our memory (direct.h).
 * UNSUPPORTED: the kernel has no sealed files in memory. */
enum status inbox_create(uint64_t incarnation, bool direct, struct inbox **ret_inbox) MUST_USE;
/* From now on payloads may stay in the memory of senders where that can be read: it is tried when
 * the first packet of a lane is taken. */
void inbox_let_refer(struct inbox *inbox);
/* NULL: nobody is told. */
void inbox_tell_of_room(struct inbox *inbox, struct inbox_room *room);
/* NULL is allowed. Senders find their packets lost. */
void inbox_destroy(struct inbox *inbox);
/* In a forked child: closes the child's copy. */
void inbox_abandon(struct inbox *inbox);
/* The number under which senders open it. */
int inbox_descriptor(const struct inbox *inbox);

/* Passes on up to `budget` packets, fair between lanes; returns how many. One that refers to a
 * payload counts as those that it stands for. */
uint32_t inbox_receive(struct inbox *inbox, struct inbox_receiver *receiver, uint32_t budget);
/* For who polls: the same, but where one packet at a time has come lately it does not look whether
 * there is another, for that would take from the sender the line that it writes to next. */
uint32_t inbox_receive_next(struct inbox *inbox, struct inbox_receiver *receiver, uint32_t budget);
/* Any thread: nothing has come since the latest inbox_receive, as far as can be told by a glance.
 */
bool inbox_is_quiet(const struct inbox *inbox);
/* The owner's sleep, apart from falling asleep. */
struct inbox_sleep *inbox_sleep(struct inbox *inbox);
/* Senders wake us from now on. False: there is something to receive, do not sleep. */
bool inbox_fall_asleep(struct inbox *inbox);
/* Long records have come since the call before, and who woke us for them runs on the caller's own
 * processor. */
bool inbox_is_crowded(struct inbox *inbox);
/* What senders wake us by, if they can; ours to watch and to hear. -1: nothing. */
int inbox_bell(const struct inbox *inbox);

/* What senders see of the owner's queue pairs and keys, see direct.h; zeroed at first. NULL: it is
 * not `direct`. */
struct direct_shown *inbox_shown(const struct inbox *inbox);
/* Any thread: waits until no sender is at what was hidden before the call; `only` not 0: not that
 * one. Asked of one who is, with his thread: see direct_waiter. False: given up. */
typedef enum direct_patience inbox_patience(void *context, uint64_t sender, uint32_t thread,
                                            uint64_t waited_ns);
bool inbox_settle(const struct inbox *inbox, uint64_t only, inbox_patience *ask,
                  void *context) MUST_USE;

/* Any thread: how often senders have wished for something to be made common (direct.h). */
uint32_t inbox_wishes(const struct inbox *inbox);
/* The first wish at `*lane` or behind it; false: there is none. It stays until it is cleared. */
bool inbox_next_wish(const struct inbox *inbox, uint32_t *lane, struct memory_key *ret_key);
void inbox_clear_wish(struct inbox *inbox, uint32_t lane, struct memory_key key);

/* Frees the lanes of senders that are gone, once they are empty. */
void inbox_reclaim(struct inbox *inbox, bool (*lives)(void *context, uint64_t incarnation),
                   void *context);

const struct inbox_counters *inbox_counters(const struct inbox *inbox);

#endif
