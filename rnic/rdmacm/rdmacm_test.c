/* librdmacm.so.1 as programs see it: error returns, and both ends of a connection in one process.
 * Uses public calls only. */
#include "rnic/rdmacm/event_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct ends {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    struct rdma_cm_id *active;
    struct rdma_cm_id *passive;
    struct sockaddr_in address;
};

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = port, .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static void create_qp(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    assert_int_equal(rdma_create_qp(id, NULL, &init), 0);
    assert_non_null(id->qp);
    assert_ptr_equal(id->send_cq, init.send_cq);
    assert_ptr_equal(id->qp->recv_cq, id->recv_cq);
}

static int open_ends(void **state)
{
    struct ends *ends = calloc(1, sizeof *ends);
    ends->channel = rdma_create_event_channel();
    assert_non_null(ends->channel);
    ends->address = loopback(0);
    assert_int_equal(rdma_create_id(ends->channel, &ends->listener, ends, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(ends->listener, (struct sockaddr *)&ends->address), 0);
    assert_int_equal(rdma_listen(ends->listener, 8), 0);
    ends->address.sin_port = rdma_get_src_port(ends->listener);
    assert_int_not_equal(ends->address.sin_port, 0);
    assert_int_equal(rdma_create_id(ends->channel, &ends->active, NULL, RDMA_PS_TCP), 0);
    *state = ends;
    return 0;
}

static void destroy(struct rdma_cm_id *id)
{
    if (id != NULL) {
        rdma_destroy_qp(id);
        assert_int_equal(rdma_destroy_id(id), 0);
    }
}

static int close_ends(void **state)
{
    struct ends *ends = *state;
    destroy(ends->active);
    destroy(ends->passive);
    destroy(ends->listener);
    rdma_destroy_event_channel(ends->channel);
    free(ends);
    return 0;
}

static void resolve(struct ends *ends)
{
    assert_int_equal(rdma_resolve_addr(ends->active, NULL, (struct sockaddr *)&ends->address, 2000),
                     0);
    pass(ends->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_non_null(ends->active->verbs);
    assert_int_equal(ends->active->port_num, 1);
    assert_int_equal(rdma_resolve_route(ends->active, 2000), 0);
    pass(ends->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    assert_int_equal(ends->active->route.num_paths, 1);
}

/* Up to the request; leaves it as ends->passive. */
static void request(struct ends *ends, const char *data, uint8_t length)
{
    struct rdma_conn_param param = {.private_data = data,
                                    .private_data_len = length,
                                    .responder_resources = 3,
                                    .initiator_depth = 5,
                                    .retry_count = 7,
                                    .rnr_retry_count = 6};
    resolve(ends);
    create_qp(ends->active);
    assert_int_equal(rdma_connect(ends->active, &param), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ends->passive = event->id;
    assert_ptr_equal(event->listen_id, ends->listener);
    assert_ptr_equal(event->id->context, ends);
    assert_non_null(event->id->verbs);
    assert_non_null(event->id->pd);
    assert_int_equal(event->id->route.num_paths, 1);
    assert_int_equal(rdma_get_src_port(event->id), ends->address.sin_port);
    assert_int_equal(rdma_get_dst_port(event->id), rdma_get_src_port(ends->active));
    assert_int_equal(event->param.conn.private_data_len, 56);
    assert_memory_equal(event->param.conn.private_data, data, length);
    assert_int_equal(event->param.conn.responder_resources, 5);
    assert_int_equal(event->param.conn.initiator_depth, 3);
    assert_int_equal(event->param.conn.rnr_retry_count, 6);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

static void test_arguments(void **state)
{
    struct ends *ends = *state;
    struct rdma_cm_id *id;
    struct rdma_conn_param param = {.private_data = "", .private_data_len = 57};
    assert_int_equal(rdma_create_id(ends->channel, &id, NULL, (enum rdma_port_space)77), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_resolve_addr(ends->active, NULL, NULL, 1000), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_resolve_route(ends->active, 1000), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_connect(ends->active, NULL), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_disconnect(ends->active), -1);
    assert_int_equal(errno, EINVAL);
    struct sockaddr_in strange = {.sin_family = AF_INET, .sin_addr = {htonl(0xc6336401)}};
    assert_int_equal(rdma_bind_addr(ends->active, (struct sockaddr *)&strange), -1);
    assert_int_equal(errno, ENODEV);
    resolve(ends);
    assert_int_equal(rdma_connect(ends->active, &param), -1);
    assert_int_equal(errno, EINVAL);
}

/* Both said at once, as by Linux. */
static void test_no_route(void **state)
{
    struct ends *ends = *state;
    struct sockaddr_in6 other = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in far = {.sin_family = AF_INET, .sin_addr = {htonl(0xcb007101)}};
    struct rdma_cm_id *id;
    assert_int_equal(rdma_create_id(ends->channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&loopback), 0);
    errno = 0;
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&other, 1000), -1);
    assert_int_equal(errno, EINVAL);
    errno = 0; /* nothing leads from there */
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&far, 1000), -1);
    assert_int_equal(errno, ENETUNREACH);
    assert_int_equal(rdma_destroy_id(id), 0);
}

static void test_channel_does_not_block(void **state)
{
    struct ends *ends = *state;
    struct rdma_cm_event *event;
    int flags = fcntl(ends->channel->fd, F_GETFL);
    assert_int_equal(fcntl(ends->channel->fd, F_SETFL, flags | O_NONBLOCK), 0);
    assert_int_equal(rdma_get_cm_event(ends->channel, &event), -1);
    assert_int_equal(errno, EAGAIN);
}

static void test_ports_are_taken_once(void **state)
{
    struct ends *ends = *state;
    struct rdma_cm_id *id;
    assert_int_equal(rdma_create_id(ends->channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&ends->address), -1);
    assert_int_equal(errno, EADDRINUSE);
    assert_int_equal(rdma_destroy_id(id), 0);
}

static void test_both_families_on_one_port(void **state)
{
    struct ends *ends = *state;
    struct rdma_cm_id *four;
    struct rdma_cm_id *six;
    struct sockaddr_in any4 = {.sin_family = AF_INET};
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
    int yes = 1;
    assert_int_equal(rdma_create_id(ends->channel, &four, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_create_id(ends->channel, &six, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(four, (struct sockaddr *)&any4), 0);
    any6.sin6_port = rdma_get_src_port(four);
    assert_int_equal(rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes),
                     0);
    assert_int_equal(rdma_bind_addr(six, (struct sockaddr *)&any6), 0);
    assert_int_equal(rdma_listen(four, 1), 0);
    assert_int_equal(rdma_listen(six, 1), 0);

    ends->address = loopback(any6.sin6_port);
    resolve(ends);
    create_qp(ends->active);
    assert_int_equal(rdma_connect(ends->active, NULL), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_ptr_equal(event->listen_id, four);
    ends->passive = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(rdma_destroy_id(four), 0);
    assert_int_equal(rdma_destroy_id(six), 0);
}

static void test_connection(void **state)
{
    struct ends *ends = *state;
    char hello[56] = "hello";
    hello[55] = '!';
    request(ends, hello, sizeof hello);
    create_qp(ends->passive);
    struct rdma_conn_param param = {.private_data = "welcome",
                                    .private_data_len = 8,
                                    .responder_resources = 5,
                                    .initiator_depth = 3,
                                    .rnr_retry_count = 7};
    uint32_t received = 0;
    uint32_t sent = 0x12345678;
    struct ibv_mr *to = rdma_reg_msgs(ends->passive, &received, sizeof received);
    struct ibv_mr *from = rdma_reg_msgs(ends->active, &sent, sizeof sent);
    assert_int_equal(rdma_post_recv(ends->passive, NULL, &received, sizeof received, to), 0);
    assert_int_equal(rdma_accept(ends->passive, &param), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_ESTABLISHED);
    assert_ptr_equal(event->id, ends->active);
    assert_memory_equal(event->param.conn.private_data, "welcome", 8);
    assert_int_equal(event->param.conn.private_data_len, 196);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    event = expect(ends->channel, RDMA_CM_EVENT_ESTABLISHED);
    assert_ptr_equal(event->id, ends->passive);
    assert_int_equal(rdma_ack_cm_event(event), 0);

    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(ends->active->qp, &attributes, 0, &init), 0);
    assert_int_equal(attributes.qp_state, IBV_QPS_RTS);
    assert_int_equal(attributes.max_rd_atomic, 5);
    assert_int_equal(attributes.max_dest_rd_atomic, 3);
    assert_int_equal(attributes.dest_qp_num, ends->passive->qp->qp_num);
    assert_int_equal(ibv_query_qp(ends->passive->qp, &attributes, 0, &init), 0);
    assert_int_equal(attributes.max_rd_atomic, 3);
    assert_int_equal(attributes.rnr_retry, 6);

    struct ibv_wc wc;
    assert_int_equal(rdma_post_send(ends->active, NULL, &sent, sizeof sent, from, 0), 0);
    assert_int_equal(rdma_get_recv_comp(ends->passive, &wc), 1);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(received, sent);
    assert_int_equal(rdma_get_send_comp(ends->active, &wc), 1);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);

    assert_int_equal(rdma_disconnect(ends->active), 0);
    pass(ends->channel, RDMA_CM_EVENT_DISCONNECTED);
    pass(ends->channel, RDMA_CM_EVENT_DISCONNECTED);
    assert_int_equal(rdma_disconnect(ends->passive), 0);
    assert_int_equal(ibv_query_qp(ends->passive->qp, &attributes, 0, &init), 0);
    assert_int_equal(attributes.qp_state, IBV_QPS_ERR);
    assert_int_equal(rdma_dereg_mr(to), 0);
    assert_int_equal(rdma_dereg_mr(from), 0);
}

static void test_rejection(void **state)
{
    struct ends *ends = *state;
    request(ends, "hello", 6);
    assert_int_equal(rdma_reject(ends->passive, "no", 3), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_REJECTED);
    assert_ptr_equal(event->id, ends->active);
    assert_int_equal(event->status, 28);
    assert_string_equal(event->param.conn.private_data, "no");
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

static void test_nobody_listens(void **state)
{
    struct ends *ends = *state;
    assert_int_equal(rdma_destroy_id(ends->listener), 0);
    ends->listener = NULL;
    resolve(ends);
    create_qp(ends->active);
    assert_int_equal(rdma_connect(ends->active, NULL), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(event->status, 8);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

/* A listener that goes takes along the requests that nobody has looked at. */
static void test_listener_goes_with_requests(void **state)
{
    struct ends *ends = *state;
    struct rdma_event_channel *own = rdma_create_event_channel();
    assert_int_equal(rdma_migrate_id(ends->listener, own), 0);
    resolve(ends);
    create_qp(ends->active);
    assert_int_equal(rdma_connect(ends->active, NULL), 0);
    struct pollfd wait = {.fd = own->fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 20000), 1);
    assert_int_equal(rdma_destroy_id(ends->listener), 0);
    ends->listener = NULL;
    assert_int_equal(poll(&wait, 1, 0), 0);
    rdma_destroy_event_channel(own);
    pass(ends->channel, RDMA_CM_EVENT_REJECTED);
}

static void test_external_queue_pair(void **state)
{
    struct ends *ends = *state;
    resolve(ends);
    struct rdma_conn_param param = {.qp_num = 0x1234, .retry_count = 7};
    assert_int_equal(rdma_connect(ends->active, &param), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ends->passive = event->id;
    assert_int_equal(event->param.conn.qp_num, 0x1234);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    param.qp_num = 0x4321;
    assert_int_equal(rdma_accept(ends->passive, &param), 0);
    event = expect(ends->channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(event->param.conn.qp_num, 0x4321);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR};
    int mask;
    assert_int_equal(rdma_init_qp_attr(ends->active, &attributes, &mask), 0);
    assert_int_equal(attributes.dest_qp_num, 0x4321);
    assert_true((mask & IBV_QP_DEST_QPN) != 0);
    assert_int_equal(rdma_establish(ends->active), 0);
    event = expect(ends->channel, RDMA_CM_EVENT_ESTABLISHED);
    assert_ptr_equal(event->id, ends->passive);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

/* What a forking server does: the child closes what it inherited, before and after it has begun
 * anew itself. */
static void test_inherited_ids(void **state)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip(); /* TSan allows no thread after a fork with threads; ASan's allocator stays locked */
#endif
    struct ends *ends = *state;
    pid_t child = fork();
    if (child == 0) {
        struct rdma_cm_id *fresh;
        alarm(20);
        int refused = rdma_listen(ends->listener, 1);
        rdma_destroy_id(ends->listener);
        int made = rdma_create_id(ends->channel, &fresh, NULL, RDMA_PS_TCP);
        refused += rdma_bind_addr(ends->active, (struct sockaddr *)&ends->address);
        rdma_destroy_id(ends->active);
        made += rdma_bind_addr(fresh, NULL) == -1 ? 0 : 1;
        rdma_destroy_id(fresh);
        _exit(refused == -2 && made == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    request(ends, "still here", 11);
}

/* A child begins anew, whatever its parent had open. */
static void test_after_fork(void **state)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip(); /* TSan allows no thread after a fork with threads; ASan's allocator stays locked */
#endif
    struct ends *ends = *state;
    pid_t child = fork();
    if (child == 0) {
        struct ends *own;
        open_ends((void **)&own);
        resolve(own);
        create_qp(own->active);
        assert_int_equal(rdma_connect(own->active, NULL), 0);
        struct rdma_cm_event *event = expect(own->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
        own->passive = event->id;
        assert_int_equal(rdma_ack_cm_event(event), 0);
        close_ends((void **)&own);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    request(ends, "still here", 11);
}

/* A child that can open nothing ends what it inherited all the same. */
static void test_inherited_without_a_device(void **state)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip(); /* TSan allows no thread after a fork with threads; ASan's allocator stays locked */
#endif
    struct ends *ends = *state;
    request(ends, "hello", 5);
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0, 0};
        struct rdma_cm_id *fresh;
        alarm(20);
        bool opened = setrlimit(RLIMIT_NOFILE, &none) != 0 ||
                      rdma_create_id(ends->channel, &fresh, NULL, RDMA_PS_TCP) == 0;
        rdma_disconnect(ends->active);
        rdma_reject(ends->passive, NULL, 0);
        rdma_destroy_id(ends->passive);
        rdma_destroy_id(ends->active);
        _exit(opened ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void *serve(void *argument)
{
    struct rdma_cm_id *listener = argument;
    struct rdma_cm_id *id;
    assert_int_equal(rdma_get_request(listener, &id), 0);
    assert_non_null(id->qp);
    assert_int_equal(rdma_accept(id, NULL), 0);
    assert_int_equal(rdma_disconnect(id), 0);
    rdma_destroy_ep(id);
    return NULL;
}

static void test_endpoints(void **state)
{
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP};
    struct rdma_addrinfo *info;
    struct ibv_qp_init_attr init = {.cap = {2, 2, 1, 1, 0}};
    struct rdma_cm_id *listener;
    struct rdma_cm_id *id;
    pthread_t server;
    char port[8];
    assert_int_equal(rdma_getaddrinfo("127.0.0.1", "0", &hints, &info), 0);
    assert_null(info->ai_dst_addr);
    assert_int_equal(rdma_create_ep(&listener, info, NULL, &init), 0);
    rdma_freeaddrinfo(info);
    assert_int_equal(rdma_listen(listener, 1), 0);
    assert_int_equal(pthread_create(&server, NULL, serve, listener), 0);

    snprintf(port, sizeof port, "%u", ntohs(rdma_get_src_port(listener)));
    hints.ai_flags = 0;
    assert_int_equal(rdma_getaddrinfo("127.0.0.1", port, &hints, &info), 0);
    assert_null(info->ai_src_addr);
    assert_int_equal(rdma_create_ep(&id, info, NULL, &init), 0);
    rdma_freeaddrinfo(info);
    assert_int_equal(init.qp_type, IBV_QPT_RC);
    assert_int_equal(rdma_connect(id, NULL), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(rdma_disconnect(id), 0);
    assert_int_equal(pthread_join(server, NULL), 0);
    rdma_destroy_ep(id);
    rdma_destroy_ep(listener);
}

/* The host cannot be asked whether it is there; what else there is stays. */
static void look_for_an_address_in_vain(struct ends *ends)
{
    struct sockaddr_in elsewhere = ends->address;
    struct rdma_cm_id *id;
    union ibv_gid gid;
    elsewhere.sin_addr.s_addr = htonl(0xc6336401); /* 198.51.100.1 */
    assert_int_equal(rdma_create_id(ends->channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&elsewhere), -1);
    assert_int_equal(rdma_destroy_id(id), 0);
    assert_int_equal(ibv_query_gid(ends->active->verbs, 1, 0, &gid), 0);
    assert_int_not_equal(gid.global.interface_id, 0);
}

/* A request for a synchronous listener needs a channel: without one its sender is told, and the
 * listener goes on. */
static void test_no_descriptors(void **state)
{
    struct ends *ends = *state;
    struct rdma_cm_id *listener, *request;
    struct rlimit before, few = {.rlim_cur = 32};
    struct sockaddr_in address = loopback(0);
    assert_int_equal(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&address), 0);
    assert_int_equal(rdma_listen(listener, 8), 0);
    assert_int_equal(fcntl(listener->channel->fd, F_SETFL, O_NONBLOCK), 0);
    ends->address.sin_port = rdma_get_src_port(listener);
    resolve(ends);
    create_qp(ends->active);
    int last = dup(0);
    while (last < (int)few.rlim_cur - 1) {
        last = dup(0);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct rdma_conn_param param = {.retry_count = 7};
    assert_int_equal(rdma_connect(ends->active, &param), 0);
    struct pollfd wait = {.fd = listener->channel->fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 20000), 1);
    int result = rdma_get_request(listener, &request), error = errno;
    look_for_an_address_in_vain(ends);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(result, -1);
    assert_int_equal(error, EAGAIN);
    pass(ends->channel, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(rdma_destroy_id(listener), 0);
}

/* An id may be destroyed while another thread is at its events. */
struct taker {
    struct rdma_event_channel *channel;
    atomic_bool ends;
};

static void *take_events(void *context)
{
    struct taker *taker = context;
    struct rdma_cm_event *event;
    while (!atomic_load(&taker->ends)) {
        if (rdma_get_cm_event(taker->channel, &event) == 0) {
            rdma_ack_cm_event(event);
        }
    }
    return NULL;
}

/* What rdma_create_qp made, for who destroys the id first: of the id, nothing else is read. */
static void destroy_parts(const struct rdma_cm_id *id)
{
    assert_int_equal(ibv_destroy_qp(id->qp), 0);
    assert_int_equal(ibv_destroy_cq(id->send_cq), 0);
    assert_int_equal(ibv_destroy_cq(id->recv_cq), 0);
    assert_int_equal(ibv_destroy_comp_channel(id->send_cq_channel), 0);
    assert_int_equal(ibv_destroy_comp_channel(id->recv_cq_channel), 0);
}

static void test_destroy_among_events(void **state)
{
    struct ends *ends = *state;
    for (unsigned i = 0; i < 500; i++) {
        struct rdma_event_channel *channel = rdma_create_event_channel();
        struct rdma_cm_id *active;
        pthread_t thread;
        assert_int_equal(rdma_create_id(channel, &active, NULL, RDMA_PS_TCP), 0);
        assert_int_equal(rdma_resolve_addr(active, NULL, (struct sockaddr *)&ends->address, 2000),
                         0);
        pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
        assert_int_equal(rdma_resolve_route(active, 2000), 0);
        pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
        create_qp(active);
        struct rdma_conn_param param = {.retry_count = 7};
        assert_int_equal(rdma_connect(active, &param), 0);
        struct rdma_cm_event *asked = expect(ends->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
        struct rdma_cm_id *passive = asked->id;
        rdma_ack_cm_event(asked);
        create_qp(passive);
        assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
        struct taker taker = {.channel = channel};
        assert_int_equal(pthread_create(&thread, NULL, take_events, &taker), 0);
        assert_int_equal(rdma_accept(passive, &param), 0);
        for (volatile unsigned spin = 0; spin < i % 100 * 300; spin++) {
        }
        struct rdma_cm_id parts = *active; /* outlive it: only the id is to be the matter */
        assert_int_equal(rdma_destroy_id(active), 0);
        atomic_store(&taker.ends, true);
        pthread_join(thread, NULL);
        destroy_parts(&parts);
        destroy(passive);
        rdma_destroy_event_channel(channel);
    }
}

#define WITH_ENDS(test) cmocka_unit_test_setup_teardown(test, open_ends, close_ends)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_ENDS(test_arguments),
        WITH_ENDS(test_no_route),
        WITH_ENDS(test_channel_does_not_block),
        WITH_ENDS(test_ports_are_taken_once),
        WITH_ENDS(test_both_families_on_one_port),
        WITH_ENDS(test_connection),
        WITH_ENDS(test_rejection),
        WITH_ENDS(test_nobody_listens),
        WITH_ENDS(test_listener_goes_with_requests),
        WITH_ENDS(test_external_queue_pair),
        WITH_ENDS(test_inherited_ids),
        WITH_ENDS(test_after_fork),
        WITH_ENDS(test_inherited_without_a_device),
        WITH_ENDS(test_no_descriptors),
        WITH_ENDS(test_destroy_among_events),
        cmocka_unit_test(test_endpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
