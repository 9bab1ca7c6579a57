/* Memory of every kind through libibverbs: what is registered, imported, opened by windows, and
 * what is refused. */
#include "rnic/verbs/world_test.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PAGE       4096u
#define ACCESS_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* One WRITE or READ of `length` local bytes by the first queue pair. */
static enum ibv_wc_status transfer(struct world *w, enum ibv_wr_opcode opcode, struct ibv_sge sge,
                                   uint64_t remote, uint32_t rkey)
{
    struct ibv_send_wr wr = {.wr_id = 7,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), 0);
    struct ibv_wc wc = await(w->cq);
    assert_int_equal(wc.wr_id, 7);
    return wc.status;
}

static struct ibv_sge whole(struct ibv_mr *mr)
{
    return (struct ibv_sge){(uintptr_t)mr->addr, (uint32_t)mr->length, mr->lkey};
}

static void registering_anew_wants_sound_arguments(void **state)
{
    struct world *w = *state;
    uint8_t *bytes = w->bytes;
    struct ibv_pd *other = ibv_alloc_pd(w->context);
    struct ibv_mr *mr = ibv_reg_mr(w->pd, bytes, 64, IBV_ACCESS_LOCAL_WRITE);
    const struct {
        int flags;
        struct ibv_pd *pd;
        void *address;
        size_t length;
        int access;
        int error;
    } rows[] = {
        {0, NULL, NULL, 0, 0, EINVAL},
        {1 << 3, NULL, NULL, 0, 0, EINVAL},
        {IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0, EINVAL},
        {IBV_REREG_MR_CHANGE_TRANSLATION, NULL, bytes, 0, 0, EINVAL},
        {IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 64, 0, EINVAL},
        {IBV_REREG_MR_CHANGE_PD, other, NULL, 0, IBV_ACCESS_LOCAL_WRITE, EINVAL},
        {IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE, EINVAL},
        {IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1 << 19, EINVAL},
        {IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)64, 64, 0, EFAULT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        errno = 0;
        assert_int_equal(ibv_rereg_mr(mr, rows[i].flags, rows[i].pd, rows[i].address,
                                      rows[i].length, rows[i].access),
                         IBV_REREG_MR_ERR_INPUT);
        assert_int_equal(errno, rows[i].error);
    }
    for (int flags = 1; flags < 8; flags++) {
        bool changes = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
        uint32_t key = mr->lkey;
        assert_int_equal(ibv_rereg_mr(mr, flags, flags % 2 == 0 ? other : w->pd, bytes + flags, 32,
                                      changes ? IBV_ACCESS_LOCAL_WRITE : 0),
                         0);
        assert_int_equal(mr->lkey, key);
        if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
            assert_ptr_equal(mr->addr, bytes + flags);
            assert_int_equal(mr->length, 32);
        }
        if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
            assert_ptr_equal(mr->pd, flags % 2 == 0 ? other : w->pd);
        }
    }
    assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_int_equal(ibv_dealloc_pd(other), 0);
}

static void a_null_region_reads_as_zeroes(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    struct ibv_mr *null = ibv_alloc_null_mr(w->pd);
    assert_non_null(null);
    assert_int_equal(null->rkey, 0);
    memset(w->bytes, 0x55, sizeof w->bytes);
    struct ibv_sge nothing = {0x1234, 4096, null->lkey};
    uint64_t there = (uintptr_t)w->bytes;
    assert_int_equal(transfer(w, IBV_WR_RDMA_READ, nothing, there, w->mr->rkey), IBV_WC_SUCCESS);
    assert_int_equal(transfer(w, IBV_WR_RDMA_WRITE, nothing, there, w->mr->rkey), IBV_WC_SUCCESS);
    for (size_t i = 0; i < sizeof w->bytes; i++) {
        assert_int_equal(w->bytes[i], 0);
    }
    assert_int_equal(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_PD, w->pd, NULL, 0, 0),
                     IBV_REREG_MR_ERR_INPUT);
    assert_int_equal(
        transfer(w, IBV_WR_RDMA_WRITE, whole(w->mr), 0x1234, null->lkey), /* not a peer's */
        IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(ibv_dereg_mr(null), 0);
}

/* All of the address space under one key; a hole in it is an error, not the end of the process. */
static void an_implicit_region_may_have_holes(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    struct ibv_mr *all = ibv_reg_mr(w->pd, NULL, SIZE_MAX, ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
    assert_non_null(all);
    /* What the library maps when two processes meet is not to lie in the hole. */
    assert_int_equal(transfer(w, IBV_WR_RDMA_WRITE, whole(w->mr), (uintptr_t)w->bytes, w->mr->rkey),
                     IBV_WC_SUCCESS);
    uint8_t *pages =
        mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(munmap(pages + PAGE, PAGE), 0);
    struct ibv_sge sge = {(uintptr_t)w->bytes, 64, all->lkey};
    w->bytes[63] = 9;
    assert_int_equal(transfer(w, IBV_WR_RDMA_WRITE, sge, (uintptr_t)pages, all->rkey),
                     IBV_WC_SUCCESS);
    assert_int_equal(pages[63], 9);

    struct ibv_sge advice = {(uintptr_t)pages, PAGE, all->lkey};
    assert_int_equal(ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                                   IBV_ADVISE_MR_FLAG_FLUSH, &advice, 1),
                     0);
    advice.length += 1;
    assert_int_equal(
        ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &advice, 1),
        EFAULT);
    assert_int_equal(ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &advice, 1), 0);
    assert_int_equal(ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, &advice, 1), EINVAL);
    assert_int_equal(ibv_advise_mr(w->pd, 77, 0, &advice, 1), ENOTSUP);
    advice.lkey ^= 1;
    assert_int_equal(ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &advice, 1), ENOENT);
    struct ibv_sge pinned = whole(w->mr);
    assert_int_equal(ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &pinned, 1), EINVAL);
    struct ibv_pd *other = ibv_alloc_pd(w->context);
    assert_int_equal(ibv_advise_mr(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &pinned, 1), EPERM);
    assert_int_equal(ibv_dealloc_pd(other), 0);

    assert_int_equal(transfer(w, IBV_WR_RDMA_WRITE, sge, (uintptr_t)pages + PAGE - 8, all->rkey),
                     IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(ibv_dereg_mr(all), 0);
    munmap(pages, PAGE);
}

/* Two pages at `pages`, of which the second is gone. */
static uint8_t *map_with_hole(void)
{
    uint8_t *pages =
        mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(munmap(pages + PAGE, PAGE), 0);
    return pages;
}

static void connect_again(struct world *w)
{
    struct ibv_wc wc;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ibv_destroy_qp(w->qps[i]), 0);
    }
    while (ibv_poll_cq(w->cq, 1, &wc) > 0) {
    }
    connect_pair(w);
}

/* Messages of several packets, which within a host come as one. */
static void a_hole_ends_long_messages_too(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    struct ibv_mr *all = ibv_reg_mr(w->pd, NULL, SIZE_MAX, ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
    uint8_t *whole_pages =
        mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_sge sound = {(uintptr_t)whole_pages, 2 * PAGE, all->lkey};
    assert_int_equal(transfer(w, IBV_WR_RDMA_WRITE, sound, (uintptr_t)whole_pages, all->rkey),
                     IBV_WC_SUCCESS);
    uint8_t *pages = map_with_hole();
    struct ibv_sge holey = {(uintptr_t)pages, 2 * PAGE, all->lkey};
    const struct {
        enum ibv_wr_opcode opcode;
        struct ibv_sge sge;
        const uint8_t *remote;
        enum ibv_wc_status status;
    } rows[] = {
        {IBV_WR_RDMA_WRITE, sound, pages, IBV_WC_REM_ACCESS_ERR},
        {IBV_WR_RDMA_READ, sound, pages, IBV_WC_REM_ACCESS_ERR},
        {IBV_WR_RDMA_WRITE, holey, whole_pages, IBV_WC_LOC_PROT_ERR},
        {IBV_WR_RDMA_READ, holey, whole_pages, IBV_WC_LOC_PROT_ERR},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(
            transfer(w, rows[i].opcode, rows[i].sge, (uintptr_t)rows[i].remote, all->rkey),
            rows[i].status);
        connect_again(w);
    }
    struct ibv_recv_wr receive = {.sg_list = &holey, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 1, .sg_list = &sound, .num_sge = 1, .opcode = IBV_WR_SEND},
                       *bad;
    assert_int_equal(ibv_post_recv(w->qps[1], &receive, &bad_receive), 0);
    assert_int_equal(ibv_post_send(w->qps[0], &send, &bad), 0);
    for (int i = 0; i < 2; i++) {
        struct ibv_wc wc = await(w->cq);
        assert_int_equal(wc.status, wc.wr_id == 1 ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_PROT_ERR);
    }
    assert_int_equal(ibv_dereg_mr(all), 0);
    munmap(whole_pages, 2 * PAGE);
    munmap(pages, PAGE);
}

static void device_memory_is_counted_and_bounded(void **state)
{
    struct world *w = *state;
    struct ibv_device_attr_ex attributes;
    assert_int_equal(ibv_query_device_ex(w->context, NULL, &attributes), 0);
    struct ibv_alloc_dm_attr half = {.length = attributes.max_dm_size / 2};
    struct ibv_alloc_dm_attr more = {.length = attributes.max_dm_size / 2 + 4};
    struct ibv_alloc_dm_attr odd = {.length = 64, .comp_mask = 1};
    struct ibv_dm *dm = ibv_alloc_dm(w->context, &half);
    assert_non_null(dm);
    assert_null(ibv_alloc_dm(w->context, &more));
    assert_int_equal(errno, ENOMEM);
    assert_null(ibv_alloc_dm(w->context, &odd));
    assert_int_equal(errno, EINVAL);

    const int access = ACCESS_ALL | IBV_ACCESS_ZERO_BASED;
    assert_null(ibv_reg_dm_mr(w->pd, dm, 0, 64, ACCESS_ALL));
    assert_null(ibv_reg_dm_mr(w->pd, dm, half.length - 32, 64, access));
    assert_null(ibv_reg_dm_mr(w->pd, dm, UINT64_MAX - 3, 64, access));
    struct ibv_mr *mr = ibv_reg_dm_mr(w->pd, dm, 64, 4096, access);
    assert_non_null(mr);
    assert_int_equal(ibv_free_dm(dm), EBUSY);

    connect_pair(w);
    memset(w->bytes, 0x77, sizeof w->bytes);
    assert_int_equal(transfer(w, IBV_WR_RDMA_WRITE, whole(w->mr), 0, mr->rkey), IBV_WC_SUCCESS);
    uint8_t back[8] = {0};
    assert_int_equal(ibv_memcpy_from_dm(back, dm, 60, 8), 0);
    assert_memory_equal(back, ((const uint8_t[]){0, 0, 0, 0, 0x77, 0x77, 0x77, 0x77}), 8);
    assert_int_equal(ibv_memcpy_to_dm(dm, 2, back, 4), EINVAL);
    assert_int_equal(ibv_memcpy_to_dm(dm, half.length, back, 4), EFAULT);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_int_equal(ibv_free_dm(dm), 0);
}

static void a_file_in_memory_serves_as_dma_buf(void **state)
{
    struct world *w = *state;
    int file = memfd_create("buffer", MFD_CLOEXEC);
    assert_int_equal(ftruncate(file, 3 * PAGE), 0);
    uint8_t *view = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_null(ibv_reg_dmabuf_mr(w->pd, PAGE, 3 * PAGE, 0, file, ACCESS_ALL));
    assert_int_equal(errno, EINVAL);
    assert_null(ibv_reg_dmabuf_mr(w->pd, 0, PAGE, 0, file, IBV_ACCESS_REMOTE_WRITE));
    assert_null(ibv_reg_dmabuf_mr(w->pd, 0, PAGE, 0, -1, ACCESS_ALL));
    assert_int_equal(errno, EBADF);
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(w->pd, PAGE + 100, PAGE, 0x5000, file, ACCESS_ALL);
    assert_non_null(mr);
    close(file);
    connect_pair(w);
    memset(w->bytes, 0x33, sizeof w->bytes);
    assert_int_equal(transfer(w, IBV_WR_RDMA_WRITE, whole(w->mr), 0x5000, mr->rkey),
                     IBV_WC_SUCCESS);
    assert_int_equal(view[PAGE + 99], 0);
    assert_int_equal(view[PAGE + 100], 0x33);
    assert_int_equal(view[2 * PAGE + 99], 0x33);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    munmap(view, 3 * PAGE);
}

/* Its large pages can be mapped and unmapped as a whole only. Where the system has none, nobody has
 * such files. */
static void a_part_of_a_large_page_serves_as_dma_buf(void **state)
{
    struct world *w = *state;
    int file = memfd_create("large", MFD_CLOEXEC | MFD_HUGETLB);
    struct stat status;
    if (file < 0) {
        skip();
    }
    assert_int_equal(fstat(file, &status), 0);
    size_t large = (size_t)status.st_blksize;
    assert_int_equal(ftruncate(file, (off_t)large), 0);
    uint8_t *view = mmap(NULL, large, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (view == MAP_FAILED) {
        close(file);
        skip();
    }
    connect_pair(w);
    memset(w->bytes, 0x33, sizeof w->bytes);
    for (int i = 0; i < 2; i++) {
        struct ibv_mr *mr = ibv_reg_dmabuf_mr(w->pd, PAGE + 100, PAGE, 0x5000, file, ACCESS_ALL);
        assert_non_null(mr);
        assert_int_equal(transfer(w, IBV_WR_RDMA_WRITE, whole(w->mr), 0x5000, mr->rkey),
                         IBV_WC_SUCCESS);
        assert_int_equal(ibv_dereg_mr(mr), 0);
    }
    assert_int_equal(view[PAGE + 99], 0);
    assert_int_equal(view[PAGE + 100], 0x33);
    char line[512];
    int mappings = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (fgets(line, sizeof line, maps) != NULL) {
        mappings += strstr(line, "memfd:large") != NULL;
    }
    fclose(maps);
    assert_int_equal(mappings, 1);
    munmap(view, large);
    close(file);
}

static void a_window_holds_its_region(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    struct ibv_mr *mr =
        ibv_reg_mr(w->pd, w->bytes, 1024, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(w->pd, IBV_MW_TYPE_1);
    assert_null(ibv_alloc_mw(w->pd, (enum ibv_mw_type)3));
    assert_int_equal(errno, EINVAL);
    uint32_t before = mw->rkey;
    struct ibv_mw_bind bind = {
        .wr_id = 5,
        .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {mr, (uintptr_t)w->bytes + 512, 64, IBV_ACCESS_REMOTE_WRITE},
    };
    assert_int_equal(ibv_bind_mw(w->qps[1], mw, &bind), 0);
    assert_int_equal(mw->rkey, ibv_inc_rkey(before));
    struct ibv_wc wc = await(w->cq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_BIND_MW);
    assert_int_equal(wc.wr_id, 5);
    assert_int_equal(ibv_dereg_mr(mr), EBUSY);
    assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, w->pd, NULL, 0, 0),
                     IBV_REREG_MR_ERR_INPUT);
    assert_int_equal(errno, EBUSY);

    struct ibv_sge sge = {(uintptr_t)w->bytes, 64, w->mr->lkey};
    assert_int_equal(transfer(w, IBV_WR_RDMA_WRITE, sge, (uintptr_t)w->bytes + 512, mw->rkey),
                     IBV_WC_SUCCESS);
    assert_int_equal(transfer(w, IBV_WR_RDMA_WRITE, sge, (uintptr_t)w->bytes + 513, mw->rkey),
                     IBV_WC_REM_ACCESS_ERR);
    struct ibv_send_wr wrong = {.opcode = IBV_WR_BIND_MW, .bind_mw = {.mw = mw, .rkey = before}};
    struct ibv_send_wr *bad;
    assert_int_equal(ibv_post_send(w->qps[0], &wrong, &bad), EINVAL); /* of type 1 */
    assert_int_equal(ibv_dealloc_mw(mw), 0);
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* As every provider does: the queue pair is not to end by it. */
static void what_cannot_be_bound_is_refused_at_once(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    struct ibv_pd *other = ibv_alloc_pd(w->context);
    struct ibv_mr *mr = ibv_reg_mr(other, w->bytes, 1024, IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(w->pd, IBV_MW_TYPE_1);
    assert_true(mr != NULL && mw != NULL);
    uint32_t key = mw->rkey;
    struct ibv_mw_bind bind = {
        .bind_info = {mr, (uintptr_t)w->bytes, 64, IBV_ACCESS_REMOTE_READ},
    };
    assert_int_equal(ibv_bind_mw(w->qps[1], mw, &bind), EPERM);
    bind.bind_info = (struct ibv_mw_bind_info){w->mr, (uintptr_t)w->bytes, 64,
                                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED};
    assert_int_equal(ibv_bind_mw(w->qps[1], mw, &bind), EINVAL);
    assert_int_equal(mw->rkey, key);
    struct ibv_sge sge = {(uintptr_t)w->bytes, 64, w->mr->lkey};
    assert_int_equal(transfer(w, IBV_WR_RDMA_WRITE, sge, (uintptr_t)w->bytes + 512, w->mr->rkey),
                     IBV_WC_SUCCESS);
    assert_int_equal(ibv_dealloc_mw(mw), 0);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_int_equal(ibv_dealloc_pd(other), 0);
}

static void bind_by_batch(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t key,
                          const struct ibv_mw_bind_info *info, uint64_t id)
{
    qp->wr_id = id;
    ibv_wr_bind_mw(qp, mw, key, info);
}

/* Bind, bind again though it is bound: the first of a batch is done, the second fails. */
static void windows_of_type_2_are_bound_by_batches(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 2; i++) {
        w->qps[i] = create_extended(w, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW |
                                           IBV_QP_EX_WITH_LOCAL_INV);
        to_init(w->qps[i]);
    }
    to_rts(w->qps[0], w->qps[1]->qp_num);
    to_rts(w->qps[1], w->qps[0]->qp_num);
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(w->qps[1]);
    struct ibv_mr *mr =
        ibv_reg_mr(w->pd, w->bytes, 1024, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(w->pd, IBV_MW_TYPE_2);
    uint32_t first = ibv_inc_rkey(mw->rkey), second = ibv_inc_rkey(first);
    struct ibv_mw_bind_info info = {mr, (uintptr_t)w->bytes + 512, 64,
                                    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED};
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED;
    bind_by_batch(qp, mw, first, &info, 1);
    qp->wr_id = 2;
    ibv_wr_local_inv(qp, first);
    bind_by_batch(qp, mw, second, &info, 3);
    assert_int_equal(ibv_wr_complete(qp), 0);
    static const enum ibv_wc_opcode opcodes[] = {IBV_WC_BIND_MW, IBV_WC_LOCAL_INV, IBV_WC_BIND_MW};
    for (uint64_t id = 1; id <= 3; id++) {
        struct ibv_wc wc = await(w->cq);
        assert_int_equal(wc.wr_id, id);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.opcode, opcodes[id - 1]);
    }
    struct ibv_sge sge = {(uintptr_t)w->bytes, 64, w->mr->lkey};
    memset(w->bytes, 0x11, 64);
    assert_int_equal(transfer(w, IBV_WR_RDMA_WRITE, sge, 0, second), IBV_WC_SUCCESS);
    assert_int_equal(w->bytes[512 + 63], 0x11);

    ibv_wr_start(qp);
    qp->wr_flags = 0;
    bind_by_batch(qp, mw, first, &info, 4);
    assert_int_equal(ibv_wr_complete(qp), 0);
    struct ibv_wc wc = await(w->cq);
    assert_int_equal(wc.wr_id, 4);
    assert_int_equal(wc.status, IBV_WC_MW_BIND_ERR);
    assert_int_equal(ibv_dereg_mr(mr), EBUSY);
    assert_int_equal(ibv_destroy_qp(w->qps[1]), 0); /* takes the binding with it */
    w->qps[1] = NULL;
    assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_int_equal(ibv_dealloc_mw(mw), 0);
}

static void objects_are_imported_by_their_handles(void **state)
{
    struct world *w = *state;
    struct ibv_context *context = ibv_import_device(dup(w->context->cmd_fd));
    assert_non_null(context);
    assert_ptr_equal(context->device, w->context->device);
    assert_null(ibv_import_pd(context, w->pd->handle + 1));
    assert_int_equal(errno, ENOENT);
    struct ibv_pd *pd = ibv_import_pd(context, w->pd->handle);
    assert_non_null(pd);
    struct ibv_mr *mr = ibv_import_mr(pd, w->mr->handle);
    assert_non_null(mr);
    assert_int_equal(mr->lkey, w->mr->lkey);
    assert_int_equal(mr->rkey, w->mr->rkey);
    assert_int_equal(mr->length, w->mr->length);
    assert_null(mr->addr);
    assert_null(ibv_import_mr(pd, w->mr->handle + 1));
    assert_null(ibv_import_dm(context, 12345));
    ibv_unimport_mr(mr);
    ibv_unimport_pd(pd);
    assert_int_equal(ibv_close_device(context), 0);
}

static void only_our_own_descriptors_are_imported(void **state)
{
    struct world *w = *state;
    assert_null(ibv_import_device(-1));
    assert_int_equal(errno, EBADF);
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_null(ibv_import_device(file));
    assert_int_equal(errno, EINVAL);
    close(file);
    pid_t child = fork();
    if (child == 0) { /* another process, with the same descriptor */
        struct ibv_context *context = ibv_import_device(dup(w->context->cmd_fd));
        _exit(context == NULL && errno == EOPNOTSUPP ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(registering_anew_wants_sound_arguments),
        IN_WORLD(a_null_region_reads_as_zeroes),
        IN_WORLD(an_implicit_region_may_have_holes),
        IN_WORLD(a_hole_ends_long_messages_too),
        IN_WORLD(device_memory_is_counted_and_bounded),
        IN_WORLD(a_file_in_memory_serves_as_dma_buf),
        IN_WORLD(a_part_of_a_large_page_serves_as_dma_buf),
        IN_WORLD(a_window_holds_its_region),
        IN_WORLD(what_cannot_be_bound_is_refused_at_once),
        IN_WORLD(windows_of_type_2_are_bound_by_batches),
        IN_WORLD(objects_are_imported_by_their_handles),
        IN_WORLD(only_our_own_descriptors_are_imported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
