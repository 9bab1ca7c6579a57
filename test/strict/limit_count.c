/* Makes more completion queues than an E810 has, and so learns what its driver says then. */
#include <errno.h>

#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_device_attr attributes;
    expect(ibv_query_device(pair.context, &attributes) == 0, "attributes");
    bool strict = getenv("WEIR_STRICT") != NULL;
    int most = strict ? attributes.max_cq : 9000;
    struct ibv_cq *last = NULL;
    for (int i = 2; i < most; i++) { /* the pair has two */
        last = ibv_create_cq(pair.context, 1, NULL, NULL, 0);
        expect(last != NULL, "as many as the query says");
    }
    struct ibv_cq *more = ibv_create_cq(pair.context, 1, NULL, NULL, 0);
    expect(strict ? more == NULL && errno == EOVERFLOW : more != NULL, "what the limit says");
    expect(ibv_destroy_cq(last) == 0, "one less");
    expect(ibv_create_cq(pair.context, 1, NULL, NULL, 0) != NULL, "room for one");
    return 0;
}
