/* What the machine allows, by UDP, to who copies one file and must prove it: read, digest, copy and
 * seal; check, copy, digest, write. One thread at each end, which sleeps while nothing comes.
 * Nothing is known of the file but its bytes, nobody answers for a lost packet, and no name waits
 * for the proof; the digest of the whole is compared at the end.
 *
 *   limits_file serve ADDRESS FILE          writes one file and ends
 *   limits_file copy ADDRESS FILE PAYLOAD   sends it, in packets of so many bytes */
#include "limits_end.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define CHUNK    ((size_t)1 << 20)
#define CHUNKS   ((size_t)16)
#define AT_ONCE  ((size_t)64 << 10) /* what is read and digested while it is near */
#define WINDOW   ((size_t)1 << 20)
#define ACKS     4u /* of a window */
#define LAST_ACK UINT32_MAX

struct copied {
    int fd;
    uint8_t *memory; /* CHUNKS of them, in turn */
    size_t came, written;
    uint64_t digest;
    int whole; /* the end has come */
};

static struct copied begin(const char *path, int flags)
{
    struct copied copied = {.fd = open(path, flags | O_CLOEXEC, 0600),
                            .memory = aligned_alloc((size_t)2 << 20, CHUNKS * CHUNK)};
    if (copied.fd < 0 || copied.memory == NULL) {
        fail(path);
    }
    memset(copied.memory, 1, CHUNKS * CHUNK);
    return copied;
}

static uint8_t *place_of(const struct copied *copied, size_t offset)
{
    return copied->memory + offset % (CHUNKS * CHUNK);
}

static void digest(struct copied *copied, const uint8_t *bytes, size_t length)
{
    copied->digest = XXH3_128bits_withSeed(bytes, length, copied->digest).low64;
}

/* The first one may be long in coming. */
static void wait_for_packets(const struct end *end, int is_first)
{
    struct pollfd readable = {end->fd, POLLIN, 0};
    if (poll(&readable, 1, is_first ? -1 : PATIENCE_S * 1000) <= 0) {
        fail("nothing comes");
    }
}

/* What has come of the chunk that comes, in steps as the sender digests it. */
static void write_chunk(struct copied *copied)
{
    const uint8_t *bytes = place_of(copied, copied->written);
    size_t length = copied->came - copied->written;
    for (size_t at = 0; at < length; at += AT_ONCE) {
        digest(copied, bytes + at, length - at < AT_ONCE ? length - at : AT_ONCE);
    }
    if (pwrite(copied->fd, bytes, length, (off_t)copied->written) != (ssize_t)length) {
        fail("pwrite");
    }
    copied->written = copied->came;
}

static void take_end(struct copied *copied, const struct header *header, const uint8_t *payload)
{
    uint64_t theirs;
    if (header->payload != sizeof(theirs)) {
        fail("a stranger's packet");
    }
    memcpy(&theirs, payload, sizeof(theirs));
    write_chunk(copied);
    if (theirs != copied->digest) {
        fail("the digests differ");
    }
    copied->whole = 1;
}

static void take(struct end *end, const struct header *header, const uint8_t *payload,
                 void *context)
{
    struct copied *copied = context;
    if (header->kind == SHORT) {
        take_end(copied, header, payload);
        return;
    }
    expect(end, header);
    memcpy(place_of(copied, copied->came), payload, header->payload);
    copied->came += header->payload;
    if (end->expected % (WINDOW / ACKS / header->payload) == 0) {
        acknowledge(end);
    }
    if (copied->came % CHUNK == 0) {
        write_chunk(copied);
    }
}

static void serve(const char *address, const char *path)
{
    struct end *end = open_end(address, 1);
    struct copied copied = begin(path, O_RDWR | O_CREAT | O_TRUNC);
    struct header last;
    puts("ready");
    fflush(stdout);
    while (!copied.whole) {
        if (!receive(end, 1, take, &copied, &last)) {
            wait_for_packets(end, copied.came == 0);
        }
    }
    end->expected = LAST_ACK;
    acknowledge(end);
}

static size_t read_chunk(struct copied *copied)
{
    uint8_t *bytes = place_of(copied, copied->came);
    ssize_t part = 1;
    size_t length = 0;
    while (length < CHUNK &&
           (part = pread(copied->fd, bytes + length, AT_ONCE, (off_t)copied->came)) > 0) {
        digest(copied, bytes + length, (size_t)part);
        length += (size_t)part;
        copied->came += (size_t)part;
    }
    if (part < 0) {
        fail("pread");
    }
    return length;
}

static void take_nothing(struct end *end, const struct header *header, const uint8_t *payload,
                         void *context)
{
    (void)end, (void)header, (void)payload, (void)context;
}

static void wait_until_acknowledged(struct end *end, uint32_t number, struct header *acknowledged)
{
    while (acknowledged->number < number) {
        if (!receive(end, 1, take_nothing, NULL, acknowledged)) {
            wait_for_packets(end, 0);
        }
    }
}

static void send_chunk(struct end *end, const uint8_t *bytes, size_t length, uint32_t payload,
                       struct header *acknowledged)
{
    size_t packet = sizeof(struct header) + payload + SEAL;
    uint32_t run = packets_of_run(packet), window = (uint32_t)(WINDOW / payload);
    const uint8_t *stop = bytes + length;
    while (bytes < stop) {
        uint8_t *at = end->run;
        for (uint32_t i = 0; i < run && bytes < stop; i++) {
            uint32_t left = (uint32_t)(stop - bytes);
            struct header header = {DATA, left < payload ? left : payload, end->expected++};
            at = put_packet(end, at, &header, sizeof(header) + header.payload, bytes);
            bytes += header.payload;
        }
        if (end->expected > window) {
            wait_until_acknowledged(end, end->expected - window, acknowledged);
        }
        send_run(end, at, (uint16_t)packet);
    }
}

static void copy(const char *address, const char *path, uint32_t payload)
{
    struct end *end = open_end(address, 0);
    struct copied copied = begin(path, O_RDONLY);
    struct header acknowledged = {.number = 0}, last = {SHORT, sizeof(copied.digest), 0};
    for (;;) {
        const uint8_t *bytes = place_of(&copied, copied.came);
        size_t length = read_chunk(&copied);
        send_chunk(end, bytes, length, payload, &acknowledged);
        if (length < CHUNK) {
            break;
        }
    }
    send_run(end,
             put_packet(end, end->run, &last, sizeof(last) + sizeof(copied.digest),
                        (uint8_t *)&copied.digest),
             RUN_BYTES);
    wait_until_acknowledged(end, LAST_ACK, &acknowledged);
}

int main(int argc, char **argv)
{
    const char *what = argc > 3 ? argv[1] : "";
    unsigned long payload = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
    if (strcmp(what, "serve") == 0 && argc == 4) {
        serve(argv[2], argv[3]);
    } else if (strcmp(what, "copy") == 0 && payload > 0 && payload <= 8192 &&
               CHUNK % payload == 0) {
        copy(argv[2], argv[3], (uint32_t)payload);
    } else {
        fprintf(stderr, "usage: limits_file serve ADDRESS FILE | copy ADDRESS FILE PAYLOAD\n");
        return 2;
    }
    return 0;
}
