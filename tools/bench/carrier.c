#include "tools/bench/carrier.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/stop.h"

#define PAGE      4096u
#define HUGE_PAGE ((size_t)2 << 20)

double carrier_cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool carrier_may_go_on(struct weir_error *ret_error)
{
    return !stop_asked() || control_error(ret_error, WEIR_CANCELED, "interrupted");
}

bool carrier_may_wait(struct carrier *carrier, uint64_t *since_ns, struct weir_error *ret_error)
{
    uint64_t now_ns = clock_now_ns();
    *since_ns = *since_ns == 0 ? now_ns : *since_ns;
    if (control_interrupts(carrier->control)) {
        json_decref(control_receive(carrier->control, 0, ret_error));
        return false;
    }
    return now_ns - *since_ns < PATIENCE_S * UINT64_C(1000000000) ||
           control_error(ret_error, WEIR_TIMED_OUT, "%s of %zu B: nothing moved for %d s",
                         plan_operation_name(carrier->item.operation), carrier->item.size,
                         PATIENCE_S);
}

/* No period that a page or a packet has. */
static uint8_t byte_at(size_t index, bool is_server)
{
    uint32_t mixed = ((uint32_t)index + (is_server ? 0x9e3779b9u : 1u)) * 2654435761u;
    return (uint8_t)(mixed >> 24);
}

void carrier_fill(uint8_t *bytes, size_t length, bool is_server)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = byte_at(i, is_server);
    }
}

size_t carrier_compare(const uint8_t *bytes, size_t length, bool is_server)
{
    size_t i = 0;
    while (i < length && bytes[i] == byte_at(i, is_server)) {
        i++;
    }
    return i;
}

uint8_t *carrier_map(const struct carrier *carrier, size_t *ret_span, struct weir_error *ret_error)
{
    size_t page = carrier->item.is_huge ? HUGE_PAGE : PAGE;
    size_t span = (carrier->item.size + page - 1) / page * page;
    /* Aligned by taking one page more and giving back what is before and behind. */
    uint8_t *raw = mmap(NULL, 2 * span + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        control_error(ret_error, WEIR_NO_MEMORY, "%zu B of memory: %s", 2 * span, strerror(errno));
        return NULL;
    }
    size_t before = (page - (uintptr_t)raw % page) % page;
    if (before > 0) {
        munmap(raw, before);
    }
    if (before < page) {
        munmap(raw + before + 2 * span, page - before);
    }
    uint8_t *bytes = raw + before;
    madvise(bytes, 2 * span, carrier->item.is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    carrier_fill(bytes, span, carrier->control->is_server);
    carrier_fill(bytes + span, span, carrier->control->is_server);
    *ret_span = span;
    return bytes;
}

void carrier_unmap(uint8_t *bytes, size_t span)
{
    if (bytes != NULL) {
        munmap(bytes, 2 * span);
    }
}
