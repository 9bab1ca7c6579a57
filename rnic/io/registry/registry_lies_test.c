/* What others write into the registry's file, or put beside it: it leads nobody out of it, ends
 * nobody, and costs no more than so much. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/io/registry/registry_private.h"

#define DEAD    1000u /* nobody has so high a slot */
#define NOWHERE 0x7fffffffu
#define TURNS   100000u
#define CROWD   1500u

static char path[64];

static struct registry *open_registry(void)
{
    struct registry *registry;
    snprintf(path, sizeof path, "/tmp/weir-registry-lies-test-%ld", (long)getpid());
    unlink(path);
    assert_int_equal(registry_open(path, &registry), STATUS_OK);
    registry->file->next_slot = 0;
    return registry;
}

static struct registry_name name_of(uint64_t service)
{
    return (struct registry_name){.service_id = service, .scope = REGISTRY_ANY};
}

/* Another process. */
static pid_t start_liar(struct registry_claim *claim)
{
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            atomic_store(&claim->state, CLAIM_BOUND);
            __atomic_store_n(&claim->slot, DEAD, __ATOMIC_SEQ_CST);
            __atomic_store_n(&claim->slot, NOWHERE, __ATOMIC_SEQ_CST);
        }
    }
    while (__atomic_load_n(&claim->slot, __ATOMIC_SEQ_CST) < DEAD) {
        sched_yield();
    }
    return child;
}

/* Between a look at it and its use, too. */
static void a_slot_that_is_none_leads_nowhere(void **state)
{
    struct registry *registry = open_registry();
    struct registry_name name = name_of(7);
    uint32_t index, again;
    assert_int_equal(registry_claim(registry, &name, false, &index), STATUS_OK);
    pid_t liar = start_liar(&registry->file->claims[index]);
    for (uint32_t i = 0; i < TURNS; i++) {
        if (registry_claim(registry, &name, false, &again) == STATUS_OK && again != index) {
            registry_release(registry, again);
        }
    }
    kill(liar, SIGKILL);
    assert_int_equal(waitpid(liar, NULL, 0), liar);
    registry_close(registry);
}

static void a_claim_that_is_taken_away_ends_nobody(void **state)
{
    struct registry *registry = open_registry();
    struct registry_name name = name_of(7);
    uint32_t index;
    assert_int_equal(registry_claim(registry, &name, false, &index), STATUS_OK);
    registry->file->claims[index].slot = DEAD;
    assert_int_equal(registry_listen(registry, index), STATUS_STATE);
    registry_unlisten(registry, index);
    registry_release(registry, index);
    assert_int_equal(registry_claim(registry, &name, false, &index), STATUS_OK);
    registry_close(registry);
}

/* Some of them a later start looks at. */
static void a_crowd_of_files_is_not_looked_through(void **state)
{
    const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char folder[] = "/tmp/weir-registry-lies-XXXXXX", name[64];
    uint32_t left = 0;
    assert_non_null(mkdtemp(folder));
    for (uint32_t i = 0; i < CROWD; i++) {
        snprintf(name, sizeof name, "%s/weir-1-%u", folder, i);
        int file = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(file >= 0 && futimens(file, old) == 0);
        close(file);
    }
    snprintf(name, sizeof name, "%s/weir-1-own", folder);
    registry_sweep(name, 3600);
    for (uint32_t i = 0; i < CROWD; i++) {
        snprintf(name, sizeof name, "%s/weir-1-%u", folder, i);
        left += unlink(name) == 0;
    }
    rmdir(folder);
    assert_in_range(left, 1, CROWD - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_that_is_none_leads_nowhere),
        cmocka_unit_test(a_claim_that_is_taken_away_ends_nobody),
        cmocka_unit_test(a_crowd_of_files_is_not_looked_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
