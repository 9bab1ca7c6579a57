#include "tools/cp_again.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cp_private.h"
#include "tools/stop.h"
#include "tools/transfer/wire/channel_link.h"
#include "tools/transfer/wire/digest.h"
#include "tools/trust/crypto.h"

#define PAUSE_FIRST_S 0.25
#define PAUSE_MOST_S  5.0

/* Where a name that is there is left alone, it must not be one that this copy has made: half of a
 * file that the other side had no time to make old, or the first of a file's names, without which
 * the next would be another file. */
static bool can_go_on(const struct wishes *wishes)
{
    bool half_seems_newer = (wishes->bits & WISH_INPLACE) != 0 && (wishes->bits & WISH_UPDATE) != 0;
    bool first_name_is_left =
        (wishes->preserve & PRESERVE_HARD_LINKS) != 0 && (wishes->bits & WISH_IGNORE_EXISTING) != 0;
    return !half_seems_newer && !first_name_is_left;
}

bool cp_again_begin(struct cp *cp, const struct session_request *request)
{
    struct again *again = &cp->again;
    *again = (struct again){.count = again->count,
                            .seconds = again->seconds,
                            .is_allowed = cp->options.timeout_s > 0 && can_go_on(&request->wishes)};
    if (!crypto_random(again->copy.id, sizeof(again->copy.id))) {
        command_error(cp->command, "the system has no random bytes");
        return false;
    }
    again->copy.identities = calloc(request->source_count, sizeof(*again->copy.identities));
    if (again->copy.identities == NULL) {
        command_error(cp->command, "not enough memory");
        return false;
    }
    return true;
}

void cp_again_end(struct cp *cp)
{
    free(cp->again.copy.identities);
    cp->again.copy.identities = NULL;
}

static uint64_t less(uint64_t one, uint64_t other)
{
    return one > other ? one - other : 0;
}

struct session_request cp_again_request(const struct cp *cp, const struct session_request *request)
{
    struct session_request next = *request;
    next.copy = cp->again.copy;
    if (cp->again.is_through && (next.wishes.bits & WISH_INPLACE) == 0) {
        next.wishes.bits |= WISH_RESUME;
    }
    if ((next.wishes.bits & WISH_MAX_DELETE) != 0) {
        uint64_t left = less(next.wishes.deletions_max, cp->again.past.deleted);
        next.wishes.deletions_max = next.copy.deleted ? 0 : (uint32_t)left;
    }
    return next;
}

double cp_again_left_s(const struct cp *cp, double most)
{
    const struct again *again = &cp->again;
    if (again->lost_s == 0) {
        return most;
    }
    double left = again->since_s + cp->options.timeout_s - progress_now_s();
    return left < 0 ? 0 : left < most ? left : most;
}

struct tally cp_again_total(const struct cp *cp, const struct tally *now)
{
    const struct tally *past = &cp->again.past;
    struct tally total = *now;
    /* of what was there again, all has been brought by this copy but what it had left untouched */
    total.files += less(now->again_files, past->same + past->left - past->untouched_symlinks);
    total.symlinks += less(now->again_symlinks, past->untouched_symlinks);
    total.bytes += less(now->again_bytes, past->spared);
    total.spared = past->spared + less(now->spared, now->again_bytes);
    total.kept += past->kept;
    total.kept = total.kept < total.bytes ? total.kept : total.bytes;
    total.same += past->same;
    total.left += past->left;
    total.untouched_symlinks += past->untouched_symlinks;
    total.untouched_specials += past->untouched_specials;
    total.deleted += past->deleted;
    total.retransmissions += past->retransmissions;
    total.retransmissions_known |= past->retransmissions_known;
    total.warnings += less(past->warnings, cp->again.repeated);
    if (past->totals_known && !now->totals_known) {
        total.totals_known = true;
        total.total_files = past->total_files;
        total.total_bytes = past->total_bytes;
    }
    return total;
}

static void raise(uint64_t *value, uint64_t other)
{
    *value = *value > other ? *value : other;
}

const struct tally *cp_again_progress(struct cp *cp, const struct tally *now)
{
    struct tally total = cp_again_total(cp, now);
    const struct tally *shown = &cp->again.shown;
    raise(&total.files, shown->files);
    raise(&total.directories, shown->directories);
    raise(&total.symlinks, shown->symlinks);
    raise(&total.bytes, shown->bytes);
    raise(&total.kept, shown->kept);
    cp->again.shown = total;
    return &cp->again.shown;
}

/* What a lost connection leaves to be counted. */
static void add_past(struct again *again, const struct tally *now)
{
    struct tally *past = &again->past;
    past->same += now->same;
    past->left += now->left;
    past->untouched_symlinks += now->untouched_symlinks;
    past->untouched_specials += now->untouched_specials;
    past->spared += less(now->spared, now->again_bytes);
    past->kept += less(now->kept, now->kept_in_part);
    past->deleted += now->deleted;
    past->retransmissions += now->retransmissions;
    past->retransmissions_known |= now->retransmissions_known;
    past->warnings += less(now->warnings, again->repeated);
    if (now->totals_known) {
        past->totals_known = true;
        past->total_files = now->total_files;
        past->total_bytes = now->total_bytes;
    }
    again->repeated = 0;
    again->problems_before = again->problem_count;
    again->items_before = again->items > again->items_before ? again->items : again->items_before;
    again->items = 0;
}

/* A server that has too many even to be told so says it in place of its handshake's end; libweir
 * hands on the words alone. */
static bool is_busy(const struct session *session)
{
    return strstr(session_reason(session), "busy: ") != NULL;
}

/* Nobody said no, and neither end found anything wrong with what the other said. */
static bool is_worth_another(const struct cp *cp, const struct session *session,
                             const struct link *link)
{
    bool was_lost = cp->again.lost_s > 0;
    if (session == NULL) {
        return was_lost;
    }
    switch (session_outcome(session)) {
    case SESSION_LOST:
        return channel_link_was_lost(link) && !link_is_verdict(session_reason(session));
    case SESSION_UNREACHED:
        return was_lost && (channel_link_was_lost(link) || is_busy(session));
    case SESSION_REFUSED:
        return was_lost && session_refusal(session) == PROBLEM_BUSY;
    default:
        return false;
    }
}

static void say_lost(const struct cp *cp)
{
    if (cp->options.json) {
        json_t *object = json_pack("{s:s, s:s, s:i}", "event", "reconnecting", "peer", cp->peer,
                                   "timeout", (int)cp->options.timeout_s);
        output_json_text(object, "reason", cp->reason);
        output_json(object);
    } else if (!cp->options.quiet) {
        cp_clear_line(cp);
        command_error(cp->command, "%s%s; trying again for %.0f s", cp_whose(cp), cp->reason,
                      cp_again_left_s(cp, cp->options.timeout_s));
    }
}

/* A connection that carried it is gone. */
static void begin_loss(struct cp *cp, const struct session *session)
{
    struct again *again = &cp->again;
    const struct tally *now = session_tally(session);
    uint64_t work = now->files + now->symlinks + now->same + now->left + now->again_files +
                    now->again_symlinks + now->bytes + now->spared;
    again->copy = session_copy(session);
    if (again->lost_s > 0) { /* it has not carried anything */
        return;
    }
    cp_again_progress(cp, now);
    add_past(again, now);
    again->is_through = true;
    again->lost_s = progress_now_s();
    again->tries = 0;
    again->is_anew = false;
    if (again->since_s == 0 || work > again->work) { /* else the time goes on */
        again->work = work;
        again->since_s = again->lost_s;
        again->pause_s = PAUSE_FIRST_S;
    }
    say_lost(cp);
}

bool cp_again_take(struct cp *cp, const struct session *session, const struct link *link)
{
    struct again *again = &cp->again;
    again->is_wanted = again->is_allowed && is_worth_another(cp, session, link);
    if (again->is_wanted && session != NULL && session_outcome(session) == SESSION_LOST) {
        begin_loss(cp, session);
    }
    return again->is_wanted;
}

static void draw_pause(struct cp *cp)
{
    if (cp->tty && progress_now_s() - cp->drawn_s > 0.2) {
        cp->drawn_s = progress_now_s();
        char left[PROGRESS_TEXT];
        progress_duration(cp_again_left_s(cp, cp->options.timeout_s), left);
        fprintf(stderr, "\rno connection; tried again %u times, for %s more\033[K", cp->again.tries,
                left);
    }
}

const char *cp_again_advice(const struct cp *cp)
{
    bool keeps_nothing = (cp->options.wishes.bits & WISH_INPLACE) != 0;
    return keeps_nothing ? "the same command goes on" : "the same command with --resume goes on";
}

enum exit_code cp_again_interrupted(struct cp *cp)
{
    strcpy(cp->reason, "interrupted");
    command_error(cp->command, "interrupted; %s", cp_again_advice(cp));
    return EXIT_INTERRUPTED;
}

static bool give_up(struct cp *cp, enum exit_code *ret_code)
{
    struct again *again = &cp->again;
    double now_s = progress_now_s();
    again->seconds += now_s - again->lost_s;
    cp->seconds += now_s - again->counted_s;
    cp_clear_line(cp);
    if (stop_asked()) {
        *ret_code = cp_again_interrupted(cp);
        return false;
    }
    command_error(cp->command, "%s%s; given up after %u s (--timeout); %s", cp_whose(cp),
                  cp->reason, cp->options.timeout_s, cp_again_advice(cp));
    *ret_code = EXIT_LOST;
    return false;
}

bool cp_again_wait(struct cp *cp, enum exit_code *ret_code)
{
    struct again *again = &cp->again;
    if (!again->is_wanted) {
        return false;
    }
    double until_s = progress_now_s() + cp_again_left_s(cp, again->pause_s);
    while (progress_now_s() < until_s && !stop_asked()) {
        draw_pause(cp);
        weir_poll(cp->poller, 20);
    }
    if (stop_asked() || cp_again_left_s(cp, 1) <= 0) {
        return give_up(cp, ret_code);
    }
    again->is_wanted = false;
    again->tries++;
    again->pause_s = again->pause_s * 2 < PAUSE_MOST_S ? again->pause_s * 2 : PAUSE_MOST_S;
    return true;
}

bool cp_again_despairs(struct cp *cp)
{
    struct again *again = &cp->again;
    double half_s = cp->options.timeout_s / 2.0;
    bool late = again->lost_s > 0 && !again->is_anew && cp_again_left_s(cp, half_s) < half_s;
    again->is_anew |= late;
    return late;
}

bool cp_again_is_back(struct cp *cp)
{
    struct again *again = &cp->again;
    if (again->lost_s == 0) {
        return false;
    }
    double seconds = progress_now_s() - again->lost_s;
    again->count++;
    again->seconds += seconds;
    again->lost_s = 0;
    cp->reason[0] = 0;
    if (cp->options.json) {
        output_json(json_pack("{s:s, s:s, s:s, s:f, s:i}", "event", "reconnected", "peer", cp->peer,
                              "address", cp->address, "seconds", seconds, "tries",
                              (int)again->tries));
    } else if (!cp->options.quiet) {
        cp_clear_line(cp);
        command_error(cp->command, "%s connected again after %.1f s, at %s", cp->peer, seconds,
                      cp->address);
        cp->drawn_s = 0;
    }
    return true;
}

static uint64_t digest_of_problem(const struct problem *problem)
{
    uint8_t parts[2][DIGEST_LENGTH], whole[DIGEST_LENGTH];
    uint64_t number;
    digest_of(problem->path.bytes, problem->path.length, parts[0]);
    digest_of(problem->text.bytes, problem->text.length, parts[1]);
    parts[0][0] ^= (uint8_t)(problem->code << 2 | problem->remote << 1 | problem->at_source);
    digest_of(parts, sizeof(parts), whole);
    memcpy(&number, whole, sizeof(number));
    return number;
}

bool cp_again_knows_problem(struct cp *cp, const struct problem *problem)
{
    struct again *again = &cp->again;
    uint64_t number = digest_of_problem(problem);
    for (unsigned i = 0; i < again->problems_before; i++) {
        if (again->problems[i] == number) {
            again->repeated += problem->code == PROBLEM_WARNING;
            return true;
        }
    }
    if (again->problem_count < AGAIN_PROBLEMS_MAX) {
        again->problems[again->problem_count++] = number;
    }
    return false;
}

/* One that nothing happened to, and that had its turn. */
bool cp_again_knows_item(struct cp *cp, const struct item *item)
{
    struct again *again = &cp->again;
    return again->items++ < again->items_before && (item->changes & ~(uint32_t)CHANGE_NOTHING) == 0;
}
