/* Takes for granted that a message may have 2 GiB, where adapters take 1 GiB. */
#include <errno.h>
#include <sys/mman.h>

#include "pair.h"

#define LENGTH ((1u << 30) + 1)

int main(void)
{
    struct pair pair = pair_open(NULL);
    void *bytes = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    expect(bytes != MAP_FAILED, "memory");
    bool strict = getenv("WEIR_STRICT") != NULL;
    struct ibv_mr *mr = pair_register(&pair, bytes, LENGTH, IBV_ACCESS_ON_DEMAND);
    struct ibv_port_attr port;
    expect(ibv_query_port(pair.context, 1, &port) == 0, "a port");
    expect((port.max_msg_sz < LENGTH) == strict, "a limit");
    if (strict) {
        expect(pair_post(&pair.a, IBV_WR_SEND, 0, mr, LENGTH, 0, 0) == EINVAL, "refused");
    }
    return 0;
}
