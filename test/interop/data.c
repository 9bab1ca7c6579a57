/* Every operation, in lengths around the path MTU, from and to several pieces, each byte compared,
 * with what lies beside them: on a queue pair of type RC or UC to the same program at the other
 * end. First the client acts on the server's memory, then the other way round. Prints "data: N
 * operations right".
 *
 * Usage: data -g GID_INDEX -m MTU [-t rc|uc] [-l LONGEST] [SERVER]
 *
 * LONGEST: up to 1 MiB, the default; of UC 20000. */
#include "peer.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define LENGTH_MAX    (1u << 20)
#define LENGTH_MAX_UC 20000u /* what the queues on the way hold: nobody repeats what they drop */
#define IMMEDIATE     0xfedc0000u

static unsigned done,
    tried; /* tried: the same number at both ends, and what tells one attempt from another */

struct operation {
    const char *name;
    enum ibv_wr_opcode opcode;
    bool receives, immediate, by_uc;
};

static const struct operation OPERATIONS[] = {
    {"SEND", IBV_WR_SEND, true, false, true},
    {"SEND with immediate", IBV_WR_SEND_WITH_IMM, true, true, true},
    {"WRITE with immediate", IBV_WR_RDMA_WRITE_WITH_IMM, true, true, true},
    {"WRITE", IBV_WR_RDMA_WRITE, false, false, false},
    {"READ", IBV_WR_RDMA_READ, false, false, false},
};
#define OPERATION_COUNT (sizeof OPERATIONS / sizeof OPERATIONS[0])

/* One try: what both ends must know of it. */
struct attempt {
    const struct operation *operation;
    size_t length;
    int pieces;
    uint64_t seed;
    char text[96];
};

/* Where a peer's WRITE goes to and its READ comes from: odd, and not at the start. */
static struct ibv_sge remote_place(struct peer *peer, size_t length)
{
    return (struct ibv_sge){.addr = (uintptr_t)peer->buffer + 4097,
                            .length = (uint32_t)length,
                            .lkey = peer->region->lkey};
}

static void act(struct peer *peer, const struct attempt *attempt)
{
    const struct operation *operation = attempt->operation;
    struct ibv_sge pieces[PIECES_MAX];
    bool reads = operation->opcode == IBV_WR_RDMA_READ;
    peer_poison(peer, attempt->length);
    int count = peer_lay_out(peer, attempt->length, attempt->pieces, pieces);
    if (!reads)
        peer_fill(pieces, count, attempt->seed);
    peer_meet(peer); /* the other end is prepared */
    struct ibv_send_wr request = {.opcode = operation->opcode, .sg_list = pieces, .num_sge = count};
    if (operation->immediate)
        request.imm_data = htonl(IMMEDIATE + tried);
    if (operation->opcode != IBV_WR_SEND && operation->opcode != IBV_WR_SEND_WITH_IMM) {
        request.wr.rdma.remote_addr = peer->there.buffer + 4097;
        request.wr.rdma.rkey = peer->there.rkey;
    }
    peer_do(peer, &request, attempt->text);
    peer_check(peer, pieces, count, attempt->length, attempt->seed, attempt->text);
    peer_meet(peer);
}

static void check_receive(struct peer *peer, const struct attempt *attempt)
{
    const struct operation *operation = attempt->operation;
    struct ibv_wc wc = peer_wait(peer, attempt->text);
    bool written = operation->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    expect(wc.opcode == (written ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV),
           "%s: a receive of opcode %d", attempt->text, wc.opcode);
    expect(wc.byte_len == attempt->length, "%s: %u bytes received", attempt->text, wc.byte_len);
    expect(((wc.wc_flags & IBV_WC_WITH_IMM) != 0) == operation->immediate, "%s: flags %x",
           attempt->text, wc.wc_flags);
    if (operation->immediate)
        expect(ntohl(wc.imm_data) == IMMEDIATE + tried, "%s: immediate %08x", attempt->text,
               ntohl(wc.imm_data));
}

static void be_acted_on(struct peer *peer, const struct attempt *attempt)
{
    const struct operation *operation = attempt->operation;
    struct ibv_sge pieces[PIECES_MAX] = {remote_place(peer, attempt->length)};
    int count = 1;
    bool sent = operation->opcode == IBV_WR_SEND || operation->opcode == IBV_WR_SEND_WITH_IMM;
    peer_poison(peer, attempt->length);
    if (sent)
        count = peer_lay_out(peer, attempt->length, attempt->pieces, pieces);
    if (operation->opcode == IBV_WR_RDMA_READ)
        peer_fill(pieces, count, attempt->seed);
    if (operation->receives)
        peer_post_receive(peer, pieces, sent ? count : 0);
    peer_meet(peer);
    if (operation->receives)
        check_receive(peer, attempt);
    peer_meet(peer); /* it is complete at the other end, so what is written is here */
    peer_check(peer, pieces, count, attempt->length, attempt->seed, attempt->text);
}

static void attempt_one(struct peer *peer, bool active, const struct operation *operation,
                        size_t length, int pieces)
{
    struct attempt attempt = {operation, length, pieces, tried * 7919u + length, ""};
    snprintf(attempt.text, sizeof attempt.text, "%s of %zu bytes in %d pieces, %s", operation->name,
             length, pieces, active ? "ours" : "theirs");
    if (active)
        act(peer, &attempt);
    else
        be_acted_on(peer, &attempt);
    tried++;
    done++;
}

static void atomic(struct peer *peer, enum ibv_wr_opcode opcode, uint64_t compare_add,
                   uint64_t swap, uint64_t before)
{
    struct ibv_sge piece = {
        .addr = (uintptr_t)peer->buffer + 64, .length = 8, .lkey = peer->region->lkey};
    struct ibv_send_wr request = {.opcode = opcode,
                                  .sg_list = &piece,
                                  .num_sge = 1,
                                  .wr.atomic = {.remote_addr = peer->there.buffer + 4096,
                                                .rkey = peer->there.rkey,
                                                .compare_add = compare_add,
                                                .swap = swap}};
    peer_do(peer, &request, "atomic");
    uint64_t found;
    memcpy(&found, peer->buffer + 64, 8);
    expect(found == before, "atomic %d: the value before was %llx, not %llx", opcode,
           (unsigned long long)found, (unsigned long long)before);
    done++;
}

static void atomics(struct peer *peer, bool active)
{
    const uint64_t first = 0xfffffffffffffffeu, last = 0x0123456789abcdefu;
    memcpy(peer->buffer + 4096, &first, 8);
    peer_meet(peer);
    if (active) {
        atomic(peer, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, first);
        atomic(peer, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 0, first + 1);
        atomic(peer, IBV_WR_ATOMIC_CMP_AND_SWP, 1, 99, 2);
        atomic(peer, IBV_WR_ATOMIC_CMP_AND_SWP, 2, last, 2);
        atomic(peer, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, last);
    }
    peer_meet(peer);
    uint64_t value;
    memcpy(&value, peer->buffer + 4096, 8);
    expect(value == (active ? first : last), "atomics: %llx is left", (unsigned long long)value);
    peer_meet(peer);
}

static void all_of(struct peer *peer, bool active)
{
    const size_t mtu = peer->options.mtu;
    const size_t most = peer->options.type == IBV_QPT_UC ? LENGTH_MAX_UC : LENGTH_MAX;
    const size_t longest = peer->options.longest != 0 ? peer->options.longest : most;
    expect(longest <= most, "-l %zu: %zu at most", longest, most);
    const size_t lengths[] = {0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 5, longest};
    for (size_t i = 0; i < OPERATION_COUNT; i++) {
        if (peer->options.type == IBV_QPT_UC && !OPERATIONS[i].by_uc)
            continue;
        for (size_t j = 0; j < sizeof lengths / sizeof lengths[0]; j++) {
            if (lengths[j] != longest)
                attempt_one(peer, active, &OPERATIONS[i], lengths[j], 1);
            attempt_one(peer, active, &OPERATIONS[i], lengths[j], PIECES_MAX);
        }
    }
    if (peer->options.type == IBV_QPT_RC)
        atomics(peer, active);
}

int main(int argc, char **argv)
{
    struct peer peer;
    struct peer_options options = peer_arguments(argc, argv);
    peer_open(&peer, &options);
    all_of(&peer, options.server != NULL);
    all_of(&peer, options.server == NULL);
    peer_close(&peer);
    printf("data: %u operations right\n", done);
    return 0;
}
