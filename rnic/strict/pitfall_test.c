/* Warnings do no harm, and queues that starve are told apart from those that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rnic/strict/receives.h"
#include "rnic/strict/strict.h"

/* Standard error leads to nobody. */
static void a_closed_pipe_ends_nothing(void **state)
{
    int ends[2], standard = dup(STDERR_FILENO);
    sigset_t pending;
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    pitfall_warn(PITFALL_LIMIT, NULL, "asked for at", "nobody hears of %d", 1);
    dup2(standard, STDERR_FILENO);
    close(ends[1]);
    close(standard);
    assert_int_equal(pitfall_count(PITFALL_LIMIT), 1);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
}

/* Nor does a file that may not grow: it ended the process. */
static void a_full_file_ends_nothing(void **state)
{
    FILE *file = tmpfile();
    pid_t child = fork();
    if (child == 0) {
        sigset_t pending;
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, RLIM_INFINITY});
        dup2(fileno(file), STDERR_FILENO);
        pitfall_warn(PITFALL_LIMIT, NULL, "asked for at", "there is no room for this");
        sigpending(&pending);
        _exit(sigismember(&pending, SIGXFSZ) == 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    fclose(file);
}

/* What a parent did is the parent's to sum up. */
static void a_child_begins_anew(void **state)
{
    pitfall_warn(PITFALL_MEMLOCK, NULL, "registered at", "said by a parent");
    pid_t child = fork();
    if (child == 0) {
        _exit((int)pitfall_count(PITFALL_MEMLOCK));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(pitfall_count(PITFALL_MEMLOCK), 1);
}

static void *say_keys(void *nothing)
{
    for (int i = 0; i < 6; i++) {
        pitfall_warn(PITFALL_UNKNOWN_KEY, NULL, "met at", "a peer names key %d", i / 2);
    }
    return NULL;
}

/* In a thread of the library's (here all of it is in the program) two mistakes are two, however
 * alike their places. */
static void what_has_no_place_is_known_by_its_words(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    skip(); /* its library begins each thread, which is a place */
#endif
    char text[4096] = "";
    int ends[2], standard = dup(STDERR_FILENO);
    pthread_t thread;
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    pthread_create(&thread, NULL, say_keys, NULL);
    pthread_join(thread, NULL);
    dup2(standard, STDERR_FILENO);
    close(ends[1]);
    close(standard);
    for (size_t got = 0; got < sizeof text - 1;) {
        ssize_t more = read(ends[0], text + got, sizeof text - 1 - got);
        assert_true(more >= 0);
        if (more == 0) {
            break;
        }
        got += (size_t)more;
    }
    close(ends[0]);
    int said = 0;
    for (const char *at = text; (at = strstr(at, "no place of the program")) != NULL; at++) {
        said++;
    }
    assert_int_equal(said, 3);
    assert_null(strstr(text, "#0"));
}

static size_t length_of(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 ? (size_t)facts.st_size : 0;
}

/* The program has closed all descriptors, in another folder: its own files are not written to. */
static void the_log_is_no_file_of_the_program(void **state)
{
    char folder[] = "/tmp/weir-pitfall-XXXXXX", log[64];
    assert_non_null(mkdtemp(folder));
    snprintf(log, sizeof log, "%s/log", folder);
    pid_t child = fork();
    if (child == 0) {
        bool fine = chdir(folder) == 0 && pitfall_log_to("log") && chdir("/") == 0;
        for (int i = STDERR_FILENO + 1; i < 64; i++) {
            close(i);
        }
        int files[8];
        for (size_t i = 0; i < 8; i++) {
            files[i] = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
        }
        pitfall_warn(PITFALL_CQ_OVERRUN, NULL, "created at", "said in the log");
        for (size_t i = 0; i < 8; i++) {
            fine = fine && lseek(files[i], 0, SEEK_END) == 0;
        }
        _exit(fine ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_not_equal(length_of(log), 0);
    unlink(log);
    rmdir(folder);
}

static const struct receive_queue *queue(size_t number)
{
    return (const struct receive_queue *)(number * 64); /* only compared */
}

/* Of a queue pair whose receives are shared. */
static void no_queue_starves(void **state)
{
    receives_missing(queue(1), (struct qpn){17}, false);
    strict_receives_end(NULL);
    strict_receive_posted(queue(2));
    assert_int_equal(pitfall_count(PITFALL_LATE_RECEIVE), 0);
    receives_missing(NULL, (struct qpn){18}, false);
    strict_receives_end(NULL);
    assert_int_equal(pitfall_count(PITFALL_LATE_RECEIVE), 0);
    strict_receive_posted(queue(1));
    assert_int_equal(pitfall_count(PITFALL_LATE_RECEIVE), 1);
    strict_receives_end(queue(1));
    assert_int_equal(pitfall_count(PITFALL_LATE_RECEIVE), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_closed_pipe_ends_nothing),
        cmocka_unit_test(a_full_file_ends_nothing),
        cmocka_unit_test(no_queue_starves),
        cmocka_unit_test(a_child_begins_anew),
        cmocka_unit_test(what_has_no_place_is_known_by_its_words),
        cmocka_unit_test(the_log_is_no_file_of_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
