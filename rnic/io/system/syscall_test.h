/* For tests that stand in the place of syscall(2), by the linker's --wrap=syscall. */
#ifndef WEIR_IO_SYSCALL_TEST_H
#define WEIR_IO_SYSCALL_TEST_H

#include <stdarg.h>

#define SYSCALL_ARGUMENTS 6u

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

/* What was passed on, be it meant or not. */
static inline void take_arguments(va_list list, long *ret_arguments)
{
    for (unsigned i = 0; i < SYSCALL_ARGUMENTS; i++) {
        ret_arguments[i] = va_arg(list, long);
    }
}

static inline long pass_on(long number, const long *arguments)
{
    return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                          arguments[4], arguments[5]);
}

#endif
