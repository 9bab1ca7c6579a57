#include "rnic/strict/trace.h"

#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <unwind.h>

#define WALK_DEPTH (TRACE_DEPTH + 12) /* our own frames come first */
#define RECENT_MAX 4u                 /* traces that a thread remembers */

#ifdef __x86_64__
#define RETURN_ADDRESS_BELOW_FRAME true /* the call instruction pushes it */
#else
#define RETURN_ADDRESS_BELOW_FRAME false
#endif

static uintptr_t own_first, own_end; /* where this library lies */

static int find_own(struct dl_phdr_info *info, size_t size, void *context)
{
    uintptr_t first = UINTPTR_MAX, end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD) {
            uintptr_t start = info->dlpi_addr + segment->p_vaddr;
            first = start < first ? start : first;
            end = start + segment->p_memsz > end ? start + segment->p_memsz : end;
        }
    }
    if ((uintptr_t)&own_end >= first && (uintptr_t)&own_end < end) {
        own_first = first;
        own_end = end;
        return 1;
    }
    return 0;
}

__attribute__((constructor)) static void know_ourselves(void)
{
    dl_iterate_phdr(find_own, NULL);
}

bool trace_is_ours(const void *address)
{
    return (uintptr_t)address >= own_first && (uintptr_t)address < own_end;
}

struct frame {
    void *const *slot; /* on the stack: here lies `address` */
    void *address;
};

struct walk {
    const void *from; /* frames above this one */
    int count;
    bool sure; /* every slot held its address */
    struct frame frames[WALK_DEPTH];
};

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *argument)
{
    struct walk *walk = argument;
    int before = 0;
    /* The frame of a context ends where that of the function it called began. */
    void *const *slot = (void *const *)_Unwind_GetCFA(context) - 1;
    void *address = (void *)_Unwind_GetIPInfo(context, &before);
    if (walk->count == 0 && (const void *)slot <= walk->from) {
        return _URC_NO_REASON; /* what unwinds */
    }
    if (address == NULL || walk->count == WALK_DEPTH) {
        return _URC_END_OF_STACK;
    }
    walk->sure = walk->sure && before == 0 && *slot == address;
    walk->frames[walk->count++] = (struct frame){slot, address};
    return _URC_NO_REASON;
}

/* Inner slots are looked at first: as long as all were right, the next one is on the stack. */
__attribute__((no_sanitize("address", "thread"))) static bool still_holds(const struct walk *walk)
{
    for (int i = 0; i < walk->count; i++) {
        if (*walk->frames[i].slot != walk->frames[i].address) {
            return false;
        }
    }
    return walk->sure && walk->count > 0;
}

static void copy(const struct walk *walk, struct trace *ret_trace)
{
    int first = 0;
    while (first < walk->count && trace_is_ours(walk->frames[first].address)) {
        first++;
    }
    int count = walk->count - first < TRACE_DEPTH ? walk->count - first : TRACE_DEPTH;
    ret_trace->count = count;
    for (int i = 0; i < count; i++) {
        ret_trace->frames[i] = walk->frames[first + i].address;
    }
}

__attribute__((noinline)) void trace_take(struct trace *ret_trace)
{
    static _Thread_local struct walk recent[RECENT_MAX];
    static _Thread_local unsigned next;
    const void *here = __builtin_frame_address(0);
    for (unsigned i = 0; i < RECENT_MAX; i++) {
        if (recent[i].from == here && still_holds(&recent[i])) {
            copy(&recent[i], ret_trace);
            return;
        }
    }
    struct walk *walk = &recent[next++ % RECENT_MAX];
    walk->count = 0;
    walk->from = here;
    walk->sure = RETURN_ADDRESS_BELOW_FRAME;
    _Unwind_Backtrace(step, walk);
    copy(walk, ret_trace);
}
