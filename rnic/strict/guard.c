#include "rnic/strict/guard.h"

#include <dirent.h>
#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "rnic/io/system/cancel.h"
#include "rnic/io/system/clock.h"

#define RECENT_MAX    16u      /* guards whose late faults are still known */
#define PATIENCE      10000    /* faults of one thread at one address: then it is not ours */
#define LOOK_AGAIN_NS 20000000 /* for threads that block the signal */

struct range {
    _Atomic uintptr_t first, end;
};

static struct {
    struct range recent[RECENT_MAX];
    _Atomic uint32_t raised; /* guards ever; the newest is recent[(raised - 1) % RECENT_MAX] */
    _Atomic bool up;
    _Atomic bool touched;
    struct trace where; /* written by who set touched, read after `written` */
    _Atomic bool written;
} guard;

/* In the thread's own block from the start: a handler must not allocate. */
#define IN_HANDLER __attribute__((tls_model("initial-exec")))
static _Thread_local uintptr_t last_fault IN_HANDLER;
static _Thread_local int fault_count IN_HANDLER;

/* A fault that is not ours ends the process, as it would have without us: our handler is put where
 * none was. */
static void pass_on(int number, const siginfo_t *info)
{
    signal(number, SIG_DFL); /* and fault again */
    if (info->si_code <= 0) {
        raise(number); /* somebody sent it: there is nothing that would fault */
    }
}

/* For what is given back after a guard that could be raised in part only, too: what was not
 * closed stays as it was, for the call fails at the same place. */
static void open_pages(const struct range *range)
{
    uintptr_t first = atomic_load(&range->first);
    mprotect((void *)first, atomic_load(&range->end) - first, PROT_READ | PROT_WRITE);
}

static struct range *newest(void)
{
    return &guard.recent[(atomic_load(&guard.raised) - 1) % RECENT_MAX];
}

static bool contains(const struct range *range, uintptr_t address)
{
    return address >= atomic_load(&range->first) && address < atomic_load(&range->end);
}

static bool is_known(uintptr_t address)
{
    for (uint32_t i = 0; i < RECENT_MAX; i++) {
        if (contains(&guard.recent[i], address)) {
            return true;
        }
    }
    return false;
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
    fault_count = address == last_fault ? fault_count + 1 : 0;
    last_fault = address;
    if (info->si_code != SEGV_ACCERR || !is_known(address) || fault_count > PATIENCE) {
        pass_on(number, info);
        return;
    }
    /* Of a guard that was lowered since, the instruction runs again and succeeds. What its range
     * means now is not known: only the newest is opened. */
    const struct range *range = newest();
    if (!atomic_load(&guard.up) || !contains(range, address)) {
        return;
    }
    if (!atomic_exchange(&guard.touched, true)) {
        note(context);
    }
    open_pages(range);
}

/* The child has nobody who would lower it. */
static void after_fork(void)
{
    if (atomic_load(&guard.up)) {
        open_pages(newest());
        atomic_store(&guard.up, false);
    }
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

/* A fault of a thread that blocks the signal ends the process and asks no handler. What is no
 * thread blocks nothing. */
static bool thread_blocks_it(const char *id)
{
    char path[64], line[128];
    unsigned long long blocked = 0;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/status", id);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL &&
           sscanf(line, "SigBlk: %llx", &blocked) != 1) {
    }
    if (file != NULL) {
        fclose(file);
    }
    return (blocked >> (SIGSEGV - 1) & 1) != 0;
}

static bool one_blocks_it(void)
{
    bool found = false;
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads != NULL && !found && (entry = readdir(threads)) != NULL;) {
        found = entry->d_name[0] != '.' && thread_blocks_it(entry->d_name);
    }
    if (threads != NULL) {
        closedir(threads);
    }
    return found;
}

/* Threads block signals once and for all, so the answer holds for a while; but also for a moment
 * when they start, so it is asked again before it is yes. */
static bool somebody_blocks_it(void)
{
    static struct instant asked;
    static bool found;
    struct instant now = clock_now();
    if (asked.ns == 0 || instant_elapsed_ns(asked, now) >= LOOK_AGAIN_NS) {
        const struct timespec moment = {.tv_nsec = 100000};
        int cancel = cancel_hold();
        asked = now;
        found = one_blocks_it();
        for (int i = 0; found && i < 10; i++) {
            nanosleep(&moment, NULL);
            found = one_blocks_it();
        }
        cancel_restore(cancel);
    }
    return found;
}

/* Puts our handler in place; false while the program has one of its own. */
static bool handler_is_ours(void)
{
    static bool installed;
    struct sigaction now, before;
    if (!installed) {
        void *warm[1];
        (void)backtrace(warm, 1); /* loads what it needs, which a handler must not */
        const struct sigaction ours = {.sa_sigaction = faulted,
                                       .sa_flags = SA_SIGINFO | SA_ONSTACK};
        installed = sigaction(SIGSEGV, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
                    now.sa_handler == SIG_DFL && sigaction(SIGSEGV, &ours, &before) == 0;
        return installed;
    }
    return sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_sigaction == faulted;
}

bool guard_raise(void *bytes, size_t length)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)bytes + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)bytes + length) & ~(page - 1);
    if (atomic_load(&guard.up) || first >= end || !handler_is_ours() || somebody_blocks_it()) {
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
        open_pages(range);
        atomic_store(&guard.up, false);
        return false;
    }
    return true;
}

bool guard_lower(struct trace *ret_where)
{
    open_pages(newest());
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
