/* Words that are seen whole. */
#include "rnic/io/direct/whole.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define WRITES 30000u
#define ONES   UINT64_C(0x0101010101010101)

static void what_is_known(void **state)
{
    struct whole_machine intel = {.is_x86 = true,
                                  .has_fast_short_moves = true,
                                  .is_intel = true,
                                  .kernel_major = 6,
                                  .kernel_minor = 18};
    struct whole_machine other = intel, older = intel, plain = intel, none = {0};
    other.is_intel = false;
    older.kernel_minor = 1;
    plain.has_fast_short_moves = false;
    for (uint32_t length = 2; length <= 8; length *= 2) {
        assert_true(whole_would_be_moved(&intel, length));
        assert_false(whole_would_be_moved(&other, length));
        assert_int_equal(whole_would_be_moved(&older, length), length == 8);
        assert_int_equal(whole_would_be_moved(&plain, length), length == 8);
        assert_false(whole_would_be_moved(&none, length));
    }
}

static struct {
    _Alignas(64) volatile uint64_t word;
    _Atomic bool done;
} there;

static void *write_words(void *argument)
{
    uint32_t length = *(uint32_t *)argument;
    for (uint32_t i = 0; i < WRITES; i++) {
        uint64_t word = ONES * (uint8_t)i;
        struct iovec from = {&word, length}, to = {(void *)&there.word, length};
        if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) != (ssize_t)length) {
            break; /* it is refused here */
        }
    }
    atomic_store(&there.done, true);
    return NULL;
}

/* What the table says of this machine is so. */
static void words_are_seen_whole(void **state)
{
    for (uint32_t length = 2; length <= 8; length *= 2) {
        if (!whole_is_moved(length)) {
            print_message("%u bytes are not said to be moved whole here\n", length);
            continue;
        }
        pthread_t thread;
        uint64_t mask = length == 8 ? UINT64_MAX : (UINT64_C(1) << length * 8) - 1;
        there.word = 0;
        atomic_store(&there.done, false);
        assert_int_equal(pthread_create(&thread, NULL, write_words, &length), 0);
        while (!atomic_load(&there.done)) {
            uint64_t word = there.word & mask;
            assert_int_equal(word, (ONES * (uint8_t)word) & mask);
        }
        pthread_join(thread, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_known),
        cmocka_unit_test(words_are_seen_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
