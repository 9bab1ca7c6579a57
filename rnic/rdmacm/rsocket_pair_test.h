/* For tests: streams of one process over loopback. Each program that includes it uses some of it.
 */
#ifndef WEIR_RSOCKET_PAIR_TEST_H
#define WEIR_RSOCKET_PAIR_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <rdma/rsocket.h>

static inline struct sockaddr_in loopback(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static inline int listen_anywhere(struct sockaddr_in *ret_address)
{
    socklen_t length = sizeof *ret_address;
    int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_true(listener >= 0);
    *ret_address = loopback();
    assert_int_equal(rbind(listener, (struct sockaddr *)ret_address, length), 0);
    assert_int_equal(rlisten(listener, 4), 0);
    assert_int_equal(rgetsockname(listener, (struct sockaddr *)ret_address, &length), 0);
    return listener;
}

static inline void connect_both(int *ret_client, int *ret_server)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    *ret_client = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rconnect(*ret_client, (struct sockaddr *)&address, sizeof address), 0);
    *ret_server = raccept(listener, NULL, NULL);
    assert_true(*ret_server >= 0);
    assert_int_equal(rclose(listener), 0);
}

#endif
