#include "rnic/io/direct/whole.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/utsname.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#define WORD             8u
#define LEAF_FEATURES    7u
#define FAST_SHORT_MOVES (1u << 4)   /* of EDX */
#define INTEL_MIDDLE     0x49656e69u /* "ineI" */

bool whole_would_be_moved(const struct whole_machine *machine, uint32_t length)
{
    bool is_new =
        machine->kernel_major > 6 || (machine->kernel_major == 6 && machine->kernel_minor >= 4);
    if (!machine->is_x86 || (machine->has_fast_short_moves && !machine->is_intel)) {
        return false; /* an older kernel may have been given the newer copy */
    }
    return length == WORD || (machine->has_fast_short_moves && is_new);
}

static void ask_processor(struct whole_machine *machine)
{
#ifdef __x86_64__
    unsigned a, b, c, d;
    machine->is_x86 = true;
    machine->is_intel = __get_cpuid(0, &a, &b, &c, &d) != 0 && d == INTEL_MIDDLE;
    machine->has_fast_short_moves =
        __get_cpuid_count(LEAF_FEATURES, 0, &a, &b, &c, &d) != 0 && (d & FAST_SHORT_MOVES) != 0;
#else
    (void)machine;
#endif
}

static unsigned ask(void)
{
    struct whole_machine machine = {0};
    struct utsname name;
    unsigned lengths = 1; /* bit 0: this was asked */
    ask_processor(&machine);
    if (uname(&name) == 0) {
        (void)sscanf(name.release, "%u.%u", &machine.kernel_major, &machine.kernel_minor);
    }
    for (uint32_t length = 2; length <= WORD; length *= 2) {
        lengths |= whole_would_be_moved(&machine, length) ? length : 0;
    }
    return lengths;
}

bool whole_is_moved(uint32_t length)
{
    static _Atomic unsigned known; /* sum of lengths, and 1 */
    unsigned lengths = atomic_load_explicit(&known, memory_order_relaxed);
    if (lengths == 0) {
        lengths = ask();
        atomic_store_explicit(&known, lengths, memory_order_relaxed);
    }
    return (lengths & length) != 0;
}
