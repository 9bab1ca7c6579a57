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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_thread_is_scheduled_as_the_program_is),
        cmocka_unit_test(a_call_of_the_threads_that_is_trapped_is_told),
        cmocka_unit_test(the_end_of_a_program_waits_for_a_release),
    };
    unsetenv("WEIR_FAULT");
    unsetenv("WEIR_ADDRESS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
