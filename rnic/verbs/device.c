/* Devices as programs see them, their attributes, and the engine behind it: the only file here that
 * opens one. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rnic/io/loop/loop.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/gid_table.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"

/* IB_UVERBS_DEVICE_ATOMIC_WRITE, which the headers of rdma-core 44 do not have yet. */
#define DEVICE_ATOMIC_WRITE (UINT64_C(1) << 40)

struct engine *device_open(void)
{
    struct engine *engine;
    enum status status = loop_acquire(&engine);
    if (status != STATUS_OK) {
        fprintf(stderr, "weir: cannot open the device: %s\n", loop_last_error());
        return errno_null(status);
    }
    return engine;
}

void device_close(struct engine *engine)
{
    loop_release(engine);
}

/* Ours, then the host's, NULL, and the host's own list: its devices live as long as that does. */
PUBLIC struct ibv_device **ibv_get_device_list(int *ret_count)
{
    const struct host_calls *host = host_calls();
    int host_count = 0;
    struct ibv_device **host_list = host == NULL ? NULL : host->ibv_get_device_list(&host_count);
    uint32_t ours = devices_count(), count = ours + (uint32_t)host_count;
    struct ibv_device **list = count == 0 ? NULL : calloc(count + 2, sizeof *list);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        list[i] = i < ours ? &devices_get(i)->ibv : host_list[i - ours];
    }
    if (list != NULL) {
        list[count + 1] = (struct ibv_device *)host_list;
    } else if (host_list != NULL) {
        host->ibv_free_device_list(host_list);
    }
    if (ret_count != NULL) {
        *ret_count = list != NULL ? (int)count : 0;
    }
    if (count == 0) {
        errno = EINVAL;
    }
    return list;
}

PUBLIC void ibv_free_device_list(struct ibv_device **list)
{
    struct ibv_device **end = list;
    if (list == NULL) { /* there were no devices */
        return;
    }
    while (*end != NULL) {
        end++;
    }
    if (end[1] != NULL) {
        host_calls()->ibv_free_device_list((struct ibv_device **)end[1]);
    }
    free(list);
}

PUBLIC const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

PUBLIC int ibv_get_device_index(struct ibv_device *device)
{
    if (host_owns_device(device)) {
        return host_calls()->ibv_get_device_index(device);
    }
    return (int)((struct soft_device *)device)->index;
}

/* EUI-64 of the first interface that has an address; a locally administered one otherwise. Devices
 * of one interface differ in the byte that is 0xff in the first. */
PUBLIC __be64 ibv_get_device_guid(struct ibv_device *device)
{
    if (host_owns_device(device)) {
        return host_calls()->ibv_get_device_guid(device);
    }
    static const uint8_t none[6];
    uint8_t mac[6] = {0x02, 'w', 'e', 'i', 'r', 0};
    struct address address;
    for (uint32_t i = 0; gid_table_get(devices_gids(device, 1), i, &address); i++) {
        if (memcmp(address.mac, none, sizeof none) != 0) {
            memcpy(mac, address.mac, sizeof mac);
            break;
        }
    }
    const uint8_t other = (uint8_t)(0xff - ((struct soft_device *)device)->index);
    const uint8_t guid[8] = {mac[0] ^ 2, mac[1], mac[2], other, 0xfe, mac[3], mac[4], mac[5]};
    __be64 result;
    memcpy(&result, guid, sizeof result);
    return result;
}

static void fill_attributes(struct ibv_context *context, struct ibv_device_attr *ret_attributes)
{
    const struct limits *limits = limits_now();
    struct ibv_device_attr *a = ret_attributes;
    *a = (struct ibv_device_attr){
        .node_guid = ibv_get_device_guid(context->device),
        .max_mr_size = limits->max_mr_size,
        .page_size_cap = ~UINT64_C(0xfff),
        .vendor_id = 0xffffff, /* of no registered vendor */
        .max_qp = (int)limits->max_count[COUNT_QP],
        .max_qp_wr = (int)limits->max_qp_wr,
        .device_cap_flags = limits->capabilities,
        .max_sge = (int)limits->max_sge,
        .max_sge_rd = (int)limits->max_sge,
        .max_cq = (int)limits->max_count[COUNT_CQ],
        .max_cqe = (int)limits->max_cqe,
        .max_mr = (int)limits->max_count[COUNT_MR],
        .max_mw = (int)limits->max_count[COUNT_MW],
        .max_pd = (int)limits->max_count[COUNT_PD],
        .max_qp_rd_atom = (int)limits->max_reads,
        .max_res_rd_atom = (int)(limits->max_reads * limits->max_count[COUNT_QP]),
        .max_qp_init_rd_atom = (int)limits->max_reads,
        .atomic_cap = limits->atomics,
        .max_ah = (int)limits->max_count[COUNT_AH],
        .max_srq = (int)limits->max_count[COUNT_SRQ],
        .max_srq_wr = (int)limits->max_srq_wr,
        .max_srq_sge = (int)limits->max_srq_sge,
        .max_pkeys = 1,
        .local_ca_ack_delay = 15,
        .phys_port_cnt = (uint8_t)((struct soft_device *)context->device)->port_count,
    };
    if ((limits->abilities & ABILITY_MULTICAST) != 0) {
        a->max_mcast_grp = MULTICAST_GROUPS_MAX;
        a->max_mcast_qp_attach = MULTICAST_MEMBERS_MAX;
        a->max_total_mcast_qp_attach = MULTICAST_GROUPS_MAX * MULTICAST_MEMBERS_MAX;
    }
    a->sys_image_guid = a->node_guid;
    snprintf(a->fw_ver, sizeof a->fw_ver, "%s", WEIR_VERSION);
}

PUBLIC int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *ret_attributes)
{
    HOST_FORWARD(context, ibv_query_device, context, ret_attributes);
    fill_attributes(context, ret_attributes);
    return 0;
}

/* No memory is pinned: what a work request or a peer names is brought in when it is touched. */
static struct ibv_odp_caps on_demand(const struct limits *limits)
{
    const uint32_t *caps = limits->on_demand;
    bool offered = (limits->abilities & ABILITY_ON_DEMAND) != 0;
    return (struct ibv_odp_caps){
        .general_caps = offered ? IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT : 0,
        .per_transport_caps = {caps[0], caps[1], caps[2]},
    };
}

/* What only some adapters have: nothing is told of what is not offered. */
static void fill_abilities(const struct limits *limits, struct ibv_device_attr_ex *attributes)
{
    if ((limits->abilities & ABILITY_TIMESTAMPS) != 0) {
        attributes->completion_timestamp_mask = limits->timestamp_mask;
        attributes->hca_core_clock = 1000000; /* kHz: time stamps count nanoseconds */
    }
    if ((limits->abilities & ABILITY_MODERATION) != 0) {
        attributes->cq_mod_caps = (struct ibv_cq_moderation_caps){UINT16_MAX, UINT16_MAX};
    }
    if ((limits->abilities & ABILITY_TAG_MATCHING) != 0) {
        attributes->tm_caps = (struct ibv_tm_caps){.max_rndv_hdr_size = TAG_RENDEZVOUS_LENGTH * 2,
                                                   .max_num_tags = limits->max_tags,
                                                   .flags = IBV_TM_CAP_RC,
                                                   .max_ops = TAGS_OFFERED,
                                                   .max_sge = limits->max_tag_sge};
    }
    if ((limits->abilities & ABILITY_DEVICE_MEMORY) != 0) {
        attributes->max_dm_size = limits->max_device_memory;
    }
    if ((limits->abilities & ABILITY_ATOMICS) != 0) {
        attributes->pci_atomic_caps.fetch_add = IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP;
        attributes->pci_atomic_caps.compare_swap = IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP;
    }
    if ((limits->abilities & ABILITY_ATOMIC_WRITE) != 0) {
        attributes->device_cap_flags_ex |= DEVICE_ATOMIC_WRITE;
    }
}

int device_query_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                    struct ibv_device_attr_ex *ret_attributes, size_t length)
{
    const struct limits *limits = limits_now();
    struct ibv_device_attr_ex attributes = {
        .phys_port_cnt_ex = ((struct soft_device *)context->device)->port_count,
        .odp_caps = on_demand(limits),
        .xrc_odp_caps = limits->on_demand[3],
    };
    if (input != NULL && input->comp_mask != 0) {
        return EINVAL;
    }
    if (length < sizeof attributes.orig_attr) {
        return EINVAL;
    }
    fill_attributes(context, &attributes.orig_attr);
    attributes.device_cap_flags_ex = attributes.orig_attr.device_cap_flags;
    fill_abilities(limits, &attributes);
    memset(ret_attributes, 0, length);
    memcpy(ret_attributes, &attributes, length < sizeof attributes ? length : sizeof attributes);
    return 0;
}

int device_query_clock(struct ibv_context *context, struct ibv_values_ex *values)
{
    uint32_t wanted = values->comp_mask;
    values->comp_mask = 0;
    if ((wanted & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
        clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
        values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    }
    return 0;
}

/* Our devices touch memory by its virtual address only: nothing to protect. Those of the host pin.
 */
PUBLIC int ibv_fork_init(void)
{
    const struct host_calls *host = host_calls();
    return host == NULL ? 0 : host->ibv_fork_init();
}

PUBLIC enum ibv_fork_status ibv_is_fork_initialized(void)
{
    const struct host_calls *host = host_calls();
    return host == NULL ? IBV_FORK_UNNEEDED : host->ibv_is_fork_initialized();
}

int ibv_dontfork_range(void *base, size_t size);
PUBLIC int ibv_dontfork_range(void *base, size_t size)
{
    return 0;
}

int ibv_dofork_range(void *base, size_t size);
PUBLIC int ibv_dofork_range(void *base, size_t size)
{
    return 0;
}

const char *ibv_get_sysfs_path(void);
PUBLIC const char *ibv_get_sysfs_path(void)
{
    const char *path = secure_getenv("SYSFS_PATH");
    return path != NULL && path[0] == '/' ? path : "/sys";
}

int ibv_read_sysfs_file(const char *folder, const char *name, char *ret_text, size_t size);
PUBLIC int ibv_read_sysfs_file(const char *folder, const char *name, char *ret_text, size_t size)
{
    int length = -1;
    bool is_ours = false;
    for (uint32_t i = 0; i < devices_count(); i++) {
        is_ours |= strcmp(folder, devices_get(i)->ibv.ibdev_path) == 0;
    }
    if (is_ours) {
        if (strcmp(name, "board_id") == 0) {
            length = snprintf(ret_text, size, "weir");
        }
    } else {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, name);
        FILE *file = fopen(path, "re");
        if (file != NULL) {
            length = size == 0 ? -1 : (int)fread(ret_text, 1, size - 1, file);
            fclose(file);
        }
        if (length >= 0) {
            length -= length > 0 && ret_text[length - 1] == '\n';
            ret_text[length] = '\0';
        }
    }
    if (length < 0) {
        errno = ENOENT;
    }
    return length;
}
