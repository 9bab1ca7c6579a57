/* Packets whose payload stays in the sender's memory: read once, or not at all. The ends stand in
 * one process, which reads its own memory. */
#include "rnic/io/same_host/outbox.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/base/container.h"
#include "rnic/io/same_host/inbox.h"
#include "rnic/io/same_host/inbox_private.h"
#include "rnic/io/same_host/responses.h"
#include "rnic/io/system/clock.h"
#include "rnic/wire/packet.h"

#define OWNER  UINT64_C(0x1111)
#define SENDER UINT64_C(0x2222)

#define CARRIED_MAX 65536u

static struct path path_of(uint32_t sender)
{
    return (struct path){
        .local = {{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}},
        .remote = {{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 2}},
        .source_port = (uint16_t)(50000 + sender),
    };
}

/* An ordinary packet. */
static void put(struct outbox *outbox, const struct path *path)
{
    uint8_t header[BTH_LENGTH] = {4}, payload[8] = {0};
    struct fragment fragment = {payload, sizeof payload};
    struct outgoing outgoing = {
        .path = path,
        .header = header,
        .header_length = sizeof header,
        .fragments = &fragment,
        .fragment_count = 1,
        .payload_length = sizeof payload,
    };
    assert_int_equal(outbox_put(outbox, &outgoing), STATUS_OK);
}

static void show(struct outbox *outbox)
{
    bool sleeps = outbox_flush(outbox);
    (void)sleeps;
}

struct puller {
    struct inbox_receiver receiver;
    uint8_t bytes[100000];
    uint32_t header_length, length;
    bool read;
    uint32_t reads, refusals; /* ever */
    struct outbox *withdraw;  /* after the headers have come, before the payload is read */
};

static void pull_in(struct inbox_receiver *receiver, const struct arrival *arrival,
                    const uint8_t *bytes, uint32_t length,
                    const struct payload_reference *reference)
{
    struct puller *puller = CONTAINER_OF(receiver, struct puller, receiver);
    puller->header_length = length;
    puller->length = 0;
    if (reference == NULL) {
        return;
    }
    assert_int_equal(bytes[0], 4);
    assert_int_equal(reference->segment_shift, 10);
    puller->length = reference->length;
    if (puller->withdraw != NULL) {
        outbox_withdraw(puller->withdraw, (struct qpn){77}, false);
    }
    struct payload_place place = {puller->bytes, reference->length};
    puller->read = reference->reader->read(reference->reader, 0, &place, 1);
    puller->reads += puller->read;
    puller->refusals += !puller->read;
}

static enum status refer_for(struct outbox *outbox, const uint8_t *bytes, uint32_t length,
                             uint8_t qpn, bool is_response)
{
    struct path path = path_of(0);
    uint8_t header[BTH_LENGTH] = {4, [7] = qpn};
    struct fragment fragments[] = {{bytes, 1000}, {bytes + 1000, length - 1000}};
    struct outgoing outgoing = {
        .path = &path,
        .header = header,
        .header_length = sizeof header,
        .fragments = fragments,
        .fragment_count = 2,
        .payload_length = length,
        .reference_shift = 10,
        .is_response = is_response,
    };
    return outbox_put(outbox, &outgoing);
}

static enum status refer(struct outbox *outbox, const uint8_t *bytes, uint32_t length)
{
    return refer_for(outbox, bytes, length, 77, false);
}

struct pulling {
    struct pull_identity identity;
    struct puller puller;
    struct inbox *inbox;
    struct outbox *outbox;
    uint8_t bytes[100000];
};

static struct pulling *start_pulling(bool may_refer)
{
    struct pulling *pulling = calloc(1, sizeof *pulling);
    struct path path = path_of(0);
    for (uint32_t i = 0; i < sizeof pulling->bytes; i++) {
        pulling->bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    pulling->puller.receiver.receive = pull_in;
    assert_int_equal(pull_identity_create(3, &pulling->identity), STATUS_OK);
    assert_int_equal(inbox_create(OWNER, true, &pulling->inbox), STATUS_OK);
    if (may_refer) {
        inbox_let_refer(pulling->inbox);
    }
    assert_int_equal(outbox_open(getpid(), inbox_descriptor(pulling->inbox), OWNER, SENDER,
                                 &pulling->identity, true, &pulling->outbox),
                     STATUS_OK);
    assert_int_equal(outbox_reach(pulling->outbox, &path), CARRIED_MAX); /* nobody has tried yet */
    put(pulling->outbox, &path);
    show(pulling->outbox);
    assert_int_equal(inbox_receive(pulling->inbox, &pulling->puller.receiver, 16), 1);
    return pulling;
}

static void end_pulling(struct pulling *pulling)
{
    outbox_close(pulling->outbox);
    inbox_destroy(pulling->inbox);
    pull_identity_destroy(&pulling->identity);
    free(pulling);
}

static void payload_stays_where_it_is_until_it_is_read(void **state)
{
    struct pulling *pulling = start_pulling(true);
    struct puller *puller = &pulling->puller;
    struct path path = path_of(0);
    assert_int_equal(outbox_reach(pulling->outbox, &path), REFERENCE_MAX);
    assert_int_equal(refer(pulling->outbox, pulling->bytes, 50000), STATUS_OK);
    pulling->bytes[0]++; /* it is the memory that counts */
    show(pulling->outbox);
    assert_int_equal(inbox_receive(pulling->inbox, &puller->receiver, 16), 1 + 50000 / 4096);
    assert_int_equal(puller->header_length, BTH_LENGTH);
    assert_int_equal(puller->length, 50000);
    assert_true(puller->read);
    assert_memory_equal(puller->bytes, pulling->bytes, 50000);
    assert_int_equal(inbox_counters(pulling->inbox)->readable, 1);
    end_pulling(pulling);
}

static void what_is_withdrawn_is_not_read(void **state)
{
    struct pulling *pulling = start_pulling(true);
    struct puller *puller = &pulling->puller;
    assert_int_equal(refer(pulling->outbox, pulling->bytes, 50000), STATUS_OK);
    outbox_withdraw(pulling->outbox, (struct qpn){77}, true); /* of its responses: others */
    show(pulling->outbox);
    (void)inbox_receive(pulling->inbox, &puller->receiver, 16);
    assert_true(puller->read);
    assert_int_equal(refer(pulling->outbox, pulling->bytes, 50000), STATUS_OK);
    outbox_withdraw(pulling->outbox, (struct qpn){77}, false);
    show(pulling->outbox);
    (void)inbox_receive(pulling->inbox, &puller->receiver, 16);
    assert_false(puller->read);
    assert_int_equal(refer(pulling->outbox, pulling->bytes, 50000),
                     STATUS_OK); /* the next is not */
    show(pulling->outbox);
    (void)inbox_receive(pulling->inbox, &puller->receiver, 16);
    assert_true(puller->read);
    puller->withdraw = pulling->outbox;
    assert_int_equal(refer(pulling->outbox, pulling->bytes, 50000), STATUS_OK);
    show(pulling->outbox);
    (void)inbox_receive(pulling->inbox, &puller->receiver, 16);
    assert_false(puller->read);
    end_pulling(pulling);
}

static void what_may_still_be_read_is_known(void **state)
{
    struct pulling *pulling = start_pulling(true);
    uint8_t *bytes = pulling->bytes;
    assert_false(outbox_refers_to(pulling->outbox, bytes, sizeof pulling->bytes));
    for (uint32_t round = 0; round < 10; round++) {
        assert_int_equal(refer(pulling->outbox, bytes + 40000, 20000), STATUS_OK);
        assert_int_equal(refer(pulling->outbox, bytes + 20000, 20000), STATUS_OK);
        assert_int_equal(refer(pulling->outbox, bytes, 1100), STATUS_OK); /* is brought along */
        for (uint32_t i = 0; i < 2; i++, show(pulling->outbox)) {
            assert_true(outbox_refers_to(pulling->outbox, bytes, 20001));
            assert_false(outbox_refers_to(pulling->outbox, bytes, 20000));
            assert_true(outbox_refers_to(pulling->outbox, bytes + 59999, 1));
            assert_false(outbox_refers_to(pulling->outbox, bytes + 60000, 1000));
        }
        (void)inbox_receive(pulling->inbox, &pulling->puller.receiver, 1000);
        assert_false(outbox_refers_to(pulling->outbox, bytes, sizeof pulling->bytes));
    }
    end_pulling(pulling);
}

static void respond(struct pulling *pulling, uint32_t offset, uint8_t qpn)
{
    assert_int_equal(refer_for(pulling->outbox, pulling->bytes + offset, 20000, qpn, true),
                     STATUS_OK);
}

static bool responds_with(struct pulling *pulling, uint32_t offset, struct instant until)
{
    return outbox_responds_with(pulling->outbox, pulling->bytes + offset, 1000, until);
}

/* Until it is read; what requests refer to is their sender's own matter. */
static void what_a_response_brings_is_known(void **state)
{
    struct pulling *pulling = start_pulling(true);
    for (uint32_t round = 0; round < 10; round++) {
        struct instant before = clock_now();
        assert_int_equal(refer(pulling->outbox, pulling->bytes, 20000), STATUS_OK);
        assert_false(responds_with(pulling, 0, clock_now()));
        for (uint32_t i = 0; i < 10 * round; i++) { /* those of old are known as one range */
            respond(pulling, 20000, 77);
        }
        respond(pulling, 60000, 77);
        assert_false(responds_with(pulling, 60000, before));
        assert_true(responds_with(pulling, 60000, clock_now()));
        assert_true(round == 0 || responds_with(pulling, 39999, clock_now()));
        assert_false(responds_with(pulling, 80000, clock_now()));
        assert_false(responds_with(pulling, 19000, clock_now()));
        show(pulling->outbox);
        (void)inbox_receive(pulling->inbox, &pulling->puller.receiver, 10000);
        assert_false(responds_with(pulling, 60000, clock_now()));
    }
    end_pulling(pulling);
}

static void receive_all(struct pulling *pulling, uint32_t reads, uint32_t refusals)
{
    struct puller *puller = &pulling->puller;
    puller->reads = puller->refusals = 0;
    show(pulling->outbox);
    (void)inbox_receive(pulling->inbox, &puller->receiver, 10000);
    assert_int_equal(puller->reads, reads);
    assert_int_equal(puller->refusals, refusals);
}

/* Though many more have been put since. */
static void what_an_old_response_brings_is_known(void **state)
{
    struct pulling *pulling = start_pulling(true);
    respond(pulling, 60000, 77);
    struct instant until = clock_now();
    for (uint32_t i = 0; i < RESPONSES_KEPT + 2; i++) {
        assert_true(responds_with(pulling, 60000, until));
        respond(pulling, 20000, 77);
    }
    assert_true(responds_with(pulling, 60000, until));
    end_pulling(pulling);
}

/* Nobody else's is lost, unless there are too many. */
static void what_a_response_brings_is_revoked(void **state)
{
    struct pulling *pulling = start_pulling(true);
    const uint8_t *bytes = pulling->bytes;
    respond(pulling, 0, 77);
    respond(pulling, 20000, 78);
    outbox_revoke(pulling->outbox, bytes, 20000, clock_now());
    assert_false(responds_with(pulling, 0, clock_now()));
    assert_true(responds_with(pulling, 20000, clock_now()));
    receive_all(pulling, 1, 1);
    respond(pulling, 0, 77);
    for (uint32_t i = 0; i < RESPONSES_KEPT; i++) {
        respond(pulling, 20000, 78);
    }
    outbox_revoke(pulling->outbox, bytes, UINT64_MAX - (uintptr_t)bytes, clock_now());
    receive_all(pulling, 0, RESPONSES_KEPT + 1);
    respond(pulling, 0, 77);
    receive_all(pulling, 1, 0);
    end_pulling(pulling);
}

/* Each byte once, at each place of the ring, whatever becomes of the memory meanwhile. */
static void what_is_not_read_there_is_brought_along(void **state)
{
    struct pulling *pulling = start_pulling(false);
    struct puller *puller = &pulling->puller;
    uint8_t *bytes = malloc(CARRIED_MAX);
    for (uint32_t round = 0; round < 100; round++) {
        uint32_t length = round % 2 == 0 ? CARRIED_MAX : CARRIED_MAX - 17 * round;
        memcpy(bytes, pulling->bytes + round, length);
        assert_int_equal(refer(pulling->outbox, bytes, length), STATUS_OK);
        outbox_withdraw(pulling->outbox, (struct qpn){77}, false);
        memset(bytes, 0, length);
        show(pulling->outbox);
        assert_int_equal(inbox_receive(pulling->inbox, &puller->receiver, 16), 1 + length / 4096);
        assert_int_equal(puller->header_length, BTH_LENGTH);
        assert_int_equal(puller->length, length);
        assert_true(puller->read);
        assert_memory_equal(puller->bytes, pulling->bytes + round, length);
    }
    assert_int_equal(inbox_counters(pulling->inbox)->malformed, 0);
    free(bytes);
    end_pulling(pulling);
}

/* Two copies cost less than the call that reads them. */
static void what_is_short_is_brought_along(void **state)
{
    struct pulling *pulling = start_pulling(true);
    for (uint32_t length = 8192; length <= 16384; length += 8192) {
        uint8_t first = pulling->bytes[0]++;
        assert_int_equal(refer(pulling->outbox, pulling->bytes, length), STATUS_OK);
        pulling->bytes[0] = first;
        show(pulling->outbox);
        (void)inbox_receive(pulling->inbox, &pulling->puller.receiver, 16);
        assert_true(pulling->puller.read);
        assert_int_equal(pulling->puller.bytes[0], length == 8192 ? first + 1 : first);
    }
    end_pulling(pulling);
}

static void who_does_not_read_is_not_referred_to(void **state)
{
    struct pulling *pulling = start_pulling(false);
    struct path path = path_of(0);
    assert_int_equal(outbox_reach(pulling->outbox, &path), CARRIED_MAX);
    assert_int_equal(refer(pulling->outbox, pulling->bytes, 90000), STATUS_OK); /* a liar */
    show(pulling->outbox);
    assert_int_equal(inbox_receive(pulling->inbox, &pulling->puller.receiver, 16), 0);
    assert_int_equal(inbox_counters(pulling->inbox)->malformed, 1);
    end_pulling(pulling);
}

static void who_cannot_be_read_is_known(void **state)
{
    struct pulling *pulling = start_pulling(true);
    struct outbox *other;
    struct path path = path_of(1);
    struct pull_identity stranger = pulling->identity;
    stranger.words[0]++;
    assert_int_equal(outbox_open(getpid(), inbox_descriptor(pulling->inbox), OWNER, SENDER + 1,
                                 &stranger, true, &other),
                     STATUS_OK);
    put(other, &path);
    show(other);
    assert_int_equal(inbox_receive(pulling->inbox, &pulling->puller.receiver, 16), 1);
    assert_int_equal(outbox_reach(other, &path), CARRIED_MAX);
    assert_int_equal(inbox_counters(pulling->inbox)->opaque, 1);
    outbox_close(other);
    end_pulling(pulling);
}

/* Lengths that do not add up, more pieces than there is room for, of a payload that stays where it
 * is. */
static void lies_about_a_payload_close_the_lane(void **state)
{
    for (uint32_t lie = 0; lie < 3; lie++) {
        struct pulling *pulling = start_pulling(true);
        uint8_t header[BTH_LENGTH] = {4, [7] = 77};
        struct fragment fragment = {pulling->bytes, lie == 0 ? 19999 : 0};
        struct path path = path_of(0);
        struct outgoing outgoing = {
            .path = &path,
            .header = header,
            .header_length = sizeof header,
            .fragments = &fragment,
            .fragment_count = 1,
            .payload_length = lie == 0 ? 20000 : 0,
            .reference_shift = 10,
        };
        if (lie == 2) {
            outgoing.payload_length = fragment.length = REFERENCE_MAX + 1;
        }
        assert_int_equal(outbox_put(pulling->outbox, &outgoing), STATUS_OK);
        show(pulling->outbox);
        assert_int_equal(inbox_receive(pulling->inbox, &pulling->puller.receiver, 16), 0);
        assert_int_equal(inbox_counters(pulling->inbox)->malformed, 1);
        end_pulling(pulling);
    }
}

struct listener {
    struct inbox_room room;
    uint32_t told;
    uint64_t sender;
};

static void told(struct inbox_room *room, uint64_t sender)
{
    struct listener *listener = CONTAINER_OF(room, struct listener, room);
    listener->told++;
    listener->sender = sender;
}

/* As packets that share a read of a socket do: what an application makes of the first one must not
 * come before what stands behind it. */
static void packets_of_one_turn_are_shown_at_once(void **state)
{
    struct pulling *pulling = start_pulling(false);
    struct path path = path_of(0);
    for (uint32_t round = 0; round < 10000; round++) { /* at each place of the ring */
        put(pulling->outbox, &path);
        put(pulling->outbox, &path);
        assert_int_equal(inbox_receive(pulling->inbox, &pulling->puller.receiver, 16), 0);
        show(pulling->outbox);
        assert_int_equal(inbox_receive(pulling->inbox, &pulling->puller.receiver, 16), 2);
    }
    end_pulling(pulling);
}

/* Once for a part that is worth it, and only who has found the lane full. */
static void who_waits_is_told_of_room(void **state)
{
    struct pulling *pulling = start_pulling(false);
    struct listener listener = {.room = {told}};
    struct path path = path_of(0);
    static const uint8_t bytes[PACKET_PAYLOAD_MAX];
    uint8_t header[BTH_LENGTH] = {4};
    struct fragment fragment = {bytes, sizeof bytes};
    struct outgoing outgoing = {
        .path = &path,
        .header = header,
        .header_length = sizeof header,
        .fragments = &fragment,
        .fragment_count = 1,
        .payload_length = sizeof bytes,
    };
    inbox_tell_of_room(pulling->inbox, &listener.room);
    uint32_t sent = 0;
    for (uint32_t round = 0; round < 2; round++) {
        while (outbox_put(pulling->outbox, &outgoing) == STATUS_OK) {
            sent++;
        }
        assert_false(outbox_has_room(pulling->outbox));
        show(pulling->outbox);
        uint32_t taken = 0;
        while (listener.told == round) {
            uint32_t more = inbox_receive(pulling->inbox, &pulling->puller.receiver, 1);
            assert_int_equal(more, 1);
            taken += more;
        }
        assert_in_range(taken, 5, sent / 4);
        assert_int_equal(listener.sender, SENDER);
        assert_true(outbox_has_room(pulling->outbox));
    }
    while (inbox_receive(pulling->inbox, &pulling->puller.receiver, 100) > 0) {
    }
    assert_int_equal(listener.told, 2); /* nobody has waited since */
    end_pulling(pulling);
}

static bool is_sender(void *context, uint64_t incarnation)
{
    (void)context;
    return incarnation == SENDER;
}

static enum direct_patience give_up(void *context, uint64_t sender, uint32_t thread,
                                    uint64_t waited_ns)
{
    return DIRECT_GIVE_UP;
}

/* Who has its lane next touches no memory, and never says anything of that. */
static void who_died_at_our_memory_is_not_waited_for(void **state)
{
    struct inbox *inbox;
    struct outbox *outbox, *next;
    assert_int_equal(inbox_create(OWNER, true, &inbox), STATUS_OK);
    int file = inbox_descriptor(inbox);
    assert_int_equal(outbox_open(getpid(), file, OWNER, 0x3333, NULL, true, &outbox), STATUS_OK);
    struct direct_announcement *announcements =
        inbox_map(file, INBOX_ANNOUNCED, INBOX_ANNOUNCED_BYTES);
    atomic_fetch_add(&announcements[0].count, 1); /* at it */
    outbox_close(outbox);
    assert_false(inbox_settle(inbox, 0, give_up, NULL));
    inbox_reclaim(inbox, is_sender, NULL);
    assert_true(inbox_settle(inbox, 0, give_up, NULL));
    assert_int_equal(outbox_open(getpid(), file, OWNER, SENDER, NULL, false, &next), STATUS_OK);
    assert_int_equal(inbox_counters(inbox)->reclaimed, 1);
    assert_true(inbox_settle(inbox, 0, give_up, NULL));
    outbox_close(next);
    munmap(announcements, INBOX_ANNOUNCED_BYTES);
    inbox_destroy(inbox);
}

/* A program has closed all descriptors, and opened a file of its own. */
static void a_file_of_the_program_is_not_emptied(void **state)
{
    struct inbox *inbox;
    struct outbox *outbox;
    char byte = 0;
    off_t place = (off_t)inbox_lane_offset(0);
    assert_int_equal(inbox_create(OWNER, true, &inbox), STATUS_OK);
    int file = inbox_descriptor(inbox), own = memfd_create("own", MFD_CLOEXEC);
    assert_int_equal(outbox_open(getpid(), file, OWNER, 0x3333, NULL, false, &outbox), STATUS_OK);
    outbox_close(outbox);
    assert_int_equal(pwrite(own, "x", 1, place), 1);
    assert_int_equal(dup2(own, file), file);
    inbox_reclaim(inbox, is_sender, NULL);
    assert_int_equal(pread(own, &byte, 1, place), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(inbox_counters(inbox)->reclaimed, 0);
    inbox_destroy(inbox);
    close(own);
}

/* He would make common, and so let be read and written, whatever somebody else has put there. */
static void only_its_owner_writes_to_what_is_shown(void **state)
{
    struct inbox *inbox;
    struct stat facts;
    enum status status;
    assert_int_equal(inbox_create(OWNER, true, &inbox), STATUS_OK);
    struct inbox_head *head = inbox_map(inbox_descriptor(inbox), 0, INBOX_HEAD_BYTES);
    const struct direct_shown *seen = inbox_find_shown(getpid(), head->shown);
    assert_non_null(seen);
    inbox_shown(inbox)->common = 7;
    assert_int_equal(seen->common, 7);
    int file = sealed_file_open(getpid(), head->shown, INBOX_SHOWN_LINK, &facts, &status);
    assert_true(file >= 0);
    assert_null(inbox_map(file, 0, INBOX_SHOWN_BYTES));
    assert_int_equal(pwrite(file, "", 1, 0), -1);
    close(file);
    inbox_unmap(seen, INBOX_SHOWN_BYTES);
    inbox_unmap(head, INBOX_HEAD_BYTES);
    inbox_destroy(inbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payload_stays_where_it_is_until_it_is_read),
        cmocka_unit_test(what_is_withdrawn_is_not_read),
        cmocka_unit_test(what_a_response_brings_is_known),
        cmocka_unit_test(what_an_old_response_brings_is_known),
        cmocka_unit_test(what_a_response_brings_is_revoked),
        cmocka_unit_test(what_may_still_be_read_is_known),
        cmocka_unit_test(what_is_not_read_there_is_brought_along),
        cmocka_unit_test(what_is_short_is_brought_along),
        cmocka_unit_test(who_does_not_read_is_not_referred_to),
        cmocka_unit_test(who_cannot_be_read_is_known),
        cmocka_unit_test(lies_about_a_payload_close_the_lane),
        cmocka_unit_test(packets_of_one_turn_are_shown_at_once),
        cmocka_unit_test(who_waits_is_told_of_room),
        cmocka_unit_test(who_died_at_our_memory_is_not_waited_for),
        cmocka_unit_test(a_file_of_the_program_is_not_emptied),
        cmocka_unit_test(only_its_owner_writes_to_what_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
