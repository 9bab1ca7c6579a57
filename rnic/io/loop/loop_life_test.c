/* What the engine's thread takes over from the program, and a program that ends while it lets go of
 * the engine. Each in a child, which has an engine of its own. */
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "rnic/io/loop/loop_ends_test.h"
#include "rnic/io/registry/registry_private.h"

#ifdef __SANITIZE_THREAD__
/* Children of a process with threads make threads of their own here. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}
#endif

#define MOMENT_US 300000u

static void run_in_child(int (*run)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        _exit(run());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The kernel's number of the engine's thread; 0: there is none. */
static pid_t find_engine_thread(void)
{
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    pid_t found = 0;
    while (folder != NULL && found == 0 && (entry = readdir(folder)) != NULL) {
        char path[300], name[16] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file != NULL) {
            found = fgets(name, sizeof name, file) != NULL && strcmp(name, "weir\n") == 0
                        ? (pid_t)atoi(entry->d_name)
                        : 0;
            fclose(file);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return found;
}

static int keep_policy(void)
{
    struct engine *engine;
    struct sched_param parameters = {.sched_priority = 0};
    if (sched_setscheduler(0, SCHED_BATCH, &parameters) != 0 ||
        loop_acquire(&engine) != STATUS_OK) {
        return 1;
    }
    pid_t thread = find_engine_thread();
    return thread != 0 && sched_getscheduler(thread) == SCHED_BATCH ? 0 : 2;
}

static void the_thread_is_scheduled_as_the_program_is(void **state)
{
    run_in_child(keep_policy);
}

static volatile sig_atomic_t trapped;

static void note_trap(int signal)
{
    trapped++;
}

/* What the thread asks for first is not to be had: SIGSYS tells the program, which goes on. */
static int trap_call(void)
{
    struct engine *engine;
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setattr, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof steps / sizeof steps[0], .filter = steps};
    signal(SIGSYS, note_trap);
    if (sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0}) != 0) {
        return 4; /* of any other policy the thread asks for nothing */
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        return 1;
    }
    if (loop_acquire(&engine) != STATUS_OK) {
        return 2;
    }
    loop_release(engine);
    return trapped == 1 ? 0 : 3;
}

static void a_call_of_the_threads_that_is_trapped_is_told(void **state)
{
    run_in_child(trap_call);
}

static struct {
    struct engine *engine;
    int registry; /* a descriptor, locked until `is_free` */
    atomic_bool is_free;
    bool ends;
} child;

static void *release_engine(void *context)
{
    loop_release(child.engine);
    return context;
}

static void *free_registry(void *context)
{
    usleep(MOMENT_US);
    atomic_store(&child.is_free, true);
    registry_unlock_file(child.registry);
    return context;
}

/* The last to run, behind the engine's. */
__attribute__((destructor(101))) static void tell(void)
{
    if (child.ends) {
        _exit(atomic_load(&child.is_free) ? 0 : 4);
    }
}

/* The release stands in the middle, for the registry is locked, when the program ends. */
static int end_beside_release(void)
{
    pthread_t threads[2];
    if (loop_acquire(&child.engine) != STATUS_OK) {
        return 1;
    }
    struct loop *loop = loop_of(child.engine);
    if (registry_open_file(loop->registry->path, 0, &child.registry) != STATUS_OK ||
        registry_lock_file(child.registry) != STATUS_OK ||
        pthread_create(&threads[0], NULL, release_engine, NULL) != 0) {
        return 2;
    }
    while (!atomic_load(&loop->stopping)) {
        usleep(1000);
    }
    if (pthread_create(&threads[1], NULL, free_registry, NULL) != 0) {
        return 3;
    }
    pthread_detach(threads[0]);
    pthread_detach(threads[1]);
    child.ends = true;
    exit(0);
}

static void the_end_of_a_program_waits_for_a_release(void **state)
{
    run_in_child(end_beside_release);
}

static bool has_text(struct end *end, const char *text)
{
    engine_lock(end->engine);
    bool has = strcmp((char *)end->buffer, text) == 0;
    engine_unlock(end->engine);
    return has;
}

static struct same_host_counters count(struct end *end)
{
    struct same_host_counters counters;
    engine_lock(end->engine);
    same_host_count(loop_of(end->engine)->same_host, &counters);
    engine_unlock(end->engine);
    return counters;
}

/* The first thread has ended by then, so under the process's number the kernel knows nothing. */
static void *be_left_alone(void *context)
{
    const int *ends = context;
    char name[64], line[256] = "";
    struct introduction peer;
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", (int)getpid());
    while (strstr(line, ") Z") == NULL) {
        FILE *file = fopen(name, "re");
        if (file == NULL || fgets(line, sizeof line, file) == NULL) {
            _exit(1);
        }
        fclose(file);
        usleep(1000);
    }
    struct end *end = create_end();
    struct introduction own = introduce(end);
    strcpy((char *)end->buffer, "of the target");
    if (write(ends[1], &own, sizeof own) != sizeof own ||
        read(ends[0], &peer, sizeof peer) != sizeof peer) {
        _exit(2);
    }
    connect_end(end, &peer);
    post(end, WORK_WRITE, 64, &peer);
    poll_one(end);
    struct same_host_counters counters = count(end);
    _exit(read(ends[0], name, 1) == 0 && has_text(end, "for the target") &&
                  counters.unreachable == 0
              ? 0
              : 3);
}

static void start_target(int to[2], int from[2])
{
    static int ends[2];
    pthread_t thread;
    close(to[1]);
    close(from[0]);
    ends[0] = to[0];
    ends[1] = from[1];
    if (pthread_create(&thread, NULL, be_left_alone, ends) != 0) {
        _exit(4);
    }
    pthread_exit(NULL);
}

static int meet_who_has_lost_its_first_thread(void)
{
    int to[2], from[2], status;
    struct introduction peer;
    if (pipe(to) != 0 || pipe(from) != 0) {
        return 1;
    }
    pid_t target = fork();
    if (target == 0) {
        start_target(to, from);
    }
    close(to[0]);
    close(from[1]);
    if (read(from[0], &peer, sizeof peer) != sizeof peer) {
        return 2;
    }
    struct end *end = create_end();
    struct introduction own = introduce(end);
    connect_end(end, &peer);
    if (write(to[1], &own, sizeof own) != sizeof own) {
        return 3;
    }
    while (!has_text(end, "of the target")) {
        engine_drive(end->engine);
    }
    post(end, WORK_READ, 64, &peer);
    poll_one(end);
    strcpy((char *)end->buffer, "for the target");
    post(end, WORK_WRITE, 64, &peer);
    poll_one(end);
    struct same_host_counters counters = count(end);
    close(to[1]);
    return waitpid(target, &status, 0) == target && status == 0 && counters.peers == 1 &&
                   counters.unreachable == 0 && counters.opaque == 0
               ? 0
               : 4;
}

static void who_has_lost_its_first_thread_is_met_in_memory(void **state)
{
    run_in_child(meet_who_has_lost_its_first_thread);
}

/* Without the handlers of fork: what it has of its parent's engine it leaves alone. */
static int end_without_handlers(void)
{
    char path[64];
    int status;
    struct engine *engine;
    snprintf(path, sizeof path, "/tmp/weir-loop-life-test-%ld", (long)getpid());
    setenv("WEIR_STATISTICS", path, 1);
    if (loop_acquire(&engine) != STATUS_OK) {
        return 1;
    }
    pid_t copy = _Fork();
    if (copy == 0) {
        exit(0);
    }
    if (waitpid(copy, &status, 0) != copy || status != 0) {
        return 2;
    }
    bool told = unlink(path) == 0; /* what only its owner is to tell */
    unsetenv("WEIR_STATISTICS");
    loop_release(engine);
    return told ? 3 : 0;
}

static void a_copy_that_ends_leaves_the_engine_alone(void **state)
{
    run_in_child(end_without_handlers);
}

/* One word that is none of a variable's, and none of others'. */
static int mistype_words(void)
{
    static const char *const variables[] = {"WEIR_LINK", "WEIR_DIRECT", "WEIR_SELECTIVE"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        struct engine *engine;
        setenv(variables[i], "off", 1);
        if (loop_acquire(&engine) != STATUS_INVALID ||
            strstr(loop_last_error(), variables[i]) == NULL ||
            strstr(loop_last_error(), " is \"off\", which is neither ") == NULL) {
            return 1;
        }
        setenv(variables[i], "", 1);
        if (loop_acquire(&engine) != STATUS_OK) {
            return 2;
        }
        loop_release(engine);
    }
    return 0;
}

static void a_word_that_is_mistyped_is_not_taken_for_none(void **state)
{
    run_in_child(mistype_words);
}

static int report_nowhere(void)
{
    static const struct {
        const char *path, *words;
    } cases[] = {
        {"/nowhere/at/all", "weir: WEIR_STATISTICS: /nowhere/at/all: No such file or directory\n"},
        {"/dev/full", "weir: WEIR_STATISTICS: /dev/full: No space left on device\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[128] = "";
        struct engine *engine;
        FILE *said = tmpfile();
        setenv("WEIR_STATISTICS", cases[i].path, 1);
        if (said == NULL || dup2(fileno(said), STDERR_FILENO) < 0 ||
            loop_acquire(&engine) != STATUS_OK) {
            return 1;
        }
        loop_release(engine);
        rewind(said);
        bool told = fgets(line, sizeof line, said) != NULL && strcmp(line, cases[i].words) == 0;
        fclose(said);
        if (!told) {
            return 2;
        }
    }
    return 0;
}

static void a_report_that_cannot_be_written_is_told(void **state)
{
    run_in_child(report_nowhere);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_thread_is_scheduled_as_the_program_is),
        cmocka_unit_test(a_call_of_the_threads_that_is_trapped_is_told),
        cmocka_unit_test(the_end_of_a_program_waits_for_a_release),
        cmocka_unit_test(who_has_lost_its_first_thread_is_met_in_memory),
        cmocka_unit_test(a_copy_that_ends_leaves_the_engine_alone),
        cmocka_unit_test(a_word_that_is_mistyped_is_not_taken_for_none),
        cmocka_unit_test(a_report_that_cannot_be_written_is_told),
    };
    unsetenv("WEIR_FAULT");
    unsetenv("WEIR_ADDRESS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
