/* Sends twenty datagrams along an address vector made of the arguments, to nobody; then waits for
 * the event that the way is too narrow for them, if asked to.
 * Usage: wire_send GID_INDEX DESTINATION_GID FLOW_LABEL TRAFFIC_CLASS HOP_LIMIT LENGTH [event] */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define COUNT       20
#define BYTES       4000
#define PATIENCE_MS 10000

static void need(int done, const char *what)
{
    if (!done) {
        perror(what);
        exit(1);
    }
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = COUNT, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    need(qp != NULL, "ibv_create_qp");
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
    need(ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0,
         "INIT");
    attributes.qp_state = IBV_QPS_RTR;
    need(ibv_modify_qp(qp, &attributes, IBV_QP_STATE) == 0, "RTR");
    attributes.qp_state = IBV_QPS_RTS;
    need(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0, "RTS");
    return qp;
}

static void expect_event(struct ibv_context *context, const struct ibv_qp *qp)
{
    struct ibv_async_event event;
    struct pollfd ready = {.fd = context->async_fd, .events = POLLIN};
    need(poll(&ready, 1, PATIENCE_MS) == 1, "an event");
    need(ibv_get_async_event(context, &event) == 0, "ibv_get_async_event");
    printf("event: %s\n", ibv_event_type_str(event.event_type));
    need(event.event_type == IBV_EVENT_PATH_MIG_ERR && event.element.qp == qp, "that event");
    ibv_ack_async_event(&event);
    need(poll(&ready, 1, 0) == 0, "no other event");
}

int main(int argc, char **argv)
{
    static uint8_t bytes[BYTES];
    need(argc == 7 || argc == 8, "six arguments or seven");
    struct ibv_ah_attr vector = {
        .is_global = 1,
        .port_num = 1,
        .grh = {.sgid_index = (uint8_t)atoi(argv[1]),
                .flow_label = (uint32_t)strtoul(argv[3], NULL, 0),
                .traffic_class = (uint8_t)strtoul(argv[4], NULL, 0),
                .hop_limit = (uint8_t)strtoul(argv[5], NULL, 0)},
    };
    need(inet_pton(AF_INET6, argv[2], vector.grh.dgid.raw) == 1, "the GID");
    struct ibv_device **devices = ibv_get_device_list(NULL);
    need(devices != NULL && devices[0] != NULL, "a device");
    struct ibv_context *context = ibv_open_device(devices[0]);
    need(context != NULL, "ibv_open_device");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, COUNT, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_ah *ah = ibv_create_ah(pd, &vector);
    need(cq != NULL && mr != NULL && ah != NULL, "objects");
    struct ibv_qp *qp = make_qp(pd, cq);
    uint32_t length = (uint32_t)strtoul(argv[6], NULL, 0);
    need(length <= sizeof bytes, "a length up to 4000");
    struct ibv_sge sge = {(uintptr_t)bytes, length, mr->lkey};
    struct ibv_send_wr request = {
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
        .wr = {.ud = {.ah = ah, .remote_qpn = 0x123456, .remote_qkey = 7}},
    };
    struct ibv_send_wr *bad;
    for (int i = 0; i < COUNT; i++) {
        need(ibv_post_send(qp, &request, &bad) == 0, "ibv_post_send");
    }
    struct ibv_wc wc;
    for (int done = 0; done < COUNT;) {
        int polled = ibv_poll_cq(cq, 1, &wc);
        need(polled >= 0, "ibv_poll_cq");
        if (polled == 1 && wc.status != IBV_WC_SUCCESS) {
            printf("%s, vendor_err %u\n", ibv_wc_status_str(wc.status), wc.vendor_err);
            return 1;
        }
        done += polled;
    }
    if (argc == 8) {
        expect_event(context, qp);
    }
    ibv_destroy_qp(qp);
    ibv_destroy_ah(ah);
    ibv_dereg_mr(mr);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    ibv_free_device_list(devices);
    return 0;
}
