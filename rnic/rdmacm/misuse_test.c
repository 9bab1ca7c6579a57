/* Calls that a careful program would not make, and what they do all the same. Public calls only. */
#include "rnic/rdmacm/event_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct ends {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener, *active, *passive;
};

static void create_qp(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .qp_type = id->qp_type};
    assert_int_equal(rdma_create_qp(id, NULL, &init), 0);
}

/* Up to a route and a queue pair of the active side. */
static struct ends open_ends(enum rdma_port_space space)
{
    struct ends ends = {.channel = rdma_create_event_channel()};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    assert_int_equal(rdma_create_id(ends.channel, &ends.listener, NULL, space), 0);
    assert_int_equal(rdma_bind_addr(ends.listener, (struct sockaddr *)&address), 0);
    assert_int_equal(rdma_listen(ends.listener, 8), 0);
    address.sin_port = rdma_get_src_port(ends.listener);
    assert_int_equal(rdma_create_id(ends.channel, &ends.active, NULL, space), 0);
    assert_int_equal(rdma_resolve_addr(ends.active, NULL, (struct sockaddr *)&address, 2000), 0);
    pass(ends.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(ends.active, 2000), 0);
    pass(ends.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    create_qp(ends.active);
    return ends;
}

static void destroy(struct rdma_cm_id *id)
{
    if (id != NULL) {
        rdma_destroy_qp(id);
        assert_int_equal(rdma_destroy_id(id), 0);
    }
}

static void close_ends(struct ends *ends)
{
    destroy(ends->active);
    destroy(ends->passive);
    destroy(ends->listener);
    rdma_destroy_event_channel(ends->channel);
}

static void take_request(struct ends *ends)
{
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ends->passive = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

/* More than any message holds, of nothing. */
static void request_without_data(struct ends *ends)
{
    struct rdma_conn_param param = {.private_data_len = 255, .retry_count = 7};
    assert_int_equal(rdma_connect(ends->active, &param), 0);
    take_request(ends);
}

static void length_without_data(enum rdma_port_space space)
{
    struct ends ends = open_ends(space);
    struct rdma_conn_param param = {.private_data_len = 255};
    request_without_data(&ends);
    create_qp(ends.passive);
    assert_int_equal(rdma_accept(ends.passive, &param), 0);
    pass(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
    close_ends(&ends);

    ends = open_ends(space);
    request_without_data(&ends);
    assert_int_equal(rdma_reject(ends.passive, NULL, 255), 0);
    pass(ends.channel, space == RDMA_PS_TCP ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_UNREACHABLE);
    close_ends(&ends);
}

static void test_length_without_data(void **state)
{
    (void)state;
    length_without_data(RDMA_PS_TCP);
    length_without_data(RDMA_PS_UDP);
}

/* Programs end a queue pair so before it is connected, and wait for its receives. */
static void test_disconnect_without_connection(void **state)
{
    struct ends ends = open_ends(RDMA_PS_TCP);
    static uint8_t bytes[8];
    struct ibv_mr *mr = ibv_reg_mr(ends.active->pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge sge = {(uintptr_t)bytes, sizeof bytes, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad;
    struct ibv_wc completion;
    (void)state;
    assert_int_equal(ibv_post_recv(ends.active->qp, &wr, &bad), 0);
    assert_int_equal(rdma_disconnect(ends.active), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(ibv_poll_cq(ends.active->recv_cq, 1, &completion), 1);
    assert_int_equal(completion.wr_id, 7);
    assert_int_equal(completion.status, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    close_ends(&ends);
}

/* The peer goes before it is accepted, which nobody is told of: what the id's context says is the
 * listener's still. False: the peer's word was not here in time. */
static bool goes_in_time(int pause_ms)
{
    struct ends ends = open_ends(RDMA_PS_TCP);
    struct pollfd told = {.fd = ends.channel->fd, .events = POLLIN};
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    assert_int_equal(rdma_connect(ends.active, NULL), 0);
    take_request(&ends);
    create_qp(ends.passive);
    destroy(ends.active);
    ends.active = NULL;
    assert_int_equal(poll(&told, 1, pause_ms), 0);
    bool is_refused = rdma_accept(ends.passive, NULL) != 0;
    assert_true(!is_refused || errno == EINVAL);
    assert_int_equal(ibv_query_qp(ends.passive->qp, &attributes, IBV_QP_STATE, &init), 0);
    assert_true(!is_refused || attributes.qp_state == IBV_QPS_ERR);
    close_ends(&ends);
    return is_refused;
}

/* It shows when it is accepted, and nothing arrives any more. */
static void test_accept_of_who_has_gone(void **state)
{
    for (int pause_ms = 1; !goes_in_time(pause_ms); pause_ms *= 2) {
        assert_true(pause_ms < 10000);
    }
}

/* The first state is refused: no such port. */
static void test_queue_pair_that_fails(void **state)
{
    struct ends ends = open_ends(RDMA_PS_TCP);
    struct rdma_cm_id *id = ends.active;
    struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_UC};
    uint8_t port = id->port_num;
    (void)state;
    rdma_destroy_qp(id);
    id->port_num = 99;
    assert_int_equal(rdma_create_qp(id, NULL, &init), -1);
    assert_int_equal(errno, EINVAL);
    assert_null(id->qp);
    assert_int_equal(id->qp_type, IBV_QPT_RC);
    struct ibv_qp_init_attr_ex extended = {.cap = init.cap, .qp_type = IBV_QPT_RC};
    assert_int_equal(rdma_create_qp_ex(id, &extended), -1);
    assert_null(extended.send_cq); /* they went with it */
    assert_null(extended.recv_cq);
    id->port_num = port;
    assert_int_equal(rdma_create_qp_ex(id, &extended), 0);
    rdma_destroy_qp(id);
    create_qp(id);
    close_ends(&ends);
}

/* The number that the next descriptor gets. */
static int next_descriptor(void)
{
    int next = dup(STDIN_FILENO);
    assert_true(next >= 0);
    close(next);
    return next;
}

/* What a program puts into the id before is the queue pair's, and stays the program's. */
static void test_queues_of_the_program(void **state)
{
    struct ends ends = open_ends(RDMA_PS_TCP);
    struct rdma_cm_id *id = ends.active;
    rdma_destroy_qp(id);
    struct ibv_cq *queue = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
    id->send_cq = queue;
    id->recv_cq = queue;
    create_qp(id);
    assert_ptr_equal(id->qp->send_cq, queue);
    assert_ptr_equal(id->qp->recv_cq, queue);
    assert_ptr_equal(id->recv_cq, queue);
    rdma_destroy_qp(id);
    assert_int_equal(ibv_destroy_cq(queue), 0);
    id->send_cq = NULL;
    id->recv_cq = NULL;
    close_ends(&ends);
}

/* Refused for its completion queue's size, or for its own; with less it works, and nothing stays.
 */
static void test_shared_receive_queue_that_fails(void **state)
{
    struct ends ends = open_ends(RDMA_PS_TCP);
    struct ibv_srq_init_attr_ex init = {.comp_mask = IBV_SRQ_INIT_ATTR_TYPE,
                                        .srq_type = IBV_SRQT_XRC,
                                        .attr = {.max_wr = UINT32_MAX / 4, .max_sge = 1}};
    struct rdma_cm_id *id = ends.active;
    (void)state;
    rdma_destroy_qp(id);
    assert_int_equal(rdma_create_srq_ex(id, &init), -1); /* the default domain is open now */
    const int before = next_descriptor();
    assert_int_equal(rdma_create_srq_ex(id, &init), -1);
    assert_null(init.cq);
    init.attr = (struct ibv_srq_attr){.max_wr = 8, .max_sge = UINT32_MAX};
    assert_int_equal(rdma_create_srq_ex(id, &init), -1);
    assert_null(init.cq);
    assert_null(id->recv_cq);
    assert_null(id->recv_cq_channel);
    assert_int_equal(next_descriptor(), before);
    init.attr.max_sge = 1;
    assert_int_equal(rdma_create_srq_ex(id, &init), 0);
    assert_ptr_equal(init.cq, id->recv_cq);
    struct ibv_qp_init_attr qp_init = {.cap = {4, 4, 1, UINT32_MAX, 0},
                                       .qp_type = IBV_QPT_XRC_RECV};
    id->port_num = 99;
    assert_int_equal(rdma_create_qp(id, NULL, &qp_init), -1);
    id->port_num = 1;
    assert_non_null(id->recv_cq);
    rdma_destroy_srq(id);
    assert_null(id->recv_cq);
    assert_int_equal(next_descriptor(), before);
    close_ends(&ends);
}

/* Who would share a port may have it chosen, as long as nobody listens. */
static void test_chosen_port_is_shared(void **state)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct rdma_cm_id *ids[3];
    int reuse = 1;
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rdma_create_id(channel, &ids[i], NULL, RDMA_PS_TCP), 0);
        if (i < 2) {
            assert_int_equal(rdma_set_option(ids[i], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR,
                                             &reuse, sizeof reuse),
                             0);
        }
    }
    assert_int_equal(rdma_bind_addr(ids[0], (struct sockaddr *)&address), 0);
    address.sin_port = rdma_get_src_port(ids[0]);
    assert_int_equal(rdma_bind_addr(ids[1], (struct sockaddr *)&address), 0);
    assert_int_equal(rdma_bind_addr(ids[2], (struct sockaddr *)&address), -1);
    assert_int_equal(errno, EADDRINUSE);
    for (int i = 0; i < 3; i++) {
        destroy(ids[i]);
    }
    rdma_destroy_event_channel(channel);
}

/* What is asked for without a figure is what the device has, in strict mode as well. */
static void test_reads_at_once(void **state)
{
    struct ends ends = open_ends(RDMA_PS_TCP);
    struct ibv_device_attr device;
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    struct rdma_conn_param param = {.retry_count = 7};
    (void)state;
    assert_int_equal(ibv_query_device(ends.active->verbs, &device), 0);
    param.responder_resources = (uint8_t)(device.max_qp_rd_atom + 1);
    assert_int_equal(rdma_connect(ends.active, &param), -1);
    assert_int_equal(errno, EINVAL);
    param.responder_resources = 0;
    param.initiator_depth = (uint8_t)(device.max_qp_init_rd_atom + 1);
    assert_int_equal(rdma_connect(ends.active, &param), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_connect(ends.active, NULL), 0);
    take_request(&ends);
    create_qp(ends.passive);
    assert_int_equal(rdma_accept(ends.passive, NULL), 0);
    pass(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
    pass(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(ibv_query_qp(ends.passive->qp, &attributes, IBV_QP_MAX_DEST_RD_ATOMIC, &init),
                     0);
    assert_int_equal(attributes.max_dest_rd_atomic, device.max_qp_rd_atom);
    close_ends(&ends);
}

static _Atomic pid_t destroyer;

static void *destroy_in_thread(void *id)
{
    atomic_store(&destroyer, gettid());
    assert_int_equal(rdma_destroy_id(id), 0);
    return NULL;
}

static bool sleeps(pid_t thread)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    bool is_read = file != NULL && fscanf(file, "%*d %*s %c", &state) == 1;
    if (file != NULL) {
        fclose(file);
    }
    return is_read && state == 'S';
}

/* Who waits for an acknowledgement and is cancelled ends what he began, and keeps no lock. */
static void test_destroy_is_cancelled(void **state)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct rdma_cm_id *id;
    pthread_t thread;
    (void)state;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
        assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000), 0);
        struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
        assert_int_equal(pthread_create(&thread, NULL, destroy_in_thread, id), 0);
        assert_int_equal(pthread_cancel(thread), 0);
        sched_yield();
        assert_int_equal(rdma_ack_cm_event(event), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    rdma_destroy_event_channel(channel);
}

static void *create_while_cancelled(void *channel)
{
    struct rdma_cm_id *id;
    assert_int_equal(pthread_cancel(pthread_self()), 0);
    assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_destroy_id(id), 0);
    return NULL;
}

struct migration {
    struct rdma_cm_id *id;
    struct rdma_event_channel *channel;
};

static void *migrate_in_thread(void *argument)
{
    struct migration *migration = argument;
    atomic_store(&destroyer, gettid());
    assert_int_equal(rdma_migrate_id(migration->id, migration->channel), 0);
    return NULL;
}

static void test_others_are_cancelled(void **state)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct migration migration = {.channel = rdma_create_event_channel()};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, create_while_cancelled, channel), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(rdma_create_id(channel, &migration.id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(migration.id, NULL, (struct sockaddr *)&address, 2000), 0);
    struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    atomic_store(&destroyer, 0);
    assert_int_equal(pthread_create(&thread, NULL, migrate_in_thread, &migration), 0);
    while (atomic_load(&destroyer) == 0 || !sleeps(atomic_load(&destroyer))) {
        usleep(1000);
    }
    assert_int_equal(pthread_cancel(thread), 0);
    usleep(1000);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(rdma_resolve_route(migration.id, 2000), 0);
    pass(migration.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    destroy(migration.id);
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(migration.channel);
}

/* A thread goes on with what an event asks for while another one ends the id, and acknowledges the
 * event only then. What it asks for would be told to nobody. */
static void test_destroyed_while_in_use(void **state)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
    struct rdma_conn_param param = {.qp_num = 5};
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;
    pthread_t thread;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
        assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000), 0);
        event = expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
        if (i == 1) {
            assert_int_equal(rdma_ack_cm_event(event), 0);
            assert_int_equal(rdma_resolve_route(id, 2000), 0);
            event = expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
        }
        atomic_store(&destroyer, 0);
        assert_int_equal(pthread_create(&thread, NULL, destroy_in_thread, id), 0);
        while (atomic_load(&destroyer) == 0 || !sleeps(atomic_load(&destroyer))) {
            usleep(1000);
        }
        assert_int_equal(i == 0 ? rdma_resolve_route(id, 2000) : rdma_connect(id, &param), -1);
        assert_int_equal(errno, ENOENT);
        assert_int_equal(rdma_ack_cm_event(event), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(poll(&ready, 1, 0), 0);
    }
    rdma_destroy_event_channel(channel);
}

/* The request came before the listener moved to where it is taken, and took its channel along. */
static void test_migrated_with_a_request(void **state)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct ends ends = {.channel = rdma_create_event_channel()};
    struct rdma_conn_param param = {.retry_count = 7};
    (void)state;
    assert_int_equal(rdma_create_id(NULL, &ends.listener, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(ends.listener, (struct sockaddr *)&address), 0);
    assert_int_equal(rdma_listen(ends.listener, 8), 0);
    address.sin_port = rdma_get_src_port(ends.listener);
    assert_int_equal(rdma_create_id(channel, &ends.active, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(ends.active, NULL, (struct sockaddr *)&address, 2000), 0);
    pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(ends.active, 2000), 0);
    pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    create_qp(ends.active);
    assert_int_equal(rdma_connect(ends.active, &param), 0);
    struct pollfd ready = {.fd = ends.listener->channel->fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 20000), 1);
    assert_int_equal(rdma_migrate_id(ends.listener, ends.channel), 0);
    take_request(&ends);
    assert_ptr_equal(ends.passive->channel, ends.channel);
    create_qp(ends.passive);
    assert_int_equal(rdma_accept(ends.passive, &param), 0);
    pass(channel, RDMA_CM_EVENT_ESTABLISHED);
    pass(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
    close_ends(&ends);
    rdma_destroy_event_channel(channel);
}

/* Its join is the event that the id still has. */
static void test_synchronous_leave(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr = {htonl(0xef010204)}};
    struct rdma_cm_id *id;
    (void)state;
    assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP), 0);
    assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
    create_qp(id);
    assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
    assert_int_equal(rdma_leave_multicast(id, (struct sockaddr *)&group), 0);
    assert_null(id->event);
    destroy(id);
}

/* What happens to the ids then is told to nobody, and they end as others do. */
static void test_channel_goes_before_its_ids(void **state)
{
    rdma_destroy_event_channel(rdma_create_event_channel()); /* the device has descriptors, too */
    int before = next_descriptor();
    struct ends ends = open_ends(RDMA_PS_TCP);
    struct rdma_event_channel *other = rdma_create_event_channel();
    (void)state;
    assert_int_equal(rdma_migrate_id(ends.active, other), 0);
    assert_int_equal(rdma_connect(ends.active, NULL), 0);
    take_request(&ends);
    create_qp(ends.passive);
    assert_int_equal(rdma_accept(ends.passive, NULL), 0);
    pass(other, RDMA_CM_EVENT_ESTABLISHED);
    mallopt(M_PERTURB, 0x55); /* what is freed is rubble */
    rdma_destroy_event_channel(ends.channel);
    mallopt(M_PERTURB, 0);
    assert_int_equal(rdma_disconnect(ends.active), 0); /* an event for the passive one */
    pass(other, RDMA_CM_EVENT_DISCONNECTED);
    destroy(ends.passive);
    destroy(ends.active);
    destroy(ends.listener);
    rdma_destroy_event_channel(other);
    assert_int_equal(next_descriptor(), before);
}

static bool is_refused(int result)
{
    return result == -1 && errno == EINVAL;
}

/* Its parent's ids are its parent's, also where it serves one connection in each child. */
static void test_child_of_a_fork(void **state)
{
    struct ends ends = open_ends(RDMA_PS_TCP);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct rdma_cm_id *fresh, *bound, *resolved, *datagram;
    int status;
    (void)state;
    assert_int_equal(rdma_create_id(ends.channel, &fresh, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_create_id(ends.channel, &bound, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(bound, (struct sockaddr *)&address), 0);
    assert_int_equal(rdma_create_id(ends.channel, &datagram, NULL, RDMA_PS_UDP), 0);
    assert_int_equal(rdma_bind_addr(datagram, (struct sockaddr *)&address), 0);
    assert_int_equal(rdma_create_id(ends.channel, &resolved, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(resolved, NULL, (struct sockaddr *)&address, 1000), 0);
    pass(ends.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr = {htonl(0xef4d0001)}};
    assert_int_equal(rdma_connect(ends.active, NULL), 0);
    take_request(&ends);
    create_qp(ends.passive);
    for (int again = 0; again < 2; again++) {
        pid_t child = fork();
        if (child == 0) {
            if (again == 1) {
                rdma_create_event_channel(); /* a device of its own */
            }
            bool refused =
                is_refused(rdma_accept(ends.passive, NULL)) &&
                is_refused(rdma_reject(ends.passive, NULL, 0)) &&
                is_refused(rdma_disconnect(ends.active)) && is_refused(rdma_listen(fresh, 1)) &&
                is_refused(rdma_resolve_addr(fresh, NULL, (struct sockaddr *)&address, 1000)) &&
                is_refused(rdma_resolve_addr(bound, NULL, (struct sockaddr *)&address, 1000)) &&
                is_refused(rdma_resolve_route(resolved, 1000)) &&
                is_refused(rdma_join_multicast(datagram, (struct sockaddr *)&group, NULL));
            close_ends(&ends);
            _exit(refused && rdma_destroy_id(fresh) == 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_int_equal(rdma_accept(ends.passive, NULL), 0);
    pass(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
    pass(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
    destroy(fresh);
    destroy(bound);
    destroy(resolved);
    destroy(datagram);
    close_ends(&ends);
}

/* Before anything else, for what the variable says is looked at once. */
static void test_without_devices(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0) {
        int count = 1;
        setenv("WEIR_DEVICES", "none=", 1);
        bool refused = rdma_create_event_channel() == NULL && errno == ENODEV;
        _exit(refused && rdma_get_devices(&count) == NULL && count == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    alarm(60); /* who waits for a lock that is lost */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_devices),
        cmocka_unit_test(test_length_without_data),
        cmocka_unit_test(test_disconnect_without_connection),
        cmocka_unit_test(test_accept_of_who_has_gone),
        cmocka_unit_test(test_queue_pair_that_fails),
        cmocka_unit_test(test_queues_of_the_program),
        cmocka_unit_test(test_shared_receive_queue_that_fails),
        cmocka_unit_test(test_chosen_port_is_shared),
        cmocka_unit_test(test_reads_at_once),
        cmocka_unit_test(test_destroy_is_cancelled),
        cmocka_unit_test(test_others_are_cancelled),
        cmocka_unit_test(test_destroyed_while_in_use),
        cmocka_unit_test(test_migrated_with_a_request),
        cmocka_unit_test(test_synchronous_leave),
        cmocka_unit_test(test_channel_goes_before_its_ids),
        cmocka_unit_test(test_child_of_a_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
