/* The calls that are handed over to the host's library: every exported one that takes an object,
 * and those about forks. */
#ifndef WEIR_VERBS_HOST_CALLS_H
#define WEIR_VERBS_HOST_CALLS_H

#define HOST_CALLS(X)                                                                              \
    X(ibv_get_device_list)                                                                         \
    X(ibv_free_device_list)                                                                        \
    X(ibv_get_device_guid)                                                                         \
    X(ibv_get_device_index)                                                                        \
    X(ibv_open_device)                                                                             \
    X(ibv_close_device)                                                                            \
    X(ibv_query_device)                                                                            \
    X(ibv_query_port)                                                                              \
    X(ibv_query_gid)                                                                               \
    X(_ibv_query_gid_ex)                                                                           \
    X(_ibv_query_gid_table)                                                                        \
    X(ibv_query_pkey)                                                                              \
    X(ibv_get_pkey_index)                                                                          \
    X(ibv_alloc_pd)                                                                                \
    X(ibv_dealloc_pd)                                                                              \
    X(ibv_reg_mr)                                                                                  \
    X(ibv_reg_mr_iova)                                                                             \
    X(ibv_reg_mr_iova2)                                                                            \
    X(ibv_reg_dmabuf_mr)                                                                           \
    X(ibv_rereg_mr)                                                                                \
    X(ibv_dereg_mr)                                                                                \
    X(ibv_create_comp_channel)                                                                     \
    X(ibv_destroy_comp_channel)                                                                    \
    X(ibv_create_cq)                                                                               \
    X(ibv_resize_cq)                                                                               \
    X(ibv_destroy_cq)                                                                              \
    X(ibv_get_cq_event)                                                                            \
    X(ibv_ack_cq_events)                                                                           \
    X(ibv_create_srq)                                                                              \
    X(ibv_modify_srq)                                                                              \
    X(ibv_query_srq)                                                                               \
    X(ibv_destroy_srq)                                                                             \
    X(ibv_create_qp)                                                                               \
    X(ibv_qp_to_qp_ex)                                                                             \
    X(ibv_modify_qp)                                                                               \
    X(ibv_query_qp)                                                                                \
    X(ibv_query_qp_data_in_order)                                                                  \
    X(ibv_destroy_qp)                                                                              \
    X(ibv_set_ece)                                                                                 \
    X(ibv_query_ece)                                                                               \
    X(ibv_create_ah)                                                                               \
    X(ibv_init_ah_from_wc)                                                                         \
    X(ibv_create_ah_from_wc)                                                                       \
    X(ibv_destroy_ah)                                                                              \
    X(ibv_attach_mcast)                                                                            \
    X(ibv_detach_mcast)                                                                            \
    X(ibv_get_async_event)                                                                         \
    X(ibv_ack_async_event)                                                                         \
    X(ibv_import_device)                                                                           \
    X(ibv_import_pd)                                                                               \
    X(ibv_unimport_pd)                                                                             \
    X(ibv_import_mr)                                                                               \
    X(ibv_unimport_mr)                                                                             \
    X(ibv_import_dm)                                                                               \
    X(ibv_unimport_dm)                                                                             \
    X(ibv_resolve_eth_l2_from_gid)                                                                 \
    X(ibv_fork_init)                                                                               \
    X(ibv_is_fork_initialized)                                                                     \
    X(ibv_query_gid_type)

#endif
