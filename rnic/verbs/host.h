/* The host's own RDMA devices, beside ours, where WEIR_HOST_DEVICES asks for them.
 *
 * The distribution's libibverbs is loaded into a namespace of its own (dlmopen): it has the name of
 * this library, and its providers must find it, not us. Its devices are listed behind ours, as they
 * are. Objects of such a device are its library's from head to foot: the tables of calls in them
 * serve all that headers inline, and every exported call that is given one hands it over
 * (HOST_FORWARD). Nothing here touches what is inside them. The communication manager of this
 * library serves our devices only. */
#ifndef WEIR_VERBS_HOST_H
#define WEIR_VERBS_HOST_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "rnic/verbs/host_calls.h"

/* In no public header. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *ret_type);

#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

#define HOST_MEMBER(name) __typeof__(&name) name;
struct host_calls {
    HOST_CALLS(HOST_MEMBER)
};
#undef HOST_MEMBER

/* NULL: not asked for, or not to be had (which was said once on standard error). */
const struct host_calls *host_calls(void);

/* Whether the context is of a device of the host. */
bool host_owns_device(const struct ibv_device *device);

extern bool host_is_on;

static inline bool host_owns(const struct ibv_context *context)
{
    return __builtin_expect(host_is_on, false) && host_owns_device(context->device);
}

/* First line of an exported call: hands it over if `context` is not ours. */
#define HOST_FORWARD(context, name, ...)                                                           \
    do {                                                                                           \
        if (host_owns(context)) {                                                                  \
            return host_calls()->name(__VA_ARGS__);                                                \
        }                                                                                          \
    } while (0)
/* The same for calls that return nothing. */
#define HOST_FORWARD_VOID(context, name, ...)                                                      \
    do {                                                                                           \
        if (host_owns(context)) {                                                                  \
            host_calls()->name(__VA_ARGS__);                                                       \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#endif
