/* Which of several devices leads to an address: rdma_cm knows, as it knows for a connection. */
#include "weir/address.h"
#include "weir/fabric_private.h"

#define PATIENCE_MS 2000 /* a peer on the link may have to be asked for its own address */

static struct ibv_context *find(const struct verbs *verbs, struct sockaddr *address)
{
    struct rdma_cm_id *id;
    struct ibv_context *context = NULL;
    if (verbs->cm_create_id(NULL, &id, NULL, RDMA_PS_TCP) != 0) { /* its calls wait for their end */
        return NULL;
    }
    if (verbs->cm_resolve_addr(id, NULL, address, PATIENCE_MS) == 0) {
        context = id->verbs;
    }
    verbs->cm_destroy_id(id);
    return context;
}

struct ibv_context *fabric_find_toward(const struct verbs *verbs,
                                       struct ibv_context *const *contexts, int count,
                                       const char *text)
{
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    struct weir_error error;
    unsigned address_count;
    if (address_resolve(text, false, addresses, &address_count, &error) != WEIR_OK) {
        return NULL;
    }
    for (unsigned i = 0; i < address_count; i++) {
        struct ibv_context *found = find(verbs, (struct sockaddr *)&addresses[i]);
        for (int k = 0; k < count; k++) {
            if (contexts[k] == found) {
                return found;
            }
        }
    }
    return NULL;
}
