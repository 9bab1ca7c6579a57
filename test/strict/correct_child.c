/* A child has nothing locked of what its parent has (the test sets memlock=64K). */
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define LENGTH (40u << 10)

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *mr = pair_register(&pair, pair_pages(LENGTH), LENGTH, IBV_ACCESS_LOCAL_WRITE);
    pid_t child = fork();
    if (child == 0) {
        struct pair its = pair_open(NULL);
        struct ibv_mr *own =
            pair_register(&its, pair_pages(LENGTH), LENGTH, IBV_ACCESS_LOCAL_WRITE);
        expect(ibv_dereg_mr(own) == 0, "a deregistered region");
        expect(ibv_dereg_mr(mr) == 0, "the parent's region given up");
        own = pair_register(&its, pair_pages(LENGTH), LENGTH, IBV_ACCESS_LOCAL_WRITE);
        expect(ibv_dereg_mr(own) == 0, "a deregistered region");
        pair_close(&its);
        _exit(0);
    }
    int status;
    expect(waitpid(child, &status, 0) == child && status == 0, "a child that ends well");
    expect(ibv_dereg_mr(mr) == 0, "a deregistered region");
    pair_close(&pair);
    return 0;
}
