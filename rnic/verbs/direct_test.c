/* WRITEs and READs on the memory of another process without its help, as programs see them: two
 * processes, of which one is forked before either opens a device. */
#include "rnic/verbs/world_test.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define LENGTH (1u << 20)
#define ROUNDS 20
#define WORDS  20000
#define STOPS  5

static _Alignas(4096) uint8_t bytes[LENGTH];
static int here, there; /* from the other process, and to it */
static pid_t other;

struct introduction {
    uint32_t qpn, key;
    uint64_t address;
};

static void tell(const void *what, size_t length)
{
    assert_int_equal(write(there, what, length), (ssize_t)length);
}

static void hear(void *what, size_t length)
{
    assert_int_equal(read(here, what, length), (ssize_t)length);
}

/* Both sides: a queue pair to the other's, ready to send; what the other tells of itself. */
static struct introduction meet_by(struct world *w, int index, const struct ibv_mr *mr)
{
    struct introduction peer;
    struct ibv_qp_init_attr init = small(w->cq);
    struct ibv_qp *qp = w->qps[index] = ibv_create_qp(w->pd, &init);
    assert_non_null(qp);
    to_init(qp);
    struct introduction own = {qp->qp_num, mr->rkey, (uintptr_t)mr->addr};
    tell(&own, sizeof own);
    hear(&peer, sizeof peer);
    to_rts(qp, peer.qpn);
    tell("", 1); /* nobody sends to who is not ready */
    hear(&(char){0}, 1);
    return peer;
}

static struct introduction meet(struct world *w, const struct ibv_mr *mr)
{
    return meet_by(w, 0, mr);
}

static void part(struct world *w)
{
    assert_int_equal(ibv_destroy_qp(w->qps[0]), 0);
    w->qps[0] = NULL;
}

static struct ibv_mr *offer(struct world *w)
{
    struct ibv_mr *mr = ibv_reg_mr(w->pd, bytes, LENGTH,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    assert_non_null(mr);
    return mr;
}

static enum ibv_wc_status move(struct world *w, const struct ibv_mr *mr, enum ibv_wr_opcode opcode,
                               const struct introduction *peer)
{
    struct ibv_sge sge = {(uintptr_t)bytes, LENGTH, mr->lkey};
    struct ibv_send_wr *bad, wr = {.sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = opcode,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {peer->address, peer->key}};
    assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), 0);
    return await(w->cq).status;
}

/* Runs `child` in a process of its own, at the other end. */
static void start(void (*child)(struct world *w), struct world **ret_world)
{
    int down[2], up[2];
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    other = fork();
    bool is_child = other == 0;
    here = is_child ? down[0] : up[0];
    there = is_child ? up[1] : down[1];
    close(is_child ? down[1] : down[0]);
    close(is_child ? up[0] : up[1]);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(open_world((void **)ret_world), 0);
    if (is_child) {
        child(*ret_world);
        _exit(0);
    }
}

static void finish(struct world *w)
{
    int status;
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
    assert_int_equal(close_world((void **)&w), 0);
    close(here);
    close(there);
}

/* Whether the kernel lets one process of ours touch another's memory, and the C library lets us
 * know when it must not. */
static bool is_allowed(void)
{
    char byte;
    struct iovec own = {&byte, 1}, its = {bytes, 1};
    const unsigned *registered = dlsym(RTLD_DEFAULT, "__rseq_size");
    return process_vm_readv(other, &own, 1, &its, 1, 0) == 1 && registered != NULL &&
           *registered > 0;
}

static void stop(struct world *w)
{
    struct ibv_mr *mr = offer(w);
    memset(bytes, 's', LENGTH);
    (void)meet(w, mr);
    raise(SIGSTOP);
    hear(&(char){0}, 1);
    assert_int_equal(bytes[0], 'p');
    assert_int_equal(bytes[LENGTH - 1], 'p');
}

static void test_the_target_need_not_run(void **state)
{
    struct world *w;
    int status;
    start(stop, &w);
    struct ibv_mr *mr = offer(w);
    struct introduction peer = meet(w, mr);
    assert_int_equal(waitpid(other, &status, WUNTRACED), other);
    assert_true(WIFSTOPPED(status));
    bool allowed = is_allowed();
    if (allowed) {
        assert_int_equal(move(w, mr, IBV_WR_RDMA_READ, &peer), IBV_WC_SUCCESS);
        assert_int_equal(bytes[0], 's');
        assert_int_equal(bytes[LENGTH - 1], 's');
    }
    memset(bytes, 'p', LENGTH);
    if (allowed) {
        assert_int_equal(move(w, mr, IBV_WR_RDMA_WRITE, &peer), IBV_WC_SUCCESS);
    }
    kill(other, SIGCONT);
    if (!allowed) {
        print_message("no direct access here: only packets were tried\n");
        assert_int_equal(move(w, mr, IBV_WR_RDMA_WRITE, &peer), IBV_WC_SUCCESS);
    }
    tell("", 1);
    part(w);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    finish(w);
}

static void write_until_refused(struct world *w)
{
    struct ibv_mr *mr = offer(w);
    for (int round = 0; round < ROUNDS; round++) {
        struct introduction peer = meet(w, mr);
        enum ibv_wc_status status = IBV_WC_SUCCESS;
        for (int i = 1; status == IBV_WC_SUCCESS; i++) {
            memset(bytes, i, 16); /* and the last ones */
            memset(bytes + LENGTH - 16, i, 16);
            status = move(w, mr, IBV_WR_RDMA_WRITE, &peer);
        }
        assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
        tell("", 1);
        part(w);
    }
}

/* Whether peers have these bytes mapped, or may. */
static bool are_common(void)
{
    char line[256];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        uintptr_t start = strtoul(line, NULL, 16);
        found |= strstr(line, "weir-common") != NULL && start >= (uintptr_t)bytes &&
                 start < (uintptr_t)bytes + LENGTH;
    }
    fclose(maps);
    return found;
}

/* False: it does not happen here, in so many seconds of being written to. */
static bool become_common(int seconds)
{
    for (int i = 0; i < 1000 * seconds && !are_common(); i++) {
        usleep(1000);
    }
    return are_common();
}

static uint32_t ends(void)
{
    const volatile uint8_t *now = bytes;
    return (uint32_t)now[0] << 8 | now[LENGTH - 1];
}

/* What was written is seen though nobody polls; and once ibv_dereg_mr has returned nothing comes
 * any more, also of a WRITE that was under way, and of one whose process was stopped. */
static void leave_alone_what_is_deregistered(bool common)
{
    struct world *w;
    setenv("WEIR_DIRECT", common ? "1" : "calls", 1);
    start(write_until_refused, &w);
    for (int round = 0; round < ROUNDS; round++) {
        int status;
        struct ibv_mr *mr = offer(w);
        (void)meet(w, mr);
        for (uint32_t before = ends(), changes = 0; changes < 20; changes += ends() != before) {
        }
        if (round == 0 && common && !become_common(4)) {
            print_message("nothing becomes common here: only calls were tried\n");
            common = false;
        }
        assert_true(!common || become_common(15));
        bool stops = round % 4 == 3;
        if (stops) {
            kill(other, SIGSTOP);
            assert_int_equal(waitpid(other, &status, WUNTRACED), other);
        }
        assert_int_equal(ibv_dereg_mr(mr), 0);
        uint32_t left = ends();
        assert_false(are_common());
        if (stops) {
            kill(other, SIGCONT);
        }
        hear(&(char){0}, 1); /* it has been refused, by a packet that came after */
        assert_int_equal(ends(), left);
        part(w);
    }
    finish(w);
}

static void test_what_is_deregistered_is_left_alone(void **state)
{
    leave_alone_what_is_deregistered(false);
}

static void test_what_was_common_is_left_alone_too(void **state)
{
    leave_alone_what_is_deregistered(true);
}

/* A child has a copy of its own, of what was there when it was forked; the parent's goes on to be
 * written to, by calls. */
static void test_a_child_does_not_share_what_was_common(void **state)
{
    struct world *w;
    int status;
    start(write_until_refused, &w);
    for (int round = 0; round < ROUNDS; round++) {
        struct ibv_mr *mr = offer(w);
        (void)meet(w, mr);
        (void)become_common(4);
        pid_t child = fork();
        if (child == 0) {
            uint32_t own = ends();
            usleep(1000);
            bool same = ends() == own;
            memset(bytes, 255, LENGTH);
            _exit(same && !are_common() ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        for (uint32_t before = ends(), changes = 0; changes < 20; changes += ends() != before) {
        }
        assert_int_not_equal(bytes[LENGTH / 2], 255);
        assert_int_equal(ibv_dereg_mr(mr), 0);
        hear(&(char){0}, 1);
        part(w);
    }
    finish(w);
}

/* Runs `other` until it is about to make the call; then it is left there. */
static void stop_at_call(long number)
{
    int status;
    struct __ptrace_syscall_info info = {0};
    assert_int_equal(ptrace(PTRACE_SEIZE, other, NULL, (void *)PTRACE_O_TRACESYSGOOD), 0);
    assert_int_equal(ptrace(PTRACE_INTERRUPT, other, NULL, NULL), 0);
    assert_int_equal(waitpid(other, &status, 0), other);
    do {
        assert_int_equal(ptrace(PTRACE_SYSCALL, other, NULL, NULL), 0);
        assert_int_equal(waitpid(other, &status, 0), other);
        assert_true(WIFSTOPPED(status));
        assert_true(ptrace(PTRACE_GET_SYSCALL_INFO, other, (void *)sizeof info, &info) > 0);
    } while (info.op != PTRACE_SYSCALL_INFO_ENTRY || (long)info.entry.nr != number);
}

/* A debugger may stop it where it will touch the memory as soon as it goes on. */
static void test_who_will_touch_it_is_not_ignored(void **state)
{
    struct world *w;
    setenv("WEIR_DIRECT", "calls", 1);
    start(write_until_refused, &w);
    setenv("WEIR_DIRECT", "1", 1);
    bool allowed = is_allowed();
    for (int round = 0; round < ROUNDS; round++) {
        struct ibv_mr *mr = offer(w);
        (void)meet(w, mr);
        if (round == 1 && allowed) {
            stop_at_call(SYS_process_vm_writev);
            assert_int_equal(ibv_dereg_mr(mr), EBUSY);
            uint32_t before = ends();
            assert_int_equal(ptrace(PTRACE_DETACH, other, NULL, NULL), 0);
            while (ends() == before) { /* it is written, and still registered */
            }
        }
        assert_int_equal(ibv_dereg_mr(mr), 0);
        uint32_t left = ends();
        hear(&(char){0}, 1);
        assert_int_equal(ends(), left);
        part(w);
    }
    finish(w);
}

static void read_and_stop(struct world *w)
{
    struct ibv_mr *mr = offer(w);
    for (int round = 0; round < STOPS; round++) {
        struct introduction peer = meet(w, mr);
        struct ibv_sge sge = {(uintptr_t)bytes, LENGTH, mr->lkey};
        struct ibv_send_wr *bad, wr = {.sg_list = &sge,
                                       .num_sge = 1,
                                       .opcode = IBV_WR_RDMA_READ,
                                       .send_flags = IBV_SEND_SIGNALED,
                                       .wr.rdma = {peer.address, peer.key}};
        assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), 0);
        raise(SIGSTOP);
        if (await(w->cq).status == IBV_WC_SUCCESS) {
            assert_int_equal(bytes[0], 's');
            assert_int_equal(bytes[LENGTH / 2], 's');
            assert_int_equal(bytes[LENGTH - 1], 's');
        }
        tell("", 1);
        part(w);
    }
}

/* What is written to memory after ibv_dereg_mr is not what a READ that was answered before brings,
 * by who takes the answer long after. */
static void test_what_is_read_is_from_before_the_end(void **state)
{
    struct world *w;
    setenv("WEIR_DIRECT", "0", 1);
    start(read_and_stop, &w);
    setenv("WEIR_DIRECT", "1", 1);
    for (int round = 0; round < STOPS; round++) {
        int status;
        memset(bytes, 's', LENGTH);
        struct ibv_mr *mr = offer(w);
        (void)meet(w, mr);
        assert_int_equal(waitpid(other, &status, WUNTRACED), other);
        assert_true(WIFSTOPPED(status));
        usleep(2000); /* until it is answered, if all goes well */
        assert_int_equal(ibv_dereg_mr(mr), 0);
        memset(bytes, 'x', LENGTH);
        kill(other, SIGCONT);
        hear(&(char){0}, 1);
        part(w);
    }
    finish(w);
}

static void post_word(struct ibv_qp *qp, const struct ibv_mr *mr, enum ibv_wr_opcode opcode,
                      const struct introduction *peer, uint64_t *word)
{
    struct ibv_sge sge = {(uintptr_t)word, sizeof *word, mr->lkey};
    struct ibv_send_wr *bad, wr = {.sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = opcode,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {peer->address, peer->key}};
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = peer->address;
        wr.wr.atomic.compare_add = UINT64_MAX; /* never */
        wr.wr.atomic.rkey = peer->key;
    }
    assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
}

static void write_beside_an_atomic(struct world *w)
{
    struct ibv_mr *mr = offer(w);
    struct introduction by_packets = meet_by(w, 0, mr), direct = meet_by(w, 1, mr);
    uint64_t *words = (uint64_t *)(void *)bytes; /* found, written, read */
    for (uint64_t i = 1; i <= WORDS; i++) {
        words[1] = i;
        post_word(w->qps[0], mr, IBV_WR_ATOMIC_CMP_AND_SWP, &by_packets, &words[0]);
        post_word(w->qps[1], mr, IBV_WR_RDMA_WRITE, &direct, &words[1]);
        assert_int_equal(await(w->cq).status, IBV_WC_SUCCESS);
        assert_int_equal(await(w->cq).status, IBV_WC_SUCCESS);
        post_word(w->qps[1], mr, IBV_WR_RDMA_READ, &direct, &words[2]);
        assert_int_equal(await(w->cq).status, IBV_WC_SUCCESS);
        assert_int_equal(words[2], i);
        assert_true(words[0] == i || words[0] == i - 1);
    }
    tell("", 1);
    hear(&(char){0}, 1);
}

/* One that finds another value leaves the word as it is, also if it is written at that moment: so
 * locks are given back. */
static void test_an_atomic_does_not_undo_a_write(void **state)
{
    struct world *w;
    struct pollfd end;
    start(write_beside_an_atomic, &w);
    struct ibv_mr *mr = offer(w);
    (void)meet_by(w, 0, mr);
    (void)meet_by(w, 1, mr);
    end = (struct pollfd){here, POLLIN, 0};
    while (poll(&end, 1, 0) == 0) {
        assert_int_equal(ibv_poll_cq(w->cq, 1, &(struct ibv_wc){0}), 0);
    }
    hear(&(char){0}, 1);
    tell("", 1);
    assert_int_equal(bytes[0] | bytes[1] << 8, WORDS);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    finish(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_target_need_not_run),
        cmocka_unit_test(test_what_is_deregistered_is_left_alone),
        cmocka_unit_test(test_what_was_common_is_left_alone_too),
        cmocka_unit_test(test_a_child_does_not_share_what_was_common),
        cmocka_unit_test(test_who_will_touch_it_is_not_ignored),
        cmocka_unit_test(test_what_is_read_is_from_before_the_end),
        cmocka_unit_test(test_an_atomic_does_not_undo_a_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
