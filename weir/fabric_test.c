/* Which verbs library is taken, and that there is never a second one in the process. Cases that
 * need a fresh process run this program again, with the case's name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <weir/fabric.h>

#include "weir/fabric_private.h"
#include "weir/library.h"
#include "weir/sysfs.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER true
#else
#define HAS_SANITIZER false
#endif

static bool has_devices(void)
{
    DIR *directory = opendir("/sys/class/infiniband");
    if (directory == NULL) {
        return false;
    }
    int count = 0;
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count > 2;
}

/* Different files of this name mapped into the process. */
static int count_files(const char *name)
{
    char first[PATH_MAX] = "";
    char line[PATH_MAX + 200];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        char *path = strchr(line, '/');
        if (path != NULL && strstr(path, name) != NULL && strcmp(path, first) != 0) {
            snprintf(first, sizeof(first), "%s", path);
            count++;
        }
    }
    fclose(maps);
    return count;
}

static int count_mapped(void)
{
    return count_files("libibverbs.so.1");
}

static enum weir_status open_kind(enum weir_fabric_kind kind, struct weir_fabric **ret_fabric,
                                  struct weir_error *ret_error)
{
    struct weir_fabric_options options = {.kind = kind};
    return weir_fabric_open(&options, ret_fabric, ret_error);
}

/* --- cases of their own process: 0 is good --- */

static int case_auto(void)
{
    struct weir_fabric *fabric;
    struct weir_error error;
    if (weir_fabric_open(NULL, &fabric, &error) != WEIR_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    bool is_right = weir_fabric_kind(fabric) != WEIR_FABRIC_AUTO && count_mapped() == 1;
    if (!has_devices()) {
        is_right = is_right && weir_fabric_kind(fabric) == WEIR_FABRIC_SOFT &&
                   strstr(weir_fabric_reason(fabric), "/sys/class/infiniband is empty") != NULL;
    }
    weir_fabric_close(fabric);
    return is_right ? 0 : 1;
}

static int case_rdma(void)
{
    struct weir_fabric *fabric;
    struct weir_error error;
    enum weir_status status = open_kind(WEIR_FABRIC_RDMA, &fabric, &error);
    return status == WEIR_NO_DEVICE && count_mapped() == 0 &&
                   strstr(error.message, "no RDMA device") != NULL
               ? 0
               : 1;
}

static int case_twice(void)
{
    struct weir_fabric *first, *second, *third;
    struct weir_error error;
    if (open_kind(WEIR_FABRIC_SOFT, &first, &error) != WEIR_OK ||
        open_kind(WEIR_FABRIC_SOFT, &second, &error) != WEIR_OK ||
        open_kind(WEIR_FABRIC_AUTO, &third, &error) != WEIR_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    struct weir_fabric *fourth;
    bool is_right = weir_fabric_kind(third) == WEIR_FABRIC_SOFT &&
                    strcmp(weir_fabric_library(first), weir_fabric_library(third)) == 0 &&
                    count_mapped() == 1;
    is_right = is_right && open_kind(WEIR_FABRIC_RDMA, &fourth, &error) == WEIR_NO_DEVICE &&
               strstr(error.message, "software RNIC") != NULL;
    weir_fabric_close(first);
    weir_fabric_close(second);
    weir_fabric_close(third);
    return is_right ? 0 : 1;
}

static sem_t begin, ended;
static volatile bool halts;

/* Between the two libraries another thread may open a fabric, and is given the time for it. */
void *dlopen(const char *file, int mode)
{
    void *(*next)(const char *, int);
    void *symbol = dlsym(RTLD_NEXT, "dlopen");
    memcpy(&next, &symbol, sizeof(next));
    if (halts && file != NULL && strstr(file, "librdmacm.so.1") != NULL) {
        struct timespec until;
        halts = false;
        sem_post(&begin);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        sem_timedwait(&ended, &until);
    }
    return next(file, mode);
}

static void *open_and_close(void *argument)
{
    struct weir_fabric *fabric;
    struct weir_error error;
    while (sem_wait(&begin) != 0) {
    }
    bool is_open = open_kind(WEIR_FABRIC_SOFT, &fabric, &error) == WEIR_OK;
    if (is_open) {
        weir_fabric_close(fabric);
    } else {
        fprintf(stderr, "%s\n", error.message);
    }
    sem_post(&ended);
    return is_open ? NULL : argument;
}

/* Each finds both libraries loaded, or none: never the system's second one beside our first. */
static int case_threads(void)
{
    pthread_t other;
    struct weir_fabric *fabric;
    struct weir_error error;
    void *failure;
    sem_init(&begin, 0, 0);
    sem_init(&ended, 0, 0);
    pthread_create(&other, NULL, open_and_close, &begin);
    halts = true;
    if (open_kind(WEIR_FABRIC_SOFT, &fabric, &error) != WEIR_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    pthread_join(other, &failure);
    weir_fabric_close(fabric);
    return failure == NULL && count_mapped() == 1 && count_files("librdmacm.so.1") == 1 ? 0 : 1;
}

static void begin_to_open(pthread_t *ret_thread)
{
    sem_init(&begin, 0, 1);
    sem_init(&ended, 0, 0);
    halts = true;
    pthread_create(ret_thread, NULL, open_and_close, &begin);
    while (halts) {
        usleep(1000);
    }
}

/* While a thread opens one the process forks, and then it is cancelled: nobody waits for it. */
static int case_interrupted(void)
{
    pthread_t other;
    struct weir_fabric *fabric;
    struct weir_error error;
    int status;
    begin_to_open(&other);
    pid_t child = fork();
    alarm(20);
    if (child == 0) {
        alarm(10);
        _exit(open_kind(WEIR_FABRIC_SOFT, &fabric, &error) != WEIR_OK);
    }
    waitpid(child, &status, 0);
    pthread_join(other, NULL);
    begin_to_open(&other);
    pthread_cancel(other);
    pthread_join(other, NULL);
    if (open_kind(WEIR_FABRIC_SOFT, &fabric, &error) != WEIR_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    weir_fabric_close(fabric);
    return status == 0 ? 0 : 1;
}

/* Under LD_PRELOAD of our libibverbs, as `weir run` does it: found nowhere else, yet taken. */
static int case_preloaded(void)
{
    struct weir_fabric *fabric;
    struct weir_error error;
    if (weir_fabric_open(NULL, &fabric, &error) != WEIR_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    bool is_right = weir_fabric_kind(fabric) == WEIR_FABRIC_SOFT && count_mapped() == 1 &&
                    strstr(weir_fabric_reason(fabric), "already") != NULL;
    weir_fabric_close(fabric);
    return is_right ? 0 : 1;
}

/* With the system's libibverbs in the process, ours must not be loaded beside it; and what keeps it
 * out is said. */
static int case_system_is_there(void)
{
    if (dlopen("libibverbs.so.1", RTLD_NOW) == NULL) {
        return 77;
    }
    struct weir_fabric *fabric;
    struct weir_error error;
    enum weir_status status = open_kind(WEIR_FABRIC_SOFT, &fabric, &error);
    bool is_said = strstr(error.message, "so the software RNIC cannot be loaded") != NULL;
    return status != WEIR_OK && count_mapped() == 1 && (is_said || has_devices()) ? 0 : 1;
}

/* As a program found by PATH, in a folder where somebody has left a library. What is told where
 * there is none is the place where it belongs. */
static int case_working_directory(void)
{
    char directory[PATH_MAX];
    library_find_soft(NULL, directory);
    size_t length = strlen(directory);
    bool is_installed = length > 5 && strcmp(directory + length - 5, "/weir") == 0;
    return directory[0] == '/' && is_installed ? 0 : 1;
}

static const struct {
    const char *name;
    int (*run)(void);
} cases[] = {
    {"auto", case_auto},
    {"rdma", case_rdma},
    {"twice", case_twice},
    {"threads", case_threads},
    {"interrupted", case_interrupted},
    {"preloaded", case_preloaded},
    {"system", case_system_is_there},
    {"working-directory", case_working_directory},
};

static void wait_for_good(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void run_case(const char *name, const char *preload)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        unsetenv("LD_LIBRARY_PATH"); /* the system's library is to be the system's */
        if (preload != NULL) {
            setenv("LD_PRELOAD", preload, 1);
        }
        execl("/proc/self/exe", "fabric_test", name, (char *)NULL);
        _exit(127);
    }
    wait_for_good(pid);
}

static void test_auto(void **state)
{
    run_case("auto", NULL);
}

/* As for the command: a folder that is empty is none that was named. */
static void test_empty_variable(void **state)
{
    const char *found = getenv("WEIR_LIBRARY_DIR");
    char *before = found != NULL ? strdup(found) : NULL;
    setenv("WEIR_LIBRARY_DIR", "", 1);
    run_case("auto", NULL);
    unsetenv("WEIR_LIBRARY_DIR");
    if (before != NULL) {
        setenv("WEIR_LIBRARY_DIR", before, 1);
        free(before);
    }
}

static void test_rdma_never_falls_back(void **state)
{
    if (has_devices()) {
        skip();
    }
    run_case("rdma", NULL);
}

static void test_twice(void **state)
{
    run_case("twice", NULL);
}

static void test_threads(void **state)
{
    run_case("threads", NULL);
}

static void test_interrupted(void **state)
{
    run_case("interrupted", NULL);
}

static void test_preloaded(void **state)
{
    char directory[PATH_MAX];
    char preload[2 * PATH_MAX + 64];
    assert_true(library_find_soft(NULL, directory));
    snprintf(preload, sizeof(preload), "%s/libibverbs.so.1:%s/librdmacm.so.1", directory,
             directory);
    if (HAS_SANITIZER || getenv("LD_PRELOAD") != NULL) {
        skip(); /* a sanitizer's runtime must come before everything */
    }
    run_case("preloaded", preload);
}

static void test_system_is_there(void **state)
{
    run_case("system", NULL);
}

static void test_nothing_of_the_working_directory(void **state)
{
    char top[] = "/tmp/weir-test-XXXXXX", self[PATH_MAX], command[2 * PATH_MAX];
    assert_non_null(mkdtemp(top));
    assert_non_null(realpath("/proc/self/exe", self));
    snprintf(command, sizeof(command),
             "cp %s %s/fabric_test && mkdir %s/weir && touch %s/weir/libibverbs.so.1", self, top,
             top, top);
    assert_int_equal(system(command), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        unsetenv("WEIR_LIBRARY_DIR");
        setenv("PATH", top, 1);
        if (chdir(top) == 0) {
            execlp("fabric_test", "fabric_test", "working-directory", (char *)NULL);
        }
        _exit(127);
    }
    wait_for_good(pid);
    snprintf(command, sizeof(command), "rm -r %s", top);
    assert_int_equal(system(command), 0);
}

/* --- cases that load nothing --- */

static void test_bad_options(void **state)
{
    static const char *const devices[] = {"x:",  "x:0",   "x:1:", "x:1:2:3",
                                          "x:a", "x:300", "x:-1", "x:1:256"};
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        struct weir_fabric_options options = {.kind = WEIR_FABRIC_SOFT, .device = devices[i]};
        struct weir_fabric *fabric = NULL;
        struct weir_error error;
        assert_int_equal(weir_fabric_open(&options, &fabric, &error), WEIR_INVALID);
        assert_null(fabric);
    }
    struct weir_fabric_options none = {.kind = (enum weir_fabric_kind)3};
    struct weir_fabric_options nowhere = {.kind = WEIR_FABRIC_SOFT, .soft_dir = "/nonexistent"};
    struct weir_fabric *fabric;
    struct weir_error error;
    assert_int_equal(weir_fabric_open(&nowhere, &fabric, &error), WEIR_NO_LIBRARY);
    assert_non_null(strstr(error.message, "/nonexistent"));
    assert_int_equal(weir_fabric_open(&none, &fabric, &error), WEIR_INVALID);
}

static void test_remote_packs(void **state)
{
    struct weir_remote remote = {0x0102030405060708, 0x1112131415161718, 0x21222324};
    static const uint8_t wanted[WEIR_REMOTE_LENGTH] = {1,    2,    3,    4,    5,    6,    7,
                                                       8,    0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
                                                       0x17, 0x18, 0x21, 0x22, 0x23, 0x24};
    uint8_t bytes[WEIR_REMOTE_LENGTH];
    weir_remote_pack(&remote, bytes);
    assert_memory_equal(bytes, wanted, sizeof(wanted));
    struct weir_remote again = weir_remote_unpack(bytes);
    assert_int_equal(again.address, remote.address);
    assert_int_equal(again.length, remote.length);
    assert_int_equal(again.key, remote.key);
}

static void test_memory(void **state)
{
    struct weir_fabric *fabric;
    struct weir_memory *memory = NULL;
    struct weir_error error;
    char bytes[100];
    assert_int_equal(open_kind(WEIR_FABRIC_SOFT, &fabric, &error), WEIR_OK);
    assert_int_equal(weir_memory_register(fabric, bytes, 0, WEIR_LOCAL, &memory, &error),
                     WEIR_INVALID);
    assert_int_equal(weir_memory_allocate(fabric, 0, WEIR_LOCAL, &memory, &error), WEIR_INVALID);
    assert_null(memory);
    assert_int_equal(weir_memory_register(fabric, bytes, 100, WEIR_REMOTE_READ, &memory, &error),
                     WEIR_INVALID); /* which peer? */
    assert_int_equal(weir_memory_register(fabric, bytes, 100, WEIR_LOCAL, &memory, &error),
                     WEIR_OK);
    assert_ptr_equal(weir_memory_bytes(memory), bytes);
    assert_int_equal(weir_memory_length(memory), 100);
    assert_int_equal(weir_memory_remote(memory).address, (uintptr_t)bytes);
    weir_memory_deregister(memory);
    assert_int_equal(weir_memory_allocate(fabric, 3 << 20, WEIR_LOCAL, &memory, &error), WEIR_OK);
    memset(weir_memory_bytes(memory), 1, 3 << 20);
    weir_memory_deregister(memory);
    weir_memory_deregister(NULL);
    weir_fabric_close(fabric);
}

/* A device that takes less than a program asks for. */
static struct ibv_mr *register_nothing(struct ibv_pd *domain, void *address, size_t length,
                                       int access)
{
    errno = EINVAL;
    return NULL;
}

static void test_memory_too_long_for_the_device(void **state)
{
    struct weir_fabric *fabric;
    struct weir_memory *memory;
    struct weir_error error;
    assert_int_equal(open_kind(WEIR_FABRIC_SOFT, &fabric, &error), WEIR_OK);
    fabric->library.verbs.reg_mr = register_nothing;
    fabric->attributes.max_mr_size = 1 << 20;
    assert_int_equal(weir_memory_allocate(fabric, 1 << 21, WEIR_LOCAL, &memory, &error),
                     WEIR_NO_MEMORY);
    assert_non_null(strstr(error.message, "registering 2097152 bytes: the device takes 1048576"));
    assert_int_equal(weir_memory_allocate(fabric, 1 << 20, WEIR_LOCAL, &memory, &error),
                     WEIR_SYSTEM);
    assert_non_null(strstr(error.message, strerror(EINVAL)));
    weir_fabric_close(fabric);
}

/* The table of a card as its driver fills it: each address as RoCEv1 and as v2. */
static const struct {
    const char *address;
    uint32_t type;
} table[] = {
    {"fe80::1", IBV_GID_TYPE_ROCE_V1},          {"fe80::1", IBV_GID_TYPE_ROCE_V2},
    {"::ffff:192.0.2.7", IBV_GID_TYPE_ROCE_V1}, {"::ffff:192.0.2.7", IBV_GID_TYPE_ROCE_V2},
    {"2001:db8::7", IBV_GID_TYPE_ROCE_V1},      {"2001:db8::7", IBV_GID_TYPE_ROCE_V2},
    {"2001:db8::8", IBV_GID_TYPE_ROCE_V2},
};

static int query_table(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    inet_pton(AF_INET6, table[index].address, gid->raw);
    return 0;
}

static int query_table_entry(struct ibv_context *context, uint32_t port, uint32_t index,
                             struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    entry->gid_type = table[index].type;
    return 0;
}

/* TCP's address on this side need not be one of the device. */
static void test_gid_for_an_address(void **state)
{
    static const struct {
        const char *address;
        int entries, index;
    } wanted[] = {
        {"192.0.2.7", 7, 3},   {"192.0.2.8", 7, 3},       {"2001:db8::8", 7, 6},
        {"2001:db8::9", 7, 5}, {"2001:db8:0:1::9", 7, 5}, {"fe80::2", 7, 1},
        {"2001:db8::9", 4, 1}, /* of its family at least */
        {"192.0.2.8", 2, 0},   /* nothing goes with it */
    };
    struct weir_fabric fabric = {
        .library.verbs = {.query_gid = query_table, .query_gid_entry = query_table_entry},
        .gid_index = FABRIC_GID_ANY,
        .port_attributes.link_layer = IBV_LINK_LAYER_ETHERNET,
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        struct sockaddr_in v4 = {.sin_family = AF_INET};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
        bool is_v4 = inet_pton(AF_INET, wanted[i].address, &v4.sin_addr) == 1;
        assert_int_equal(is_v4 || inet_pton(AF_INET6, wanted[i].address, &v6.sin6_addr) == 1, 1);
        fabric.port_attributes.gid_tbl_len = wanted[i].entries;
        union ibv_gid gid;
        int index = fabric_choose_gid(
            &fabric, is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6, &gid);
        if (index != wanted[i].index) {
            fail_msg("%s: %d", wanted[i].address, index);
        }
    }
}

static void write_counter(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Folders as the drivers of several makes fill them. */
static void test_retransmissions_of_real_devices(void **state)
{
    char top[] = "/tmp/weir-test-XXXXXX", folder[256], command[PATH_MAX];
    uint64_t count = 0;
    assert_non_null(mkdtemp(top));
    snprintf(folder, sizeof(folder), "%s/one_0/ports/2/hw_counters", top);
    snprintf(command, sizeof(command), "mkdir -p %s", folder);
    assert_int_equal(system(command), 0);
    assert_false(sysfs_retransmissions(top, "one_0", 2, &count));
    write_counter(folder, "duplicate_request", "99\n");
    write_counter(folder, "rcvd_seq_err", "7\n"); /* each leads to one of the next */
    assert_false(sysfs_retransmissions(top, "one_0", 2, &count));
    write_counter(folder, "completer_retry_err", "5\n");
    assert_true(sysfs_retransmissions(top, "one_0", 2, &count));
    assert_int_equal(count, 5);
    assert_false(sysfs_retransmissions(top, "one_0", 1, &count));
    assert_false(sysfs_retransmissions(top, "two_0", 2, &count));
    snprintf(folder, sizeof(folder), "%s/two_0/ports/1/hw_counters", top);
    snprintf(command, sizeof(command), "mkdir -p %s", folder);
    assert_int_equal(system(command), 0);
    write_counter(folder, "packet_seq_err", "4\n");
    write_counter(folder, "local_ack_timeout_err", "18446744070000000000\n");
    write_counter(folder, "implied_nak_seq_err", "nonsense");
    assert_true(sysfs_retransmissions(top, "two_0", 1, &count));
    assert_true(count == 18446744070000000004ull);
    snprintf(command, sizeof(command), "rm -r %s", top);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            return cases[i].run();
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_remote_packs),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_empty_variable),
        cmocka_unit_test(test_rdma_never_falls_back),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_preloaded),
        cmocka_unit_test(test_system_is_there),
        cmocka_unit_test(test_nothing_of_the_working_directory),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_too_long_for_the_device),
        cmocka_unit_test(test_gid_for_an_address),
        cmocka_unit_test(test_retransmissions_of_real_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
