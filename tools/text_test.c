/* The small functions between people and the command: addresses, names, numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tools/location.h"
#include "tools/printable.h"
#include "tools/progress.h"
#include "tools/transfer/disk/modes.h"
#include "tools/transfer/wire/protocol.h"
#include "tools/units.h"

static void addresses(void **state)
{
    static const char *const cases[][2] = {
        {"host", "host:7471"},
        {"host:1", "host:1"},
        {"[::1]", "[::1]:7471"},
        {"[::1]:5", "[::1]:5"},
        {"::1", "[::1]:7471"},
        {":5", ":5"},
        {"*", "*:7471"},
        {"*:0", "*:0"},
        {"1.2.3.4:65535", "1.2.3.4:65535"},
        {"", NULL},
        {"host:", NULL},
        {"host:65536", NULL},
        {"host:-1", NULL},
        {"[::1", NULL},
        {"[]:5", NULL},
        {"[::1]x", NULL},
        {"host:5x", NULL},
        {"a/b", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char address[LOCATION_ADDRESS_LENGTH];
        assert_int_equal(location_parse_address(cases[i][0], address), cases[i][1] != NULL);
        if (cases[i][1] != NULL) {
            assert_string_equal(address, cases[i][1]);
        }
    }
}

static void urls(void **state)
{
    static const char *const cases[][3] = {
        {"weir://h/a b", "h:7471", "/a b"},
        {"weir://h:5", "h:5", "/"},
        {"weir://[::1]:5//x", "[::1]:5", "//x"},
        {"weir:///x", NULL, NULL},
        {"weir://:5/x", NULL, NULL},
        {"weir://*/x", NULL, NULL},
        {"http://h/", NULL, NULL},
        {"weir:/h/x", NULL, NULL},
        {"weir://h:port/x", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char address[LOCATION_ADDRESS_LENGTH];
        const char *path;
        assert_int_equal(location_parse_url(cases[i][0], address, &path), cases[i][1] != NULL);
        if (cases[i][1] != NULL) {
            assert_string_equal(address, cases[i][1]);
            assert_string_equal(path, cases[i][2]);
        }
    }
}

/* The first of it alone would be another place. */
static void a_path_elsewhere_has_an_end(void **state)
{
    static const char *const begins[] = {"weir://h/", "h:"};
    for (size_t i = 0; i < 2; i++) {
        char text[PATH_LENGTH_MAX + 64] = "";
        struct location location;
        strcpy(text, begins[i]);
        size_t before = i == 0 ? strlen(text) - 1 : strlen(text); /* a server's has the slash */
        memset(text + strlen(text), 'x', before + PATH_LENGTH_MAX - strlen(text));
        location_parse(text, &location);
        assert_int_equal(location.kind, i == 0 ? LOCATION_SERVER : LOCATION_SHELL);
        assert_int_equal(strlen(location.path), PATH_LENGTH_MAX);
        strcat(text, "x");
        location_parse(text, &location);
        assert_int_equal(location.kind, LOCATION_WRONG);
    }
}

static void loopback(void **state)
{
    assert_true(location_is_loopback("127.0.0.1:7471"));
    assert_true(location_is_loopback("127.9.9.9:1"));
    assert_true(location_is_loopback("[::1]:7471"));
    assert_false(location_is_loopback("0.0.0.0:7471"));
    assert_false(location_is_loopback("192.0.2.1:7471"));
    assert_false(location_is_loopback("[::]:7471"));
    assert_false(location_is_loopback("*:7471"));
    assert_false(location_is_loopback(":7471"));
}

static void numbers_of_hosts(void **state)
{
    assert_true(location_is_numeric("192.0.2.1:7471"));
    assert_true(location_is_numeric("[2001:db8::1]:7471"));
    assert_true(location_is_numeric("[fe80::1]:1"));
    assert_false(location_is_numeric("localhost:7471"));
    assert_false(location_is_numeric("192.0.2.1.example:7471"));
    assert_false(location_is_numeric("*:7471"));
    assert_false(location_is_numeric(":7471"));
    assert_false(location_is_numeric(""));
}

static void names_for_a_terminal(void **state)
{
    static const struct {
        const char *from, *to;
    } cases[] = {
        {"plain name.txt", "plain name.txt"},
        {"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
        {"\x1b[2J", "\\x1b[2J"},
        {"a\nb", "a\\x0ab"},
        {"\xff", "\\xff"},
        {"\xc0\xaf", "\\xc0\\xaf"},
        {"\xc2\x9b", "\\xc2\\x9b"},
        {"b\xe2\x80\xaegnp.exe", "b\\xe2\\x80\\xaegnp.exe"}, /* shown from right to left */
        {"\xe2\x81\xa6x", "\\xe2\\x81\\xa6x"},
        {"a\xe2\x80\xa8z", "a\\xe2\\x80\\xa8z"},
        {"\xe2\x80\xa6", "\xe2\x80\xa6"}, /* an ellipsis */
        {"back\\slash", "back\\x5cslash"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[64];
        bool same = printable(cases[i].from, strlen(cases[i].from), text, sizeof(text));
        assert_string_equal(text, cases[i].to);
        assert_int_equal(same, strcmp(cases[i].from, cases[i].to) == 0);
    }
    char small[4];
    assert_false(printable("abcdef", 6, small, sizeof(small)));
    assert_string_equal(small, "abc");
    assert_false(printable("ab\x01", 3, small, sizeof(small)));
    assert_string_equal(small, "ab");
}

static void sizes_and_times(void **state)
{
    char text[PROGRESS_TEXT];
    progress_size(0, text);
    assert_string_equal(text, "0 B");
    progress_size(1536, text);
    assert_string_equal(text, "1.5 KiB");
    progress_size(5ull << 30, text);
    assert_string_equal(text, "5.0 GiB");
    progress_rate(0x1p66, text);
    assert_string_equal(text, "64.0 EiB");
    progress_size(500ull << 20, text);
    assert_string_equal(text, "500 MiB");
    progress_duration(61.9, text);
    assert_string_equal(text, "1:01");
    progress_duration(3600, text);
    assert_string_equal(text, "1:00:00");
    progress_count(1234567, text);
    assert_string_equal(text, "1,234,567");
    progress_count(0, text);
    assert_string_equal(text, "0");
    progress_count(18446744073709551615ull, text);
    assert_string_equal(text, "18,446,744,073,709,551,615");
}

static void the_line_tells_what_is_left(void **state)
{
    const struct progress progress = {.rate = 1 << 20};
    struct tally tally = {.files = 3, .bytes = 10 << 20};
    char line[200];
    progress_line(&progress, &tally, "weir0", SIZE_MAX, line, sizeof(line));
    assert_string_equal(line, "3 files, 10.0 MiB, 1.0 MiB/s, weir0");
    tally.totals_known = true;
    tally.total_files = 2000;
    tally.total_bytes = 70 << 20;
    progress_line(&progress, &tally, "weir0", SIZE_MAX, line, sizeof(line));
    assert_string_equal(
        line, "3 of 2,000 files, 10.0 MiB of 70.0 MiB (14%), 1.0 MiB/s, 1:00 left, weir0");
    tally.retransmissions_known = true;
    progress_line(&progress, &tally, "weir0", SIZE_MAX, line, sizeof(line));
    assert_non_null(strstr(line, ", 1:00 left, weir0, 0 retransmitted"));
    tally.retransmissions = 1234;
    tally.totals_known = false;
    progress_line(&progress, &tally, "weir0", SIZE_MAX, line, sizeof(line));
    assert_string_equal(line, "3 files, 10.0 MiB, 1.0 MiB/s, weir0, 1,234 retransmitted");
}

static void the_line_has_no_more_files_than_there_are(void **state)
{
    const struct progress progress = {.rate = 1 << 20};
    struct tally tally = {.files = 2, .same = 9, .totals_known = true, .total_files = 10};
    char line[200];
    progress_line(&progress, &tally, "weir0", SIZE_MAX, line, sizeof(line));
    assert_memory_equal(line, "10 of 10 files, ", 16);
}

static void a_narrow_line_keeps_what_matters_most(void **state)
{
    static const struct {
        size_t width;
        const char *fits;
    } cases[] = {
        {92, "3 of 2,000 files, 1.0 GiB of 70.0 GiB (1%), 1.0 GiB/s, 1:09 left, weir0, 1,234 "
             "retransmitted"},
        {85, "3 of 2,000 files, 1.0 GiB of 70.0 GiB (1%), 1.0 GiB/s, 1:09 left, 1,234 "
             "retransmitted"},
        {84, "1.0 GiB of 70.0 GiB (1%), 1.0 GiB/s, 1:09 left, 1,234 retransmitted"},
        {66, "1.0 GiB of 70.0 GiB (1%), 1.0 GiB/s, 1:09 left"},
        {45, "1.0 GiB of 70.0 GiB (1%), 1.0 GiB/s"},
        {30, "1.0 GiB of 70.0 GiB (1%)"},
        {3, "1.0 GiB of 70.0 GiB (1%)"},
    };
    const struct progress progress = {.rate = 1 << 30};
    const struct tally tally = {.files = 3,
                                .bytes = 1ull << 30,
                                .totals_known = true,
                                .total_files = 2000,
                                .total_bytes = 70ull << 30,
                                .retransmissions_known = true,
                                .retransmissions = 1234};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[200];
        progress_line(&progress, &tally, "weir0", cases[i].width, line, sizeof(line));
        assert_string_equal(line, cases[i].fits);
    }
}

static void numbers_with_units(void **state)
{
    static const struct {
        const char *text;
        char unit;
        double value;
    } good[] = {{"0", 'B', 0},           {"10", 'B', 10},         {"10", 'K', 10240},
                {"1.5k", 'B', 1536},     {"2KiB", 'B', 2048},     {"2kb", 'B', 2000},
                {"3MB", 'K', 3000000},   {"1G", 'B', 1073741824}, {"512b", 'K', 512},
                {"1T", 'B', 1ull << 40}, {".5k", 'B', 512},       {"5.", 'B', 5}};
    static const char *const bad[] = {"",    "K",    "-1",  "1X",    "1KK", "1Ki", "1BB",
                                      "1 K", "0x10", "inf", "nan",   ".",   "+1",  ".k",
                                      "1e3", "1E3",  "1e",  "1.5.2", "..5"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        double value = -1;
        assert_true(units_parse(good[i].text, good[i].unit, &value));
        assert_true(value == good[i].value);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        double value;
        if (units_parse(bad[i], 'K', &value)) {
            fail_msg("'%s' is taken for %f", bad[i], value);
        }
    }
}

/* tools/everyday_test.sh asks rsync. */
static void changes_of_modes(void **state)
{
    static const struct {
        const char *changes;
        unsigned before, of_file, of_directory;
    } good[] = {
        {"D755,F644", 07777, 0644, 0755},  {"go-w", 0666, 0644, 0644},
        {"u=rwX,go=rX", 0600, 0644, 0755}, {"u=rwX,go=rX", 0700, 0755, 0755},
        {"a+X", 0644, 0644, 0755},         {"a-X", 0654, 0644, 0644},
        {"+w", 0444, 0644, 0644},          {"=r", 0777, 0444, 0444},
        {"Dg+s,ug+w", 0444, 0664, 02664},  {"u+s,o+t", 0, 05000, 05000},
        {"g=", 02777, 02707, 02707},       {"ug=rs", 01777, 07447, 07447},
        {"Fo-rwx,D0", 0777, 0770, 0},      {"g=u", 06641, 04661, 04661},
        {"o=u,g=o", 0751, 0777, 0777},     {"ugo=o", 01640, 0, 0},
        {"g+u,o-g", 0641, 0661, 0661},     {"o=g", 07640, 06644, 06644},
        {"o-g", 0757, 0752, 0752},         {"=u", 0701, 0755, 0755},
        {"+u", 0600, 0644, 0644},          {"Fg=u,Do=g", 0640, 0660, 0644},
    };
    static const char *const bad[] = {"",   ",",        "u",    "u+q", "8",
                                      "D",  "12345678", "u+r,", "ur",  "D17777",
                                      "D9", "g=ur",     "u=go", "g=a", "g-uX"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct mode_changes changes = {.count = 0};
        assert_true(modes_parse(good[i].changes, 022, &changes));
        assert_int_equal(modes_apply(&changes, good[i].before, false), good[i].of_file);
        assert_int_equal(modes_apply(&changes, good[i].before, true), good[i].of_directory);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct mode_changes changes = {.count = 0};
        if (modes_parse(bad[i], 022, &changes)) {
            fail_msg("'%s' is taken", bad[i]);
        }
    }
    struct mode_changes changes = {.count = 0};
    for (unsigned i = 0; i < MODE_CHANGES_MAX; i++) {
        assert_true(modes_parse("u+r", 022, &changes));
    }
    assert_false(modes_parse("u+r", 022, &changes));
    assert_int_equal(modes_apply(NULL, 0123, true), 0123);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(urls),
        cmocka_unit_test(a_path_elsewhere_has_an_end),
        cmocka_unit_test(loopback),
        cmocka_unit_test(numbers_of_hosts),
        cmocka_unit_test(names_for_a_terminal),
        cmocka_unit_test(sizes_and_times),
        cmocka_unit_test(the_line_tells_what_is_left),
        cmocka_unit_test(the_line_has_no_more_files_than_there_are),
        cmocka_unit_test(a_narrow_line_keeps_what_matters_most),
        cmocka_unit_test(numbers_with_units),
        cmocka_unit_test(changes_of_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
