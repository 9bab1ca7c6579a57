/* Room for the registry's file, where signals come all the time: the kernel's refusals are made by
 * the linker's --wrap. */
#include "rnic/io/registry/registry.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint32_t interruptions; /* that are still to come */

int __real_posix_fallocate64(int file, off_t offset, off_t length);
int __wrap_posix_fallocate64(int file, off_t offset, off_t length);
int __wrap_posix_fallocate64(int file, off_t offset, off_t length)
{
    if (interruptions > 0) {
        interruptions--;
        return EINTR;
    }
    return __real_posix_fallocate64(file, offset, length);
}

static void signals_do_not_keep_a_device_from_being_opened(void **state)
{
    char path[64];
    struct registry *registry;
    snprintf(path, sizeof path, "/tmp/weir-registry-room-test-%ld", (long)getpid());
    unlink(path);
    interruptions = 3;
    assert_int_equal(registry_open(path, &registry), STATUS_OK);
    assert_int_equal(interruptions, 0);
    registry_close(registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_do_not_keep_a_device_from_being_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
