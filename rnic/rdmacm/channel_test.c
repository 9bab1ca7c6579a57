/* Event channels that go while they are waited for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *wait_for_event(void *argument)
{
    struct rdma_cm_event *event;
    rdma_get_cm_event(argument, &event); /* for ever, or it came too late */
    return NULL;
}

/* AddressSanitizer takes the end of a cancelled thread that waits in a library for an error. */
#ifdef __SANITIZE_ADDRESS__
#define CAN_CANCEL 0
#else
#define CAN_CANCEL 1
#endif

/* As rping ends: the channel goes while a thread waits for its events, or is about to. */
static void test_destroyed_while_waited_for(void **state)
{
    (void)state;
    struct rdma_cm_event *event;
    rdma_destroy_event_channel(rdma_create_event_channel()); /* the device has descriptors, too */
    int lowest = dup(0);
    for (unsigned i = 0; i < (CAN_CANCEL ? 500 : 20); i++) {
        pthread_t thread;
        struct rdma_event_channel *channel = rdma_create_event_channel();
        assert_int_equal(pthread_create(&thread, NULL, wait_for_event, channel), 0);
        for (volatile unsigned spin = 0; spin < i % 100 * 300; spin++) {
        }
        rdma_destroy_event_channel(channel);
        void *rubble[8]; /* what was freed is something else by now */
        for (unsigned k = 0; k < 8; k++) {
            rubble[k] = memset(malloc(16 * (k + 1)), 0xab, 16 * (k + 1));
        }
        errno = 0;
        assert_int_equal(rdma_get_cm_event(channel, &event), -1);
        assert_int_equal(errno, EBADF);
        rdma_destroy_event_channel(rdma_create_event_channel());
        if (CAN_CANCEL) {
            pthread_cancel(thread);
            pthread_join(thread, NULL);
        } else {
            pthread_detach(thread);
        }
        for (unsigned k = 0; k < 8; k++) {
            free(rubble[k]);
        }
    }
    int now = dup(0); /* and none of their descriptors is left */
    assert_true(!CAN_CANCEL || now == lowest + 1);
    close(now);
    close(lowest);
}

struct late {
    struct rdma_event_channel *channel;
    int error;
    atomic_bool came_back;
};

static void *come_late(void *argument)
{
    struct late *late = argument;
    struct rdma_cm_event *event;
    late->error = rdma_get_cm_event(late->channel, &event) == 0 ? 0 : errno;
    atomic_store(&late->came_back, true);
    return NULL;
}

static void be_interrupted(int number)
{
}

/* What a thread is told that comes when another has destroyed the channel. */
static int answer_to_late_thread(int flags)
{
    struct late late = {.channel = rdma_create_event_channel()};
    assert_int_equal(fcntl(late.channel->fd, F_SETFL, flags), 0);
    rdma_destroy_event_channel(late.channel);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, come_late, &late), 0);
    while (!atomic_load(&late.came_back)) {
        (void)pthread_kill(thread, SIGUSR1);
        usleep(1000);
    }
    pthread_join(thread, NULL);
    return late.error;
}

/* rping's thread takes the last event, and is slower to come back than main is to end: main's exit
 * code counts, and would not if the thread were told of an error. */
static void test_late_waits(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = be_interrupted};
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(answer_to_late_thread(0), EINTR);
    assert_int_equal(answer_to_late_thread(O_NONBLOCK), EBADF);
}

#define ROUNDS 2000u

static sem_t destroyed;

static void *destroy_with_event(void *argument)
{
    struct rdma_event_channel *channel = argument;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct rdma_cm_event *event;
        assert_int_equal(rdma_get_cm_event(channel, &event), 0);
        struct rdma_cm_id *id = event->id;
        rdma_ack_cm_event(event);
        rdma_destroy_id(id);
        sem_post(&destroyed);
    }
    return NULL;
}

/* Who asks may be held up on its way out of the call, while another thread has the answer and
 * destroys the id. Memory that is freed is filled with rubble here (MALLOC_PERTURB_ does the same).
 */
static void test_destroyed_by_who_has_the_answer(void **state)
{
    (void)state;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(7), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    pthread_t thread;
    struct rdma_event_channel *channel = rdma_create_event_channel();
    mallopt(M_PERTURB, 0x5a);
    sem_init(&destroyed, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, destroy_with_event, channel), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct rdma_cm_id *id;
        assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
        assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000), 0);
        sem_wait(&destroyed);
    }
    pthread_join(thread, NULL);
    rdma_destroy_event_channel(channel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_destroyed_while_waited_for),
        cmocka_unit_test(test_late_waits),
        cmocka_unit_test(test_destroyed_by_who_has_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
