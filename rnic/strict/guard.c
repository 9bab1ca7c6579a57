#include "rnic/strict/guard.h"

#include <execinfo.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define RECENT_MAX 16u   /* guards whose late faults are still known */
#define PATIENCE   10000 /* faults of one thread at one address: then it is not ours */

struct range {
    _Atomic uintptr_t first, end;
};

static struct {
    struct sigaction previous;
    struct range recent[RECENT_MAX];
    _Atomic uint32_t raised; /* guards ever; the newest is recent[(raised - 1) % RECENT_MAX] */
    _Atomic bool up;
    _Atomic bool touched;
    struct trace where; /* written by who set touched, read after `written` */
    _Atomic bool written;
} guard;

static _Thread_local uintptr_t last_fault;
static _Thread_local int fault_count;

/* A fault that is not ours goes where it would have gone without us. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    if ((guard.previous.sa_flags & SA_SIGINFO) != 0) {
        guard.previous.sa_sigaction(number, info, context);
    } else if (guard.previous.sa_handler == SIG_DFL || guard.previous.sa_handler == SIG_IGN) {
        signal(number, SIG_DFL); /* and fault again */
    } else {
        guard.previous.sa_handler(number);
    }
}

static const struct range *range_of(uintptr_t address)
{
    for (uint32_t i = 0; i < RECENT_MAX; i++) {
        const struct range *range = &guard.recent[i];
        if (address >= atomic_load(&range->first) && address < atomic_load(&range->end)) {
            return range;
        }
    }
    return NULL;
}

/* The library copies through the C library: its own frames are the first or right behind. */
#define COPY_FRAMES 3

/* The frames from the instruction that faulted outward: those of the handler are left out. */
static void note(const ucontext_t *context)
{
    void *frames[TRACE_DEPTH];
    int count = backtrace(frames, TRACE_DEPTH);
    int first = 0;
#ifdef __x86_64__
    const void *instruction = (void *)context->uc_mcontext.gregs[REG_RIP];
    for (int i = 0; i < count; i++) {
        if (frames[i] == instruction) {
            first = i;
            break;
        }
    }
#endif
    for (int i = first; i < count && i < first + COPY_FRAMES; i++) {
        if (trace_is_ours(frames[i])) {
            atomic_store(&guard.touched, false);
            return;
        }
    }
    guard.where.count = count - first;
    memcpy(guard.where.frames, frames + first, (size_t)(count - first) * sizeof frames[0]);
    atomic_store(&guard.written, true);
}

static void faulted(int number, siginfo_t *info, void *context)
{
    uintptr_t address = (uintptr_t)info->si_addr;
    const struct range *range = info->si_code == SEGV_ACCERR ? range_of(address) : NULL;
    fault_count = address == last_fault ? fault_count + 1 : 0;
    last_fault = address;
    if (range == NULL || fault_count > PATIENCE) {
        pass_on(number, info, context);
        return;
    }
    /* A guard that was lowered since: the instruction runs again and succeeds. */
    if (!atomic_load(&guard.up)) {
        return;
    }
    if (!atomic_exchange(&guard.touched, true)) {
        note(context);
    }
    mprotect((void *)atomic_load(&range->first),
             atomic_load(&range->end) - atomic_load(&range->first), PROT_READ | PROT_WRITE);
}

/* Puts our handler in place; false while the program has one of its own. */
static bool handler_is_ours(void)
{
    static bool installed;
    struct sigaction now;
    if (!installed) {
        void *warm[1];
        (void)backtrace(warm, 1); /* loads what it needs, which a handler must not */
        const struct sigaction ours = {.sa_sigaction = faulted,
                                       .sa_flags = SA_SIGINFO | SA_ONSTACK};
        installed = sigaction(SIGSEGV, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
                    now.sa_handler == SIG_DFL && sigaction(SIGSEGV, &ours, &guard.previous) == 0;
        return installed;
    }
    return sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_sigaction == faulted;
}

bool guard_raise(void *bytes, size_t length)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)bytes + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)bytes + length) & ~(page - 1);
    if (atomic_load(&guard.up) || first >= end || !handler_is_ours()) {
        return false;
    }
    struct range *range = &guard.recent[atomic_fetch_add(&guard.raised, 1) % RECENT_MAX];
    atomic_store(&range->end, 0);
    atomic_store(&range->first, first);
    atomic_store(&range->end, end);
    atomic_store(&guard.touched, false);
    atomic_store(&guard.written, false);
    atomic_store(&guard.up, true);
    if (mprotect((void *)first, end - first, PROT_NONE) != 0) {
        atomic_store(&guard.up, false);
        return false;
    }
    return true;
}

bool guard_lower(struct trace *ret_where)
{
    const struct range *range = &guard.recent[(atomic_load(&guard.raised) - 1) % RECENT_MAX];
    uintptr_t first = atomic_load(&range->first);
    mprotect((void *)first, atomic_load(&range->end) - first, PROT_READ | PROT_WRITE);
    atomic_store(&guard.up, false);
    if (!atomic_load(&guard.touched)) {
        return false;
    }
    for (int i = 0; i < 1000 && !atomic_load(&guard.written); i++) {
        sched_yield(); /* whoever touched it is still writing down where */
    }
    *ret_where = atomic_load(&guard.written) ? guard.where : (struct trace){0};
    return atomic_load(&guard.touched);
}
