/* Slots, claims and their end with the process that held them. Each test has a registry of its own
 * in a temporary file; other processes are forked children that are told what to do by pipe. */
#include "rnic/io/registry/registry_private.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/wire/mad.h"

static const struct gid here = {{[10] = 0xff, 0xff, 127, 0, 0, 1}};
static const struct gid there = {{[10] = 0xff, 0xff, 127, 0, 0, 2}};
static const struct gid here6 = {{[15] = 1}};

struct fixture {
    char path[64];
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    snprintf(fixture->path, sizeof fixture->path, "/tmp/weir-registry-test-%ld", (long)getpid());
    unlink(fixture->path);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    unlink(((struct fixture *)*state)->path);
    free(*state);
    return 0;
}

static struct registry *open_registry(void **state)
{
    struct registry *registry;
    assert_int_equal(registry_open(((struct fixture *)*state)->path, &registry), STATUS_OK);
    return registry;
}

static struct registry_name name_of(uint16_t port, enum registry_scope scope,
                                    const struct gid *address)
{
    struct registry_name name = {.service_id = rdma_cm_service_id(6, port), .scope = scope};
    if (address != NULL) {
        name.address = *address;
    }
    return name;
}

/* A process that listens at `port` (0: only holds its slot) and lives until it is killed. */
static pid_t start_holder(void **state, uint16_t port, uint32_t *ret_slot)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct registry *registry;
        struct registry_name name = name_of(port, REGISTRY_ANY, NULL);
        uint32_t claim, slot = SLOT_NONE;
        if (registry_open(((struct fixture *)*state)->path, &registry) == STATUS_OK &&
            (port == 0 || (registry_claim(registry, &name, false, &claim) == STATUS_OK &&
                           registry_listen(registry, claim) == STATUS_OK))) {
            slot = registry_slot(registry);
        }
        if (write(ready[1], &slot, sizeof slot) == (ssize_t)sizeof slot) {
            alarm(60); /* should nobody be left to kill it */
            pause();
        }
        _exit(1);
    }
    assert_int_equal(read(ready[0], ret_slot, sizeof *ret_slot), sizeof *ret_slot);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void slots_do_not_overlap(void **state)
{
    struct registry *a = open_registry(state), *b = open_registry(state);
    assert_int_not_equal(registry_slot(a), registry_slot(b));
    uint32_t first_a = registry_first_qpn(a).value, first_b = registry_first_qpn(b).value;
    assert_true(first_a >= SLOT_QPN_RESERVED && first_b >= SLOT_QPN_RESERVED);
    assert_true(first_a + registry_qpn_count(a) <= first_b ||
                first_b + registry_qpn_count(b) <= first_a);
    assert_true(first_a + registry_qpn_count(a) <= QPN_MULTICAST.value);
    struct qpn last = {first_a + registry_qpn_count(a) - 1};
    assert_int_equal(slot_of_qpn(last), registry_slot(a));
    assert_int_equal(registry_process_count(a), 2);
    registry_close(b);
    assert_int_equal(registry_process_count(a), 1);
    registry_close(a);
}

static void every_slot_can_be_had_and_no_more(void **state)
{
    struct registry *all[SLOT_COUNT], *another;
    const char *path = ((struct fixture *)*state)->path;
    uint32_t count = 0;
    while (count < SLOT_COUNT && registry_open(path, &all[count]) == STATUS_OK) {
        count++;
    }
    if (count < SLOT_COUNT) { /* the limit of open files came first */
        assert_true(count > 100);
    } else {
        assert_int_equal(registry_open(path, &another), STATUS_FULL);
    }
    while (count > 0) {
        registry_close(all[--count]);
    }
}

static void killed_process_gives_all_back(void **state)
{
    uint32_t slot;
    struct registry *registry = open_registry(state);
    pid_t child = start_holder(state, 700, &slot);
    assert_int_not_equal(slot, SLOT_NONE);
    struct registry_name name = name_of(700, REGISTRY_EXACT, &here);
    uint32_t claim;
    assert_int_equal(registry_claim(registry, &name, false, &claim), STATUS_IN_USE);
    assert_int_equal(registry_find_listener(registry, name.service_id, &here), slot);
    assert_true(registry_slot_is_used(registry, slot));
    end(child);
    assert_int_equal(registry_find_listener(registry, name.service_id, &here), SLOT_NONE);
    assert_int_equal(registry_claim(registry, &name, false, &claim), STATUS_OK);
    assert_false(registry_slot_is_used(registry, slot));
    assert_int_equal(registry_process_count(registry), 1);
    registry_close(registry);
}

static void killed_while_it_holds_the_lock(void **state)
{
    struct registry *registry = open_registry(state);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) { /* takes the table's lock as registry_lock does, and dies with it */
        int file = open(((struct fixture *)*state)->path, O_RDWR);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
        char done = (char)fcntl(file, F_OFD_SETLKW, &lock);
        if (write(ready[1], &done, 1) == 1) {
            pause();
        }
        _exit(1);
    }
    char done;
    assert_int_equal(read(ready[0], &done, 1), 1);
    assert_int_equal(done, 0);
    kill(child, SIGKILL); /* not waited for: the next call has to outlast it */
    assert_int_equal(registry_process_count(registry), 1);
    waitpid(child, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    registry_close(registry);
}

/* A stopped process that holds the lock makes calls fail, and says who it is; releasing and closing
 * do without. */
static void stopped_while_it_holds_the_lock(void **state)
{
    const char *path = ((struct fixture *)*state)->path;
    struct registry *registry = open_registry(state), *another;
    struct registry_name name = name_of(7200, REGISTRY_ANY, NULL),
                         next = name_of(7201, REGISTRY_ANY, NULL);
    uint32_t claim, other;
    assert_int_equal(registry_claim(registry, &name, false, &claim), STATUS_OK);
    pid_t child = fork();
    if (child == 0) {
        struct registry *own = open_registry(state);
        _exit(registry_try_lock(own) ? raise(SIGSTOP) : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(registry_claim(registry, &next, false, &other), STATUS_TIMED_OUT);
    assert_int_equal(registry_lock_holder(path), child);
    kill(child, SIGKILL);
    assert_int_equal(registry_open(path, &another), STATUS_OK); /* dead, it does not hold it */
    registry_close(another);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(registry_claim(registry, &next, false, &other), STATUS_OK);
    registry_close(registry);
}

static void last_process_removes_the_file(void **state)
{
    const char *path = ((struct fixture *)*state)->path;
    struct registry *one = open_registry(state), *two = open_registry(state);
    registry_close(one);
    assert_int_equal(access(path, F_OK), 0);
    registry_close(two);
    assert_int_not_equal(access(path, F_OK), 0);

    one = open_registry(state); /* somebody else's file of that name is not ours to remove */
    unlink(path);
    close(open(path, O_CREAT | O_RDWR, 0600));
    registry_close(one);
    assert_int_equal(access(path, F_OK), 0);
}

/* Processes that start and end at once never find themselves in two files. */
static void starting_and_ending_do_not_race(void **state)
{
    const char *path = ((struct fixture *)*state)->path;
    pid_t children[8];
    for (uint32_t i = 0; i < 8; i++) {
        children[i] = fork();
        for (uint32_t round = 0; children[i] == 0 && round < 200; round++) {
            struct registry *registry;
            struct registry_name name = name_of((uint16_t)(7400 + i), REGISTRY_ANY, NULL);
            uint32_t claim;
            struct stat ours, named;
            if (registry_open(path, &registry) != STATUS_OK ||
                registry_claim(registry, &name, false, &claim) != STATUS_OK ||
                fstat(registry->descriptor, &ours) != 0 || stat(path, &named) != 0 ||
                ours.st_ino != named.st_ino) {
                _exit(1);
            }
            registry_close(registry);
        }
        if (children[i] == 0) {
            _exit(0);
        }
    }
    for (uint32_t i = 0; i < 8; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_not_equal(access(path, F_OK), 0);
}

/* From before a reboot, or of a namespace whose number is used again: made anew. In use, as if of
 * another kernel: cannot be. */
static void files_of_another_era_are_renewed(void **state)
{
    uint32_t slot;
    end(start_holder(state, 7300, &slot));
    int file = open(((struct fixture *)*state)->path, O_RDWR);
    assert_int_equal(pwrite(file, "0ther", 5, offsetof(struct registry_file, era.boot_id)), 5);
    struct registry *registry = open_registry(state);
    assert_false(registry_slot_is_used(registry, slot) && slot != registry_slot(registry));
    assert_int_equal(registry->file->claim_end, 0);
    registry_close(registry);
    close(file);
}

/* A file of the right head and nothing else that makes sense. */
static void garbage_is_not_followed(void **state)
{
    uint32_t slot;
    end(start_holder(state, 7300, &slot));
    int file = open(((struct fixture *)*state)->path, O_RDWR);
    uint8_t garbage[4096];
    size_t from = offsetof(struct registry_file, next_slot), to = sizeof(struct registry_file);
    memset(garbage, 0xa5, sizeof garbage);
    for (size_t at = from; at < to; at += sizeof garbage) {
        size_t length = to - at < sizeof garbage ? to - at : sizeof garbage;
        assert_int_equal(pwrite(file, garbage, length, (off_t)at), (ssize_t)length);
    }
    close(file);
    struct registry *registry = open_registry(state);
    struct registry_name name = name_of(7300, REGISTRY_ANY, NULL);
    uint32_t claim;
    assert_int_equal(registry_process_count(registry), 1);
    assert_int_equal(registry_find_listener(registry, name.service_id, &here), SLOT_NONE);
    enum status status = registry_claim(registry, &name, false, &claim);
    assert_true(status == STATUS_OK || status == STATUS_FULL);
    registry_close(registry);
}

/* Of three files that are left, the one that is old, whole and nobody's goes. */
static void what_is_left_for_ever_is_swept(void **state)
{
    char names[4][80];
    struct registry *registry;
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    for (uint32_t i = 0; i < 4; i++) {
        snprintf(names[i], sizeof names[i], "%s-%u", ((struct fixture *)*state)->path, (unsigned)i);
        unlink(names[i]);
    }
    close(open(names[0], O_CREAT | O_RDWR, 0600));
    close(open(names[1], O_CREAT | O_RDWR, 0600));
    assert_int_equal(registry_open(names[2], &registry), STATUS_OK);
    int foreign = open(names[3], O_CREAT | O_RDWR, 0600);
    assert_int_equal(fchmod(foreign, 0644), 0);
    close(foreign);
    for (uint32_t i = 1; i < 4; i++) {
        assert_int_equal(utimensat(AT_FDCWD, names[i], old, 0), 0);
    }
    registry_sweep(names[0], 3600);
    assert_int_equal(access(names[0], F_OK), 0); /* young */
    assert_int_not_equal(access(names[1], F_OK), 0);
    assert_int_equal(access(names[2], F_OK), 0); /* in use */
    assert_int_equal(access(names[3], F_OK), 0); /* not of our mode */
    registry_close(registry);
    unlink(names[0]);
    unlink(names[3]);
}

static void names_collide_as_addresses_do(void **state)
{
    static const struct {
        enum registry_scope first, second;
        const struct gid *first_address, *second_address;
        enum status expected;
    } rows[] = {
        {REGISTRY_EXACT, REGISTRY_EXACT, &here, &here, STATUS_IN_USE},
        {REGISTRY_EXACT, REGISTRY_EXACT, &here, &there, STATUS_OK},
        {REGISTRY_EXACT, REGISTRY_ANY_IPV4, &here, NULL, STATUS_IN_USE},
        {REGISTRY_EXACT, REGISTRY_ANY_IPV6, &here, NULL, STATUS_OK},
        {REGISTRY_EXACT, REGISTRY_ANY_IPV6, &here6, NULL, STATUS_IN_USE},
        {REGISTRY_EXACT, REGISTRY_ANY, &here, NULL, STATUS_IN_USE},
        {REGISTRY_ANY_IPV4, REGISTRY_ANY_IPV6, NULL, NULL, STATUS_OK},
        {REGISTRY_ANY_IPV4, REGISTRY_ANY_IPV4, NULL, NULL, STATUS_IN_USE},
        {REGISTRY_ANY_IPV4, REGISTRY_ANY, NULL, NULL, STATUS_IN_USE},
    };
    struct registry *a = open_registry(state), *b = open_registry(state);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct registry_name first = name_of(7, rows[i].first, rows[i].first_address);
        struct registry_name second = name_of(7, rows[i].second, rows[i].second_address);
        uint32_t one, other;
        assert_int_equal(registry_claim(a, &first, false, &one), STATUS_OK);
        assert_int_equal(registry_claim(b, &second, false, &other), rows[i].expected);
        if (rows[i].expected == STATUS_OK) {
            registry_release(b, other);
        }
        registry_release(a, one);
    }
    registry_close(a);
    registry_close(b);
}

static void reuse_ends_with_listening(void **state)
{
    struct registry *a = open_registry(state), *b = open_registry(state);
    struct registry_name name = name_of(7, REGISTRY_ANY, NULL);
    uint32_t one, other, third;
    assert_int_equal(registry_claim(a, &name, true, &one), STATUS_OK);
    assert_int_equal(registry_claim(b, &name, true, &other), STATUS_OK);
    assert_int_equal(registry_claim(b, &name, false, &third), STATUS_IN_USE);
    assert_int_equal(registry_listen(a, one), STATUS_IN_USE); /* as the kernel's rdma_cm does */
    registry_release(b, other);
    assert_int_equal(registry_listen(a, one), STATUS_OK);
    assert_int_equal(registry_claim(b, &name, true, &other), STATUS_IN_USE);
    registry_close(a);
    registry_close(b);
}

static void chosen_ports_differ(void **state)
{
    struct registry *a = open_registry(state), *b = open_registry(state);
    struct registry_name name = name_of(0, REGISTRY_EXACT, &here);
    uint16_t ports[20];
    uint32_t claim;
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(
            registry_claim_port(i % 2 ? a : b, 6, &name, false, i % 3 == 0, &ports[i], &claim),
            STATUS_OK);
        assert_true(ports[i] >= 32768 && ports[i] <= 60999);
        for (uint32_t j = 0; j < i; j++) {
            assert_int_not_equal(ports[i], ports[j]);
        }
    }
    registry_close(a);
    registry_close(b);
}

static void narrow_listener_comes_first_and_former_one_last(void **state)
{
    struct registry *a = open_registry(state), *b = open_registry(state);
    struct registry_name narrow = name_of(9, REGISTRY_EXACT, &here);
    struct registry_name wide = name_of(9, REGISTRY_EXACT, &there);
    uint32_t one, other;
    assert_int_equal(registry_claim(a, &narrow, false, &one), STATUS_OK);
    assert_int_equal(registry_find_listener(b, narrow.service_id, &here), SLOT_NONE);
    assert_int_equal(registry_listen(a, one), STATUS_OK);
    assert_int_equal(registry_claim(b, &wide, false, &other), STATUS_OK);
    assert_int_equal(registry_listen(b, other), STATUS_OK);
    assert_int_equal(registry_find_listener(b, narrow.service_id, &here), registry_slot(a));
    assert_int_equal(registry_find_listener(a, narrow.service_id, &there), registry_slot(b));
    assert_int_equal(registry_find_listener(a, narrow.service_id, &here6), SLOT_NONE);

    registry_release(a, one); /* a repeated REQ still finds who knows the connection */
    assert_int_equal(registry_find_listener(b, narrow.service_id, &here), registry_slot(a));
    struct registry_name anywhere = name_of(9, REGISTRY_ANY_IPV6, NULL);
    assert_int_equal(registry_claim(b, &anywhere, false, &one), STATUS_OK);
    assert_int_equal(registry_claim(b, &narrow, false, &one), STATUS_OK);
    assert_int_equal(registry_listen(b, one), STATUS_OK);
    assert_int_equal(registry_find_listener(b, narrow.service_id, &here), registry_slot(b));
    registry_close(a);
    registry_close(b);
}

static void claims_have_room_for_many_that_come_and_go(void **state)
{
    struct registry *registry = open_registry(state);
    for (uint32_t i = 0; i < 10000; i++) {
        struct registry_name name = name_of((uint16_t)(i % 60000), REGISTRY_ANY, NULL);
        uint32_t claim;
        assert_int_equal(registry_claim(registry, &name, false, &claim), STATUS_OK);
        assert_int_equal(registry_listen(registry, claim), STATUS_OK);
        registry_release(registry, claim);
    }
    registry_close(registry);
}

/* So that none can stand in for the first. */
static void take_all_names(const char *path, bool take)
{
    for (int i = 1; i < 8; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s.%d", path, i);
        assert_int_equal(take ? mkdir(name, 0700) : rmdir(name), 0);
    }
}

static void foreign_files_are_refused_and_broken_ones_renewed(void **state)
{
    const char *path = ((struct fixture *)*state)->path;
    struct registry *registry, *another;
    int file = open(path, O_CREAT | O_RDWR, 0644);
    fchmod(file, 0644);
    take_all_names(path, true);
    assert_int_equal(registry_open(path, &registry), STATUS_DENIED);
    fchmod(file, 0600);
    assert_int_equal(write(file, "nonsense", 8), 8);
    assert_int_equal(registry_open(path, &registry), STATUS_OK);

    assert_int_equal(pwrite(file, "nonsense", 8, 0), 8); /* as if of another version, and in use */
    assert_int_equal(registry_open(path, &another), STATUS_IN_USE);
    registry_close(registry);
    assert_int_equal(registry_open(path, &registry), STATUS_OK);
    registry_close(registry);
    close(file);

    unlink(path);
    assert_int_equal(symlink("/tmp/weir-elsewhere", path), 0);
    assert_int_equal(registry_open(path, &registry), STATUS_DENIED);
    take_all_names(path, false);
    assert_int_equal(registry_open("/nowhere/registry", &registry), STATUS_NOT_FOUND);
}

#define SHARED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* A process that is stopped while it changes the registry stops nobody's engine. */
static void search_waits_for_nobody(void **state)
{
    uint32_t slot, claim;
    struct registry *registry = open_registry(state);
    struct registry_name name = name_of(7100, REGISTRY_EXACT, &here);
    assert_int_equal(registry_claim(registry, &name, false, &claim), STATUS_OK);
    assert_int_equal(registry_listen(registry, claim), STATUS_OK);
    pid_t child = start_holder(state, 7101, &slot);
    int other = open(((struct fixture *)*state)->path, O_RDWR);
    struct flock table = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    assert_int_equal(fcntl(other, F_OFD_SETLK, &table), 0);
    alarm(20);
    assert_int_equal(registry_find_listener(registry, name.service_id, &here),
                     registry_slot(registry));
    assert_int_equal(registry_find_listener(registry, rdma_cm_service_id(6, 7101), &here), slot);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(registry_find_listener(registry, rdma_cm_service_id(6, 7101), &here),
                     SLOT_NONE);
    alarm(0);
    close(other);
    registry_close(registry);
}

/* Claims that come and go while another thread looks: it finds the one that stays, and never one
 * that is made of two. */
static void *come_and_go(void *argument)
{
    struct registry *registry = argument;
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t claims[2];
        const struct registry_name names[2] = {name_of(7300, REGISTRY_EXACT, &there),
                                               name_of(7301, REGISTRY_EXACT, &here)};
        for (uint32_t j = 0; j < 2; j++) {
            assert_int_equal(registry_claim(registry, &names[(i + j) % 2], false, &claims[j]),
                             STATUS_OK);
        }
        registry_release(registry, claims[0]);
        registry_release(registry, claims[1]);
    }
    return NULL;
}

static void search_sees_whole_claims(void **state)
{
    pthread_t thread;
    uint32_t claim;
    struct registry *registry = open_registry(state);
    struct registry_name stays = name_of(7299, REGISTRY_EXACT, &here);
    assert_int_equal(registry_claim(registry, &stays, false, &claim), STATUS_OK);
    assert_int_equal(registry_listen(registry, claim), STATUS_OK);
    assert_int_equal(pthread_create(&thread, NULL, come_and_go, registry), 0);
    for (uint32_t i = 0; i < 3000; i++) {
        assert_int_equal(registry_find_listener(registry, stays.service_id, &here),
                         registry_slot(registry));
        assert_int_equal(registry_find_listener(registry, rdma_cm_service_id(6, 7300), &here),
                         SLOT_NONE);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    registry_close(registry);
}

/* Somebody else has the name: all our processes agree on the next. */
static void a_taken_name_is_passed_over(void **state)
{
    const char *path = ((struct fixture *)*state)->path;
    struct registry *one, *other;
    char next[80];
    snprintf(next, sizeof next, "%s.1", path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(registry_open(path, &one), STATUS_OK);
    assert_int_equal(registry_open(path, &other), STATUS_OK);
    assert_int_equal(registry_process_count(one), 2);
    assert_int_equal(access(next, F_OK), 0);
    registry_close(one);
    registry_close(other);
    unlink(next);
    rmdir(path);
}

/* A domain is open as long as a living process holds it; each process holds it for itself. */
static void shared_domains(void **state)
{
    struct registry *one = open_registry(state), *two = open_registry(state);
    assert_int_equal(registry_hold_domain(one, 1, 7, REGISTRY_HOLD_OPEN), STATUS_NOT_FOUND);
    assert_int_equal(registry_hold_domain(one, 1, 7, REGISTRY_HOLD_NEW), STATUS_OK);
    assert_int_equal(registry_hold_domain(two, 1, 7, REGISTRY_HOLD_NEW), STATUS_IN_USE);
    assert_int_equal(registry_hold_domain(two, 1, 8, REGISTRY_HOLD_OPEN), STATUS_NOT_FOUND);
    assert_int_equal(registry_hold_domain(two, 2, 7, REGISTRY_HOLD_OPEN), STATUS_NOT_FOUND);
    assert_int_equal(registry_hold_domain(two, 1, 7, REGISTRY_HOLD_OPEN), STATUS_OK);
    registry_release_domain(one, 1, 7);
    assert_int_equal(registry_hold_domain(one, 1, 7, REGISTRY_HOLD_NEW), STATUS_IN_USE);
    registry_close(two);
    assert_int_equal(registry_hold_domain(one, 1, 7, REGISTRY_HOLD_NEW), STATUS_OK);
    registry_abandon(one); /* dead, and not buried */
    struct registry *three = open_registry(state);
    assert_int_equal(registry_hold_domain(three, 1, 7, REGISTRY_HOLD_OPEN), STATUS_NOT_FOUND);
    for (uint64_t i = 0; i < REGISTRY_DOMAINS; i++) {
        assert_int_equal(registry_hold_domain(three, 3, i, REGISTRY_HOLD_ANY), STATUS_OK);
    }
    assert_int_equal(registry_hold_domain(three, 4, 1, REGISTRY_HOLD_ANY), STATUS_FULL);
    assert_int_equal(registry_hold_domain(NULL, 4, 1, REGISTRY_HOLD_ANY), STATUS_STATE);
    registry_close(three);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARED(slots_do_not_overlap),
        SHARED(every_slot_can_be_had_and_no_more),
        SHARED(killed_process_gives_all_back),
        SHARED(killed_while_it_holds_the_lock),
        SHARED(stopped_while_it_holds_the_lock),
        SHARED(last_process_removes_the_file),
        SHARED(starting_and_ending_do_not_race),
        SHARED(files_of_another_era_are_renewed),
        SHARED(garbage_is_not_followed),
        SHARED(what_is_left_for_ever_is_swept),
        SHARED(names_collide_as_addresses_do),
        SHARED(reuse_ends_with_listening),
        SHARED(chosen_ports_differ),
        SHARED(narrow_listener_comes_first_and_former_one_last),
        SHARED(claims_have_room_for_many_that_come_and_go),
        SHARED(foreign_files_are_refused_and_broken_ones_renewed),
        cmocka_unit_test_setup_teardown(a_taken_name_is_passed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(search_waits_for_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(search_sees_whole_claims, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_domains, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
