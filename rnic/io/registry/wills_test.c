/* What a killed process leaves, and who finds it: processes are forked children with a registry in
 * a temporary file; nothing is executed here, that is cm_will_test.c and test/many. */
#include "rnic/io/registry/registry_private.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/cm/cm.h"

#define FOUND_MAX 64u

struct fixture {
    char path[64];
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    snprintf(fixture->path, sizeof fixture->path, "/tmp/weir-wills-test-%ld", (long)getpid());
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

static struct cm_will will_of(uint32_t slot, uint32_t number)
{
    return (struct cm_will){
        .debt = CM_DEBT_DISCONNECT,
        .local_id = slot << (32 - SLOT_BITS) | (number + 1),
        .remote_id = 1000 + number,
        .transaction = UINT64_C(0x123456789abcdef) + number,
        .path = {.local = {{1, 2}},
                 .remote = {{3, 4}},
                 .traffic_class = 4,
                 .hop_limit = 9,
                 .flow_label = 0xabcde},
        .local_qpn = {slot * SLOT_QPNS + number},
        .remote_qpn = {77},
        .ack_timeout = 14,
    };
}

static uint32_t bury_all(struct registry *registry)
{
    assert_int_equal(registry_lock(registry), STATUS_OK);
    uint32_t buried = registry_bury_dead(registry);
    bool inherited = registry_inherit(registry);
    (void)inherited;
    registry_unlock(registry);
    return buried;
}

/* A process that keeps `count` wills and takes back the third, then waits to be killed. */
static pid_t start_testator(void **state, uint32_t count, uint32_t *ret_slot)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct registry *registry = open_registry(state);
        uint32_t slot = registry_slot(registry);
        bury_all(registry);
        for (uint32_t i = 0; i < count; i++) {
            struct cm_will will = will_of(slot, i);
            registry_keep_will(registry, i, &will);
        }
        registry_keep_will(registry, 2, NULL);
        if (write(ready[1], &slot, sizeof slot) == (ssize_t)sizeof slot) {
            alarm(60);
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

struct found {
    struct cm_will wills[FOUND_MAX];
    uint32_t count;
};

static void find(void *context, const struct cm_will *will)
{
    struct found *found = context;
    assert_true(found->count < FOUND_MAX);
    found->wills[found->count++] = *will;
}

static void heir_reads_what_was_kept(void **state)
{
    uint32_t slot;
    struct registry *registry = open_registry(state);
    pid_t child = start_testator(state, 10, &slot);
    assert_int_equal(bury_all(registry), 0);
    end(child);
    assert_int_equal(bury_all(registry), 1);
    assert_int_equal(registry_heir(registry, slot), registry_slot(registry));
    struct found found = {.count = 0};
    wills_read(registry, slot, find, &found);
    assert_int_equal(found.count, 9);
    for (uint32_t i = 0; i < found.count; i++) {
        struct cm_will expected = will_of(slot, i < 2 ? i : i + 1), *got = &found.wills[i];
        assert_int_equal(got->debt, expected.debt);
        assert_int_equal(got->local_id, expected.local_id);
        assert_int_equal(got->remote_id, expected.remote_id);
        assert_true(got->transaction == expected.transaction);
        assert_true(gid_equal(&got->path.local, &expected.path.local));
        assert_true(gid_equal(&got->path.remote, &expected.path.remote));
        assert_int_equal(got->path.traffic_class, expected.path.traffic_class);
        assert_int_equal(got->path.hop_limit, expected.path.hop_limit);
        assert_int_equal(got->path.flow_label, expected.path.flow_label);
        assert_int_equal(got->local_qpn.value, expected.local_qpn.value);
        assert_int_equal(got->remote_qpn.value, expected.remote_qpn.value);
        assert_int_equal(got->ack_timeout, expected.ack_timeout);
    }
    registry_close(registry);
}

static off_t size_of(void **state)
{
    struct stat facts;
    assert_int_equal(stat(((struct fixture *)*state)->path, &facts), 0);
    return facts.st_size;
}

/* Each byte of the last will in turn: a will that was cut, or that somebody has changed. */
static void what_is_not_whole_does_not_count(void **state)
{
    uint32_t slot;
    struct registry *registry = open_registry(state);
    pid_t child = start_testator(state, 5, &slot);
    end(child);
    bury_all(registry);
    off_t size = size_of(state);
    for (off_t at = size - 80; at < size; at++) {
        uint8_t byte, changed;
        assert_int_equal(pread(registry->descriptor, &byte, 1, at), 1);
        changed = byte ^ 0x10;
        assert_int_equal(pwrite(registry->descriptor, &changed, 1, at), 1);
        struct found found = {.count = 0};
        wills_read(registry, slot, find, &found);
        assert_int_equal(found.count, 3);
        assert_int_equal(pwrite(registry->descriptor, &byte, 1, at), 1);
    }
    registry_close(registry);
}

static void wills_are_of_the_dead(void **state)
{
    uint32_t slot, other;
    struct registry *registry = open_registry(state);
    pid_t liar = start_testator(state, 0, &slot), child = start_testator(state, 0, &other);
    struct registry *false_owner = open_registry(state);
    struct cm_will will = will_of(other, 1); /* of one who lives: not ours to bequeath */
    registry_keep_will(false_owner, 0, &will);
    will = will_of(registry_slot(false_owner), 1);
    registry_keep_will(false_owner, 1, &will);
    struct found found = {.count = 0};
    wills_read(registry, registry_slot(false_owner), find, &found);
    assert_int_equal(found.count, 1);
    end(child);
    end(liar);
    bury_all(registry);
    found.count = 0;
    wills_read(registry, registry_slot(false_owner), find, &found);
    assert_int_equal(found.count, 2); /* he may have been its heir */
    atomic_fetch_add(&registry->file->slots[registry_slot(false_owner)].generation, 1);
    found.count = 0;
    wills_read(registry, registry_slot(false_owner), find, &found);
    assert_int_equal(found.count, 0); /* the slot's next holder has not said that */
    registry_close(false_owner);
    registry_close(registry);
}

/* The first dies, then its heir before it has done anything; both are the last one's. */
static void an_heirs_heir_inherits_all(void **state)
{
    uint32_t first, second;
    struct registry *registry = open_registry(state);
    pid_t one = start_testator(state, 10, &first);
    end(one);
    pid_t two = start_testator(state, 4, &second); /* buries the first */
    assert_int_equal(registry_heir(registry, first), second);
    assert_int_equal(bury_all(registry), 0);
    assert_int_equal(registry_heir(registry, first), second);
    end(two);
    assert_int_equal(bury_all(registry), 1);
    assert_int_equal(registry_heir(registry, first), registry_slot(registry));
    assert_int_equal(registry_heir(registry, second), registry_slot(registry));
    assert_int_not_equal(atomic_load(&registry->file->slots[first].estate), 0);
    assert_int_not_equal(atomic_load(&registry->file->slots[second].estate), 0);
    registry_close(registry);
}

/* An heir that does nothing for seconds is stopped; so its inheritance is taken over. */
static void a_stopped_heir_is_passed_over(void **state)
{
    uint32_t first, second;
    struct registry *registry = open_registry(state);
    end(start_testator(state, 10, &first));
    pid_t two = start_testator(state, 0, &second);
    assert_int_equal(registry_heir(registry, first), second);
    atomic_fetch_sub(&registry->file->slots[first].inherited_ns, UINT64_C(3000000000));
    bury_all(registry);
    assert_int_equal(registry_heir(registry, first), registry_slot(registry));
    end(two);
    registry_close(registry);
}

/* With nobody left, the file stays, and the next process finds what there is to do. */
static void the_next_process_buries(void **state)
{
    uint32_t slot;
    end(start_testator(state, 10, &slot));
    struct registry *registry = open_registry(state);
    assert_int_not_equal(registry_slot(registry), slot);
    assert_int_equal(bury_all(registry), 1);
    struct found found = {.count = 0};
    wills_read(registry, slot, find, &found);
    assert_int_equal(found.count, 9);
    registry_close(registry);
}

/* Ended in order, with something owed: others do it. With nothing: there is nothing to do. */
static void debts_outlive_an_orderly_end(void **state)
{
    struct registry *registry = open_registry(state), *other = open_registry(state);
    uint32_t slot = registry_slot(other);
    struct cm_will will = will_of(slot, 0);
    registry_keep_will(other, 0, &will);
    registry_close(other);
    assert_int_not_equal(atomic_load(&registry->file->slots[slot].estate), 0);
    assert_int_equal(bury_all(registry), 0);
    assert_int_equal(registry_heir(registry, slot), registry_slot(registry));

    other = open_registry(state);
    slot = registry_slot(other);
    registry_keep_will(other, 0, &will);
    registry_keep_will(other, 0, &will);
    registry_keep_will(other, 0, NULL);
    registry_keep_will(other, 1, NULL);
    registry_close(other);
    assert_int_equal(atomic_load(&registry->file->slots[slot].estate), 0);
    registry_close(registry);
}

/* Made anew after a reboot, or in another namespace of the same number, where slots are held for
 * the first time again. */
static void another_era_has_no_wills(void **state)
{
    struct fixture *fixture = *state;
    struct registry_file file;
    uint32_t slot;
    pid_t testator = start_testator(state, 10, &slot);
    end(testator);
    FILE *stream = fopen(fixture->path, "r+e");
    assert_int_equal(fread(&file, sizeof file, 1, stream), 1);
    file.era.namespace_cookie++;
    rewind(stream);
    assert_int_equal(fwrite(&file, sizeof file, 1, stream), 1);
    assert_int_equal(fclose(stream), 0);
    struct registry *registry = open_registry(state);
    assert_int_equal(size_of(state), sizeof file);
    registry_close(registry);
}

/* A limit on files is met by keeping nothing, not by a signal. */
static void limits_are_respected(void **state)
{
    struct registry *registry = open_registry(state);
    struct cm_will will = will_of(registry_slot(registry), 0);
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = (rlim_t)size_of(state), .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    registry_keep_will(registry, 0, &will);
    registry_keep_will(registry, UINT32_MAX, &will);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(registry->will_count, 0);
    registry_keep_will(registry, 0, NULL);
    assert_int_equal(registry->will_count, 0);
    registry_close(registry);
}

#define SHARED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* It has closed all that it could, and opened something else. */
static void a_will_goes_into_no_file_of_the_programs(void **state)
{
    struct stat facts;
    struct registry *registry = open_registry(state);
    struct cm_will will = will_of(registry_slot(registry), 3);
    registry_keep_will(registry, 0, &will);
    int kept = dup(registry->descriptor);
    FILE *other = tmpfile();
    assert_true(kept >= 0 && other != NULL);
    assert_int_equal(dup2(fileno(other), registry->descriptor), registry->descriptor);
    registry_keep_will(registry, 1, &will);
    registry_keep_will(registry, 0, NULL);
    assert_int_equal(fstat(fileno(other), &facts), 0);
    assert_int_equal(facts.st_size, 0);
    assert_int_equal(dup2(kept, registry->descriptor), registry->descriptor);
    close(kept);
    fclose(other);
    registry_close(registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARED(heir_reads_what_was_kept),      SHARED(what_is_not_whole_does_not_count),
        SHARED(wills_are_of_the_dead),         SHARED(an_heirs_heir_inherits_all),
        SHARED(a_stopped_heir_is_passed_over), SHARED(the_next_process_buries),
        SHARED(debts_outlive_an_orderly_end),  SHARED(limits_are_respected),
        SHARED(another_era_has_no_wills),      SHARED(a_will_goes_into_no_file_of_the_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
