/* Which of several devices leads to an address: rdma_cm knows, as it knows for a connection. */
#include "weir/address.h"
#include "weir/fabric_private.h"

#define PATIENCE_MS 2000 /* a peer on the link may have to be asked for its own address */

struct lead {
    struct ibv_context *context;
    uint8_t port;
};

static bool is_any(const struct sockaddr *address)
{
    return address_is_all_of_v6(address) ||
           (address->sa_family == AF_INET &&
            ((const struct sockaddr_in *)address)->sin_addr.s_addr == htonl(INADDR_ANY));
}

static struct lead follow(const struct verbs *verbs, struct sockaddr *address)
{
    struct rdma_cm_id *id;
    struct lead lead = {NULL, 0};
    if (is_any(address) || /* its calls wait for their end: */
        verbs->cm_create_id(NULL, &id, NULL, RDMA_PS_TCP) != 0) {
        return lead;
    }
    if (verbs->cm_resolve_addr(id, NULL, address, PATIENCE_MS) == 0) {
        lead = (struct lead){id->verbs, id->port_num};
    }
    verbs->cm_destroy_id(id);
    return lead;
}

/* A name may stand for an address on each of several networks. The first device that leads to one
 * of them is taken, since that is the one that the other side has taken, if it had no address to go
 * by. */
struct ibv_context *fabric_find_toward(const struct verbs *verbs,
                                       struct ibv_context *const *contexts, int count,
                                       const char *text, unsigned *ret_port)
{
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    struct lead leads[ADDRESSES_MAX];
    struct weir_error error;
    unsigned address_count;
    if (address_resolve(text, false, addresses, &address_count, &error) != WEIR_OK) {
        return NULL;
    }
    for (unsigned i = 0; i < address_count; i++) {
        leads[i] = follow(verbs, (struct sockaddr *)&addresses[i]);
    }
    for (int k = 0; k < count; k++) {
        for (unsigned i = 0; i < address_count; i++) {
            if (contexts[k] == leads[i].context) {
                *ret_port = leads[i].port;
                return contexts[k];
            }
        }
    }
    return NULL;
}
