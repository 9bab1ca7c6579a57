/* Registers more than the process may lock (the test sets memlock=64K). */
#include <errno.h>

#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    errno = 0;
    struct ibv_mr *mr = ibv_reg_mr(pair.pd, pair_pages(1 << 20), 1 << 20, IBV_ACCESS_LOCAL_WRITE);
    const char *strict = getenv("WEIR_STRICT");
    expect(strict == NULL ? mr != NULL : mr == NULL && errno == ENOMEM, "what the limit says");
    return 0;
}
