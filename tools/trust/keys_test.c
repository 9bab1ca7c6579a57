/* Files of keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/trust/keys.h"

#define DIGITS "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static char folder[] = "/tmp/weir-keys-test-XXXXXX", path[64];

static int setup(void **state)
{
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/keys", folder);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    return rmdir(folder);
}

static void write_keys(const char *text, mode_t mode)
{
    unlink(path);
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
    assert_int_equal(chmod(path, mode), 0);
}

static void a_key_that_is_made_can_be_read(void **state)
{
    struct keys keys;
    struct stat status;
    char why[KEYS_WHY_LENGTH];
    unlink(path);
    assert_true(keys_create(path, "laptop", why));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_true(keys_load(path, &keys, why));
    assert_int_equal(keys.count, 1);
    assert_non_null(keys_find(&keys, "laptop"));
    assert_null(keys_find(&keys, "lap"));
    keys_free(&keys);
    assert_false(keys_create(path, "laptop", why)); /* none is overwritten */
    assert_non_null(strstr(why, "File exists"));
}

static void rights_belong_to_their_key(void **state)
{
    struct keys keys;
    char why[KEYS_WHY_LENGTH];
    write_keys("# who may\n\na " DIGITS "\nb\t" DIGITS
               "  read-only root=/with a blank\r\nc@x.y " DIGITS " root=/c",
               0600);
    assert_true(keys_load(path, &keys, why));
    assert_int_equal(keys.count, 3);
    assert_false(keys_find(&keys, "a")->read_only);
    assert_null(keys_find(&keys, "a")->root);
    assert_true(keys_find(&keys, "b")->read_only);
    assert_string_equal(keys_find(&keys, "b")->root, "/with a blank");
    assert_false(keys_find(&keys, "c@x.y")->read_only);
    assert_int_equal(keys_find(&keys, "a")->secret.bytes[1], 0x11);
    keys_free(&keys);
}

static void what_is_wrong_is_named_with_its_line(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "no key in it"},
        {"a " DIGITS "\na " DIGITS, "line 2: a second key"},
        {"a 0123", "line 1: behind the name"},
        {"a " DIGITS "0", "behind the name"},
        {"a/b " DIGITS, "the name is not"},
        {"a " DIGITS " root=", "wants a folder"},
        {"a " DIGITS " readonly", "neither 'read-only' nor"},
        {"a " DIGITS " read-only,root=/", "neither"},
    };
    struct keys keys;
    char why[KEYS_WHY_LENGTH];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_keys(cases[i].text, 0600);
        assert_false(keys_load(path, &keys, why));
        assert_non_null(strstr(why, cases[i].why));
    }
}

/* Not even of a comment: what lies behind the length that is read could pass for a line. */
static void a_line_that_is_too_long_is_no_two_lines(void **state)
{
    static char text[3 * 8192];
    struct keys keys;
    char why[KEYS_WHY_LENGTH];
    memset(text, '#', sizeof(text) - 1);
    for (size_t at = 4096; at + sizeof("a " DIGITS) < sizeof(text); at += 4095) {
        memcpy(text + at, "a " DIGITS, strlen("a " DIGITS));
    }
    write_keys(text, 0600);
    assert_false(keys_load(path, &keys, why));
    assert_non_null(strstr(why, "line 1: it is too long"));
}

static void a_file_that_others_may_read_is_refused(void **state)
{
    struct keys keys;
    char why[KEYS_WHY_LENGTH];
    write_keys("a " DIGITS, 0640);
    assert_false(keys_load(path, &keys, why));
    assert_non_null(strstr(why, "others may"));
    assert_false(keys_load(folder, &keys, why));
    assert_false(keys_load("/nowhere", &keys, why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_that_is_made_can_be_read),
        cmocka_unit_test(rights_belong_to_their_key),
        cmocka_unit_test(what_is_wrong_is_named_with_its_line),
        cmocka_unit_test(a_line_that_is_too_long_is_no_two_lines),
        cmocka_unit_test(a_file_that_others_may_read_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
