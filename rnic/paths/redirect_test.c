#include "rnic/paths/redirect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *place(const char *path)
{
    static char room[REDIRECT_ROOM];
    return redirect("/tree", path, room);
}

static void the_paths_of_rdma_are_in_the_tree(void **state)
{
    static const char *const ours[] = {
        "/sys/class/infiniband",
        "/sys/class/infiniband/",
        "/sys/class/infiniband/weir0/ports/1/gids/0",
        "/sys/class/infiniband_verbs/uverbs0/dev",
        "/sys/class/infiniband_mad",
        "/sys/class/misc/rdma_cm/abi_version",
        "/sys/class/infiniband/weir0/device/../ports",
        "/dev/infiniband",
        "/dev/infiniband/uverbs0",
    };
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        char wanted[128] = "/tree";
        strcat(wanted, ours[i]);
        assert_string_equal(place(ours[i]), wanted);
    }
}

static void all_other_paths_stay_the_same_pointer(void **state)
{
    static const char *const others[] = {
        "",
        "/",
        "/s",
        "/sys/class",
        "/sys/class/",
        "/sys/class/infinibanc",
        "/sys/class/misc",
        "/sys/class/misc/rdma",
        "/sys/class/net/eth0",
        "/dev",
        "/dev/null",
        "/dev/infinibandwagon",
        "/dev/infiniban",
        "sys/class/infiniband",
        "infiniband",
        "/sys/class/infiniband/../net",
        "/sys/class/infiniband/weir0/../../..",
        "/sys/class/infiniband/./../..",
        "/sys/class/infiniband/../../x",
        "/sys/class/infiniband/weir0/../..x/../../..",
        "/dev/infiniband/uverbs0/../..",
        "/sys/class/infiniband/./..//net/eth0",
        "/dev/infiniband/..",
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_ptr_equal(place(others[i]), others[i]);
    }
    assert_null(place(NULL));
}

/* There a device of a class is a link to where it hangs below its adapter. */
static void up_from_a_device_is_its_adapter_as_in_sysfs(void **state)
{
    assert_string_equal(place("/sys/class/infiniband/weir0/../.."),
                        "/tree/sys/class/infiniband/weir0/device");
    assert_string_equal(place("/sys/class/infiniband/weir0/../../numa_node"),
                        "/tree/sys/class/infiniband/weir0/device/numa_node");
    assert_string_equal(place("/sys/class/infiniband_verbs/uverbs0/../../net"),
                        "/tree/sys/class/infiniband_verbs/uverbs0/device/net");
}

static void without_a_tree_nothing_is_redirected(void **state)
{
    char room[REDIRECT_ROOM];
    const char *path = "/sys/class/infiniband/weir0";
    assert_ptr_equal(redirect("", path, room), path);
}

static void a_path_that_does_not_fit_stays(void **state)
{
    char room[REDIRECT_ROOM], path[REDIRECT_ROOM] = "/dev/infiniband/";
    const size_t begun = strlen(path), longest = REDIRECT_ROOM - strlen("/tree") - 1;
    memset(path + begun, 'x', longest - begun);
    assert_int_equal(strlen(redirect("/tree", path, room)), REDIRECT_ROOM - 1);
    path[longest] = 'x';
    assert_ptr_equal(redirect("/tree", path, room), path);

    char adapter[REDIRECT_ROOM] = "/sys/class/infiniband/"; /* grows by a byte on its way */
    memset(adapter + strlen(adapter), 'x', longest - strlen(adapter));
    memcpy(adapter + longest - strlen("/../.."), "/../..", strlen("/../.."));
    assert_ptr_equal(redirect("/tree", adapter, room), adapter);
}

static void a_resolved_path_is_shown_without_the_tree(void **state)
{
    char inside[] = "/tree/sys/class/infiniband/weir0", outside[] = "/tree/other",
         elsewhere[] = "/sys/devices/x";
    redirect_undo("/tree", inside);
    redirect_undo("/tree", outside);
    redirect_undo("/tree", elsewhere);
    assert_string_equal(inside, "/sys/class/infiniband/weir0");
    assert_string_equal(outside, "/tree/other");
    assert_string_equal(elsewhere, "/sys/devices/x");
}

static void devices_are_the_files_below_the_folder(void **state)
{
    assert_true(redirect_is_device("/dev/infiniband/uverbs0"));
    assert_false(redirect_is_device("/dev/infiniband/"));
    assert_false(redirect_is_device("/dev/infiniband"));
    assert_false(redirect_is_device("/dev/null"));
    assert_false(redirect_is_device(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_paths_of_rdma_are_in_the_tree),
        cmocka_unit_test(all_other_paths_stay_the_same_pointer),
        cmocka_unit_test(up_from_a_device_is_its_adapter_as_in_sysfs),
        cmocka_unit_test(without_a_tree_nothing_is_redirected),
        cmocka_unit_test(a_path_that_does_not_fit_stays),
        cmocka_unit_test(a_resolved_path_is_shown_without_the_tree),
        cmocka_unit_test(devices_are_the_files_below_the_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
