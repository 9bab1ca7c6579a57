/* Memory ends, at each place where a call asks for some: the call says ENOMEM, what it had taken is
 * given back, and it works when there is memory again.
 *
 * This program's own allocation functions stand before the C library's; only those of the test's
 * thread are counted and refused. */
#include "rnic/verbs/world_test.h"

#define VISIBLE __attribute__((visibility("default")))

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

static _Thread_local bool counts;
static _Thread_local int left = -1;   /* allocations until one is refused; negative: none is */
static _Thread_local int outstanding; /* blocks */

static bool refuses(void)
{
    return counts && left >= 0 && left-- == 0;
}

static void *counted(void *memory)
{
    outstanding += counts && memory != NULL;
    return memory;
}

static void *refused(void)
{
    errno = ENOMEM;
    return NULL;
}

VISIBLE void *malloc(size_t size)
{
    return refuses() ? refused() : counted(__libc_malloc(size));
}

VISIBLE void *calloc(size_t count, size_t size)
{
    return refuses() ? refused() : counted(__libc_calloc(count, size));
}

VISIBLE void *realloc(void *memory, size_t size)
{
    if (refuses()) {
        return refused();
    }
    void *moved = __libc_realloc(memory, size);
    return memory == NULL ? counted(moved) : moved;
}

VISIBLE int posix_memalign(void **ret_memory, size_t alignment, size_t size)
{
    void *memory = refuses() ? NULL : counted(__libc_memalign(alignment, size));
    *ret_memory = memory != NULL ? memory : *ret_memory;
    return memory != NULL ? 0 : ENOMEM;
}

VISIBLE void free(void *memory)
{
    outstanding -= counts && memory != NULL;
    __libc_free(memory);
}

#define PLACES_MAX 200

typedef void *maker(struct world *w);
typedef int unmaker(void *object);

/* Refuses the first allocation of the call, then the second, until all are given. */
static void exhaust(struct world *w, const char *name, maker *make, unmaker *unmake)
{
    void *object = make(w); /* what is only made once is there now */
    assert_non_null(object);
    assert_int_equal(unmake(object), 0);
    for (int place = 0;; place++) {
        assert_true(place < PLACES_MAX);
        outstanding = 0;
        left = place;
        errno = 0;
        counts = true;
        object = make(w);
        counts = false;
        bool was_refused = left < 0;
        left = -1;
        if (object == NULL) {
            assert_true(was_refused);
            if (errno != ENOMEM) {
                fail_msg("%s, allocation %d: errno %d", name, place, errno);
            }
            if (outstanding != 0) {
                fail_msg("%s, allocation %d: %d blocks are lost", name, place, outstanding);
            }
            continue;
        }
        counts = true;
        int error = unmake(object);
        counts = false;
        assert_int_equal(error, 0);
        if (outstanding != 0) {
            fail_msg("%s: %d blocks are lost when all goes well", name, outstanding);
        }
        if (!was_refused) {
            return;
        }
    }
}

static void *make_pd(struct world *w)
{
    return ibv_alloc_pd(w->context);
}

static int unmake_pd(void *pd)
{
    return ibv_dealloc_pd(pd);
}

static void *application_allocates(struct ibv_pd *pd, void *context, size_t size, size_t alignment,
                                   uint64_t type)
{
    void *memory;
    return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

static void application_frees(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
    free(memory);
}

static void *make_parent(struct world *w)
{
    struct ibv_parent_domain_init_attr init = {.pd = w->pd,
                                               .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
                                               .alloc = application_allocates,
                                               .free = application_frees};
    return ibv_alloc_parent_domain(w->context, &init);
}

static void *make_td(struct world *w)
{
    struct ibv_td_init_attr init = {0};
    return ibv_alloc_td(w->context, &init);
}

static int unmake_td(void *td)
{
    return ibv_dealloc_td(td);
}

static void *make_mr(struct world *w)
{
    return ibv_reg_mr(w->pd, w->bytes, 64, IBV_ACCESS_LOCAL_WRITE);
}

static void *make_null_mr(struct world *w)
{
    return ibv_alloc_null_mr(w->pd);
}

static int unmake_mr(void *mr)
{
    return ibv_dereg_mr(mr);
}

static void *make_dmabuf_mr(struct world *w)
{
    int file = memfd_create("exhausted", MFD_CLOEXEC);
    void *mr = ftruncate(file, 4096) != 0
                   ? NULL
                   : ibv_reg_dmabuf_mr(w->pd, 0, 4096, 0, file, IBV_ACCESS_LOCAL_WRITE);
    int error = errno;
    close(file);
    errno = error;
    return mr;
}

static void *make_mw(struct world *w)
{
    return ibv_alloc_mw(w->pd, IBV_MW_TYPE_2);
}

static int unmake_mw(void *mw)
{
    return ibv_dealloc_mw(mw);
}

static void *make_dm(struct world *w)
{
    struct ibv_alloc_dm_attr attributes = {.length = 64};
    return ibv_alloc_dm(w->context, &attributes);
}

static int unmake_dm(void *dm)
{
    return ibv_free_dm(dm);
}

static void *make_channel(struct world *w)
{
    return ibv_create_comp_channel(w->context);
}

static int unmake_channel(void *channel)
{
    return ibv_destroy_comp_channel(channel);
}

static void *make_cq(struct world *w)
{
    return ibv_create_cq(w->context, 8, NULL, w->channel, 0);
}

static int unmake_cq(void *cq)
{
    return ibv_destroy_cq(cq);
}

static void *make_cq_in_parent(struct world *w)
{
    struct ibv_cq_init_attr_ex init = {
        .cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = w->pd};
    return ibv_create_cq_ex(w->context, &init);
}

static void *make_srq(struct world *w)
{
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
    return ibv_create_srq(w->pd, &init);
}

static int unmake_srq(void *srq)
{
    return ibv_destroy_srq(srq);
}

static void *make_matching_srq(struct world *w)
{
    struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = 8, .max_sge = 1},
                                        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
                                        .srq_type = IBV_SRQT_TM,
                                        .pd = w->pd,
                                        .cq = w->cq,
                                        .tm_cap = {.max_num_tags = 8, .max_ops = 8}};
    return ibv_create_srq_ex(w->context, &init);
}

static void *make_xrcd(struct world *w)
{
    struct ibv_xrcd_init_attr init = {.comp_mask =
                                          IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = -1,
                                      .oflags = O_CREAT};
    return ibv_open_xrcd(w->context, &init);
}

static int unmake_xrcd(void *xrcd)
{
    return ibv_close_xrcd(xrcd);
}

static void *make_qp(struct world *w)
{
    struct ibv_qp_init_attr init = small(w->cq);
    return ibv_create_qp(w->pd, &init);
}

static void *make_ud(struct world *w)
{
    struct ibv_qp_init_attr init = small(w->cq);
    init.qp_type = IBV_QPT_UD;
    return ibv_create_qp(w->pd, &init);
}

static int unmake_qp(void *qp)
{
    return ibv_destroy_qp(qp);
}

static void *make_ah(struct world *w)
{
    struct ibv_ah_attr attributes = {.is_global = 1, .port_num = 1};
    return ibv_query_gid(w->context, 1, 0, &attributes.grh.dgid) != 0
               ? NULL
               : ibv_create_ah(w->pd, &attributes);
}

static int unmake_ah(void *ah)
{
    return ibv_destroy_ah(ah);
}

static void *make_context(struct world *w)
{
    return ibv_open_device(w->context->device);
}

static void *make_imported(struct world *w)
{
    int descriptor = dup(w->context->cmd_fd);
    void *context = ibv_import_device(descriptor);
    int error = errno;
    if (context == NULL) {
        close(descriptor); /* still ours */
    }
    errno = error;
    return context;
}

static int unmake_context(void *context)
{
    return ibv_close_device(context);
}

static void test_each_object(void **state)
{
    struct world *w = *state;
    exhaust(w, "a context", make_context, unmake_context);
    exhaust(w, "an imported context", make_imported, unmake_context);
    exhaust(w, "a domain", make_pd, unmake_pd);
    exhaust(w, "a parent domain", make_parent, unmake_pd);
    exhaust(w, "a thread domain", make_td, unmake_td);
    exhaust(w, "a region", make_mr, unmake_mr);
    exhaust(w, "a null region", make_null_mr, unmake_mr);
    exhaust(w, "a region of a descriptor", make_dmabuf_mr, unmake_mr);
    exhaust(w, "a window", make_mw, unmake_mw);
    exhaust(w, "device memory", make_dm, unmake_dm);
    exhaust(w, "a channel", make_channel, unmake_channel);
    exhaust(w, "a completion queue", make_cq, unmake_cq);
    exhaust(w, "a shared receive queue", make_srq, unmake_srq);
    exhaust(w, "one of tag matching", make_matching_srq, unmake_srq);
    exhaust(w, "an XRC domain", make_xrcd, unmake_xrcd);
    exhaust(w, "a queue pair", make_qp, unmake_qp);
    exhaust(w, "a datagram queue pair", make_ud, unmake_qp);
    exhaust(w, "an address handle", make_ah, unmake_ah);
}

/* The same, from an application's own allocator. */
static void test_in_a_parent_domain(void **state)
{
    struct world *w = *state;
    struct ibv_pd *plain = w->pd;
    w->pd = make_parent(w);
    assert_non_null(w->pd);
    exhaust(w, "a completion queue in a parent domain", make_cq_in_parent, unmake_cq);
    exhaust(w, "a shared receive queue in a parent domain", make_srq, unmake_srq);
    exhaust(w, "a queue pair in a parent domain", make_qp, unmake_qp);
    assert_int_equal(ibv_dealloc_pd(w->pd), 0);
    w->pd = plain;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(test_each_object),
        IN_WORLD(test_in_a_parent_domain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
