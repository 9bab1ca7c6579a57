/* The layout of the public structs as rdma-core 44 compiles them on 64-bit machines. Programs read
 * and write these fields without asking us, so a header that disagrees must not compile. */
#include <rdma/rdma_cma.h>
#include <stddef.h>

#include "rnic/base/check.h"
#include "rnic/verbs/objects.h"

#define SIZE(type, bytes)         BUILD_CHECK(sizeof(struct type) == (bytes))
#define FIELD(type, field, place) BUILD_CHECK(offsetof(struct type, field) == (place))

SIZE(ibv_device, 664);
FIELD(ibv_device, node_type, 16);
FIELD(ibv_device, transport_type, 20);
FIELD(ibv_device, name, 24);
FIELD(ibv_device, dev_name, 88);
FIELD(ibv_device, dev_path, 152);
FIELD(ibv_device, ibdev_path, 408);
FIELD(soft_device, provider, 664);

SIZE(ibv_context, 328);
FIELD(ibv_context, ops, 8);
FIELD(ibv_context, cmd_fd, 264);
FIELD(ibv_context, async_fd, 268);
FIELD(ibv_context, num_comp_vectors, 272);
FIELD(ibv_context, mutex, 280);
FIELD(ibv_context, abi_compat, 320);
SIZE(ibv_context_ops, 256);
FIELD(ibv_context_ops, poll_cq, 88);
FIELD(ibv_context_ops, post_send, 200);
FIELD(ibv_context_ops, post_recv, 208);

SIZE(verbs_context, 648);
FIELD(verbs_context, query_port, 0);
FIELD(verbs_context, priv, 208);
FIELD(verbs_context, query_device_ex, 216);
FIELD(verbs_context, create_qp_ex, 264);
FIELD(verbs_context, sz, 312);
FIELD(verbs_context, context, 320);

SIZE(ibv_port_attr, 52);
SIZE(ibv_device_attr, 232);
SIZE(ibv_device_attr_ex, 400);
SIZE(ibv_pd, 16);
SIZE(ibv_mr, 48);
SIZE(ibv_mw, 32);
SIZE(ibv_srq, 128);
SIZE(ibv_qp, 160);
SIZE(ibv_qp_ex, 352);
SIZE(ibv_cq, 128);
SIZE(ibv_cq_ex, 288);
SIZE(ibv_wq, 152);
SIZE(ibv_comp_channel, 16);
SIZE(ibv_ah, 24);
SIZE(ibv_dm, 32);
SIZE(ibv_wc, 48);
SIZE(ibv_send_wr, 128);
SIZE(ibv_recv_wr, 32);
SIZE(ibv_qp_attr, 144);
SIZE(ibv_qp_init_attr, 64);
SIZE(ibv_qp_init_attr_ex, 136);
SIZE(ibv_gid_entry, 32);
SIZE(ibv_async_event, 16);

SIZE(rdma_cm_id, 416);
FIELD(rdma_cm_id, qp, 24);
FIELD(rdma_cm_id, route, 32);
FIELD(rdma_cm_id, ps, 344);
FIELD(rdma_cm_id, event, 352);
FIELD(rdma_cm_id, pd, 400);
FIELD(rdma_cm_id, qp_type, 408);
SIZE(rdma_cm_event, 80);
SIZE(rdma_event_channel, 4);
SIZE(rdma_conn_param, 24);
SIZE(rdma_ud_param, 56);
SIZE(rdma_addrinfo, 96);
SIZE(rdma_route, 312);
SIZE(rdma_addr, 296);

/* A struct of ours converts to its public head; for soft_qp see objects.h. */
FIELD(soft_pd, ibv, 0);
FIELD(soft_mr, ibv, 0);
FIELD(soft_mw, ibv, 0);
FIELD(soft_dm, ibv, 0);
FIELD(soft_channel, ibv, 0);
FIELD(soft_cq, ibv, 0);
FIELD(soft_srq, ibv, 0);
FIELD(soft_ah, ibv, 0);
