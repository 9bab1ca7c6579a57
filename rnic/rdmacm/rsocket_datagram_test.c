/* Datagram rsockets and what is in their way: a UDP socket that takes nothing, a registry that is
 * locked, an address that is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "rnic/io/registry/registry.h"
#include "rnic/io/registry/registry_private.h"
#include "rnic/rdmacm/rsocket_pair_test.h"

#define PATIENCE_MS 2000 /* less than the registry's, which is 5 s */

/* Who sends on that socket and would wait, waits until he may go on. */
static _Atomic int stuck = -1;
static sem_t inside, goes_on;

/* In the place of the C library's, for librdmacm too. A caller gives fewer words than are passed
 * on, which a sanitizer is not to mind. */
__attribute__((visibility("default"), no_sanitize_address)) long syscall(long number, ...)
{
    long (*real)(long, ...) = (long (*)(long, ...))(uintptr_t)dlsym(RTLD_NEXT, "syscall");
    long words[6];
    va_list list;
    va_start(list, number);
    for (size_t i = 0; i < 6; i++) {
        words[i] = va_arg(list, long);
    }
    va_end(list);
    if (number == SYS_sendmsg && (int)words[0] == atomic_load(&stuck) &&
        ((int)words[2] & MSG_DONTWAIT) == 0) {
        sem_post(&inside);
        sem_wait(&goes_on);
    }
    return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

static int open_bound(struct sockaddr_in *ret_address)
{
    socklen_t length = sizeof *ret_address;
    int socket = rsocket(AF_INET, SOCK_DGRAM, 0);
    assert_true(socket >= 0);
    *ret_address = loopback();
    assert_int_equal(rbind(socket, (struct sockaddr *)ret_address, length), 0);
    assert_int_equal(rgetsockname(socket, (struct sockaddr *)ret_address, &length), 0);
    return socket;
}

static void send_to(int socket, const struct sockaddr_in *target)
{
    assert_int_equal(
        rsendto(socket, "hello", 5, 0, (const struct sockaddr *)target, sizeof *target), 5);
}

/* Returns the sender's port. */
static in_port_t receive(int socket)
{
    struct pollfd wait = {.fd = socket, .events = POLLIN};
    struct sockaddr_in source;
    socklen_t length = sizeof source;
    char bytes[16];
    assert_int_equal(rpoll(&wait, 1, PATIENCE_MS), 1);
    assert_int_equal(rrecvfrom(socket, bytes, sizeof bytes, 0, (struct sockaddr *)&source, &length),
                     5);
    return source.sin_port;
}

struct sender {
    int socket;
    struct sockaddr_in target;
};

static void *send_in_thread(void *context)
{
    const struct sender *sender = context;
    send_to(sender->socket, &sender->target);
    return NULL;
}

static void who_waits_to_send_holds_nobody_up(void **state)
{
    struct sockaddr_in writer_address, reader_address, third_address;
    int writer = open_bound(&writer_address);
    int reader = open_bound(&reader_address);
    int third = open_bound(&third_address);
    struct sender sender = {writer, reader_address};
    pthread_t thread;
    sem_init(&inside, 0, 0);
    sem_init(&goes_on, 0, 0);
    atomic_store(&stuck, writer);
    assert_int_equal(pthread_create(&thread, NULL, send_in_thread, &sender), 0);
    sem_wait(&inside);
    send_to(third, &writer_address);
    assert_int_equal(receive(writer), third_address.sin_port);
    atomic_store(&stuck, -1);
    sem_post(&goes_on);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(receive(reader), writer_address.sin_port);
    rclose(writer);
    rclose(reader);
    rclose(third);
}

/* By a process that was stopped with it, say. */
static int lock_registry(void)
{
    char path[REGISTRY_PATH_MAX];
    struct flock lock;
    registry_path(path);
    int file = open(path, O_RDWR | O_CLOEXEC);
    assert_true(file >= 0);
    while (registry_lock_bytes(file, F_OFD_SETLK, F_WRLCK, 0, 1, &lock) != 0) {
        poll(NULL, 0, 1);
    }
    return file;
}

static void strangers_are_met_without_the_registry(void **state)
{
    struct sockaddr_in addresses[3];
    int sockets[3];
    for (int i = 0; i < 3; i++) {
        sockets[i] = open_bound(&addresses[i]);
    }
    send_to(sockets[0], &addresses[1]); /* so each has its queue pair */
    send_to(sockets[2], &addresses[1]);
    (void)receive(sockets[1]);
    (void)receive(sockets[1]);
    int file = lock_registry();
    send_to(sockets[0], &addresses[2]);
    assert_int_equal(receive(sockets[2]), addresses[0].sin_port);
    close(file);
    for (int i = 0; i < 3; i++) {
        rclose(sockets[i]);
    }
}

static void a_connection_ends(void **state)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    struct sockaddr_in first_address, second_address;
    int first = open_bound(&first_address);
    int second = open_bound(&second_address);
    int client = rsocket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(rconnect(client, (struct sockaddr *)&first_address, sizeof first_address), 0);
    assert_int_equal(rsend(client, "hello", 5, 0), 5);
    in_port_t port = receive(first);
    assert_int_equal(rconnect(client, &nobody, sizeof nobody), 0);
    assert_int_equal(rsend(client, "hello", 5, 0), -1);
    assert_int_equal(errno, EDESTADDRREQ);
    send_to(client, &second_address);
    assert_int_equal(receive(second), port);
    struct sockaddr_in client_address = loopback();
    client_address.sin_port = port;
    send_to(second, &client_address); /* not from whom it was connected to */
    assert_int_equal(receive(client), second_address.sin_port);
    rclose(client);
    rclose(first);
    rclose(second);
}

static void what_is_no_address_is_refused(void **state)
{
    struct sockaddr_in address;
    const struct sockaddr_un strange = {.sun_family = AF_UNIX};
    int socket = open_bound(&address);
    assert_int_equal(rsendto(socket, "x", 1, 0, (const struct sockaddr *)&strange, sizeof strange),
                     -1);
    assert_int_equal(errno, EAFNOSUPPORT);
    assert_int_equal(rsendto(socket, "x", 1, 0, (struct sockaddr *)&address, 4), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rconnect(socket, (const struct sockaddr *)&strange, sizeof strange), -1);
    assert_int_equal(errno, EAFNOSUPPORT);
    assert_int_equal(rconnect(socket, (struct sockaddr *)&address, 4), -1);
    assert_int_equal(errno, EINVAL);
    rclose(socket);
}

int main(void)
{
    alarm(60); /* who waits for what is held by who waits */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_to_send_holds_nobody_up),
        cmocka_unit_test(strangers_are_met_without_the_registry),
        cmocka_unit_test(a_connection_ends),
        cmocka_unit_test(what_is_no_address_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
