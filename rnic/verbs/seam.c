#include "rnic/verbs/seam.h"

#include "rnic/io/loop/loop.h"
#include "rnic/strict/strict.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/objects.h"

static const struct weir_seam the_seam = {
    .cm_listen = cm_listen,
    .cm_unlisten = cm_unlisten,
    .cm_next_event = cm_next_event,
    .cm_connect = cm_connect,
    .cm_accept = cm_accept,
    .cm_confirm = cm_confirm,
    .cm_reject = cm_reject,
    .cm_resolve = cm_resolve,
    .cm_service_accept = cm_service_accept,
    .cm_service_reject = cm_service_reject,
    .cm_disconnect = cm_disconnect,
    .cm_data_arrived = cm_data_arrived,
    .cm_delay = cm_delay,
    .cm_set_backlog = cm_set_backlog,
    .cm_taken = cm_taken,
    .cm_set_context = cm_set_context,
    .cm_release = cm_release,
    .rdma_cm_header_parse = rdma_cm_header_parse,
    .rdma_cm_header_build = rdma_cm_header_build,
    .address_route = address_route,
    .address_from_socket = address_from_socket,
    .address_to_socket = address_to_socket,
    .devices_find = devices_find,
    .loop_registry = loop_registry,
    .loop_set_cm_wake = loop_set_cm_wake,
    .loop_is_ours = loop_is_ours,
    .registry_claim = registry_claim,
    .registry_claim_port = registry_claim_port,
    .registry_listen = registry_listen,
    .registry_unlisten = registry_unlisten,
    .registry_release = registry_release,
    .notify_create = notify_create,
    .notify_destroy = notify_destroy,
    .notify_descriptor = notify_descriptor,
    .notify_post = notify_post,
    .notify_wait = notify_wait,
    .notify_forget = notify_forget,
    .strict_is_on = strict_is_on,
    .strict_sends_answered = strict_sends_answered,
    .strict_unacknowledged = strict_unacknowledged,
    .context_engine = context_engine,
    .errno_of = errno_of,
};

PUBLIC const struct weir_seam *weir_seam(void)
{
    return &the_seam;
}

PUBLIC const char *weir_same_host(struct ibv_context *context)
{
    return loop_describe_same_host(context_engine(context));
}

PUBLIC uint64_t weir_retransmissions(struct ibv_context *context)
{
    return loop_retransmissions(context_engine(context));
}

PUBLIC void weir_carried(struct ibv_context *context, uint64_t *ret_network, uint64_t *ret_memory)
{
    loop_count_carried(context_engine(context), ret_network, ret_memory);
}
