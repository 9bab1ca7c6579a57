/* What the parts of a sender share: sender.c (when what is sent, and what the peer answers) and
 * sender_entry.c (what is said of a step of the walk). */
#ifndef TOOLS_TRANSFER_SENDER_PRIVATE_H
#define TOOLS_TRANSFER_SENDER_PRIVATE_H

#include "tools/transfer/digest.h"
#include "tools/transfer/hard_links.h"
#include "tools/transfer/owners.h"
#include "tools/transfer/sender.h"
#include "tools/transfer/source.h"

enum sender_state {
    SENDER_ENTRIES,  /* between two entries */
    SENDER_FILE,     /* in the middle of one that goes by chunks */
    SENDER_FINISHED, /* everything sent, the peer's summary to come */
    SENDER_DONE,
};

/* Chunk numbers that are free: a stack. */
struct chunk_pool {
    uint16_t numbers[CHUNK_COUNT_MAX];
    unsigned count;
};

struct current_file {
    struct source source;
    bool rejected;
    char *path;
};

struct sender {
    struct sender_options options;
    struct link *link;
    struct walk *walk, *scan;
    enum sender_state state;
    uint32_t last_id;
    uint32_t *directory_ids; /* by depth */
    unsigned directory_capacity;
    struct current_file file;
    struct digest *digest;
    struct owners owners;
    struct hard_links links;

    uint8_t *memory;
    uint32_t chunk_length;
    struct weir_remote remote;
    uint32_t remote_chunk_length;
    uint16_t remote_chunk_count;
    struct chunk_pool local, granted;
    bool is_granted[CHUNK_COUNT_MAX];
    uint16_t sequence;

    uint64_t scanned_files, scanned_bytes;
    uint8_t head[MESSAGE_HEAD_MAX];
    uint8_t eager[EAGER_LENGTH_MAX];
};

void sender_send(struct sender *sender, const struct message *message, struct span data);
void sender_send_plain(struct sender *sender, const struct message *message);
/* Our own side could not read something: told to our owner and, by the caller, to the peer. */
void sender_report(struct sender *sender, enum problem_code code, const char *path,
                   const char *text);

/* Each step of the walk becomes one of these. A file that goes by chunks is sender->file then. */
void sender_begin_file(struct sender *sender, const struct walk_step *step);
void sender_send_directory(struct sender *sender, const struct walk_step *step);
void sender_send_node(struct sender *sender, const struct walk_step *step);
void sender_skip_step(struct sender *sender, const struct walk_step *step, int error);

#endif
