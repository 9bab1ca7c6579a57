#include <stdio.h>
#include <string.h>

#include "tools/transfer/copy/fanout_private.h"

/* How often the same one is to try to feed another, before that one is given up. */
#define ATTEMPTS_MAX 3
/* For a receiver's greeting; for one to await another; for two to come together, where each of
 * several addresses is tried for 3 s. */
#define GREETING_PATIENCE_S 10
#define READY_PATIENCE_S    15
#define FED_PATIENCE_S      (15 + 3 * HOP_ADDRESSES_MAX)

void fanout_drop(struct fanout *fanout, struct link *link)
{
    fanout->options.dialer.drop(fanout->options.dialer.user, link);
}

void fanout_end_feed(struct fanout *fanout)
{
    struct feed *feed = fanout->feed;
    if (feed == NULL) {
        return;
    }
    fanout->put += feed_bytes(feed);
    fanout->feed = NULL;
    if (feed != fanout->lender) {
        fanout_drop(fanout, feed_link(feed));
        feed_destroy(feed);
    } else if (!feed_is_closed(feed)) { /* it stays for its memory */
        feed_link(feed)->operations->abort(feed_link(feed), "another one is fed now");
    }
}

/* It is to be fed anew, by a new token: that one may have been used, or not. */
static void renew(struct member *member)
{
    struct hop_message message = {.type = HOP_RENEW, .ready = member->token};
    member->awaits = false;
    member->fed_by = FED_BY_NOBODY;
    member->since_s = member->fanout->now_s;
    fanout_say_hop(member, &message);
}

void fanout_hear_hop(struct member *member, const struct hop_message *message)
{
    struct fanout *fanout = member->fanout;
    switch (message->type) {
    case HOP_READY:
        member->awaits = true;
        member->token = message->ready;
        member->fed_by = FED_BY_NOBODY;
        return;
    case HOP_FED:
        member->awaits = false;
        member->got_on = fanout->stream.begin;
        return;
    case HOP_LOST:
        for (unsigned i = 0; i < fanout->options.count; i++) {
            struct member *other = &fanout->members[i];
            if (other->fed_by == (int)member->number &&
                memcmp(other->token.id, message->ready.id, HOP_ID_LENGTH) == 0) {
                renew(other);
                fanout_note(other->why, message->why);
            }
        }
        return;
    default:
        fanout_fail(member, SESSION_BROKEN, "it broke the protocol of a chain");
    }
}

/* Who is to feed whom: as they stand in the list, without those that failed. */
static void dial(struct fanout *fanout, struct member *member)
{
    char why[HOP_WHY_LENGTH] = "no address of it is known";
    while (fanout->feed == NULL && fanout->address < fanout->target.address_count) {
        struct link *link = fanout->options.dialer.dial(fanout->options.dialer.user,
                                                        &fanout->target, fanout->address++, why);
        if (link == NULL) {
            continue;
        }
        fanout->feed = feed_create(link, &fanout->stream, fanout->target.token.id);
        fanout->feeds += fanout->feed != NULL;
        if (fanout->feed == NULL) {
            fanout_drop(fanout, link);
        }
    }
    if (fanout->feed == NULL) {
        fanout_note(member->why, why);
    }
}

static struct member *fed_by_source(struct fanout *fanout)
{
    for (unsigned i = 0; i < fanout->options.count; i++) {
        if (fanout->members[i].fed_by == FED_BY_SOURCE) {
            return &fanout->members[i];
        }
    }
    return NULL;
}

void fanout_feed(struct fanout *fanout)
{
    if (fanout->feed != NULL && feed_is_closed(fanout->feed)) {
        struct member *first = fed_by_source(fanout);
        bool again = !feed_has_begun(fanout->feed) && first != NULL;
        if (first != NULL) {
            fanout_note(first->why, feed_why(fanout->feed));
        }
        fanout_end_feed(fanout);
        if (again) {
            dial(fanout, first);
        }
        if (fanout->feed == NULL && first != NULL) {
            renew(first);
        }
    }
    if (fanout->feed != NULL) {
        feed_pump(fanout->feed);
    }
}

/* Tells one to feed another, or begins with it. */
static void have_fed(struct fanout *fanout, int by, struct member *member)
{
    struct hop_message message = {.type = HOP_FORWARD, .forward = {.token = member->token}};
    fanout->options.locate(fanout->options.dialer.user, member->number, &message.forward);
    member->fed_by = by;
    member->since_s = fanout->now_s;
    if (by != FED_BY_SOURCE) {
        fanout->members[by].is_last = false;
        fanout_say_hop(&fanout->members[by], &message);
        return;
    }
    fanout_end_feed(fanout);
    fanout->target = message.forward;
    fanout->address = 0;
    dial(fanout, member);
    if (fanout->feed == NULL) {
        renew(member);
    }
}

/* False: it was tried often enough. */
static bool may_try(struct fanout *fanout, int by, struct member *member)
{
    char why[2 * HOP_WHY_LENGTH];
    if (fanout->stream.begin > member->got_on) { /* they had come together, and all got on */
        member->attempts = 0;
        member->got_on = fanout->stream.begin;
    }
    if (member->attempts++ < ATTEMPTS_MAX) {
        return true;
    }
    snprintf(why, sizeof(why), "%s cannot feed it: %s",
             by == FED_BY_SOURCE ? "this host" : fanout->options.members[by].name, member->why);
    fanout_fail(member, SESSION_LOST, why);
    return false;
}

void fanout_limit(struct fanout *fanout)
{
    for (unsigned i = 0; i < fanout->options.count && !fanout->closing; i++) {
        struct member *member = &fanout->members[i];
        time_t waited_s = fanout->now_s - member->since_s;
        bool greets = !member->welcome || (!fanout->started && !member->awaits);
        if (!member->alive || !member->opened) {
            continue;
        }
        if (greets && waited_s > GREETING_PATIENCE_S) {
            fanout_fail(member, SESSION_LOST, "no answer to the greeting for 10 s");
        } else if (greets || !fanout->started) {
            continue;
        } else if (member->awaits && member->fed_by != FED_BY_NOBODY && waited_s > FED_PATIENCE_S) {
            fanout_note(member->why, "they did not come together for 39 s");
            renew(member);
        } else if (!member->awaits && member->fed_by == FED_BY_NOBODY &&
                   waited_s > READY_PATIENCE_S) {
            fanout_fail(member, SESSION_LOST, "it was not ready to be fed again for 15 s");
        }
    }
}

void fanout_arrange(struct fanout *fanout)
{
    int by = FED_BY_SOURCE;
    for (unsigned i = 0; i < fanout->options.count; i++) {
        struct member *member = &fanout->members[i];
        if (!member->alive) {
            member->fed_by = FED_BY_NOBODY;
            continue;
        }
        if (member->before != by) {
            if (member->before != FED_BY_NOBODY && !member->awaits) {
                renew(member);
            }
            member->before = by;
            member->attempts = 0;
        }
        if (member->fed_by != by && member->awaits && may_try(fanout, by, member)) {
            have_fed(fanout, by, member);
        }
        if (member->alive) {
            by = (int)i;
        }
    }
    if (by >= 0 && !fanout->members[by].is_last) {
        fanout->members[by].is_last = true;
        fanout_say_hop(&fanout->members[by], &(struct hop_message){.type = HOP_LAST});
    }
}
