/* What changes its rights only is not locked a second time (the test sets memlock=64K). */
#include "pair.h"

#define LENGTH (40u << 10)

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *mr = pair_register(&pair, pair_pages(LENGTH), LENGTH, IBV_ACCESS_LOCAL_WRITE);
    void *bytes = mr->addr;
    for (int i = 0; i < 2; i++) {
        expect(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ) == 0,
               "a region with other rights");
    }
    expect(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, bytes, LENGTH / 2, 0) == 0,
           "a region of half the length");
    expect(ibv_dereg_mr(mr) == 0, "a deregistered region");
    mr = pair_register(&pair, bytes, LENGTH, IBV_ACCESS_LOCAL_WRITE);
    expect(ibv_dereg_mr(mr) == 0, "a deregistered region");
    pair_close(&pair);
    return 0;
}
