/* Reading a forked child's memory, and not that of who only has its number. */
#include "rnic/io/system/pull.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LENGTH 100000u

struct child {
    pid_t pid;
    struct pull_identity identity;
    uint8_t *bytes; /* at the same place in both, of different content */
};

static uint8_t byte_at(uint32_t index)
{
    return (uint8_t)(index * 2654435761u >> 13);
}

static void start(struct child *child)
{
    int ready[2];
    child->bytes = malloc(LENGTH);
    memset(child->bytes, 0, LENGTH);
    assert_int_equal(pipe(ready), 0);
    child->pid = fork();
    if (child->pid == 0) {
        struct pull_identity own;
        for (uint32_t i = 0; i < LENGTH; i++) {
            child->bytes[i] = byte_at(i);
        }
        bool made = pull_identity_create(77, &own) == STATUS_OK;
        if (made && write(ready[1], &own, sizeof own) == (ssize_t)sizeof own) {
            alarm(60);
            pause();
        }
        _exit(1);
    }
    assert_int_equal(read(ready[0], &child->identity, sizeof child->identity),
                     sizeof child->identity);
    close(ready[0]);
    close(ready[1]);
}

static void end(struct child *child)
{
    kill(child->pid, SIGKILL);
    assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
    free(child->bytes);
}

static void pieces_into_places(void **state)
{
    struct child child;
    uint8_t got[LENGTH];
    start(&child);
    uint64_t base = (uintptr_t)child.bytes;
    struct pull_piece pieces[] = {{base + 10, 5000, 0}, {base, 10, 0}, {base + 5010, 20000, 0}};
    struct payload_place places[] = {{got, 100}, {got + 200, 6000}, {got + 7000, 1}};
    assert_true(pull(&child.identity, NULL, 0, 0, NULL, 0));
    assert_true(pull(&child.identity, pieces, 3, 4000, places, 3));
    for (uint32_t i = 0; i < 6101; i++) {
        uint32_t at = 4000 + i; /* of what the pieces hold */
        uint32_t from = at < 5000 ? at + 10 : at < 5010 ? at - 5000 : at;
        uint32_t to = i < 100 ? i : i < 6100 ? i + 100 : 7000;
        assert_int_equal(got[to], byte_at(from));
    }
    end(&child);
    assert_false(pull(&child.identity, NULL, 0, 0, NULL, 0)); /* it is dead */
}

static void what_is_not_there_is_not_read(void **state)
{
    struct child child;
    uint8_t got[8192];
    start(&child);
    struct payload_place place = {got, sizeof got};
    struct pull_piece nowhere = {64, sizeof got, 0};
    assert_false(pull(&child.identity, &nowhere, 1, 0, &place, 1));
    struct pull_piece piece = {(uintptr_t)child.bytes, sizeof got, 0};
    place.bytes = mmap(NULL, sizeof got, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_false(pull(&child.identity, &piece, 1, 0, &place, 1)); /* nor written */
    munmap(place.bytes, sizeof got);
    end(&child);
}

/* The number is right, and so is the address; the process is another. */
static void a_stranger_is_found_out(void **state)
{
    struct child child;
    uint8_t got[64];
    start(&child);
    struct pull_piece piece = {(uintptr_t)child.bytes, sizeof got, 0};
    struct payload_place place = {got, sizeof got};
    struct pull_identity other = child.identity;
    other.words[1]++;
    assert_false(pull(&other, &piece, 1, 0, &place, 1));
    other = child.identity;
    other.address = 0;
    assert_false(pull(&other, NULL, 0, 0, NULL, 0));
    end(&child);
}

/* Its page is at the same address; but it is not the process that was shown. */
static void a_forked_child_is_a_stranger(void **state)
{
    struct pull_identity own;
    assert_int_equal(pull_identity_create(5, &own), STATUS_OK);
    assert_true(pull(&own, NULL, 0, 0, NULL, 0)); /* ourselves */
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        pause();
        _exit(1);
    }
    struct pull_identity child = own;
    child.thread = (uint64_t)pid;
    assert_false(pull(&child, NULL, 0, 0, NULL, 0));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    pull_identity_destroy(&own);
    assert_false(pull(&own, NULL, 0, 0, NULL, 0));
}

/* As where Yama or another user stands in the way; root may trace all the same. */
static void who_may_not_be_traced_is_not_read(void **state)
{
    struct pull_identity own;
    assert_int_equal(pull_identity_create(5, &own), STATUS_OK);
    pid_t pid = fork();
    if (pid == 0) {
        bool reads = setgid(65534) == 0 && setuid(65534) == 0 && pull(&own, NULL, 0, 0, NULL, 0);
        _exit(reads ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (geteuid() == 0) {
        assert_int_equal(status, 0);
    }
    pull_identity_destroy(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_into_places),
        cmocka_unit_test(what_is_not_there_is_not_read),
        cmocka_unit_test(a_stranger_is_found_out),
        cmocka_unit_test(a_forked_child_is_a_stranger),
        cmocka_unit_test(who_may_not_be_traced_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
