/* Between the words of libibverbs and those of the core. Nothing else translates. */
#ifndef WEIR_VERBS_CONVERT_H
#define WEIR_VERBS_CONVERT_H

#include <infiniband/verbs.h>

#include "rnic/queue/event.h"
#include "rnic/queue/work.h"
#include "rnic/transport/qp.h"

void convert_sges(const struct ibv_sge *list, size_t count, struct sge *ret_sges);
void convert_send_flags(unsigned flags, struct send_request *ret_request);
/* The kind and its own fields, but for binding. Returns 0, EINVAL or EOPNOTSUPP. */
int convert_operation(const struct ibv_send_wr *wr, struct send_request *ret_request);
/* `key` is what the window's is to become. Returns 0 or EINVAL. */
int convert_bind(const struct ibv_mw *mw, uint32_t key, const struct ibv_mw_bind_info *info,
                 struct window_bind *ret_bind);
void convert_target(struct ibv_ah *ah, uint32_t qpn, uint32_t qkey,
                    struct datagram_target *ret_target);

void convert_completion(const struct completion *completion, struct ibv_wc *ret_wc);
enum ibv_wc_opcode convert_opcode(enum completion_kind kind);
unsigned convert_completion_flags(const struct completion *completion);
/* There are no service levels, but programs read from this field which IP header a datagram came
 * with, as adapters tell it. */
uint8_t convert_service_level(const struct completion *completion);

/* Rights of a key; false: flags that nobody defined or that are not offered. Optional ones are
 * hints and are dropped. */
bool convert_access(unsigned flags, unsigned *ret_access);
unsigned convert_access_back(unsigned access);

/* Everything but the path, which needs the GID table. Returns 0 or an errno value for what is
 * beyond us: automatic path migration, other capabilities. */
int convert_attributes(const struct ibv_qp_attr *attributes, int mask,
                       struct qp_attributes *ret_attributes, unsigned *ret_mask);
void convert_attributes_back(const struct qp_attributes *attributes,
                             struct ibv_qp_attr *ret_attributes);
/* False: a service that is not offered. */
bool convert_service(enum ibv_qp_type type, enum service *ret_service);

enum ibv_event_type convert_event(enum event_kind kind);

/* A path from its address vector and the GID that sgid_index names. `entropy` chooses the UDP
 * source port where the vector has no flow label. */
void convert_path(const struct ibv_ah_attr *vector, const struct gid *local,
                  const struct gid *remote, uint32_t entropy, struct path *ret_path);

#endif
