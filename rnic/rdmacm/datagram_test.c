/* librdmacm.so.1 as programs see it, what rdmacm_test.c leaves out: datagrams, multicast, names,
 * options, enhanced connection establishment. Both ends in one process, public calls only. */
#include "rnic/rdmacm/event_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <string.h>

#define GRH_LENGTH 40

struct ends {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener, *active, *passive;
    struct sockaddr_storage address;
};

static struct ends the_ends;

static void create_qp(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr init = {
        .cap = {4, 4, 1, 1, 0}, .qp_type = id->qp_type, .sq_sig_all = 1};
    assert_int_equal(rdma_create_qp(id, NULL, &init), 0);
}

static struct ends *open_ends(enum rdma_port_space space, const char *node)
{
    struct ends *ends = &the_ends;
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST}, *info;
    memset(ends, 0, sizeof *ends);
    ends->channel = rdma_create_event_channel();
    assert_int_equal(rdma_getaddrinfo(node, NULL, &hints, &info), 0);
    assert_int_equal(rdma_create_id(ends->channel, &ends->listener, ends, space), 0);
    assert_int_equal(rdma_bind_addr(ends->listener, info->ai_src_addr), 0);
    assert_int_equal(rdma_listen(ends->listener, 8), 0);
    ends->address = ends->listener->route.addr.src_storage;
    assert_int_equal(rdma_create_id(ends->channel, &ends->active, NULL, space), 0);
    rdma_freeaddrinfo(info);
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

static void resolve(struct ends *ends)
{
    struct sockaddr *address = (struct sockaddr *)&ends->address;
    assert_int_equal(rdma_resolve_addr(ends->active, NULL, address, 2000), 0);
    pass(ends->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(ends->active, 2000), 0);
    pass(ends->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/* Up to the request; leaves it as ends->passive. */
static void ask(struct ends *ends, uint8_t length)
{
    struct rdma_conn_param param = {.private_data = "question", .private_data_len = length};
    assert_int_equal(rdma_connect(ends->active, &param), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ends->passive = event->id;
    assert_ptr_equal(event->listen_id, ends->listener);
    assert_int_equal(event->id->qp_type, IBV_QPT_UD);
    assert_int_equal(event->param.ud.private_data_len, 180);
    assert_memory_equal(event->param.ud.private_data, "question", length);
    assert_int_equal(rdma_get_dst_port(event->id), rdma_get_src_port(ends->active));
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

static void send_one(struct ends *ends, const struct rdma_ud_param *to)
{
    static uint8_t sent[64], received[GRH_LENGTH + 64];
    struct ibv_mr *from = rdma_reg_msgs(ends->active, sent, sizeof sent);
    struct ibv_mr *into = rdma_reg_msgs(ends->passive, received, sizeof received);
    struct ibv_ah_attr vector = to->ah_attr;
    struct ibv_ah *handle = ibv_create_ah(ends->active->pd, &vector);
    struct ibv_wc completion;
    memset(sent, 0x5a, sizeof sent);
    assert_non_null(handle);
    assert_int_equal(rdma_post_recv(ends->passive, NULL, received, sizeof received, into), 0);
    assert_int_equal(rdma_post_ud_send(ends->active, NULL, sent, sizeof sent, from,
                                       IBV_SEND_SIGNALED, handle, to->qp_num),
                     0);
    assert_int_equal(rdma_get_recv_comp(ends->passive, &completion), 1);
    assert_int_equal(completion.status, IBV_WC_SUCCESS);
    assert_int_equal(completion.byte_len, sizeof received);
    assert_int_equal(completion.src_qp, ends->active->qp->qp_num);
    assert_memory_equal(received + GRH_LENGTH, sent, sizeof sent);
    assert_int_equal(rdma_get_send_comp(ends->active, &completion), 1);
    ibv_destroy_ah(handle);
    rdma_dereg_mr(from);
    rdma_dereg_mr(into);
}

static void exchange(enum rdma_port_space space, const char *node)
{
    struct ends *ends = open_ends(space, node);
    struct rdma_conn_param param = {.private_data = "answer", .private_data_len = 6};
    resolve(ends);
    create_qp(ends->active);
    ask(ends, 8);
    create_qp(ends->passive);
    assert_int_equal(rdma_accept(ends->passive, &param), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_ESTABLISHED);
    const struct rdma_ud_param *told = &event->param.ud;
    assert_ptr_equal(event->id, ends->active);
    assert_int_equal(told->qp_num, ends->passive->qp->qp_num);
    assert_int_equal(told->qkey, RDMA_UDP_QKEY);
    assert_int_equal(told->private_data_len, 136);
    assert_memory_equal(told->private_data, "answer", 7);
    assert_int_equal(told->ah_attr.is_global, 1);
    send_one(ends, told);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    close_ends(ends);
}

static void test_udp(void **state)
{
    exchange(RDMA_PS_UDP, "127.0.0.1");
}

static void test_udp_ipv6(void **state)
{
    exchange(RDMA_PS_UDP, "::1");
}

static void test_ipoib(void **state)
{
    exchange(RDMA_PS_IPOIB, "127.0.0.1");
}

static void test_refused(void **state)
{
    struct ends *ends = open_ends(RDMA_PS_UDP, "127.0.0.1");
    resolve(ends);
    create_qp(ends->active);
    ask(ends, 8);
    assert_int_equal(rdma_reject(ends->passive, "no", 2), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_UNREACHABLE);
    assert_int_equal(event->status, 2);
    assert_memory_equal(event->param.ud.private_data, "no", 3);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    close_ends(ends);
}

static void test_nobody_listens(void **state)
{
    struct ends *ends = open_ends(RDMA_PS_UDP, "127.0.0.1");
    destroy(ends->listener);
    ends->listener = NULL;
    resolve(ends);
    create_qp(ends->active);
    assert_int_equal(rdma_connect(ends->active, NULL), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_UNREACHABLE);
    assert_int_equal(event->status, 1);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    close_ends(ends);
}

/* What the queue pair does for others goes on. */
static void test_nobody_answers(void **state)
{
    struct ends *ends = open_ends(RDMA_PS_UDP, "127.0.0.1");
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    resolve(ends);
    create_qp(ends->active);
    ask(ends, 8);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_UNREACHABLE);
    assert_int_equal(event->status, -ETIMEDOUT);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(ibv_query_qp(ends->active->qp, &attributes, IBV_QP_STATE, &init), 0);
    assert_int_equal(attributes.qp_state, IBV_QPS_RTS);
    close_ends(ends);
}

static void test_private_data_limits(void **state)
{
    static const uint8_t data[200];
    struct ends *ends = open_ends(RDMA_PS_UDP, "127.0.0.1");
    struct rdma_conn_param param = {.private_data = data, .private_data_len = 181};
    resolve(ends);
    create_qp(ends->active);
    assert_int_equal(rdma_connect(ends->active, &param), -1);
    assert_int_equal(errno, EINVAL);
    ask(ends, 8);
    create_qp(ends->passive);
    param.private_data_len = 137;
    assert_int_equal(rdma_accept(ends->passive, &param), -1);
    assert_int_equal(errno, EINVAL);
    param.private_data_len = 136;
    assert_int_equal(rdma_accept(ends->passive, &param), 0);
    pass(ends->channel, RDMA_CM_EVENT_ESTABLISHED);
    close_ends(ends);
}

static void *serve(void *argument)
{
    struct rdma_cm_id *listener = argument, *id;
    assert_int_equal(rdma_get_request(listener, &id), 0);
    assert_int_equal(rdma_accept(id, NULL), 0);
    assert_null(id->event);
    return id;
}

static void test_endpoints(void **state)
{
    struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .sq_sig_all = 1};
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_UDP}, *info;
    struct rdma_cm_id *listener, *active;
    pthread_t thread;
    void *passive;
    assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7999", &hints, &info), 0);
    assert_int_equal(info->ai_qp_type, IBV_QPT_UD);
    assert_int_equal(rdma_create_ep(&listener, info, NULL, &init), 0);
    rdma_freeaddrinfo(info);
    assert_int_equal(rdma_listen(listener, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, serve, listener), 0);
    hints.ai_flags = 0;
    assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7999", &hints, &info), 0);
    assert_int_equal(rdma_create_ep(&active, info, NULL, &init), 0);
    rdma_freeaddrinfo(info);
    assert_int_equal(rdma_connect(active, NULL), 0);
    pthread_join(thread, &passive);
    assert_int_equal(active->event->event, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(active->event->param.ud.qp_num, ((struct rdma_cm_id *)passive)->qp->qp_num);
    assert_int_equal(rdma_migrate_id(active, NULL), -1); /* it is synchronous already */
    assert_int_equal(errno, EINVAL);
    rdma_destroy_ep(active);
    rdma_destroy_ep(passive);
    rdma_destroy_ep(listener);
}

static void test_multicast_arguments(void **state)
{
    struct ends *ends = open_ends(RDMA_PS_UDP, "127.0.0.1");
    struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr = {htonl(0xef010203)}};
    struct sockaddr *address = (struct sockaddr *)&group;
    struct rdma_cm_join_mc_attr_ex join = {.comp_mask = 4};
    assert_int_equal(rdma_join_multicast(ends->active, address, NULL), -1); /* not bound */
    assert_int_equal(errno, EINVAL);
    resolve(ends);
    assert_int_equal(rdma_join_multicast_ex(ends->active, &join, NULL), -1);
    assert_int_equal(errno, ENOTSUP);
    join.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
    assert_int_equal(rdma_join_multicast_ex(ends->active, &join, NULL), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_leave_multicast(ends->active, address), -1);
    assert_int_equal(errno, EADDRNOTAVAIL);
    group.sin_family = AF_UNIX;
    assert_int_equal(rdma_leave_multicast(ends->active, address), -1);
    assert_int_equal(errno, EINVAL);
    close_ends(ends);
}

static void test_multicast(void **state)
{
    struct ends *ends = open_ends(RDMA_PS_UDP, "127.0.0.1");
    struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr = {htonl(0xef010203)}};
    struct sockaddr *address = (struct sockaddr *)&group;
    struct rdma_cm_join_mc_attr_ex join = {
        .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
        .join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        .addr = address,
    };
    static const uint8_t gid[16] = {[10] = 0xff, 0xff, 0xef, 1, 2, 3};
    resolve(ends);
    create_qp(ends->active);
    assert_int_equal(rdma_join_multicast_ex(ends->active, &join, ends), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    assert_int_equal(event->status, 0);
    assert_ptr_equal(event->param.ud.private_data, ends);
    assert_int_equal(event->param.ud.qp_num, 0xffffff);
    assert_int_equal(event->param.ud.qkey, RDMA_UDP_QKEY);
    assert_memory_equal(event->param.ud.ah_attr.grh.dgid.raw, gid, sizeof gid);
    assert_int_equal(event->param.ud.ah_attr.dlid, 0);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(rdma_leave_multicast(ends->active, address), 0);
    assert_int_equal(rdma_leave_multicast(ends->active, address), -1);

    /* One that is left before its event was taken has no event any more; one that is not left goes
     * with its id. */
    assert_int_equal(rdma_join_multicast_ex(ends->active, &join, ends), 0);
    struct pollfd ready = {.fd = ends->channel->fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 0), 1);
    assert_int_equal(rdma_leave_multicast(ends->active, address), 0);
    assert_int_equal(poll(&ready, 1, 0), 0);
    assert_int_equal(rdma_join_multicast_ex(ends->active, &join, NULL), 0);
    event = expect(ends->channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    assert_null(event->param.ud.private_data);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(rdma_leave_multicast(ends->active, address), 0);
    assert_int_equal(rdma_join_multicast_ex(ends->active, &join, NULL), 0);
    destroy(ends->active);
    ends->active = NULL;
    assert_int_equal(poll(&ready, 1, 0), 0);
    close_ends(ends);
}

static void test_names(void **state)
{
    struct rdma_addrinfo *info;
    assert_int_equal(rdma_getaddrinfo(NULL, NULL, NULL, &info), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", NULL, &info), 0);
    assert_int_equal(info->ai_flags, 0);
    assert_int_equal(info->ai_qp_type, IBV_QPT_RC);
    assert_int_equal(info->ai_port_space, RDMA_PS_TCP);
    assert_int_equal(info->ai_family, AF_INET);
    assert_int_equal(((struct sockaddr_in *)info->ai_dst_addr)->sin_port, htons(7471));
    assert_null(info->ai_src_addr);
    rdma_freeaddrinfo(info);

    struct rdma_addrinfo hints = {.ai_qp_type = IBV_QPT_UD, .ai_port_space = RDMA_PS_TCP};
    assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &info), EAI_SOCKTYPE);
    hints.ai_port_space = 0;
    assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &info), 0);
    assert_int_equal(info->ai_port_space, RDMA_PS_UDP);
    rdma_freeaddrinfo(info);

    hints = (struct rdma_addrinfo){.ai_family = AF_INET6, .ai_flags = RAI_NUMERICHOST};
    assert_int_not_equal(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &info), 0);
    assert_int_equal(rdma_getaddrinfo("localhost", "7471", &hints, &info), EAI_NONAME);
    hints.ai_flags |= RAI_FAMILY;
    hints.ai_family = AF_IB;
    assert_int_equal(rdma_getaddrinfo("fe80::1", "7471", &hints, &info), EAI_FAMILY);

    struct sockaddr_in source = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    hints = (struct rdma_addrinfo){.ai_port_space = RDMA_PS_IB,
                                   .ai_qp_type = IBV_QPT_RC,
                                   .ai_src_addr = (struct sockaddr *)&source,
                                   .ai_src_len = sizeof source};
    assert_int_equal(rdma_getaddrinfo("127.0.0.1", NULL, &hints, &info), 0);
    assert_int_equal(info->ai_port_space, RDMA_PS_IB);
    assert_memory_equal(info->ai_src_addr, &source, sizeof source);
    rdma_freeaddrinfo(info);
}

static void test_options(void **state)
{
    struct ends *ends = open_ends(RDMA_PS_TCP, "127.0.0.1");
    struct rdma_cm_id *id = ends->active;
    uint8_t byte = 0x20, long_timeout = 32, timeout = 19;
    int number = 1;
    assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 2), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, 99, &byte, 1), -1);
    assert_int_equal(errno, ENOSYS);
    assert_int_equal(rdma_set_option(id, 7, 0, &byte, 1), -1);
    assert_int_equal(errno, ENOSYS);
    const int ack = RDMA_OPTION_ID_ACK_TIMEOUT;
    assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, ack, &long_timeout, 1), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_set_option(ends->listener, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR,
                                     &number, sizeof number),
                     -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1), 0);
    id->qp_type = IBV_QPT_UC; /* as rdma_create_ep sets it */
    assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, ack, &timeout, 1), -1);
    assert_int_equal(errno, EINVAL);
    id->qp_type = IBV_QPT_XRC_SEND;
    assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, ack, &timeout, 1), 0);
    id->qp_type = IBV_QPT_RC;
    assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, ack, &timeout, 1), 0);

    resolve(ends);
    create_qp(id);
    struct rdma_conn_param param = {.retry_count = 7};
    assert_int_equal(rdma_connect(id, &param), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ends->passive = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
    create_qp(ends->passive);
    assert_int_equal(rdma_accept(ends->passive, &param), 0);
    pass(ends->channel, RDMA_CM_EVENT_ESTABLISHED);
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(id->qp, &attributes, IBV_QP_TIMEOUT | IBV_QP_AV, &init), 0);
    assert_int_equal(attributes.timeout, 19);
    assert_int_equal(attributes.ah_attr.grh.traffic_class, 0x20);
    pass(ends->channel, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(rdma_notify(id, IBV_EVENT_COMM_EST), -1);
    assert_int_equal(errno, EISCONN);
    close_ends(ends);
}

/* Queue pairs of the application's own: what both sides offer arrives. */
static void test_ece(void **state)
{
    struct ends *ends = open_ends(RDMA_PS_TCP, "127.0.0.1");
    struct ibv_ece mine = {.vendor_id = 0x0002c9, .options = 5}, yours = {0x001018, 4, 0},
                   none = {0};
    struct rdma_conn_param param = {.qp_num = 0x1234};
    assert_int_equal(rdma_set_local_ece(ends->active, &none), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_set_local_ece(ends->active, &mine), 0);
    resolve(ends);
    assert_int_equal(rdma_connect(ends->active, NULL), -1); /* which queue pair? */
    assert_int_equal(rdma_connect(ends->active, &param), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ends->passive = event->id;
    assert_int_equal(event->param.conn.qp_num, 0x1234);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(rdma_get_remote_ece(ends->passive, &none), 0);
    assert_memory_equal(&none, &mine, sizeof mine);
    assert_int_equal(rdma_set_local_ece(ends->passive, &yours), 0);
    param.qp_num = 0x4321;
    assert_int_equal(rdma_accept(ends->passive, &param), 0);
    pass(ends->channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(rdma_get_remote_ece(ends->active, &none), 0);
    assert_int_equal(none.vendor_id, mine.vendor_id); /* whose options they answer */
    assert_int_equal(none.options, yours.options);
    assert_int_equal(rdma_establish(ends->active), 0);
    pass(ends->channel, RDMA_CM_EVENT_ESTABLISHED);
    close_ends(ends);
}

static void test_ece_rejected(void **state)
{
    struct ends *ends = open_ends(RDMA_PS_TCP, "127.0.0.1");
    struct rdma_conn_param param = {.qp_num = 0x2345};
    resolve(ends);
    assert_int_equal(rdma_connect(ends->active, &param), 0);
    struct rdma_cm_event *event = expect(ends->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ends->passive = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(rdma_reject_ece(ends->passive, NULL, 0), 0);
    event = expect(ends->channel, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(event->status, 35);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    close_ends(ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_udp),
        cmocka_unit_test(test_udp_ipv6),
        cmocka_unit_test(test_ipoib),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_nobody_answers),
        cmocka_unit_test(test_private_data_limits),
        cmocka_unit_test(test_endpoints),
        cmocka_unit_test(test_multicast_arguments),
        cmocka_unit_test(test_multicast),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_ece),
        cmocka_unit_test(test_ece_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
