/* Runs that the kernel sends from where they lie, instead of copying them first. Where the receiver
 * frees on one processor what the sender fills on another, its copies go to pages that are long
 * cold: that costs more than all else of a packet. Where both share a processor its pages are near
 * and ours are not. So what a run costs its sender decides, each way (trial.h).
 *
 * Who lends may write again what the peer has taken, and is told by nobody when that is. So each
 * stream lends while it has UDP_FLIGHT_MAX under way at most, from a ring of its own in which that
 * fits twice. (On a long way a queue pair has more under way, and the host itself may be what
 * delays it: netem does.) One stream's packets may wait for a slow interface as long as they like
 * while another's are quick. Whose packets wait for longer than it needs to repeat them twice, or
 * than LENDER_IDLE_NS while nothing more of it leaves, may have sent later bytes in their place:
 * what is no whole packet then is refused for its ICRC, and repeated. So only what is acknowledged
 * and repeated may be lent: requests of RC. */
#ifndef WEIR_IO_LENDER_H
#define WEIR_IO_LENDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "rnic/base/time.h"
#include "rnic/io/udp/trial.h"
#include "rnic/wire/ids.h"
#include "rnic/wire/path.h"

#define LENDER_STREAMS 7u
#define LENDER_PLACE   65536u
#define LENDER_LEAST   (LENDER_PLACE / 2) /* bytes; a shorter run is copied */
/* A stream that has taken nothing for so long, or twice that, makes room for another. */
#define LENDER_IDLE_NS UINT64_C(1000000000)

/* Zeroed to begin with. */
struct lender {
    bool open, denied;    /* denied: there is no pipe to be had, or none that is long enough */
    uint32_t failures[2]; /* of the kernel in a row, for IPv4 and IPv6 */
    int pipe[2];
    uint8_t *bytes;
    struct trial trial; /* of full runs, copied and lent */
    struct instant swept;
    struct lender_stream {
        struct path path;
        struct qpn destination;
        bool admitted;
        bool used;     /* since `swept` */
        bool filled;   /* what begins at `next`; it has not left yet */
        uint32_t next; /* byte of the ring */
    } streams[LENDER_STREAMS];
};

/* A place for a run of that stream, of LENDER_PLACE bytes, until it is sent or given back; NULL: it
 * has to be copied. */
uint8_t *lender_take(struct lender *lender, const struct path *path, struct qpn destination);
/* The run was copied after all. */
void lender_give_back(struct lender *lender, const uint8_t *bytes);
/* Sends the run at `bytes` from there, by `address` as sendmsg wants it. False, with errno: it has
 * not left, but for a beginning, perhaps, that ends in the middle of a packet. */
bool lender_send(struct lender *lender, int descriptor, const struct msghdr *address,
                 uint8_t *bytes, uint32_t length);
/* Lends no more. What is lent stays the kernel's. */
void lender_close(struct lender *lender);

#endif
