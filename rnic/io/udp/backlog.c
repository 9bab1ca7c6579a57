#include "rnic/io/udp/backlog.h"

#define SPAN_MIN    (48u << 10)          /* bytes from question to question: less than a run, */
#define SPAN_MAX    (512u << 10)         /* and where nothing has waited for long */
#define SAMPLE_NS   MILLISECOND_NS       /* what leaves in less is chance */
#define HOLD_MIN_NS UINT64_C(50000)      /* a wait is worth a timer */
#define UNSURE_NS   UINT64_C(100000)     /* wait no longer where the rate is not known well; */
#define STEADY_MAX  16u                  /* then, of milliseconds */
#define REST_NS     (4 * MILLISECOND_NS) /* unasked, a stream may have had nothing to give */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Where something waited before and does now, the link was at work all the time, as a rule; else it
 * can do more than what left. */
static void measure(struct backlog *backlog, struct instant now, uint32_t waiting)
{
    uint64_t span_ns = instant_elapsed_ns(backlog->asked, now);
    if (span_ns < SAMPLE_NS) {
        return;
    }
    uint64_t before = backlog->waiting + (backlog->given - backlog->given_then);
    uint64_t left = before > waiting ? before - waiting : 0;
    uint64_t rate = left * MILLISECOND_NS / span_ns;
    bool may_have_rested = span_ns > REST_NS && !backlog->holds;
    bool was_busy = backlog->waiting > 0 && waiting > 0 && backlog->rate > 0 && !may_have_rested;
    backlog->rate = was_busy ? (7 * backlog->rate + rate) / 8 : larger(backlog->rate, rate);
    backlog->steady = !was_busy ? 0 : backlog->steady + (backlog->steady < STEADY_MAX);
    backlog->asked = now;
    backlog->given_then = backlog->given;
    backlog->waiting = waiting;
}

static uint64_t worth_ns(const struct backlog *backlog)
{
    return larger(backlog->worth_ns, BACKLOG_NS);
}

/* Somebody has waited. Dry one time in some fifteen is where it stays. */
static void end_wait(struct backlog *backlog, bool is_dry)
{
    uint64_t ns = worth_ns(backlog);
    ns = is_dry ? ns + ns / 4 : ns - ns / 64;
    backlog->worth_ns = ns < BACKLOG_MAX_NS ? ns : BACKLOG_MAX_NS;
    backlog->holds = false;
}

/* Half of what it takes until so many bytes have left, for the kernel's buffers are up to twice as
 * large as what they hold; and of long waits, as where many streams wait, a millisecond less. */
static uint64_t wait_ns(const struct backlog *backlog, uint64_t bytes)
{
    uint64_t ns = bytes * MILLISECOND_NS / (2 * backlog->rate + 1);
    ns = ns > MILLISECOND_NS ? larger(ns - MILLISECOND_NS, MILLISECOND_NS) : ns;
    uint64_t most = backlog->steady > 0 ? backlog->steady * MILLISECOND_NS : UNSURE_NS;
    return ns < HOLD_MIN_NS ? HOLD_MIN_NS : ns > most ? most : ns;
}

uint64_t backlog_hear(struct backlog *backlog, struct instant now, uint32_t waiting, uint64_t mark)
{
    measure(backlog, now, waiting);
    uint64_t enough = larger(backlog->rate * worth_ns(backlog) / MILLISECOND_NS, BACKLOG_LEAST);
    uint64_t own_end = mark + BACKLOG_RUN + waiting; /* when so many are given, its run has left */
    bool has_one = mark > 0 && mark <= backlog_mark(backlog) && own_end > backlog->given;
    if (waiting > enough && has_one) {
        backlog->holds = true;
        return wait_ns(backlog, smaller(waiting - enough, own_end - backlog->given));
    }
    if (backlog->holds) {
        end_wait(backlog, waiting == 0);
    }
    bool is_fast = waiting == 0 && backlog->span > 0;
    uint32_t wider = 2 * backlog->span < SPAN_MAX ? 2 * backlog->span : SPAN_MAX;
    backlog->span = is_fast ? wider : SPAN_MIN;
    backlog->due = backlog->given + backlog->span;
    return 0;
}

void backlog_let_pass(struct backlog *backlog)
{
    backlog->holds = false;
    backlog->due = backlog->given + SPAN_MAX;
}
