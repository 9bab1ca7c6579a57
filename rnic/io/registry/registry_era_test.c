/* Whose registry a process believes: of a run of the kernel and a namespace that are its own, as
 * far as both are known. */
#include "rnic/io/registry/registry_private.h"

#include <stdio.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct registry_era era_of(const char *boot_id, uint64_t cookie)
{
    struct registry_era era = {.namespace_cookie = cookie};
    (void)snprintf(era.boot_id, sizeof era.boot_id, "%s", boot_id);
    return era;
}

static void what_the_dead_left_is_of_one_era(void **state)
{
    const struct registry_era now = era_of("now", 7), rebooted = era_of("before", 7);
    const struct registry_era elsewhere = era_of("now", 8), unknown = era_of("", 0);
    assert_true(registry_era_counts(&now, &now, false));
    assert_true(registry_era_counts(&unknown, &unknown, false));
    assert_false(registry_era_counts(&rebooted, &now, false));
    assert_false(registry_era_counts(&elsewhere, &now, false));
    assert_false(registry_era_counts(&unknown, &now, false));
    assert_false(registry_era_counts(&now, &unknown, false));
}

static void it_stays_the_same(void **state)
{
    const struct registry_era now = registry_era_now(), again = registry_era_now();
    assert_true(registry_era_counts(&now, &again, false));
}

/* A process in a container that is told less shares the registry with those that are told all. */
static void who_knows_less_finds_who_lives(void **state)
{
    const struct registry_era unknown = era_of("", 0);
    struct registry *first, *second;
    char path[64];
    (void)snprintf(path, sizeof path, "/tmp/weir-era-test-%ld", (long)getpid());
    unlink(path);
    assert_int_equal(registry_open(path, &first), STATUS_OK);
    const struct registry_era known = first->file->era;
    first->file->era = unknown; /* made by such a process */
    assert_int_equal(registry_open(path, &second), STATUS_OK);
    registry_close(second);
    first->file->era = known;
    first->file->era.namespace_cookie++;
    assert_int_equal(registry_open(path, &second), STATUS_IN_USE);
    first->file->era = known;
    registry_close(first);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_dead_left_is_of_one_era),
        cmocka_unit_test(it_stays_the_same),
        cmocka_unit_test(who_knows_less_finds_who_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
