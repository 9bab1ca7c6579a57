/* Our engine in the place of each side of each captured connection: what it sends is compared with
 * what the kernel's rxe sent. Each difference must match a rule of the table, and each rule be
 * needed; the table stands in README.md too, with how often each rule was needed.
 * Usage: replay_test FOLDER */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/memory/access.h"
#include "rnic/wire/psn.h"
#include "test/captures/readme.h"
#include "test/captures/replay.h"

static const char *folder;

#define ALL_RIGHTS                                                                                 \
    (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC)

/* The buffer of the program that made rc-ops-naks, as two regions. */
static const struct replay_region ops_regions[] = {
    {0x2a1, UINT64_C(0x556a7407d000), 16384, ALL_RIGHTS},
    {0x38d, UINT64_C(0x556a7407d000), 16384, ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ},
};

#define OPS(qpn)                                                                                   \
    {                                                                                              \
        "rc-ops-naks", {{qpn}, {qpn}}, SERVICE_RC, PATH_MTU_1024, ops_regions, 2                   \
    }

static const struct replay_connection connections[] = {
    {"rc-send", {{0x11}, {0x11}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"rc-send", {{0x12}, {0x12}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"rc-write-read-atomic", {{0x11}, {0x11}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"rc-write-read-atomic", {{0x12}, {0x12}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"rc-write-read-atomic", {{0x13}, {0x13}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"rc-write-read-atomic", {{0x14}, {0x14}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"rc-write-read-atomic", {{0x15}, {0x15}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"cm-rping", {{0x11}, {0x11}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"cm-rping", {{0x13}, {0x12}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"ud-uc-srq", {{0x11}, {0x11}}, SERVICE_UD, PATH_MTU_1024, NULL, 0},
    {"ud-uc-srq", {{0x12}, {0x12}}, SERVICE_UC, PATH_MTU_1024, NULL, 0},
    {"ud-uc-srq", {{0x13}, {0x13}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"ud-uc-srq", {{0x14}, {0x14}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"rc-rnr", {{0x11}, {0x11}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"rc-loss", {{0x11}, {0x11}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"rc-loss", {{0x12}, {0x12}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    OPS(0x11),
    OPS(0x12),
    OPS(0x13),
    OPS(0x14),
    OPS(0x15),
    OPS(0x17),
    OPS(0x18),
    OPS(0x19),
    OPS(0x1a),
    OPS(0x1b),
    {"ipv6-mtu4096", {{0x11}, {0x11}}, SERVICE_RC, PATH_MTU_4096, NULL, 0},
    {"ipv6-mtu4096", {{0x12}, {0x12}}, SERVICE_RC, PATH_MTU_4096, NULL, 0},
    {"nvme-rdma", {{0x11}, {0x11}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"nvme-rdma", {{0x12}, {0x12}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
    {"nvme-rdma", {{0x13}, {0x13}}, SERVICE_RC, PATH_MTU_1024, NULL, 0},
};

#define CONNECTION_COUNT (sizeof connections / sizeof connections[0])

enum difference_kind {
    FIELD,   /* of a packet that both sent */
    MISSING, /* rxe sent it, we did not */
    MORE,    /* we sent it, rxe did not */
};

struct difference {
    const struct replay_connection *connection;
    int side;
    enum difference_kind kind;
    const char *field;                         /* of FIELD */
    const struct replay_packet *theirs, *ours; /* NULL where there is none */
};

/* Why we may differ. */
static bool is_answered_by_response(const struct difference *difference)
{
    if (difference->kind != FIELD || strcmp(difference->field, "AckReq") != 0) {
        return false;
    }
    const struct packet *theirs = &difference->theirs->packet;
    return theirs->ack_request &&
           (theirs->info->has_atomic || theirs->info->operation == OPERATION_READ_REQUEST);
}

static bool is_within_a_message(const struct difference *difference)
{
    return difference->kind == FIELD && strcmp(difference->field, "AckReq") == 0 &&
           difference->ours->packet.ack_request && !difference->ours->packet.info->last;
}

static bool is_nak(const struct replay_packet *packet, enum nak_code code)
{
    return packet->packet.info->has_aeth && packet->packet.aeth.kind == AETH_NAK &&
           packet->packet.aeth.value == code;
}

static bool is_behind_rnr(const struct difference *difference)
{
    return difference->kind == MISSING && strcmp(difference->connection->capture, "rc-rnr") == 0 &&
           is_nak(difference->theirs, NAK_SEQUENCE);
}

static bool was_lost(const struct difference *difference)
{
    return difference->kind == MORE && strcmp(difference->connection->capture, "rc-loss") == 0 &&
           difference->side == 0 && difference->ours->packet.info->is_request;
}

static bool is_too_long(const struct difference *difference)
{
    return difference->kind == FIELD && strcmp(difference->field, "syndrome") == 0 &&
           difference->connection->qpns[0].value == 0x19 &&
           is_nak(difference->theirs, NAK_REMOTE_OPERATION) &&
           is_nak(difference->ours, NAK_INVALID_REQUEST);
}

static bool is_of_ops(const struct difference *difference, int side)
{
    uint32_t qpn = difference->connection->qpns[0].value;
    return strcmp(difference->connection->capture, "rc-ops-naks") == 0 &&
           (qpn == 0x1a || qpn == 0x1b) && difference->side == side;
}

static bool is_ack_of_bad_invalidate(const struct difference *difference)
{
    return difference->kind == MISSING && is_of_ops(difference, 0) &&
           difference->theirs->packet.aeth.kind == AETH_ACK;
}

static bool is_nak_of_bad_invalidate(const struct difference *difference)
{
    return difference->kind == MORE && is_of_ops(difference, 0) &&
           is_nak(difference->ours, NAK_REMOTE_ACCESS);
}

static bool is_repeated_sooner(const struct difference *difference)
{
    return difference->kind == MORE && is_of_ops(difference, 1) &&
           difference->ours->packet.info->operation == OPERATION_WRITE;
}

/* `needed`: differences that it explains. */
static struct rule {
    bool (*explains)(const struct difference *difference);
    const char *rxe, *ours, *why;
    uint32_t needed;
} rules[] = {
    {is_answered_by_response, "sets AckReq in READ and atomic requests", "does not",
     "the response acknowledges, a responder has nothing else to send [IBA 9.7.5.1]", 0},
    {is_within_a_message, "sets AckReq in the last packet of a message only",
     "also each half of its window", "a long message must not wait for its end to go on", 0},
    {is_behind_rnr, "answers a request behind an RNR NAK with a sequence NAK", "drops it",
     "one NAK at a time: the requester goes back to that PSN anyway [IBA 9.7.5.1.2]", 0},
    {was_lost, "sent it too, and it was lost before it was recorded", "is recorded at its source",
     "netem stood between the sender and the recording", 0},
    {is_too_long, "answers a SEND longer than the receive with remote operation error",
     "with invalid request", "the request's length is the requester's fault [IBA 9.7.4.1.7]", 0},
    {is_ack_of_bad_invalidate,
     "ACKs a SEND with Invalidate of a key that is no window (and is dead from then on)",
     "does not", "nothing was invalidated", 0},
    {is_nak_of_bad_invalidate, "sends no NAK for it", "sends NAK remote access error",
     "so the requester learns of it [IBA 9.7.5.2.4]", 0},
    {is_repeated_sooner, "waits 44 ms or more before it repeats", "repeats sooner",
     "our timers follow the measured round trip", 0},
};

#define RULE_COUNT (sizeof rules / sizeof rules[0])

static uint32_t packets_equal, packets_different, packets_replayed, unexplained;

static void describe(const struct difference *difference, char *text, size_t size)
{
    char theirs[256] = "nothing", ours[256] = "nothing";
    if (difference->theirs != NULL) {
        (void)packet_describe(&difference->theirs->packet, theirs, sizeof theirs);
    }
    if (difference->ours != NULL) {
        (void)packet_describe(&difference->ours->packet, ours, sizeof ours);
    }
    (void)snprintf(text, size, "%s QP 0x%x side %c: %s\n    rxe:  %s\n    ours: %s",
                   difference->connection->capture, difference->connection->qpns[0].value,
                   difference->side == 0 ? 'A' : 'B',
                   difference->kind == FIELD     ? difference->field
                   : difference->kind == MISSING ? "not sent by us"
                                                 : "sent by us only",
                   theirs, ours);
}

static void judge(const struct difference *difference)
{
    uint32_t explained = 0;
    for (size_t i = 0; i < RULE_COUNT; i++) {
        bool explains = rules[i].explains(difference);
        rules[i].needed += explains;
        explained += explains;
    }
    if (explained != 1) {
        char text[1024];
        describe(difference, text, sizeof text);
        print_message("explained by %u rules: %s\n", explained, text);
        unexplained++;
    }
}

static void compare_fields(const struct difference *pair)
{
    const struct packet *theirs = &pair->theirs->packet, *ours = &pair->ours->packet;
    const struct {
        const char *name;
        bool differs;
    } fields[] = {
        {"solicited", theirs->solicited != ours->solicited},
        {"MigReq", theirs->migration_request != ours->migration_request},
        {"AckReq", theirs->ack_request != ours->ack_request},
        {"P_Key", theirs->pkey.value != ours->pkey.value},
        {"ECN", theirs->fecn != ours->fecn || theirs->becn != ours->becn},
        {"destination", theirs->destination.value != ours->destination.value},
        {"PSN", theirs->psn.value != ours->psn.value},
        {"RETH", theirs->remote_address != ours->remote_address ||
                     theirs->remote_key.value != ours->remote_key.value ||
                     theirs->dma_length != ours->dma_length},
        {"AtomicETH", theirs->swap_or_add != ours->swap_or_add || theirs->compare != ours->compare},
        {"syndrome",
         theirs->aeth.kind != ours->aeth.kind || theirs->aeth.value != ours->aeth.value},
        {"MSN", theirs->aeth.msn != ours->aeth.msn},
        {"AtomicAckETH", theirs->original != ours->original},
        {"ImmDt", theirs->immediate != ours->immediate},
        {"IETH", theirs->invalidate.value != ours->invalidate.value},
        {"DETH",
         theirs->qkey.value != ours->qkey.value || theirs->source.value != ours->source.value},
        {"payload", theirs->payload_length != ours->payload_length ||
                        memcmp(theirs->payload, ours->payload, ours->payload_length) != 0},
        /* Not in the bytes: */
        {"path", memcmp(&pair->theirs->path.local, &pair->ours->path.local, 32) != 0 ||
                     pair->theirs->path.source_port != pair->ours->path.source_port ||
                     pair->theirs->path.flow_label != pair->ours->path.flow_label ||
                     pair->theirs->path.traffic_class != pair->ours->path.traffic_class},
    };
    enum {
        FIELD_COUNT = sizeof fields / sizeof fields[0]
    };
    uint32_t found = 0;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (fields[i].differs) {
            struct difference difference = *pair;
            difference.field = fields[i].name;
            judge(&difference);
            found++;
        }
    }
    bool same = pair->theirs->length == pair->ours->length &&
                memcmp(pair->theirs->bytes, pair->ours->bytes, pair->ours->length) == 0;
    /* Else a field is missing above. */
    assert_true(same == (found == fields[FIELD_COUNT - 1].differs));
    packets_equal += found == 0;
    packets_different += found != 0;
}

static bool are_alike(const struct replay_packet *a, const struct replay_packet *b)
{
    return a->packet.opcode == b->packet.opcode && psn_equal(a->packet.psn, b->packet.psn) &&
           a->packet.aeth.kind == b->packet.aeth.kind;
}

/* The longest common subsequence pairs the packets; the rest only one of the two has sent. */
static void compare_lists(struct difference difference, const struct replay_packets *theirs,
                          const struct replay_packets *ours)
{
    uint32_t width = ours->count + 1;
    uint32_t *longest = calloc((size_t)(theirs->count + 1) * width, sizeof *longest);
    assert_non_null(longest);
    for (uint32_t i = theirs->count; i-- > 0;) {
        for (uint32_t k = ours->count; k-- > 0;) {
            uint32_t without_theirs = longest[(i + 1) * width + k];
            uint32_t without_ours = longest[i * width + k + 1];
            longest[i * width + k] = are_alike(&theirs->packets[i], &ours->packets[k])
                                         ? longest[(i + 1) * width + k + 1] + 1
                                     : without_theirs > without_ours ? without_theirs
                                                                     : without_ours;
        }
    }
    uint32_t i = 0, k = 0;
    while (i < theirs->count || k < ours->count) {
        bool both = i < theirs->count && k < ours->count;
        difference.theirs = i < theirs->count ? &theirs->packets[i] : NULL;
        difference.ours = k < ours->count ? &ours->packets[k] : NULL;
        if (both && are_alike(difference.theirs, difference.ours)) {
            difference.kind = FIELD;
            compare_fields(&difference);
            i++, k++;
        } else if (!both ? difference.theirs != NULL
                         : longest[(i + 1) * width + k] >= longest[i * width + k + 1]) {
            difference.kind = MISSING;
            difference.ours = NULL;
            judge(&difference);
            i++;
        } else {
            difference.kind = MORE;
            difference.theirs = NULL;
            judge(&difference);
            k++;
        }
    }
    free(longest);
}

static void check_readme(void)
{
    char line[1024];
    for (size_t i = 0; i < RULE_COUNT; i++) {
        (void)snprintf(line, sizeof line, "| %s | %s | %s | %u |", rules[i].rxe, rules[i].ours,
                       rules[i].why, rules[i].needed);
        unexplained += !readme_says(folder, line) || rules[i].needed == 0;
    }
    (void)snprintf(line, sizeof line,
                   "Of %u packets, ours are %u equal byte for byte, and %u in all but a field.",
                   packets_replayed, packets_equal, packets_different);
    unexplained += !readme_says(folder, line);
}

static void replay_side(const struct replay_capture *capture,
                        const struct replay_connection *connection, int side)
{
    struct replay_result result;
    replay_run(capture, connection, side, &result);
    struct difference difference = {.connection = connection, .side = side};
    for (int is_request = 0; is_request < 2; is_request++) {
        compare_lists(difference, &result.theirs[is_request], &result.ours[is_request]);
        packets_replayed += result.theirs[is_request].count;
    }
    /* What was posted is completed as it was: in error where rxe sent a NAK. Of one request rxe
     * never answered any packet. */
    bool unanswered = is_of_ops(&difference, 1) && connection->qpns[0].value == 0x1a;
    assert_int_equal(result.posted - result.completed, unanswered);
    assert_int_equal(result.failed, side == 1 && connection->region_count != 0 &&
                                        connection->qpns[0].value >= 0x13 &&
                                        connection->qpns[0].value <= 0x19);
    assert_int_equal(result.misread, 0);
    replay_free(&result);
}

static void what_we_send_is_what_rxe_sent(void **state)
{
    struct replay_capture capture = {.frames = NULL};
    const char *opened = "";
    uint32_t captured = 0;
    for (size_t i = 0; i < CONNECTION_COUNT; i++) {
        const struct replay_connection *connection = &connections[i];
        if (strcmp(opened, connection->capture) != 0) {
            replay_close(&capture);
            replay_open(folder, connection->capture, &capture);
            opened = connection->capture;
            for (uint32_t k = 0; k < capture.pcap.count; k++) {
                captured += !capture.frames[k].is_management;
            }
        }
        replay_side(&capture, connection, 0);
        replay_side(&capture, connection, 1);
    }
    replay_close(&capture);
    assert_int_equal(packets_replayed, captured); /* each belongs to one connection */
    check_readme();
    assert_int_equal(unexplained, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_we_send_is_what_rxe_sent),
    };
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
