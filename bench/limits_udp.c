/* What the machine allows, by UDP, to who must do what RoCEv2 demands and nothing else: each packet
 * sealed and checked by a CRC-32, its payload copied at both ends, what comes acknowledged. Nothing
 * of Weir is in here; system calls, options and control messages are those that it needs. Both ends
 * spin, and a packet that is lost is the end.
 *
 *   limits_udp serve ADDRESS           the other end of what follows, until it is killed
 *   limits_udp message ADDRESS         8 B and its answer, each behind an acknowledgement that is
 *                                      sent with it: us one way
 *   limits_udp carried ADDRESS         the same, both in one datagram
 *   limits_udp stream ADDRESS PAYLOAD  packets of so many bytes: GB/s
 *
 * Each takes about half a second and prints one number. */
#include "limits_end.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS     0.5
#define MESSAGE     ((size_t)1 << 20) /* bytes, at both ends: a stream goes round in them */
#define WINDOW      ((size_t)512 << 10)
#define SHORT_BYTES 20u /* behind an acknowledgement, which is longer */

static uint8_t *memory; /* of MESSAGE bytes */

static struct end *open_with_memory(const char *address, int serves)
{
    memory = malloc(MESSAGE);
    if (memory == NULL) {
        fail("memory");
    }
    memset(memory, 1, MESSAGE); /* else all that is read would be the one page of zeros */
    struct end *end = open_end(address, serves);
    end->lends = 1;
    return end;
}

/* A message, behind or with the acknowledgement of the one before. */
static void send_message(struct end *end, enum kind kind, uint32_t number)
{
    uint64_t word = number;
    const uint8_t *bytes = (uint8_t *)&word;
    struct header header = {(uint32_t)kind, sizeof(word), number}, owed = {ACK, 0, number - 1};
    uint8_t *at = end->run;
    uint16_t segment = ACK_BYTES + SEAL;
    if (kind == CARRIED) {
        at = put_packet(end, at, &header, ACK_BYTES + SHORT_BYTES, bytes);
        segment = (uint16_t)(at - end->run);
    } else {
        at = put_packet(end, at, &owed, ACK_BYTES, NULL);
        at = put_packet(end, at, &header, SHORT_BYTES, bytes);
    }
    send_run(end, at, segment);
}

static void take(struct end *end, const struct header *header, const uint8_t *payload,
                 void *context)
{
    (void)context;
    if (header->kind != DATA) {
        memcpy(memory, payload, header->payload);
        return;
    }
    memcpy(memory + (size_t)header->number * header->payload % MESSAGE, payload, header->payload);
    end->expected = header->number == 0 ? 0 : end->expected; /* another stream begins */
    expect(end, header);
    if (end->expected % (WINDOW / 2 / header->payload) == 0) {
        acknowledge(end);
    }
}

static void serve(const char *address)
{
    struct end *end = open_with_memory(address, 1);
    struct header last = {.kind = SHORT};
    puts("ready");
    fflush(stdout);
    for (;;) {
        unsigned most = last.kind == DATA ? READS : 1;
        if (receive(end, most, take, NULL, &last) && last.kind != DATA) {
            send_message(end, (enum kind)last.kind, last.number);
        }
    }
}

static void wait_for_one(struct end *end, struct header *ret_last)
{
    double began = now_s();
    while (!receive(end, 1, take, NULL, ret_last)) {
        if (now_s() - began > PATIENCE_S) {
            fail("no answer");
        }
    }
}

static void message(const char *address, enum kind kind)
{
    struct end *end = open_with_memory(address, 0);
    struct header last;
    uint32_t count = 0;
    double began = now_s();
    do {
        send_message(end, kind, ++count);
        do {
            wait_for_one(end, &last);
        } while (last.number != count);
    } while (now_s() - began < SECONDS);
    printf("%.3f\n", (now_s() - began) / count / 2 * 1e6);
}

static void stream(const char *address, uint32_t payload)
{
    struct end *end = open_with_memory(address, 0);
    size_t packet = sizeof(struct header) + payload + SEAL;
    uint32_t run = packets_of_run(packet), window = (uint32_t)(WINDOW / payload), sent = 0;
    struct header acknowledged = {.number = 0};
    double began = now_s();
    do {
        while (sent + run - acknowledged.number > window) {
            wait_for_one(end, &acknowledged);
        }
        uint8_t *at = end->run;
        for (uint32_t stop = sent + run; sent < stop; sent++) {
            struct header header = {DATA, payload, sent};
            const uint8_t *bytes = memory + (size_t)sent * payload % MESSAGE;
            at = put_packet(end, at, &header, packet - SEAL, bytes);
        }
        send_run(end, at, (uint16_t)packet);
    } while (now_s() - began < SECONDS);
    while (sent - acknowledged.number >= window / 2) {
        wait_for_one(end, &acknowledged);
    }
    printf("%.3f\n", (double)acknowledged.number * payload / (now_s() - began) * 1e-9);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    unsigned long payload = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    if (strcmp(what, "serve") == 0) {
        serve(argv[2]);
    } else if (strcmp(what, "message") == 0) {
        message(argv[2], SHORT);
    } else if (strcmp(what, "carried") == 0) {
        message(argv[2], CARRIED);
    } else if (strcmp(what, "stream") == 0 && payload > 0 && payload <= 8192 &&
               MESSAGE % payload == 0) {
        stream(argv[2], (uint32_t)payload);
    } else {
        fprintf(stderr, "usage: limits_udp serve ADDRESS | message ADDRESS | carried ADDRESS |"
                        " stream ADDRESS PAYLOAD\n");
        return 2;
    }
    return 0;
}
