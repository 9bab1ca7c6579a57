/* libweir-paths.so in a process of its own: this program makes a small tree, runs itself with the
 * object preloaded, and there calls every function that the object stands before, each looked up by
 * its name (the headers rename some). usage: paths_calls_test LIBWEIR_PATHS */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define DEVICE "/sys/class/infiniband/weir9"
#define NAME   DEVICE "/name"
#define NODE   "/dev/infiniband/uverbs9"
#define ROOM   4096

/* Calls `name` as a function of the given type. */
#define CALL(type, name, ...) ((type)look_up(name))(__VA_ARGS__)

static void *look_up(const char *name)
{
    Dl_info info;
    void *found = dlsym(RTLD_DEFAULT, name);
    assert_non_null(found);
    assert_true(dladdr(found, &info));
    if (strstr(info.dli_fname, "libweir-paths") == NULL) {
        fail_msg("%s is answered by %s", name, info.dli_fname);
    }
    return found;
}

typedef int (*stat_call)(const char *, void *);
typedef int (*versioned_stat_call)(int, const char *, void *);
typedef int (*access_call)(const char *, int);
typedef int (*open_call)(const char *, int, ...);
typedef int (*openat_call)(int, const char *, int, ...);
typedef FILE *(*fopen_call)(const char *, const char *);
typedef ssize_t (*readlink_call)(const char *, char *, size_t, size_t);
typedef ssize_t (*readlinkat_call)(int, const char *, char *, size_t, size_t);
typedef int (*scandir_call)(const char *, struct dirent ***, void *, void *);
typedef int (*scandirat_call)(int, const char *, struct dirent ***, void *, void *);
typedef char *(*realpath_call)(const char *, char *, size_t);

static void stat_calls(void **state)
{
    static const char *const plain[] = {"stat", "stat64", "lstat", "lstat64"};
    static const char *const versioned[] = {"__xstat", "__xstat64", "__lxstat", "__lxstat64"};
    struct stat facts; /* one layout on 64-bit systems */
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(CALL(stat_call, plain[i], NAME, &facts), 0);
        assert_int_equal(facts.st_size, 6);
        assert_int_equal(CALL(stat_call, plain[i], NODE, &facts), 0);
        assert_true(S_ISCHR(facts.st_mode));
        assert_int_equal(CALL(versioned_stat_call, versioned[i], 1, NAME, &facts), 0);
        assert_int_equal(facts.st_size, 6);
        assert_int_equal(CALL(versioned_stat_call, versioned[i], 1, NODE, &facts), 0);
        assert_true(S_ISCHR(facts.st_mode));
    }
    for (int flags = 0; flags <= AT_SYMLINK_NOFOLLOW; flags += AT_SYMLINK_NOFOLLOW) {
        assert_int_equal(((int (*)(int, const char *, void *, int))look_up("fstatat"))(
                             AT_FDCWD, NODE, &facts, flags),
                         0);
        assert_true(S_ISCHR(facts.st_mode));
        assert_int_equal(((int (*)(int, const char *, void *, int))look_up("fstatat64"))(
                             AT_FDCWD, NAME, &facts, flags),
                         0);
        assert_int_equal(facts.st_size, 6);
    }
    struct statx more;
    assert_int_equal(((int (*)(int, const char *, int, unsigned, void *))look_up("statx"))(
                         AT_FDCWD, NAME, 0, STATX_SIZE, &more),
                     0);
    assert_int_equal(more.stx_size, 6);
}

static void access_calls(void **state)
{
    assert_int_equal(CALL(access_call, "access", NODE, R_OK | W_OK), 0);
    assert_int_equal(CALL(access_call, "eaccess", NAME, R_OK), 0);
    assert_int_equal(CALL(access_call, "euidaccess", NAME, R_OK), 0);
    assert_int_equal(
        ((int (*)(int, const char *, int, int))look_up("faccessat"))(AT_FDCWD, NAME, R_OK, 0), 0);
    assert_int_equal(CALL(access_call, "access", DEVICE "/nothing", F_OK), -1);
    assert_int_equal(errno, ENOENT);
}

static void holds_name(int file)
{
    char text[8] = "";
    assert_true(file >= 0);
    assert_int_equal(read(file, text, sizeof text - 1), 6);
    assert_string_equal(text, "weir9\n");
    close(file);
}

static void open_calls(void **state)
{
    static const char *const plain[] = {"open", "open64", "__open_2", "__open64_2"};
    static const char *const relative[] = {"openat", "openat64", "__openat_2", "__openat64_2"};
    for (size_t i = 0; i < 4; i++) {
        holds_name(CALL(open_call, plain[i], NAME, O_RDONLY));
        holds_name(CALL(openat_call, relative[i], AT_FDCWD, NAME, O_RDONLY));
    }
    static const char *const streams[] = {"fopen", "fopen64"};
    for (size_t i = 0; i < 2; i++) {
        FILE *stream = CALL(fopen_call, streams[i], NAME, "r");
        char text[8];
        assert_non_null(stream);
        assert_non_null(fgets(text, sizeof text, stream));
        assert_string_equal(text, "weir9\n");
        fclose(stream);
    }
}

/* Trees are shared: nobody changes one, root neither. Devices may be written to. */
static void nobody_writes_to_the_tree(void **state)
{
    static const char *const plain[] = {"open", "open64", "__open_2", "__open64_2"};
    static const char *const relative[] = {"openat", "openat64", "__openat_2", "__openat64_2"};
    static const int bad[] = {O_WRONLY, O_RDWR | O_APPEND, O_RDONLY | O_TRUNC};
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < sizeof bad / sizeof *bad; j++) {
            assert_int_equal(CALL(open_call, plain[i], NAME, bad[j]), -1);
            assert_int_equal(errno, EACCES);
            assert_int_equal(CALL(openat_call, relative[i], AT_FDCWD, NAME, bad[j]), -1);
            assert_int_equal(errno, EACCES);
        }
        int file = CALL(open_call, plain[i], NODE, O_RDWR | O_NOFOLLOW);
        assert_true(file >= 0);
        assert_int_equal(write(file, "x", 1), 1);
        close(file);
    }
    static const char *const streams[] = {"fopen", "fopen64"};
    static const char *const modes[] = {"w", "a", "r+"};
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < 3; j++) {
            assert_null(CALL(fopen_call, streams[i], NAME, modes[j]));
            assert_int_equal(errno, EACCES);
            assert_null(CALL(fopen_call, streams[i], DEVICE "/nothing", modes[j]));
            assert_int_equal(errno, ENOENT);
        }
        assert_null(CALL(fopen_call, streams[i], "/dev/infiniband/other", "w"));
        assert_int_equal(errno, ENOENT);
    }
    assert_int_equal(open(DEVICE "/other", O_CREAT | O_WRONLY, 0644), -1);
    assert_int_equal(open("/dev/infiniband/other", O_CREAT | O_RDWR, 0644), -1);
    assert_int_equal(errno, ENOENT);
    holds_name(open(NAME, O_RDONLY));
}

/* The mode, which only some calls have, arrives. */
static void a_new_file_gets_its_mode(void **state)
{
    char path[] = "/tmp/weir-calls-test-XXXXXX";
    struct stat facts;
    int file = mkstemp(path);
    close(file);
    unlink(path);
    umask(0);
    file = CALL(open_call, "open", path, O_CREAT | O_WRONLY, 0640);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, 0640);
    close(file);
    unlink(path);
}

static void folder_calls(void **state)
{
    DIR *list = ((DIR * (*)(const char *)) look_up("opendir"))("/sys/class/infiniband");
    assert_non_null(list);
    closedir(list);
    static const char *const plain[] = {"scandir", "scandir64"};
    static const char *const relative[] = {"scandirat", "scandirat64"};
    for (size_t i = 0; i < 2; i++) {
        struct dirent **entries;
        assert_int_equal(CALL(scandir_call, plain[i], DEVICE, &entries, NULL, NULL), 4);
        assert_int_equal(CALL(scandirat_call, relative[i], AT_FDCWD, DEVICE, &entries, NULL, NULL),
                         4);
    }
    assert_int_equal(((int (*)(const char *))look_up("chdir"))(DEVICE), 0);
    holds_name(open("name", O_RDONLY));
    assert_int_equal(chdir("/"), 0);
}

static void link_calls(void **state)
{
    char text[ROOM];
    assert_int_equal(CALL(readlink_call, "readlink", DEVICE "/link", text, ROOM, 0), 4);
    assert_int_equal(CALL(readlink_call, "__readlink_chk", DEVICE "/link", text, ROOM, ROOM), 4);
    assert_int_equal(CALL(readlinkat_call, "readlinkat", AT_FDCWD, DEVICE "/link", text, ROOM, 0),
                     4);
    assert_int_equal(
        CALL(readlinkat_call, "__readlinkat_chk", AT_FDCWD, DEVICE "/link", text, ROOM, ROOM), 4);
}

static void resolved_paths_are_those_that_programs_know(void **state)
{
    static const char *const calls[] = {"realpath", "__realpath_chk"};
    char text[PATH_MAX];
    for (size_t i = 0; i < 2; i++) {
        assert_non_null(CALL(realpath_call, calls[i], DEVICE "/link", text, sizeof text));
        assert_string_equal(text, NAME);
        assert_non_null(CALL(realpath_call, calls[i], NODE, text, sizeof text));
        assert_string_equal(text, NODE);
    }
    char *fresh = CALL(realpath_call, "realpath", NODE, NULL, 0);
    assert_string_equal(fresh, NODE);
    free(fresh);
    fresh = CALL(realpath_call, "canonicalize_file_name", NAME, NULL, 0);
    assert_string_equal(fresh, NAME);
    free(fresh);
}

static void bad_arguments_are_the_next_ones_to_refuse(void **state)
{
    struct stat facts;
    assert_int_equal(CALL(stat_call, "stat", NULL, &facts), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(CALL(open_call, "open", "", O_RDONLY), -1);
    assert_int_equal(errno, ENOENT);
}

static int seen_by_handler;

static void handle(int signal_number)
{
    struct stat facts;
    seen_by_handler = stat(NAME, &facts) == 0 && stat("/etc/passwd", &facts) == 0;
}

/* On a stack as small as the system allows. */
static void a_signal_handler_may_call(void **state)
{
    static char small[16384]; /* where vector registers take most of MINSIGSTKSZ */
    const stack_t stack = {.ss_sp = small, .ss_size = sizeof small};
    const struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    assert_int_equal(sigaltstack(&stack, NULL), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    raise(SIGUSR1);
    assert_true(seen_by_handler);
}

static void children_see_it(void **state)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        execlp("cat", "cat", NAME, (char *)NULL);
        _exit(99);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Before every constructor, ours too: the answer may come from either side, but it comes. */
static int early_result = 1;

static void call_early(void)
{
    early_result = access(NAME, R_OK);
}

__attribute__((section(".preinit_array"), used)) static void (*const early)(void) = call_early;

static void calls_before_any_constructor_return(void **state)
{
    assert_true(early_result == 0 || early_result == -1);
}

static void write_tree(char *root)
{
    char command[1024];
    if (mkdtemp(root) == NULL) {
        perror(root);
        exit(EXIT_FAILURE);
    }
    snprintf(command, sizeof command,
             "cd %s && mkdir -p .%s dev/infiniband && echo weir9 >.%s && ln -s name .%s/link && "
             "ln -s /dev/null .%s",
             root, DEVICE, NAME, DEVICE, NODE);
    if (system(command) != 0) {
        exit(EXIT_FAILURE);
    }
}

static int remove_tree(void **state)
{
    char command[1024];
    snprintf(command, sizeof command, "rm -r '%s'", getenv("WEIR_PATHS"));
    return system(command);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stat_calls),
        cmocka_unit_test(access_calls),
        cmocka_unit_test(open_calls),
        cmocka_unit_test(nobody_writes_to_the_tree),
        cmocka_unit_test(a_new_file_gets_its_mode),
        cmocka_unit_test(folder_calls),
        cmocka_unit_test(link_calls),
        cmocka_unit_test(resolved_paths_are_those_that_programs_know),
        cmocka_unit_test(bad_arguments_are_the_next_ones_to_refuse),
        cmocka_unit_test(a_signal_handler_may_call),
        cmocka_unit_test(children_see_it),
        cmocka_unit_test(calls_before_any_constructor_return),
    };
    if (argc > 1) {
        char root[] = "/tmp/weir-calls-test-XXXXXX";
        char *object = realpath(argv[1], NULL); /* one test changes the folder */
        if (object == NULL) {
            perror(argv[1]);
            return EXIT_FAILURE;
        }
        write_tree(root);
        setenv("WEIR_PATHS", root, 1);
        setenv("LD_PRELOAD", object, 1);
        execl("/proc/self/exe", argv[0], (char *)NULL);
        perror(argv[0]);
        return EXIT_FAILURE;
    }
    return cmocka_run_group_tests(tests, NULL, remove_tree);
}
