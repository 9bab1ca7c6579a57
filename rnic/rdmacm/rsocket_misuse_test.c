/* Calls on rsockets that a careful program would not make, or not then, and what they do all the
 * same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rsocket.h>
#include <unistd.h>

static struct sockaddr_in loopback(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* rclose waits for as many sends as the queue was made for. */
static void queues_of_datagrams_in_use_keep_their_length(void **state)
{
    const int names[] = {RDMA_SQSIZE, RDMA_RQSIZE};
    const int longer = 1000;
    struct sockaddr_in address = loopback();
    int socket = rsocket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(rsetsockopt(socket, SOL_RDMA, RDMA_SQSIZE, &longer, sizeof longer), 0);
    assert_int_equal(rbind(socket, (struct sockaddr *)&address, sizeof address), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(rsetsockopt(socket, SOL_RDMA, names[i], &longer, sizeof longer), -1);
        assert_int_equal(errno, EINVAL);
    }
    assert_int_equal(rclose(socket), 0);
}

int main(void)
{
    alarm(60); /* who waits for what never comes */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_of_datagrams_in_use_keep_their_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
