/* The life of protection domains. */
#include "weir/domain.h"

#include <stdlib.h>

#include "weir/error_private.h"

enum weir_status domain_create(struct weir_fabric *fabric, struct domain **ret_domain,
                               struct weir_error *ret_error)
{
    struct domain *domain = calloc(1, sizeof(*domain));
    if (domain == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    *domain = (struct domain){.fabric = fabric, .holders = 1};
    domain->pd = fabric->library.verbs.alloc_pd(fabric->context);
    if (domain->pd == NULL) {
        free(domain);
        return error_set(ret_error, WEIR_SYSTEM, "%s: protection domain: %m", fabric->device);
    }
    *ret_domain = domain;
    return WEIR_OK;
}

void domain_hold(struct domain *domain)
{
    pthread_mutex_lock(&domain->fabric->lock);
    domain->holders++;
    pthread_mutex_unlock(&domain->fabric->lock);
}

void domain_release(struct domain *domain)
{
    if (domain == NULL) {
        return;
    }
    pthread_mutex_lock(&domain->fabric->lock);
    bool is_last = --domain->holders == 0;
    pthread_mutex_unlock(&domain->fabric->lock);
    if (is_last) {
        domain->fabric->library.verbs.dealloc_pd(domain->pd);
        free(domain);
    }
}

void domain_forget_shares(struct domain *domain)
{
    pthread_mutex_lock(&domain->fabric->lock);
    while (domain->shares != NULL) {
        memory_end_share(domain->shares);
    }
    pthread_mutex_unlock(&domain->fabric->lock);
}
