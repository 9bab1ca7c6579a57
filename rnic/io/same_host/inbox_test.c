/* Packets left in an inbox come whole, once, in order and with their path; senders may die, lie or
 * be many. */
#include "rnic/io/same_host/inbox.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/base/container.h"
#include "rnic/io/same_host/inbox_private.h"
#include "rnic/io/same_host/inbox_sleep.h"
#include "rnic/io/same_host/outbox.h"
#include "rnic/io/system/bell.h"
#include "rnic/io/system/slab.h"

#define OWNER  UINT64_C(0x1111)
#define SENDER UINT64_C(0x2222)

/* Takes down what arrives: the number in each packet's payload, per sender. */
struct catcher {
    struct inbox_receiver receiver;
    uint32_t next[64]; /* by source port - 50000 */
    uint32_t count;
    struct path path;
    uint32_t length;
};

static void catch (struct inbox_receiver *receiver, const struct arrival *arrival,
                   const uint8_t *bytes, uint32_t length, const struct payload_reference *reference)
{
    struct catcher *catcher = CONTAINER_OF(receiver, struct catcher, receiver);
    uint32_t number;
    assert_true(length >= BTH_LENGTH + sizeof number);
    memcpy(&number, bytes + BTH_LENGTH, sizeof number);
    uint32_t sender = arrival->path.source_port - 50000u;
    assert_true(sender < 64);
    assert_int_equal(number, catcher->next[sender]);
    assert_true(arrival->is_near);
    assert_int_equal(arrival->acknowledges, number % 2 == 1);
    assert_int_equal(arrival->acknowledged.value, PSN_MASK - number);
    catcher->next[sender]++;
    catcher->count++;
    catcher->path = arrival->path;
    catcher->length = length;
}

static struct inbox *open_inbox(struct catcher *catcher)
{
    struct inbox *inbox;
    *catcher = (struct catcher){.receiver = {catch}};
    assert_int_equal(inbox_create(OWNER, true, &inbox), STATUS_OK);
    return inbox;
}

static struct outbox *open_outbox(const struct inbox *inbox, uint64_t incarnation)
{
    struct outbox *outbox;
    assert_int_equal(
        outbox_open(getpid(), inbox_descriptor(inbox), OWNER, incarnation, NULL, true, &outbox),
        STATUS_OK);
    return outbox;
}

static struct path path_of(uint32_t sender)
{
    return (struct path){
        .local = {{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}},
        .remote = {{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 2}},
        .source_port = (uint16_t)(50000 + sender),
        .traffic_class = 0x20,
        .hop_limit = 7,
    };
}

/* A packet whose payload begins with its number. */
static enum status put(struct outbox *outbox, const struct path *path, uint32_t number,
                       uint32_t length)
{
    uint8_t header[BTH_LENGTH] = {4}, rest[PACKET_PAYLOAD_MAX] = {0};
    struct fragment fragments[] = {{(const uint8_t *)&number, sizeof number},
                                   {rest, length - (uint32_t)sizeof number}};
    struct outgoing outgoing = {
        .path = path,
        .header = header,
        .header_length = sizeof header,
        .fragments = fragments,
        .fragment_count = 2,
        .payload_length = length,
        .acknowledges = number % 2 == 1,
        .acknowledged = psn_make(PSN_MASK - number),
    };
    return outbox_put(outbox, &outgoing);
}

static void show(struct outbox *outbox)
{
    bool sleeps = outbox_flush(outbox);
    (void)sleeps;
}

static void a_packet_comes_with_its_path(void **state)
{
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    struct outbox *outbox = open_outbox(inbox, SENDER);
    struct path path = path_of(0);
    assert_int_equal(put(outbox, &path, 0, 5), STATUS_OK);
    assert_false(outbox_flush(outbox));
    assert_int_equal(inbox_receive(inbox, &catcher.receiver, 16), 1);
    assert_int_equal(catcher.length, BTH_LENGTH + 8);
    assert_true(gid_equal(&catcher.path.local, &path.remote));
    assert_true(gid_equal(&catcher.path.remote, &path.local));
    assert_int_equal(catcher.path.traffic_class, 0x20);
    assert_int_equal(catcher.path.hop_limit, 7);
    assert_int_equal(inbox_receive(inbox, &catcher.receiver, 16), 0);
    outbox_close(outbox);
    inbox_destroy(inbox);
}

static void put_and_show(struct outbox *outbox, const struct path *path, uint32_t first,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(put(outbox, path, first + i, 8), STATUS_OK);
    }
    show(outbox);
}

static void a_poller_takes_one_where_one_at_a_time_comes(void **state)
{
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    struct outbox *outbox = open_outbox(inbox, SENDER);
    struct path path = path_of(0);
    put_and_show(outbox, &path, 0, 8);
    for (uint32_t share = 1; share < 8; share *= 2) {
        assert_int_equal(inbox_receive_next(inbox, &catcher.receiver, 100), share);
    }
    assert_int_equal(inbox_receive_next(inbox, &catcher.receiver, 100), 1);
    assert_int_equal(inbox_receive_next(inbox, &catcher.receiver, 100), 0);
    put_and_show(outbox, &path, 8, 2);
    assert_int_equal(inbox_receive_next(inbox, &catcher.receiver, 100), 1);
    outbox_close(outbox);
    inbox_destroy(inbox);
}

static bool is_gone(void *context, uint64_t incarnation)
{
    return incarnation != SENDER;
}

static void a_glance_tells_that_nothing_has_come(void **state)
{
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    struct outbox *outbox = open_outbox(inbox, SENDER);
    struct path path = path_of(0), other = path_of(1);
    assert_false(inbox_is_quiet(inbox)); /* nobody has looked */
    put_and_show(outbox, &path, 0, 1);
    assert_int_equal(inbox_receive(inbox, &catcher.receiver, 16), 1);
    assert_true(inbox_is_quiet(inbox));
    assert_int_equal(put(outbox, &path, 1, 8), STATUS_OK);
    assert_true(inbox_is_quiet(inbox)); /* not shown */
    show(outbox);
    assert_false(inbox_is_quiet(inbox));
    assert_int_equal(inbox_receive(inbox, &catcher.receiver, 16), 1);
    assert_true(inbox_is_quiet(inbox));

    struct outbox *second = open_outbox(inbox, SENDER + 1);
    put_and_show(second, &other, 0, 1); /* nobody watches its lane */
    assert_false(inbox_is_quiet(inbox));
    assert_int_equal(inbox_receive(inbox, &catcher.receiver, 16), 1);
    assert_true(inbox_is_quiet(inbox));
    put_and_show(second, &other, 1, 1);
    assert_false(inbox_is_quiet(inbox));
    assert_int_equal(inbox_receive(inbox, &catcher.receiver, 16), 1);

    /* Who looked a moment ago at a lane that is given away may look again. */
    outbox_close(outbox);
    inbox_reclaim(inbox, is_gone, NULL);
    assert_int_equal(inbox_counters(inbox)->reclaimed, 1);
    assert_true(inbox_is_quiet(inbox));
    catcher.next[0] = 0;
    outbox = open_outbox(inbox, SENDER); /* it gets the same lane */
    put_and_show(outbox, &path, 0, 1);
    assert_false(inbox_is_quiet(inbox));
    assert_int_equal(inbox_receive(inbox, &catcher.receiver, 16), 1);
    outbox_close(outbox);
    outbox_close(second);
    inbox_destroy(inbox);
}

static void a_full_lane_says_so_and_goes_on(void **state)
{
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    struct outbox *outbox = open_outbox(inbox, SENDER);
    struct path path = path_of(0);
    uint32_t sent = 0;
    for (uint32_t round = 0; round < 20; round++) {
        while (put(outbox, &path, sent, 4096) == STATUS_OK) {
            sent++;
        }
        show(outbox);
        while (inbox_receive(inbox, &catcher.receiver, 16) > 0) {
        }
        assert_int_equal(catcher.count, sent);
    }
    assert_true(sent >= 20 * (INBOX_RING_BYTES / 4352));
    outbox_close(outbox);
    inbox_destroy(inbox);
}

static void more_senders_than_are_watched(void **state)
{
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    struct outbox *outboxes[48];
    for (uint32_t i = 0; i < 48; i++) {
        outboxes[i] = open_outbox(inbox, SENDER + i);
    }
    for (uint32_t round = 0; round < 300; round++) {
        for (uint32_t i = 0; i < 48; i++) {
            struct path path = path_of(i);
            assert_int_equal(put(outboxes[i], &path, round, 64), STATUS_OK);
            show(outboxes[i]);
        }
        uint32_t count = 0;
        for (uint32_t more; (more = inbox_receive(inbox, &catcher.receiver, 5)) > 0;) {
            assert_true(more <= 5);
            count += more;
        }
        assert_int_equal(count, 48);
    }
    for (uint32_t i = 0; i < 48; i++) {
        assert_int_equal(catcher.next[i], 300);
        outbox_close(outboxes[i]);
    }
    inbox_destroy(inbox);
}

static void one_wake_up_for_one_sleep(void **state)
{
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    struct outbox *outbox = open_outbox(inbox, SENDER), *other = open_outbox(inbox, SENDER + 1);
    struct path path = path_of(0);
    assert_true(inbox_fall_asleep(inbox));
    assert_int_equal(put(outbox, &path, 0, 8), STATUS_OK);
    assert_true(outbox_flush(outbox));
    assert_true(outbox_flush(other)); /* who was first may be stopped by now */
    outbox_has_woken(outbox);
    assert_int_equal(put(outbox, &path, 1, 8), STATUS_OK);
    assert_false(outbox_flush(outbox));
    assert_false(inbox_fall_asleep(inbox));
    assert_int_equal(inbox_receive(inbox, &catcher.receiver, 16), 2);
    assert_true(inbox_fall_asleep(inbox));
    outbox_has_woken(other); /* from that one */
    assert_true(outbox_flush(outbox));
    inbox_sleep_end(inbox_sleep(inbox));
    assert_int_equal(put(outbox, &path, 2, 8), STATUS_OK);
    assert_false(outbox_flush(outbox));
    assert_int_equal(inbox_receive(inbox, &catcher.receiver, 16), 1);
    outbox_close(outbox);
    outbox_close(other);
    inbox_destroy(inbox);
}

/* Each queue pair has a source port of its own, and there may be thousands. */
static void paths_between_two_addresses_are_without_number(void **state)
{
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    struct outbox *outbox = open_outbox(inbox, SENDER);
    struct path path = path_of(0);
    for (uint32_t i = 0; i < 5000; i++) {
        path.traffic_class = (uint8_t)i;
        path.hop_limit = (uint8_t)(i >> 3);
        path.flow_label = 0xfffff - i * 77;
        assert_int_equal(put(outbox, &path, i, 8), STATUS_OK);
        show(outbox);
        assert_int_equal(inbox_receive(inbox, &catcher.receiver, 100), 1);
        assert_int_equal(catcher.path.traffic_class, path.traffic_class);
        assert_int_equal(catcher.path.hop_limit, path.hop_limit);
        assert_int_equal(catcher.path.flow_label, path.flow_label);
    }
    outbox_close(outbox);
    inbox_destroy(inbox);
}

static void too_many_addresses_go_elsewhere(void **state)
{
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    struct outbox *outbox = open_outbox(inbox, SENDER);
    struct path path = path_of(0);
    for (uint32_t i = 0; i < INBOX_ROUTES; i++) {
        path.remote.bytes[14] = (uint8_t)i;
        assert_int_equal(put(outbox, &path, i, 8), STATUS_OK);
    }
    path.remote.bytes[14] = INBOX_ROUTES;
    assert_int_equal(put(outbox, &path, 0, 8), STATUS_OUT_OF_RANGE);
    path.remote.bytes[14] = 3;
    assert_int_equal(put(outbox, &path, INBOX_ROUTES, 8), STATUS_OK);
    show(outbox);
    assert_int_equal(inbox_receive(inbox, &catcher.receiver, 100), INBOX_ROUTES + 1);
    assert_int_equal(catcher.path.local.bytes[14], 3);
    outbox_close(outbox);
    inbox_destroy(inbox);
}

static void strangers_find_no_inbox(void **state)
{
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    struct outbox *outbox;
    int number = inbox_descriptor(inbox);
    assert_int_equal(outbox_open(getpid(), number, OWNER + 1, SENDER, NULL, true, &outbox),
                     STATUS_NOT_FOUND);
    assert_int_equal(outbox_open(getpid(), 0, OWNER, SENDER, NULL, true, &outbox),
                     STATUS_NOT_FOUND);
    assert_int_equal(outbox_open(getpid(), 9999, OWNER, SENDER, NULL, true, &outbox),
                     STATUS_NOT_FOUND);
    assert_int_equal(outbox_open(0x7ffffff0, number, OWNER, SENDER, NULL, true, &outbox),
                     STATUS_NOT_FOUND);
    inbox_destroy(inbox);
}

/* In another namespace of processes the same numbers name something else, and to open a terminal or
 * a device can do harm. */
static void what_is_no_inbox_is_not_even_opened(void **state)
{
    char name[] = "/tmp/weir-inbox-test.XXXXXX";
    int file = mkstemp(name), watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    char event[4096];
    struct outbox *outbox;
    assert_true(file >= 0 && inotify_add_watch(watch, name, IN_OPEN) >= 0);
    assert_int_equal(outbox_open(getpid(), file, OWNER, SENDER, NULL, true, &outbox),
                     STATUS_NOT_FOUND);
    assert_int_equal(read(watch, event, sizeof event), -1);
    close(watch);
    close(file);
    unlink(name);
}

static bool lives(void *context, uint64_t incarnation)
{
    return incarnation != *(uint64_t *)context;
}

/* It is killed after `puts` packets, with or without having shown them. */
static void kill_a_sender(const struct inbox *inbox, uint32_t puts, bool rings)
{
    int number = inbox_descriptor(inbox);
    pid_t owner = getpid(), child = fork();
    if (child == 0) {
        struct outbox *outbox;
        struct path path = path_of(0);
        if (outbox_open(owner, number, OWNER, SENDER, NULL, true, &outbox) != STATUS_OK) {
            _exit(1);
        }
        for (uint32_t i = 0; i < puts; i++) {
            if (put(outbox, &path, i, 100) != STATUS_OK) {
                _exit(2);
            }
        }
        if (rings) {
            show(outbox);
        }
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void bury(struct inbox *inbox, struct catcher *catcher)
{
    uint64_t dead = SENDER;
    for (uint32_t i = 0; i < 3; i++) {
        (void)inbox_receive(inbox, &catcher->receiver, 1000);
        inbox_reclaim(inbox, lives, &dead);
    }
    assert_int_equal(inbox_counters(inbox)->reclaimed, 1);
    catcher->next[0] = 0;
}

static struct outbox *put_one(const struct inbox *inbox)
{
    struct outbox *outbox = open_outbox(inbox, SENDER + 1); /* it gets the same lane */
    struct path path = path_of(0);
    assert_int_equal(put(outbox, &path, 0, 8), STATUS_OK);
    show(outbox);
    return outbox;
}

static void bury_a_sender(uint32_t puts, bool rings)
{
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    kill_a_sender(inbox, puts, rings);
    bury(inbox, &catcher);
    assert_int_equal(catcher.count, rings ? puts : 0);
    struct outbox *outbox = put_one(inbox);
    assert_int_equal(inbox_receive(inbox, &catcher.receiver, 16), 1);
    outbox_close(outbox);
    inbox_destroy(inbox);
}

static void senders_that_die_leave_nothing(void **state)
{
    bury_a_sender(0, false);
    bury_a_sender(7, true);
    bury_a_sender(7, false);
    bury_a_sender(200, true);
}

/* Where the owner may map nothing more. */
static void a_lane_is_used_again_without_being_mapped(void **state)
{
    if (SLAB_IS_WATCHED) {
        skip(); /* the sanitizer itself has to map */
    }
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    struct rlimit before;
    kill_a_sender(inbox, 7, true);
    bury(inbox, &catcher);
    struct outbox *outbox = put_one(inbox);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    struct rlimit none = {.rlim_cur = INBOX_PAGE, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
    uint32_t count = inbox_receive(inbox, &catcher.receiver, 16);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(count, 1);
    outbox_close(outbox);
    inbox_destroy(inbox);
}

static void a_liar_loses_its_lane_only(void **state)
{
    for (uint32_t lie = 0; lie < 5; lie++) {
        struct catcher catcher;
        struct inbox *inbox = open_inbox(&catcher);
        struct outbox *liar = open_outbox(inbox, SENDER);
        struct outbox *honest = open_outbox(inbox, SENDER + 1);
        struct path path = path_of(0), other = path_of(1);
        assert_int_equal(put(liar, &path, 0, 8), STATUS_OK);
        assert_int_equal(put(honest, &other, 0, 8), STATUS_OK);
        show(liar);
        uint8_t *lane = mmap(NULL, INBOX_LANE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                             inbox_descriptor(inbox), (off_t)inbox_lane_offset(0));
        assert_ptr_not_equal(lane, MAP_FAILED);
        uint8_t *line = lane + INBOX_PAGE + sizeof(struct ring_memory);
        uint64_t words[] = {UINT64_C(1) << 63 | 2, UINT64_C(1) << 63 | INBOX_RING_BYTES,
                            INBOX_ROUTES};
        if (lie < 3) {
            memcpy(line + (lie == 2 ? RING_HEADER : 0), &words[lie],
                   lie == 2 ? sizeof(uint32_t) : sizeof words[lie]);
        } else { /* a payload in the record that would end behind it, or headers that would */
            struct inbox_reference reference = {.length = lie == 3 ? 8 : 1};
            line[RING_HEADER + 3] = INBOX_REFERS;
            reference.header_length = lie == 3 ? BTH_LENGTH : UINT8_MAX;
            memcpy(line + RING_HEADER + sizeof(struct inbox_record), &reference, sizeof reference);
        }
        show(liar);
        show(honest);
        assert_int_equal(inbox_receive(inbox, &catcher.receiver, 16), 1);
        assert_int_equal(inbox_counters(inbox)->malformed, 1);
        assert_int_equal(put(honest, &other, 1, 8), STATUS_OK);
        show(honest);
        assert_int_equal(inbox_receive(inbox, &catcher.receiver, 16), 1);
        assert_true(inbox_fall_asleep(inbox));
        munmap(lane, INBOX_LANE_BYTES);
        outbox_close(liar);
        outbox_close(honest);
        inbox_destroy(inbox);
    }
}

#define THREADS 20u /* more than are watched */
#define PACKETS 2000u

struct sender {
    pthread_t thread;
    struct outbox *outbox;
    uint32_t index;
    atomic_uint *wakes;
};

static void *send_all(void *argument)
{
    struct sender *sender = argument;
    struct path path = path_of(sender->index);
    for (uint32_t i = 0; i < PACKETS;) {
        if (put(sender->outbox, &path, i, 4 + i % 500) == STATUS_OK) {
            i++;
        } else {
            sched_yield();
        }
        if (outbox_flush(sender->outbox)) {
            atomic_fetch_add(sender->wakes, 1);
            outbox_has_woken(sender->outbox);
        }
    }
    return NULL;
}

/* Sleeps whenever it may, until a sender wakes it; a lost wake-up would stop the test for good. */
static void no_wake_up_is_lost(void **state)
{
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    struct sender senders[THREADS];
    atomic_uint wakes = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        senders[i] =
            (struct sender){.index = i, .wakes = &wakes, .outbox = open_outbox(inbox, SENDER + i)};
        assert_int_equal(pthread_create(&senders[i].thread, NULL, send_all, &senders[i]), 0);
    }
    while (catcher.count < THREADS * PACKETS) {
        (void)inbox_receive(inbox, &catcher.receiver, 64);
        unsigned before = atomic_load(&wakes);
        if (catcher.count < THREADS * PACKETS && inbox_fall_asleep(inbox)) {
            while (atomic_load(&wakes) == before) {
                sched_yield();
            }
        }
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(senders[i].thread, NULL);
        outbox_close(senders[i].outbox);
    }
    inbox_destroy(inbox);
}

/* What is asked is whether it has this inbox: not whether its memory may be read. */
static void its_owner_is_woken_by_its_bell(void **state)
{
    struct catcher catcher;
    struct inbox *inbox = open_inbox(&catcher);
    struct pollfd watched = {.fd = inbox_bell(inbox), .events = POLLIN};
    struct outbox *outbox = open_outbox(inbox, SENDER);
    int number = inbox_descriptor(inbox);
    assert_true(watched.fd >= 0);
    int copy = bell_borrow(getpid(), watched.fd, number, number);
    bool lent = copy >= 0;
    if (lent) {
        assert_true(outbox_wake(outbox));
        assert_int_equal(poll(&watched, 1, 0), 1);
        close(copy);
    }
    outbox_close(outbox);
    inbox_destroy(inbox);
    if (!lent) {
        skip(); /* this kernel lends none */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packet_comes_with_its_path),
        cmocka_unit_test(a_poller_takes_one_where_one_at_a_time_comes),
        cmocka_unit_test(a_glance_tells_that_nothing_has_come),
        cmocka_unit_test(a_full_lane_says_so_and_goes_on),
        cmocka_unit_test(more_senders_than_are_watched),
        cmocka_unit_test(one_wake_up_for_one_sleep),
        cmocka_unit_test(its_owner_is_woken_by_its_bell),
        cmocka_unit_test(paths_between_two_addresses_are_without_number),
        cmocka_unit_test(too_many_addresses_go_elsewhere),
        cmocka_unit_test(strangers_find_no_inbox),
        cmocka_unit_test(what_is_no_inbox_is_not_even_opened),
        cmocka_unit_test(senders_that_die_leave_nothing),
        cmocka_unit_test(a_lane_is_used_again_without_being_mapped),
        cmocka_unit_test(a_liar_loses_its_lane_only),
        cmocka_unit_test(no_wake_up_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
