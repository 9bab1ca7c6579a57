/* Listening where memory ends: it fails, and the port is as it was. This program's own calloc
 * stands before the C library's. Public calls only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdlib.h>

void *__libc_calloc(size_t count, size_t size);

static _Thread_local int left = -1; /* allocations until one is refused; negative: none is */

__attribute__((visibility("default"))) void *calloc(size_t count, size_t size)
{
    if (left >= 0 && left-- == 0) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_calloc(count, size);
}

static struct rdma_cm_id *bind_shared(struct rdma_event_channel *channel, in_port_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = port};
    struct rdma_cm_id *id;
    int reuse = 1;
    assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(
        rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof reuse), 0);
    assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
    return id;
}

/* Who may share the port may still do so. */
static void a_port_where_listening_failed_is_bound(void **state)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id = bind_shared(channel, 0);
    int places = 0;
    for (;; places++) {
        left = places;
        int result = rdma_listen(id, 4);
        int error = errno;
        bool was_refused = left < 0;
        left = -1;
        if (!was_refused) {
            assert_int_equal(result, 0);
            break;
        }
        assert_int_equal(result, -1);
        assert_int_equal(error, ENOMEM);
        assert_int_equal(rdma_destroy_id(bind_shared(channel, rdma_get_src_port(id))), 0);
    }
    assert_true(places > 0);
    assert_int_equal(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_port_where_listening_failed_is_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
