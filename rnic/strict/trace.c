#include "rnic/strict/trace.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

#define BEGINNING 3 /* frames of the C library, or a sanitizer, that begin a thread */

/* Nothing but them: a thread of this library. */
static bool is_beginning(void *const *frames, int count)
{
    Dl_info thread, frame;
    return count <= BEGINNING && count > 0 && dladdr(frames[0], &frame) != 0 &&
           dladdr((void *)(uintptr_t)pthread_create, &thread) != 0 &&
           frame.dli_fbase == thread.dli_fbase;
}

void trace_take(struct trace *ret_trace)
{
    void *frames[TRACE_DEPTH];
    int count = backtrace(frames, TRACE_DEPTH);
    int first = 0;
    while (first < count && trace_is_ours(frames[first])) {
        first++;
    }
    first = is_beginning(frames + first, count - first) ? count : first;
    ret_trace->count = count - first;
    memcpy(ret_trace->frames, frames + first, (size_t)(count - first) * sizeof frames[0]);
}
