/* Groups: processes with ranks that know which of them live, and calls to all of them at once.
 *
 * A group has ranks 0 .. size-1, each with an address, which is where its rpc listens. Who makes a
 * group of them is one of its members, or a client, which calls and is not called. A group belongs
 * to an rpc and its thread, as a target does; an rpc may have several groups, by their names.
 *
 * Members find out by themselves who lives: each probes one other in each period, in an order of
 * its own, and tells what it has heard on what it says anyway (SWIM). So each member's part of it
 * is the same however many they are. What a member holds true is its view; views differ for as long
 * as news takes to spread.
 *
 * A call goes down a tree of those whom the caller holds alive, and its replies come back up it,
 * combined on the way. Its handler runs at most once at each member, and the caller hears once: who
 * has run it, who has not, and why.
 *
 * Members trust each other. docs/group.md has the protocol, figures, and what one that lies can do.
 */
#ifndef WEIR_GROUP_H
#define WEIR_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/rpc.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct weir_group;
struct weir_group_procedure;
struct weir_group_request;

#define WEIR_GROUP_SIZE_MAX 65536
#define WEIR_GROUP_NAME_MAX 31
#define WEIR_RANK_NONE      UINT32_MAX /* of a client */

enum weir_member_state {
    WEIR_MEMBER_ALIVE,
    WEIR_MEMBER_SUSPECT, /* this member has not reached it of late; it is called as if alive */
    WEIR_MEMBER_DEAD,
    WEIR_MEMBER_LEFT,
};
const char *weir_member_state_name(enum weir_member_state state);

/* The view has changed: `rank` is held for something else now. Also of one that came back. */
typedef void weir_group_changed(struct weir_group *group, uint32_t rank,
                                enum weir_member_state state, void *user);

/* All zero is a good choice. Members agree on the name; on the rest they had better. */
struct weir_group_options {
    const char *name;        /* 1 to 31 bytes; NULL: "group" */
    unsigned period_ms;      /* between two probes; 0: 1000 */
    unsigned probe_ms;       /* for an answer, until others are asked to try; 0: a third of that */
    unsigned suspicion_ms;   /* until whom nobody reaches is dead; 0: eight periods */
    unsigned indirect;       /* how many others, at most 8; 0: 3 */
    unsigned radix;          /* of the tree, of calls that name none, 2 to 64; 0: 8 */
    unsigned links_max;      /* servers that it stays connected to for calls, and for probes; more
                                only while calls to them are under way; 0: 64 */
    size_t reply_length_max; /* of a combined reply, below the rpc's longest message; 0: 64 KiB */
    size_t held_length_max;  /* of what calls hold that run here, or did of late; 0: 64 MiB */
    weir_group_changed *changed; /* may be NULL */
    void *user;                  /* its argument */
};

/* `addresses` of all members, in the order of ranks, the same list at each; copied. `rank`: this
 * process's; WEIR_RANK_NONE: it is a client. All are held alive to begin with. A member's rpc
 * listens there, before or after. INVALID: the list, an option, or the name is taken on this rpc.
 */
enum weir_status weir_group_create(struct weir_rpc *rpc, const struct weir_group_options *options,
                                   const char *const *addresses, uint32_t size, uint32_t rank,
                                   struct weir_group **ret_group, struct weir_error *ret_error);
/* Before its rpc; not from a callback. Calls under way are told CANCELED before it returns; those
 * that run here are nobody's any more. Without weir_group_leave others find out that it is gone.
 * NULL is fine. */
void weir_group_destroy(struct weir_group *group);

/* Says goodbye: others hold it for LEFT soon, and neither call nor probe it any more; until it is
 * destroyed it answers whom that news has not reached. `left` is called once, from weir_poll: OK
 * when another member has heard it, or there is none; TIMED_OUT: none has within a period.
 * CANCELED: the group was destroyed. Fails at once with STATE if it has been called before, and
 * INVALID for a client. */
typedef void weir_group_left(enum weir_status status, void *argument);
enum weir_status weir_group_leave(struct weir_group *group, weir_group_left *left, void *argument);

uint32_t weir_group_size(const struct weir_group *group);
uint32_t weir_group_rank(const struct weir_group *group);
/* How many are held alive, suspects among them, and this one. */
uint32_t weir_group_alive(const struct weir_group *group);
/* Of the view: where two members have the same, they hold the same of each rank, suspicions aside.
 */
uint64_t weir_group_version(const struct weir_group *group);

struct weir_member {
    const char *address;
    enum weir_member_state state;
    uint32_t incarnation; /* how often it has said that it lives, against rumors */
};
/* False: there is no such rank. */
bool weir_group_member(const struct weir_group *group, uint32_t rank,
                       struct weir_member *ret_member);

/* --- procedures --- */

/* Called from weir_poll, or from within weir_group_call's turn of it at the caller itself. `bytes`
 * are valid until it is answered, now or later, once. */
typedef void weir_group_handler(struct weir_group_request *request, const void *bytes,
                                size_t length, void *user);
/* Joins what one set of members has replied to what others have: `into` has `*into_length` bytes,
 * at first none, and may have `length_max`. It neither knows nor chooses which come first, so its
 * result must not depend on that. Replies of members may be joined ones: the two have one form.
 * `bytes` are a peer's. False: they make no sense, or there is no room; `into` is as it was, and
 * who has sent them has failed (PROTOCOL). */
typedef bool weir_group_combine(void *into, size_t *into_length, size_t length_max,
                                const void *bytes, size_t length, void *user);
/* `combine` NULL: replies are told by their number only. `handler` NULL: it is only called from
 * here; then calls of others that come here fail with UNSUPPORTED. INVALID: the name is served
 * already, or is none. Lives as long as the group. */
enum weir_status weir_group_register(struct weir_group *group, const char *name,
                                     weir_group_handler *handler, weir_group_combine *combine,
                                     void *user, struct weir_group_procedure **ret_procedure,
                                     struct weir_error *ret_error);

/* TOO_LONG: longer than reply_length_max; then it is not answered yet. NO_MEMORY: the same. */
enum weir_status weir_group_request_reply(struct weir_group_request *request, const void *bytes,
                                          size_t length);
/* The caller hears REFUSED and `code` of this rank. */
void weir_group_request_refuse(struct weir_group_request *request, uint32_t code);
/* Whose call it is, as the caller says. WEIR_RANK_NONE: a client's. */
uint32_t weir_group_request_caller(const struct weir_group_request *request);

/* --- calling --- */

struct weir_rank_range {
    uint32_t first, count;
};

struct weir_group_call_options {
    unsigned timeout_ms; /* until `replied`; 0: 10000 */
    unsigned radix;      /* 2 to 64; 0: the group's */
    /* Whom: ascending, apart from each other. None: all members. Those whom the caller holds dead
     * are not called, and fail with UNREACHABLE; those who left with DISCONNECTED. A caller that is
     * among them runs it, too. */
    const struct weir_rank_range *ranges;
    unsigned range_count;
};

/* Who has not replied, and why:
 *
 *   UNREACHABLE   who was to call it holds it dead, and has not
 *   DISCONNECTED  the same, for it has left
 *   PEER_LOST     it died, or its connection ended: it may have run it
 *   TIMED_OUT     it may have run it, or run it yet
 *   REFUSED       the handler's refusal: its code
 *   UNSUPPORTED   it has no such procedure
 *   NO_MEMORY     it had no room
 *   PROTOCOL      what it said makes no sense, or not with the others' replies
 *   STATE         it ran it before, and does not know what came of it
 *   ADDRESS       who was to call it knows no such rank
 *   TOO_LONG      the call is longer than it takes
 *   CANCELED      its group was destroyed, or the caller's */
struct weir_group_failure {
    uint32_t first, count; /* ranks */
    enum weir_status status;
    uint32_t code;
};

struct weir_group_reply {
    enum weir_status status; /* OK; CANCELED; NO_MEMORY: the failures told are not all */
    uint32_t asked, replied; /* members; replied: their handlers did */
    const struct weir_group_failure *failures; /* of all others, ascending */
    size_t failure_count;
    const void *bytes; /* the replies, combined; valid until `replied` returns */
    size_t length;
};
typedef void weir_group_replied(const struct weir_group_reply *reply, void *argument);

/* Calls. The bytes are the pieces, joined, and copied before this returns; `options` may be NULL.
 * `replied` is called once, from weir_poll, or from within the answer of the caller's own handler
 * if that is the last. Fails at once, without it, with INVALID; TOO_LONG; NO_MEMORY, also if 512
 * calls of the group are under way; STATE while it is destroyed. */
enum weir_status weir_group_call(struct weir_group *group, struct weir_group_procedure *procedure,
                                 const struct weir_piece *pieces, unsigned count,
                                 const struct weir_group_call_options *options,
                                 weir_group_replied *replied, void *argument);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
