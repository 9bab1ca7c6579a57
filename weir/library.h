/* The seam to the verbs libraries: their functions as a table, loaded at run time.
 *
 * Here: which file is loaded, and the proof that it was that file. Not here: devices (fabric.h).
 * Verbs that the headers define inline (post, poll, arm) go through the context and need no entry.
 *
 * Invariant: at most one libibverbs is mapped into the process. The system's and ours share a
 * SONAME, so with both mapped a librdmacm would bind to whichever came first. */
#ifndef WEIR_LIBRARY_H
#define WEIR_LIBRARY_H

#include <infiniband/verbs.h>
#include <limits.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>

#include <weir/error.h>

/* Without the prefixes: some of the names are macros. */
struct verbs {
    struct ibv_device **(*get_device_list)(int *count);
    void (*free_device_list)(struct ibv_device **list);
    const char *(*get_device_name)(struct ibv_device *device);
    struct ibv_context *(*open_device)(struct ibv_device *device);
    int (*close_device)(struct ibv_context *context);
    int (*query_device)(struct ibv_context *context, struct ibv_device_attr *attributes);
    int (*query_port)(struct ibv_context *context, uint8_t port, void *attributes);
    int (*query_gid)(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid);
    int (*query_gid_entry)(struct ibv_context *context, uint32_t port, uint32_t index,
                           struct ibv_gid_entry *entry, uint32_t flags,
                           size_t size);                      /* may be NULL */
    const char *(*same_host)(struct ibv_context *context);    /* of ours; may be NULL */
    uint64_t (*retransmissions)(struct ibv_context *context); /* likewise */
    void (*carried)(struct ibv_context *context, uint64_t *ret_network,
                    uint64_t *ret_memory); /* likewise */
    struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
    int (*dealloc_pd)(struct ibv_pd *domain);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *domain, void *address, size_t length, int access);
    int (*dereg_mr)(struct ibv_mr *region);
    struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *context);
    int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
    struct ibv_cq *(*create_cq)(struct ibv_context *context, int entries, void *cq_context,
                                struct ibv_comp_channel *channel, int vector);
    int (*destroy_cq)(struct ibv_cq *queue);
    int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **ret_queue,
                        void **ret_context);
    void (*ack_cq_events)(struct ibv_cq *queue, unsigned count);
    struct ibv_qp *(*create_qp)(struct ibv_pd *domain, struct ibv_qp_init_attr *attributes);
    int (*modify_qp)(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask);
    int (*destroy_qp)(struct ibv_qp *pair);
    const char *(*wc_status_str)(enum ibv_wc_status status);

    struct ibv_context **(*cm_get_devices)(int *count);
    void (*cm_free_devices)(struct ibv_context **list);
    struct rdma_event_channel *(*cm_create_event_channel)(void);
    void (*cm_destroy_event_channel)(struct rdma_event_channel *channel);
    int (*cm_create_id)(struct rdma_event_channel *channel, struct rdma_cm_id **ret_id,
                        void *context, enum rdma_port_space space);
    int (*cm_destroy_id)(struct rdma_cm_id *id);
    int (*cm_bind_addr)(struct rdma_cm_id *id, struct sockaddr *address);
    int (*cm_resolve_addr)(struct rdma_cm_id *id, struct sockaddr *source,
                           struct sockaddr *destination, int timeout_ms);
    int (*cm_resolve_route)(struct rdma_cm_id *id, int timeout_ms);
    int (*cm_listen)(struct rdma_cm_id *id, int backlog);
    int (*cm_connect)(struct rdma_cm_id *id, struct rdma_conn_param *parameters);
    int (*cm_accept)(struct rdma_cm_id *id, struct rdma_conn_param *parameters);
    int (*cm_reject)(struct rdma_cm_id *id, const void *private_data, uint8_t length);
    int (*cm_disconnect)(struct rdma_cm_id *id);
    int (*cm_create_qp)(struct rdma_cm_id *id, struct ibv_pd *domain,
                        struct ibv_qp_init_attr *attributes);
    void (*cm_destroy_qp)(struct rdma_cm_id *id);
    int (*cm_get_event)(struct rdma_event_channel *channel, struct rdma_cm_event **ret_event);
    int (*cm_ack_event)(struct rdma_cm_event *event);
    __be16 (*cm_get_src_port)(struct rdma_cm_id *id);
    int (*cm_set_option)(struct rdma_cm_id *id, int level, int name, void *value,
                         size_t length); /* may be NULL */
};

struct library {
    void *ibverbs;
    void *rdmacm;
    char path[PATH_MAX]; /* of libibverbs, as it was mapped */
    struct verbs verbs;
};

/* True if a libibverbs is in the process already; its file. */
bool library_is_loaded(char ret_path[PATH_MAX]);
/* `directory` NULL: the system's. Refuses if the functions found are not from there. */
enum weir_status library_load(const char *directory, struct library *ret_library,
                              struct weir_error *ret_error);
/* The one that is there already (linked or preloaded). */
enum weir_status library_adopt(struct library *ret_library, struct weir_error *ret_error);
void library_unload(struct library *library);

/* Where our drop-in libraries are: `wished` (may be NULL), WEIR_LIBRARY_DIR, beside the program,
 * beside libweir, where installed. False: nowhere; `ret_directory` then holds what was tried. */
bool library_find_soft(const char *wished, char ret_directory[PATH_MAX]);

#endif
