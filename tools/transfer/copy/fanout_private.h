/* What the parts of the source's end share: fanout.c (the session's link, and the
 * receivers'), fanout_chain.c (who feeds whom), fanout_merge.c (what the receivers answer becomes
 * one answer) and fanout_proven.c (what interrupted copies have left them becomes what is left). */
#ifndef TOOLS_TRANSFER_FANOUT_PRIVATE_H
#define TOOLS_TRANSFER_FANOUT_PRIVATE_H

#include "tools/transfer/chain/feed.h"
#include "tools/transfer/chain/stream.h"
#include "tools/transfer/copy/fanout.h"
#include "tools/transfer/wire/pieces.h"

/* To a question, as one receiver gave it. */
struct given {
    enum answer answer;
    uint8_t digest[DIGEST_LENGTH];
};

/* Those that not all have given yet: a ring. */
struct givens {
    struct given *list;
    size_t capacity, begin, count;
};

/* Pieces of the file under way that one has proven and that have not been joined yet: a ring. */
struct proven {
    struct piece list[CLAIMS_MAX];
    unsigned first, count;
    uint64_t end; /* of the last */
    bool all;     /* it has said */
};

/* The file under way, as the stream has it. */
struct proving {
    uint32_t id;
    uint64_t size, position;
    bool open;                    /* it goes by chunks, and has not ended */
    bool told_all;                /* to the session, as well as so many pieces, which begin here */
    uint64_t offsets[CLAIMS_MAX]; /* a ring */
    unsigned first, told;
};

/* Nobody, as the one that feeds a receiver, and the source itself. */
#define FED_BY_NOBODY (-2)
#define FED_BY_SOURCE (-1)

struct member {
    struct fanout *fanout;
    unsigned number;
    struct link *link; /* NULL: none now */
    bool opened, welcome;
    bool alive;   /* neither failed nor gone */
    bool summed;  /* its SUMMARY has come */
    bool is_last; /* it has been told */
    enum session_outcome outcome;
    char why[HOP_WHY_LENGTH];
    char device[TEXT_LENGTH_MAX + 1];
    struct tally tally;
    struct message summary;
    struct givens givens;
    uint64_t answered;  /* questions, since the begin */
    uint32_t read_back; /* the last entry that it has read back */
    struct proven proven;

    bool awaits; /* somebody with this token */
    struct hop_token token;
    int before, fed_by; /* whom it is to be fed by, and is, as far as we know */
    unsigned attempts;  /* of the same one to feed it, without that all have got on */
    uint64_t got_on;    /* where the stream began when it was fed last; 0: not yet */
    time_t since_s;     /* it, or who is to feed it, has been asked for what it does not say yet */
};

struct fanout {
    struct link link; /* first: the session's */
    struct fanout_options options;
    struct member *members;
    bool said_open, started, has_memory, closing, closed;
    uint8_t hello[MESSAGE_HEAD_MAX];
    size_t hello_length;
    struct stream stream;
    struct feed *feed;   /* to the first */
    struct feed *lender; /* the one whose memory the sender has; NULL: it has its own */
    uint64_t put;        /* bytes of chunks, that feeds before this one had put */
    unsigned feeds;
    struct hop_target target; /* of the feed */
    unsigned address;
    uint8_t *memory; /* the sender's */
    uint64_t asked;  /* questions, since the begin */
    uint64_t entries;
    bool finished; /* that was said, and so many entries */
    bool resumes;  /* interrupted copies are gone on with */
    bool deletes;
    bool is_sent[TRANSFER_SOURCES_MAX]; /* with that: the source came as a directory */
    uint32_t last_id;
    struct proving proving;
    struct member *asker;
    uint32_t read_back; /* that the session was told of */
    bool summed;
    time_t alive_s;
    time_t now_s; /* of the last pump */
    uint8_t packed[MESSAGE_LENGTH_MAX];
};

bool fanout_say_hop(struct member *member, const struct hop_message *message);
void fanout_say(struct member *member, const struct message *message);
/* It is no part of the copy any more. */
void fanout_fail(struct member *member, enum session_outcome outcome, const char *why);
/* To the session, as from one receiver. `data` follows the packed head. */
void fanout_tell(struct fanout *fanout, const struct message *message, struct span data);

void fanout_note(char why[HOP_WHY_LENGTH], const char *text);
void fanout_drop(struct fanout *fanout, struct link *link);

/* fanout_chain.c */
void fanout_hear_hop(struct member *member, const struct hop_message *message);
/* Has everybody fed by the one before that is left, as they stand in the list. */
void fanout_arrange(struct fanout *fanout);
/* Who does not say in time what it is to say fails, or is asked anew. */
void fanout_limit(struct fanout *fanout);
/* Feeds the first. */
void fanout_feed(struct fanout *fanout);
void fanout_end_feed(struct fanout *fanout);

/* fanout_merge.c: what a receiver says of the transfer. */
void fanout_hear(struct member *member, const struct message *message);
/* What all that live have said goes to the session. */
void fanout_merge(struct fanout *fanout);
void fanout_forget(struct member *member);

/* fanout_proven.c */
/* The session says it to all. */
void fanout_look_at_file(struct fanout *fanout, const struct message *message);
/* PROVEN or PROVEN_ALL. */
void fanout_hear_proven(struct member *member, const struct message *message);
void fanout_merge_proven(struct fanout *fanout);

#endif
