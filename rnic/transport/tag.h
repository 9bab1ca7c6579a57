/* Tag matching: a shared receive queue that sorts messages into buffers by the tag they carry.
 *
 * The sender knows nothing of it but the headers that its SENDs begin with. A message whose tag a
 * posted buffer wants goes there without its header; of a rendezvous message only the header comes,
 * the receiving queue pair then READs the data itself and says FIN. All others are unexpected and
 * go, header and all, to the receives of the queue.
 *
 * Order: the application counts the unexpected messages that it has handled. A buffer that is
 * posted while its count is behind ours matches nothing until the two agree: else a later message
 * could overtake an earlier one that waits in the application.
 * [Documentation/tag_matching.md of rdma-core]
 *
 * Here: the list of buffers and what a queue pair does with it. Everything is under the engine's
 * lock. Queue pairs of such a queue send nothing but READs and FINs. */
#ifndef WEIR_TRANSPORT_TAG_H
#define WEIR_TRANSPORT_TAG_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/allocator.h"
#include "rnic/base/status.h"
#include "rnic/base/time.h"
#include "rnic/queue/completion_queue.h"
#include "rnic/queue/send_queue.h"
#include "rnic/queue/work.h"
#include "rnic/wire/packet.h"

#define TAG_HEADER_LENGTH     16u
#define TAG_RENDEZVOUS_LENGTH 32u /* with the header before it */
#define TAG_SENDS             64u /* READs and FINs that a queue pair can have outstanding */
#define TAG_MATCHED           1u  /* of completion.tag_flags */
#define TAG_DATA_VALID        2u
#define TAG_SYNCHRONIZE       4u

struct qp;
struct tag_matcher;

struct tag_config {
    struct allocator *allocator;
    uint32_t max_tags;
    uint32_t max_sge;
    struct completion_queue *completions;
};

/* INVALID: no tags, more SGEs than a queue takes. */
enum status tag_matcher_create(const struct tag_config *config,
                               struct tag_matcher **ret_matcher) MUST_USE;
void tag_matcher_destroy(struct tag_matcher *matcher);
uint32_t tag_matcher_max_sge(const struct tag_matcher *matcher);
/* What the send queue of its queue pairs needs room for. */
struct send_queue_limits tag_send_limits(const struct tag_matcher *matcher);

/* What every operation says besides. */
struct tag_operation {
    uint64_t id;
    bool signaled;       /* completes to the queue's completions */
    bool synchronizes;   /* tells the next; else what was told last holds */
    uint32_t unexpected; /* messages that the application has handled */
    struct instant now;
};

struct tag_buffer {
    uint64_t id; /* of the receive's completions */
    uint64_t tag, mask;
    const struct sge *sges; /* borrowed for the call */
    uint32_t sge_count;
};

/* FULL: max_tags. INVALID: too many SGEs. */
enum status tag_add(struct tag_matcher *matcher, const struct tag_operation *operation,
                    const struct tag_buffer *buffer, uint32_t *ret_handle) MUST_USE;
/* The completion is in error where the buffer was used in the meantime. */
void tag_remove(struct tag_matcher *matcher, const struct tag_operation *operation,
                uint32_t handle);
void tag_synchronize(struct tag_matcher *matcher, const struct tag_operation *operation);

/* The message under way, kept by the responder. */
enum tag_course {
    TAG_PLAIN,      /* not of tag matching */
    TAG_NONE,       /* says itself that it has no tag */
    TAG_UNEXPECTED, /* to a receive of the queue */
    TAG_EAGER,      /* to a buffer */
    TAG_RENDEZVOUS, /* to be READ into a buffer */
    TAG_INCOMPLETE, /* would not fit there: its headers come instead */
};

struct tag_message {
    enum tag_course course;
    uint32_t length; /* of what a rendezvous is about */
    uint64_t tag;
    uint32_t context; /* the sender's */
};

/* The first packet of a SEND: finds its place. False: there is none now, and nothing has changed.
 */
bool tag_begin(struct qp *qp, const struct packet *packet);
/* Which of the packet's bytes go to that place. */
void tag_strip(const struct qp *qp, const struct packet *packet, const uint8_t **ret_bytes,
               uint32_t *ret_length);
/* A packet of it was executed: what is to be said or done before its end. */
void tag_executed(struct qp *qp, const struct packet *packet);
/* What a receive's completion says of tags. `packet` is the message's last, NULL on failure. */
void tag_describe(struct qp *qp, const struct packet *packet, struct completion *completion);
/* The message under way has ended with its receive's completion. */
void tag_end(struct qp *qp);
/* The message under way, if there is one, ends without a completion. */
void tag_forget(struct qp *qp);
/* A READ or FIN of ours has ended. */
void tag_sent(struct qp *qp, const struct completion *completion);

#endif
