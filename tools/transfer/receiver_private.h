/* What the parts of a receiver share: receiver.c (what the peer may say when), receiver_place.c
 * (what becomes of entries) and receiver_data.c (chunks and what is in them). */
#ifndef TOOLS_TRANSFER_RECEIVER_PRIVATE_H
#define TOOLS_TRANSFER_RECEIVER_PRIVATE_H

#include "tools/transfer/digest.h"
#include "tools/transfer/hard_links.h"
#include "tools/transfer/owners.h"
#include "tools/transfer/place.h"
#include "tools/transfer/receiver.h"
#include "tools/transfer/tree.h"

/* Answers a peer may leave lying before it is taken for dead or hostile. */
#define ANSWERS_MAX 4096

/* Bytes taken out of a chunk at a time: few enough to stay in the processor's cache. */
#define PRIVATE_LENGTH (128u << 10)

enum receiver_state {
    RECEIVER_ENTRIES,
    RECEIVER_FILE, /* one that goes by chunks */
    RECEIVER_DONE,
};

struct current_file {
    uint32_t id;
    uint64_t size, position;
    bool discarded; /* it cannot be placed; its bytes still come for a while */
    uint32_t names;
    struct attributes attributes;
    struct xattrs xattrs;
    struct place place;
};

struct receiver {
    struct receiver_options options;
    enum receiver_state state;
    uint32_t last_id;
    int last_source; /* -1: none yet */
    unsigned sources_seen;
    struct tree tree;
    uint64_t dead_depth; /* directories below one that could not be made */
    struct current_file file;
    struct digest *digest;
    struct xattrs xattrs; /* of the entry to come */
    struct owners owners;
    struct hard_links links;
    uint8_t *memory;
    uint16_t sequence;
    bool is_granted[RECEIVER_CHUNK_COUNT]; /* the peer may put into it; else it is free to grant */
    uint8_t head[MESSAGE_HEAD_MAX];
    uint8_t private[PRIVATE_LENGTH];
};

void receiver_send(struct receiver *receiver, const struct message *message);
/* The entry or file under way failed: told to our owner and to the peer; receiver->tree.path names
 * it. */
void receiver_fail(struct receiver *receiver, uint32_t id, enum problem_code code,
                   const char *text);
/* The same with an errno, or a failure of attributes.h. */
void receiver_fail_errno(struct receiver *receiver, uint32_t id, int error);
/* The file under way cannot be placed. */
void receiver_discard_file(struct receiver *receiver, int error);

/* receiver_place.c: what becomes of an entry that may come now, under this name. */
void receiver_begin_directory(struct receiver *receiver, const struct message *message,
                              const char *name);
void receiver_place_eager(struct receiver *receiver, const struct message *message,
                          const char *name);
/* A file that goes by chunks. Its path stays in the tree until its end, for what may be said of it.
 */
void receiver_begin_file(struct receiver *receiver, const struct message *message,
                         const char *name);
/* With its END. */
void receiver_commit_file(struct receiver *receiver, const struct message *message);
/* A symbolic link, device, FIFO or socket. */
void receiver_place_node(struct receiver *receiver, const struct message *message,
                         const char *name);
/* A further name of what has been placed. */
void receiver_place_link(struct receiver *receiver, const struct message *message,
                         const char *name);

#endif
