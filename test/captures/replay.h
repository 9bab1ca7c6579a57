/* One side of a captured connection, played by our engine.
 *
 * The peer's packets are fed at the times at which they were captured; where the captured side
 * began a message, the same work is posted. The queue pair has the captured number, PSNs, addresses
 * and UDP port, the memory the captured keys and addresses. What cannot be seen on the wire is
 * taken from what the captured side answered: whether a receive was posted, and what memory held.
 *
 * Not here: what is said about differences (replay_test.c). */
#ifndef WEIR_TEST_CAPTURES_REPLAY_H
#define WEIR_TEST_CAPTURES_REPLAY_H

#include "rnic/queue/work.h"
#include "test/captures/frame.h"
#include "test/captures/pcap.h"

/* A region that no captured request was granted, so that it cannot be derived. */
struct replay_region {
    uint32_t key;
    uint64_t address;
    uint32_t length;
    unsigned access;
};

struct replay_connection {
    const char *capture;
    struct qpn qpns[2]; /* of the side with the lower address, and of the other */
    enum service service;
    enum path_mtu mtu;
    const struct replay_region *regions; /* of the lower side, instead of derived ones */
    uint32_t region_count;
};

/* A capture, all its frames parsed. */
struct replay_capture {
    struct pcap pcap;
    struct frame *frames; /* pcap.count */
};

/* A packet of one side, captured or sent by us; bytes from the BTH on, without ICRC. */
struct replay_packet {
    struct packet packet; /* its payload lies in `bytes` */
    uint64_t time_ns;
    struct path path;
    struct roce_ip ip;
    uint8_t *bytes;
    uint32_t length;
};

struct replay_packets {
    struct replay_packet *packets;
    uint32_t count;
};

/* What came of it: theirs as captured, ours as sent; requests and responses apart, since when one
 * passes the other is a matter of time only. */
struct replay_result {
    struct replay_packets theirs[2], ours[2]; /* [is_request] */
    uint32_t posted, completed, failed;       /* our requests; the failed are among the completed */
    uint32_t misread; /* READs, atomics and receives that hold other bytes than were captured */
};

void replay_open(const char *folder, const char *capture, struct replay_capture *ret_capture);
void replay_close(struct replay_capture *capture);
/* Fails the test where the engine refuses what it is set up with. */
void replay_run(const struct replay_capture *capture, const struct replay_connection *connection,
                int side, struct replay_result *ret_result);
void replay_free(struct replay_result *result);

#endif
