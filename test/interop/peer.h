/* Two programs, one at each end of the link, with a queue pair between them that was agreed over
 * TCP.
 *
 * Here: device, queue pair, the exchange over TCP, the wait for a completion, buffers whose every
 * byte is known. Not here: what is tried on them (data.c, windows.c). All of it ends the program in
 * words when something is not as it must be. */
#ifndef INTEROP_PEER_H
#define INTEROP_PEER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUFFER_SIZE (2u << 20)
#define PIECES_MAX  4

struct peer_options {
    uint8_t gid_index;
    unsigned mtu; /* 256 to 4096 */
    enum ibv_qp_type type;
    size_t longest;     /* message; 0: what the program takes for it */
    const char *server; /* NULL: we are the server */
};

/* What each end tells the other. */
struct peer_address {
    union ibv_gid gid;
    uint64_t buffer;
    uint32_t qpn, psn, rkey, reserved;
};

struct peer {
    struct peer_options options;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *region;
    uint8_t *buffer; /* BUFFER_SIZE bytes */
    int control;
    struct peer_address here, there;
};

__attribute__((format(printf, 2, 3))) void expect(bool truth, const char *format, ...);

/* Reads -g GID_INDEX, -m MTU, -t rc|uc, -l LONGEST and [SERVER]. */
struct peer_options peer_arguments(int argc, char **argv);
void peer_open(struct peer *peer, const struct peer_options *options);
void peer_close(struct peer *peer);

/* Both ends call these in the same order. */
void peer_exchange(struct peer *peer, const void *ours, void *ret_theirs, size_t size);
void peer_meet(struct peer *peer);

/* Posts one request (wr_id and flags are set here) and waits for its completion. */
void peer_do(struct peer *peer, struct ibv_send_wr *request, const char *what);
void peer_post_receive(struct peer *peer, struct ibv_sge *pieces, int count);
struct ibv_wc peer_wait(struct peer *peer, const char *what);

/* `length` bytes in `count` pieces that lie apart from each other and in reverse order in the
 * buffer. */
int peer_lay_out(struct peer *peer, size_t length, int count, struct ibv_sge *ret_pieces);
/* All of the buffer around the pieces becomes known; the pieces get the bytes that `seed` stands
 * for. */
void peer_poison(struct peer *peer, size_t length);
void peer_fill(const struct ibv_sge *pieces, int count, uint64_t seed);
/* Every byte of the pieces is seed's, every other one is as peer_poison left it. */
void peer_check(struct peer *peer, const struct ibv_sge *pieces, int count, size_t length,
                uint64_t seed, const char *what);

#endif
