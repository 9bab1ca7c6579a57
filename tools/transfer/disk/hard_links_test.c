#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/disk/hard_links.h"
#include "tools/transfer/disk/scratch.h"

#define PARTS 15
#define PART  250 /* of the path, with its slash */

/* A file as far down as a path leads. */
static void make_deep(const struct scratch *scratch, char ret_path[PARTS * PART + 2])
{
    int directory = dup(scratch->fd);
    for (unsigned i = 0; i < PARTS; i++) {
        char *name = ret_path + (size_t)i * PART;
        memset(name, 'd', PART - 1);
        name[PART - 1] = 0;
        assert_int_equal(mkdirat(directory, name, 0755), 0);
        int next = openat(directory, name, O_RDONLY | O_DIRECTORY);
        name[PART - 1] = '/';
        close(directory);
        directory = next;
    }
    strcpy(ret_path + (size_t)PARTS * PART, "f");
    close(openat(directory, "f", O_CREAT | O_WRONLY, 0644));
    close(directory);
}

/* Where there is too little room for long paths, the sender says none that the receiver misses. */
static void both_forget_alike(void **state)
{
    struct scratch *scratch = scratch_create();
    struct hard_links sender = {0}, receiver = {0};
    const struct birth birth = {.s = 1};
    struct stat status = {.st_dev = 1, .st_nlink = 2};
    char path[PARTS * PART + 2];
    unsigned said = 0;
    const unsigned count = 2 * HARD_LINKS_LENGTH_MAX / (PARTS * PART);
    make_deep(scratch, path);
    for (uint32_t id = 1; id <= count; id++) {
        status.st_ino = id;
        /* "dd/...", as the source may be */
        hard_links_sent(&sender, &status, &birth, id, path + PART - 3);
        hard_links_placed(&receiver, id, 2, scratch->fd, path);
    }
    for (uint32_t id = 1; id <= count; id++) {
        status.st_ino = id;
        uint32_t first = hard_links_first(&sender, &status, &birth);
        if (first != 0) {
            int fd = hard_links_open(&receiver, first, scratch->fd);
            assert_true(fd >= 0);
            close(fd);
            said++;
        }
    }
    assert_in_range(said, count / 2, count - 1);
    assert_int_equal(sender.count + receiver.count, 0);
    assert_int_equal(sender.length + receiver.length, 0);
    scratch_destroy(scratch);
}

static void a_name_that_is_passed_over_counts(void **state)
{
    struct scratch *scratch = scratch_create();
    struct hard_links receiver = {0};
    scratch_write(scratch, "f", "");
    hard_links_placed(&receiver, 1, 3, scratch->fd, "f");
    hard_links_pass(&receiver, 1);
    hard_links_pass(&receiver, 2);
    assert_int_equal(receiver.count, 1);
    close(hard_links_open(&receiver, 1, scratch->fd));
    assert_int_equal(receiver.count, 0);
    scratch_destroy(scratch);
}

/* Where a file has gone before all its names were met, the next one may have its inode's number. */
static void a_number_that_is_used_again_is_another_file(void **state)
{
    const struct stat status = {.st_dev = 1, .st_ino = 7, .st_nlink = 2};
    const struct birth one = {.s = 5, .ns = 1}, other = {.s = 5, .ns = 2};
    struct hard_links sender = {0};
    hard_links_sent(&sender, &status, &one, 1, "s/one");
    assert_int_equal(hard_links_first(&sender, &status, &other), 0);
    hard_links_sent(&sender, &status, &other, 2, "s/other");
    assert_int_equal(hard_links_first(&sender, &status, &other), 2);
    assert_int_equal(sender.count, 1); /* the receiver waits for the first one's names, too */
    hard_links_withdraw(&sender, &status, &other);
    assert_int_equal(hard_links_first(&sender, &status, &one), 1);
    assert_int_equal(sender.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forget_alike),
        cmocka_unit_test(a_name_that_is_passed_over_counts),
        cmocka_unit_test(a_number_that_is_used_again_is_another_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
