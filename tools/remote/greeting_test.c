/* What a far side says of itself, what a remote shell's command is, and where a name leads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/location.h"
#include "tools/remote/greeting.h"
#include "tools/remote/pipe.h"
#include "tools/remote/shell.h"

#define SECRET "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* NULL, or what is wrong with one of the lines. */
static const char *take_all(struct greeting *greeting, const char *text)
{
    memset(greeting, 0, sizeof(*greeting));
    for (const char *at = text; *at != 0;) {
        char line[GREETING_LINE_LENGTH_MAX] = "";
        size_t length = strcspn(at, "\n");
        memcpy(line, at, length);
        const char *wrong = greeting_take(greeting, line);
        if (wrong != NULL) {
            return wrong;
        }
        at += length + (at[length] == '\n');
    }
    return NULL;
}

static void what_is_printed_can_be_taken(void **state)
{
    struct greeting said = {.version = 1,
                            .release = "0.1.0",
                            .transfer_version = 5,
                            .host = "boot/7",
                            .device = "weir0",
                            .is_soft = true,
                            .addresses = {{"192.0.2.7:1", true, true}, {"[2001:db8::1]:2"}},
                            .address_count = 2};
    struct greeting heard;
    char text[1024], with_noise[1200];
    assert_true(secret_parse(SECRET, &said.secret));
    assert_true(greeting_print(&said, text, sizeof(text)) > 0);
    snprintf(with_noise, sizeof(with_noise), "Welcome to the machine\n\n%s", text);
    assert_null(take_all(&heard, with_noise));
    assert_true(heard.ready && heard.has_secret && heard.is_soft);
    assert_memory_equal(&heard.secret, &said.secret, SECRET_LENGTH);
    assert_int_equal(heard.address_count, 2);
    assert_memory_equal(heard.addresses, said.addresses, sizeof(said.addresses));
    assert_string_equal(heard.host, "boot/7");
    assert_string_equal(heard.noise, "Welcome to the machine");
    assert_int_equal(greeting_print(&said, text, 40), 0);
}

static void what_makes_no_sense_is_refused(void **state)
{
    static const char *const texts[] = {
        "weir-session x 0.1.0 5\n",
        "weir-session 1\n",
        "weir-session 1 0.1.0 5\naddress 192.0.2.7\n",
        "weir-session 1 0.1.0 5\naddress evil;rm:7\n",
        "weir-session 1 0.1.0 5\nsecret 0011\n",
        "weir-session 1 0.1.0 5\nsecret " SECRET "\nready\n",
        "weir-session 1 0.1.0 5\naddress 192.0.2.7:1\nready\n",
        "weir-session 1 0.1.0 5\n\n",
    };
    struct greeting greeting;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_non_null(take_all(&greeting, texts[i]));
    }
    assert_null(take_all(&greeting, "weir-session 1 0.1.0 5\nlater version's line\n"));
}

static void the_best_address_comes_first(void **state)
{
    static const struct greeting said = {.addresses = {{"172.17.0.1:1", false, false},
                                                       {"127.0.0.1:1", true, false},
                                                       {"192.0.2.7:1", false, true},
                                                       {"198.51.100.1:1", true, false},
                                                       {"198.51.100.2:1", true, true}},
                                         .address_count = 5};
    static const char *const order[] = {"127.0.0.1:1", "198.51.100.2:1", "198.51.100.1:1",
                                        "192.0.2.7:1", "172.17.0.1:1"};
    struct greeting greeting = said;
    greeting_sort(&greeting, true);
    assert_int_equal(greeting.address_count, 5);
    for (unsigned i = 0; i < 5; i++) {
        assert_string_equal(greeting.addresses[i].text, order[i]);
    }
    greeting = said;
    greeting_sort(&greeting, false); /* its loopback is not ours */
    assert_int_equal(greeting.address_count, 4);
    assert_string_equal(greeting.addresses[0].text, "198.51.100.2:1");
}

static void commands_are_split_at_blanks(void **state)
{
    char buffer[64], *words[SHELL_WORDS_MAX];
    assert_int_equal(shell_split(" ssh  -p 22 -o'A B' \"c'd\" ", buffer, sizeof(buffer), words), 5);
    assert_string_equal(words[0], "ssh");
    assert_string_equal(words[3], "-oA B");
    assert_string_equal(words[4], "c'd");
    assert_int_equal(shell_split("ssh 'x", buffer, sizeof(buffer), words), -1);
    assert_int_equal(shell_split("", buffer, sizeof(buffer), words), 0);
}

static void a_command_ends_with_its_pipe(void **state)
{
    char cat[] = "cat", sleep_word[] = "sleep", long_time[] = "60", none[] = "/nowhere/at-all";
    char *const reader[] = {cat, NULL}, *const sleeper[] = {sleep_word, long_time, NULL};
    char *const nobody[] = {none, NULL};
    struct shell shell;
    assert_int_equal(shell_start(reader, &shell), 0);
    assert_false(shell_has_ended(&shell));
    assert_int_equal(shell_end(&shell, 10000), 0);
    assert_int_equal(shell_start(sleeper, &shell), 0);
    assert_int_equal(shell_end(&shell, 10), -1); /* it had to be killed */
    assert_int_equal(shell_start(nobody, &shell), ENOENT);
    assert_int_equal(shell_end(&shell, 10), -1);
}

static double monotonic_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Not when the time is over, which is 20 s here. */
static void who_waits_for_the_end_of_a_pipe_sees_it(void **state)
{
    int ends[2], other[2], before = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(other), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    pipe_wait(other[0], 1);
    assert_false(pipe_has_ended());
    double begun_s = monotonic_s();
    assert_int_equal(write(other[1], "x", 1), 1);
    pipe_wait(other[0], 20000);
    assert_int_equal(read(other[0], &(char){0}, 1), 1);
    assert_int_equal(write(ends[1], "x", 1), 1); /* what is said there is no end */
    pipe_wait(other[0], 20000);
    assert_false(pipe_has_ended());
    close(ends[1]);
    pipe_wait(other[0], 20000);
    assert_true(pipe_has_ended());
    assert_true(monotonic_s() - begun_s < 15);
    dup2(before, STDIN_FILENO);
    close(before);
    close(ends[0]);
    close(other[0]);
    close(other[1]);
}

static void names_lead_where_scp_and_rsync_would_go(void **state)
{
    static const struct {
        const char *text;
        enum location_kind kind;
        const char *address, *path;
    } cases[] = {
        {"f", LOCATION_LOCAL, "", "f"},
        {"./a:b", LOCATION_LOCAL, "", "./a:b"},
        {"/a:b", LOCATION_LOCAL, "", "/a:b"},
        {":b", LOCATION_LOCAL, "", ":b"},
        {"h:p", LOCATION_SHELL, "h", "p"},
        {"h:", LOCATION_SHELL, "h", "."},
        {"u@h:/p q'\"\n", LOCATION_SHELL, "u@h", "/p q'\"\n"},
        {"h:~/x", LOCATION_SHELL, "h", "x"},
        {"h:~", LOCATION_SHELL, "h", "."},
        {"[2001:db8::1]:p", LOCATION_SHELL, "2001:db8::1", "p"},
        {"u@[2001:db8::1]:p:q", LOCATION_SHELL, "u@2001:db8::1", "p:q"},
        {"weir://h/p", LOCATION_SERVER, "h:7471", "/p"},
        {"weir:///p", LOCATION_WRONG, NULL, NULL},
        {"weir://u@h/p", LOCATION_WRONG, NULL, NULL},
        {"rsync://h/module/", LOCATION_WRONG, NULL, NULL},
        {"SSH://u@h/p", LOCATION_WRONG, NULL, NULL},
        {"Weir://h/p", LOCATION_WRONG, NULL, NULL},
        {"weir:/p", LOCATION_SHELL, "weir", "/p"},
        {"hosts://p", LOCATION_SHELL, "hosts", "//p"},
        {"h::module", LOCATION_WRONG, NULL, NULL},
        {"-oProxyCommand=x:p", LOCATION_WRONG, NULL, NULL},
        {"u@-x:p", LOCATION_WRONG, NULL, NULL},
        {"[-oProxyCommand=sh evil]:x", LOCATION_WRONG, NULL, NULL},
        {"[-oProxyCommand=/bin/sh]:x", LOCATION_WRONG, NULL, NULL},
        {"u@[-x]:p", LOCATION_WRONG, NULL, NULL},
        {"]-oX:p", LOCATION_WRONG, NULL, NULL},
        {"[]-oX:p", LOCATION_WRONG, NULL, NULL},
        {"[]:p", LOCATION_WRONG, NULL, NULL},
        {"u@[]:p", LOCATION_WRONG, NULL, NULL},
        {"[h:p", LOCATION_WRONG, NULL, NULL},
        {"@h:p", LOCATION_WRONG, NULL, NULL},
        {"h:~root/x", LOCATION_WRONG, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct location where;
        location_parse(cases[i].text, &where);
        assert_int_equal(where.kind, cases[i].kind);
        if (where.kind != LOCATION_WRONG) {
            assert_string_equal(where.address, cases[i].address);
            assert_string_equal(where.path, cases[i].path);
        } else {
            assert_non_null(where.why);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_printed_can_be_taken),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(the_best_address_comes_first),
        cmocka_unit_test(commands_are_split_at_blanks),
        cmocka_unit_test(a_command_ends_with_its_pipe),
        cmocka_unit_test(who_waits_for_the_end_of_a_pipe_sees_it),
        cmocka_unit_test(names_lead_where_scp_and_rsync_would_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
