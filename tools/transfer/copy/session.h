/* One transfer over one link, from the first word to the last: the handshake, then a sender or a
 * receiver, then the end. The client's and the server's session differ in who asks; both may send.
 *
 * A session is driven by its link's events and by session_pump. It outlives the link's closing, so
 * that its result can be read. */
#ifndef TOOLS_TRANSFER_SESSION_H
#define TOOLS_TRANSFER_SESSION_H

#include <stdbool.h>

#include "tools/transfer/chain/hop.h"
#include "tools/transfer/choice/target.h"
#include "tools/transfer/disk/modes.h"
#include "tools/transfer/disk/owners.h"
#include "tools/transfer/ends/report.h"
#include "tools/transfer/wire/link.h"

#define SESSION_ROOT_NAME_LENGTH 65

struct filter;
struct listing;
struct relay_host;
struct session;

/* A copy may need several connections, one after the other (see session_progress). */
struct session_copy {
    uint8_t id[COPY_ID_LENGTH]; /* tells the server that it is the same one; zeros: it is another */
    uint32_t before;            /* entries up to here have been said */
    enum target_is target;      /* push */
    bool deleted;               /* push: the receiver may have begun to delete */
    uint64_t *identities; /* a client's, borrowed: by source, of the directory that each was first;
                             0: none is known yet. NULL: they are not kept */
};

/* What a client wants. Everything is borrowed until the session is destroyed. */
struct session_request {
    enum direction direction;
    struct wishes wishes;
    const struct filter *filter;      /* what is left out; NULL: nothing */
    struct owner_choice owners[2];    /* by enum owner_kind */
    const struct mode_changes *modes; /* NULL: they are kept */
    const char *const *sources;       /* push: paths here; pull: paths at the server */
    unsigned source_count;
    const struct listing *listing; /* with WISH_LISTED: of the one source */
    const char *target_path;       /* push: at the server */
    struct target *target;         /* pull: here */
    struct session_copy copy;
};

/* A part of what a server offers: what is below weir://HOST/NAME. */
struct session_root {
    char name[SESSION_ROOT_NAME_LENGTH];
    int root;
    bool read_only;
};

/* What a server offers. */
struct session_service {
    int root;                         /* or AT_FDCWD */
    const struct session_root *roots; /* borrowed; in the place of `root`, by a path's first word */
    unsigned root_count;              /* 0: `root` alone */
    bool free_paths; /* not confined to the root, from which relative ones are taken */
    bool read_only;
    unsigned depth_max;             /* of directories in each other; 0: any */
    bool super;                     /* clients may have set what only root may, and set-ID bits */
    const char *device;             /* what carries the data, for the client's summary */
    const char *refusal;            /* whoever greets is told this and no more; NULL: served */
    struct relay_host *relays;      /* for fan-outs; NULL: there are none here */
    char hop_name[HOP_NAME_LENGTH]; /* the peer has proven that it may feed a relay; "": nothing so
                                     */
    /* Called with what the client says of its copy, of which an earlier session is to be ended.
     * What it returns takes the place of `refusal`. NULL: nobody wants to know. */
    const char *(*greeted)(void *user, const uint8_t id[COPY_ID_LENGTH]);
    /* Called before the names that the client lists take so many bytes more of memory, which they
     * do until the session is destroyed. False: it has enough. NULL: nobody counts. */
    bool (*hold)(void *user, size_t length);
    void *user;
};

enum session_outcome {
    SESSION_RUNNING,
    SESSION_COMPLETE,  /* through, though single files may have failed: see the tally */
    SESSION_REFUSED,   /* the server said no */
    SESSION_BROKEN,    /* one side broke the protocol, or could not go on */
    SESSION_UNREACHED, /* never connected */
    SESSION_LOST,      /* the connection ended before the transfer */
};

/* The session makes itself the link's user. NULL: no memory. */
struct session *session_create_client(struct link *link, const struct session_request *request,
                                      const struct report *report);
struct session *session_create_server(struct link *link, const struct session_service *service,
                                      const struct report *report);
/* After the link closed, or instead of it. */
void session_destroy(struct session *session);

/* Ends at once, and tells the peer why. */
void session_abort(struct session *session, const char *reason);

/* The same, and lets go of all that another session may want now, as files and their locks. */
void session_yield(struct session *session, const char *reason);

/* Does what can be done without waiting, and lets go what the link has to say; to be called after
 * each of the link's events. True: there is more. */
bool session_pump(struct session *session);
/* The handshake is over. */
bool session_is_running(const struct session *session);
/* A server's: the client has said what it wants, if not yet all of it, which may be a long list. */
bool session_has_greeted(const struct session *session);
/* A server's: it is no transfer of its own, but feeds one that is part of a fan-out. */
bool session_is_feeding(const struct session *session);
/* Storage here is what it waits for, and not the peer. */
bool session_is_writing(const struct session *session);
/* Changes whenever the peer has said or taken something. */
uint64_t session_activity(const struct session *session);
/* The link has closed. */
bool session_is_closed(const struct session *session);
enum session_outcome session_outcome(const struct session *session);
/* Of a refused one. */
enum problem_code session_refusal(const struct session *session);
/* What another connection of this copy is to begin with: as it was given, and what has been found
 * since. */
struct session_copy session_copy(const struct session *session);
/* Why it did not complete. */
const char *session_reason(const struct session *session);
const struct tally *session_tally(const struct session *session);
enum direction session_direction(const struct session *session);
/* Nothing is changed, and what is counted would have been. */
bool session_is_dry(const struct session *session);
/* The path of the push, the first of the pull; "" before they are known. */
const char *session_path(const struct session *session);
/* The server's device; "" before it is known. */
const char *session_peer_device(const struct session *session);
/* What became of a file that was half received when the link closed. */
enum session_rest {
    REST_NONE,
    REST_LOST, /* thrown away */
    REST_KEPT, /* for a copy that goes on with it */
};
enum session_rest session_rest(const struct session *session);

#endif
