#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "rnic/strict/strict.h"

static struct strict_settings parsed(const char *text)
{
    struct strict_settings settings;
    const char *bad;
    assert_true(strict_parse(text, &settings, &bad));
    assert_true(settings.on);
    return settings;
}

static void one_is_all_defaults(void **state)
{
    struct strict_settings settings = parsed("1");
    assert_string_equal(settings.profile, "mlx5");
    assert_false(settings.has_memlock);
}

static void a_list_is_read_whole(void **state)
{
    struct strict_settings settings = parsed("irdma,memlock=64K,no-write-order");
    assert_string_equal(settings.profile, "irdma");
    assert_true(settings.has_memlock);
    assert_int_equal(settings.memlock_bytes, 65536);
    assert_int_equal(parsed("memlock=3").memlock_bytes, 3);
    assert_int_equal(parsed("memlock=2g").memlock_bytes, UINT64_C(2) << 30);
}

static void what_is_not_understood_is_pointed_at(void **state)
{
    static const char *const wrong[] = {"memlock=",    "memlock=12X",
                                        "memlock=1KK", "no-such",
                                        "7",           "mlx",
                                        "mlx55",       "MLX5",
                                        "no-",         "a-name-that-is-much-too-long-for-a-family"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct strict_settings settings = {.on = false};
        const char *bad = NULL;
        char text[128];
        snprintf(text, sizeof text, "mlx4,%s,1", wrong[i]);
        assert_false(strict_parse(text, &settings, &bad));
        assert_ptr_equal(bad, text + 5);
        assert_false(settings.on); /* untouched */
    }
}

static void nothing_is_switched_off_by_a_list_that_is_not_understood(void **state)
{
    struct strict_settings settings;
    struct stat file;
    const char *bad;
    char log[] = "/tmp/weir-settings-XXXXXX";
    int descriptor = mkstemp(log);
    assert_true(pitfall_log_to(log));
    assert_true(strict_parse("no-limit", &settings, &bad));
    pitfall_warn(PITFALL_LIMIT, NULL, "met at", "silent");
    assert_int_equal(fstat(descriptor, &file), 0);
    assert_int_equal(file.st_size, 0);
    assert_false(strict_parse("no-limit,no-such", &settings, &bad));
    pitfall_warn(PITFALL_LIMIT, NULL, "met at", "said");
    assert_int_equal(fstat(descriptor, &file), 0);
    assert_true(file.st_size > 0);
    close(descriptor);
    unlink(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_all_defaults),
        cmocka_unit_test(a_list_is_read_whole),
        cmocka_unit_test(what_is_not_understood_is_pointed_at),
        cmocka_unit_test(nothing_is_switched_off_by_a_list_that_is_not_understood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
