/* The names of node IBVERBS_PRIVATE_34, which vendor libraries (libmlx5, libefa) bind at load time.
 *
 * They speak of kernel commands, of which there are none here: every one refuses. The exception,
 * ibv_query_gid_type, stands in port.c. None of these has a prototype in a public header, and no
 * caller's arguments are looked at. */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "rnic/verbs/objects.h"

/* Declared and defined at once, for no header does. */
#define REFUSE(name)                                                                               \
    int name(void);                                                                                \
    PUBLIC int name(void)                                                                          \
    {                                                                                              \
        return EOPNOTSUPP;                                                                         \
    }
#define REFUSE_POINTER(name)                                                                       \
    void *name(void);                                                                              \
    PUBLIC void *name(void)                                                                        \
    {                                                                                              \
        errno = EOPNOTSUPP;                                                                        \
        return NULL;                                                                               \
    }
#define IGNORE(name)                                                                               \
    void name(void);                                                                               \
    PUBLIC void name(void)                                                                         \
    {                                                                                              \
    }

extern bool verbs_allow_disassociate_destroy;
PUBLIC bool verbs_allow_disassociate_destroy;

IGNORE(__verbs_log)
IGNORE(verbs_init_cq)
IGNORE(verbs_register_driver_34)
IGNORE(verbs_set_ops)
IGNORE(verbs_uninit_context)

/* Providers of old call it; nobody can be linked against it any more. Where there is the attribute,
 * only it is seen by the link-time optimizer. */
#if __has_attribute(symver)
__attribute__((symver("ibv_register_driver@IBVERBS_1.1"))) void register_driver_of_old(void);
#else
__asm__(".symver register_driver_of_old, ibv_register_driver@IBVERBS_1.1");
#endif
IGNORE(register_driver_of_old)

REFUSE_POINTER(_verbs_init_and_alloc_context)
REFUSE_POINTER(verbs_open_device)

/* The number of attributes in a command: none. */
unsigned __ioctl_final_num_attrs(void);
PUBLIC unsigned __ioctl_final_num_attrs(void)
{
    return 0;
}

int ibv_read_ibdev_sysfs_file(void);
PUBLIC int ibv_read_ibdev_sysfs_file(void)
{
    errno = ENOENT;
    return -1;
}

REFUSE(execute_ioctl)
REFUSE(ibv_cmd_advise_mr)
REFUSE(ibv_cmd_alloc_dm)
REFUSE(ibv_cmd_alloc_mw)
REFUSE(ibv_cmd_alloc_pd)
REFUSE(ibv_cmd_attach_mcast)
REFUSE(ibv_cmd_close_xrcd)
REFUSE(ibv_cmd_create_ah)
REFUSE(ibv_cmd_create_counters)
REFUSE(ibv_cmd_create_cq)
REFUSE(ibv_cmd_create_cq_ex)
REFUSE(ibv_cmd_create_flow)
REFUSE(ibv_cmd_create_flow_action_esp)
REFUSE(ibv_cmd_create_qp)
REFUSE(ibv_cmd_create_qp_ex)
REFUSE(ibv_cmd_create_qp_ex2)
REFUSE(ibv_cmd_create_rwq_ind_table)
REFUSE(ibv_cmd_create_srq)
REFUSE(ibv_cmd_create_srq_ex)
REFUSE(ibv_cmd_create_wq)
REFUSE(ibv_cmd_dealloc_mw)
REFUSE(ibv_cmd_dealloc_pd)
REFUSE(ibv_cmd_dereg_mr)
REFUSE(ibv_cmd_destroy_ah)
REFUSE(ibv_cmd_destroy_counters)
REFUSE(ibv_cmd_destroy_cq)
REFUSE(ibv_cmd_destroy_flow)
REFUSE(ibv_cmd_destroy_flow_action)
REFUSE(ibv_cmd_destroy_qp)
REFUSE(ibv_cmd_destroy_rwq_ind_table)
REFUSE(ibv_cmd_destroy_srq)
REFUSE(ibv_cmd_destroy_wq)
REFUSE(ibv_cmd_detach_mcast)
REFUSE(ibv_cmd_free_dm)
REFUSE(ibv_cmd_get_context)
REFUSE(ibv_cmd_modify_cq)
REFUSE(ibv_cmd_modify_flow_action_esp)
REFUSE(ibv_cmd_modify_qp)
REFUSE(ibv_cmd_modify_qp_ex)
REFUSE(ibv_cmd_modify_srq)
REFUSE(ibv_cmd_modify_wq)
REFUSE(ibv_cmd_open_qp)
REFUSE(ibv_cmd_open_xrcd)
REFUSE(ibv_cmd_poll_cq)
REFUSE(ibv_cmd_post_recv)
REFUSE(ibv_cmd_post_send)
REFUSE(ibv_cmd_post_srq_recv)
REFUSE(ibv_cmd_query_context)
REFUSE(ibv_cmd_query_device_any)
REFUSE(ibv_cmd_query_mr)
REFUSE(ibv_cmd_query_port)
REFUSE(ibv_cmd_query_qp)
REFUSE(ibv_cmd_query_srq)
REFUSE(ibv_cmd_read_counters)
REFUSE(ibv_cmd_reg_dm_mr)
REFUSE(ibv_cmd_reg_dmabuf_mr)
REFUSE(ibv_cmd_reg_mr)
REFUSE(ibv_cmd_req_notify_cq)
REFUSE(ibv_cmd_rereg_mr)
REFUSE(ibv_cmd_resize_cq)
