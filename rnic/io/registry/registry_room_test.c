/* Room for the registry's file, where signals come all the time: the kernel's refusals are made by
 * the linker's --wrap. And room in it. */
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

/* Who connects takes no room from who listens. */
static void thousands_that_connect_leave_room_to_listen(void **state)
{
    const uint32_t quarter = 1024;
    static uint32_t claims[5000];
    char path[64];
    struct registry *registry;
    struct registry_name name = {.scope = REGISTRY_ANY_IPV4}, listener = name;
    uint32_t count = 0, claim;
    uint16_t port;
    snprintf(path, sizeof path, "/tmp/weir-registry-room-test-%ld", (long)getpid());
    unlink(path);
    assert_int_equal(registry_open(path, &registry), STATUS_OK);
    while (registry_claim_port(registry, 6, &name, false, true, &port, &claims[count]) ==
           STATUS_OK) {
        count++;
    }
    assert_int_equal(count, 3 * quarter);
    for (uint32_t i = 0; i < quarter; i++) {
        listener.service_id = 1 + i;
        assert_int_equal(registry_claim(registry, &listener, false, &claim), STATUS_OK);
    }
    assert_int_equal(registry_listen(registry, claim), STATUS_OK);
    assert_int_equal(registry_claim_port(registry, 6, &name, false, false, &port, &claim),
                     STATUS_FULL);
    registry_release(registry, claims[7]);
    assert_int_equal(registry_claim_port(registry, 6, &name, false, true, &port, &claim),
                     STATUS_OK);
    registry_close(registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_do_not_keep_a_device_from_being_opened),
        cmocka_unit_test(thousands_that_connect_leave_room_to_listen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
