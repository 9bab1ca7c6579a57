/* Memory windows: bound at one end, written to and read through from the other, invalidated from
 * afar. First the server's windows, then the client's. Prints "windows: all right".
 *
 * Usage: windows -g GID_INDEX -m MTU [SERVER] */
#include "peer.h"

#include <stdio.h>
#include <string.h>

#define LENGTH 5000u
#define PLACE  4097u
/* rxe tells the application the kernel's IB_WC_WITH_INVALIDATE, which is bit 2; IBV_WC_WITH_INV is
 * bit 3. */
#define RXE_WC_WITH_INV (1u << 2)

static struct ibv_mw_bind_info bind_info(struct peer *peer)
{
    return (struct ibv_mw_bind_info){.mr = peer->region,
                                     .addr = (uintptr_t)peer->buffer + PLACE,
                                     .length = LENGTH,
                                     .mw_access_flags =
                                         IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
}

static uint32_t bind_window(struct peer *peer, struct ibv_mw *window)
{
    if (window->type == IBV_MW_TYPE_1) {
        struct ibv_mw_bind bind = {
            .wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = bind_info(peer)};
        expect(ibv_bind_mw(peer->qp, window, &bind) == 0, "a window of type 1 bound");
        peer_wait(peer, "bind, type 1");
        return window->rkey;
    }
    struct ibv_send_wr request = {.opcode = IBV_WR_BIND_MW,
                                  .bind_mw = {.mw = window,
                                              .rkey = ibv_inc_rkey(window->rkey),
                                              .bind_info = bind_info(peer)}};
    peer_do(peer, &request, "bind, type 2");
    return request.bind_mw.rkey;
}

static void own_window(struct peer *peer, enum ibv_mw_type type)
{
    struct ibv_mw *window = ibv_alloc_mw(peer->pd, type);
    expect(window != NULL, "a window of type %d: %m", type);
    peer_poison(peer, LENGTH);
    struct ibv_sge place = {.addr = (uintptr_t)peer->buffer + PLACE, .length = LENGTH};
    uint32_t rkey = bind_window(peer, window), theirs;
    if (type == IBV_MW_TYPE_2)
        peer_post_receive(peer, NULL, 0);
    peer_exchange(peer, &rkey, &theirs, sizeof rkey);
    peer_meet(peer); /* it has written and read */
    peer_check(peer, &place, 1, LENGTH, 77, "WRITE through a window");
    if (type == IBV_MW_TYPE_2) {
        struct ibv_wc wc = peer_wait(peer, "SEND with invalidate");
        bool on_rxe = strncmp(ibv_get_device_name(peer->context->device), "rxe", 3) == 0;
        expect((wc.wc_flags & (on_rxe ? RXE_WC_WITH_INV : IBV_WC_WITH_INV)) != 0 &&
                   wc.invalidated_rkey == rkey,
               "flags %x, key %08x", wc.wc_flags, wc.invalidated_rkey);
    }
    expect(ibv_dealloc_mw(window) == 0, "the window freed");
    peer_meet(peer);
}

static void use_window(struct peer *peer, enum ibv_mw_type type)
{
    uint32_t none = 0, rkey;
    struct ibv_sge piece;
    peer_poison(peer, LENGTH);
    peer_lay_out(peer, LENGTH, 1, &piece);
    peer_fill(&piece, 1, 77);
    peer_exchange(peer, &none, &rkey, sizeof rkey);
    struct ibv_send_wr request = {
        .opcode = IBV_WR_RDMA_WRITE,
        .sg_list = &piece,
        .num_sge = 1,
        .wr.rdma = {.remote_addr = peer->there.buffer + PLACE, .rkey = rkey}};
    peer_do(peer, &request, "WRITE through a window");
    memset((void *)(uintptr_t)piece.addr, 0, LENGTH);
    request.opcode = IBV_WR_RDMA_READ;
    peer_do(peer, &request, "READ through a window");
    peer_check(peer, &piece, 1, LENGTH, 77, "READ through a window");
    if (type == IBV_MW_TYPE_2) {
        struct ibv_send_wr end = {.opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = rkey};
        peer_do(peer, &end, "SEND with invalidate");
    }
    peer_meet(peer);
    peer_meet(peer);
}

int main(int argc, char **argv)
{
    struct peer peer;
    struct peer_options options = peer_arguments(argc, argv);
    peer_open(&peer, &options);
    for (int turn = 0; turn < 2; turn++) {
        bool owner = (turn == 0) == (options.server == NULL);
        for (enum ibv_mw_type type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++)
            (owner ? own_window : use_window)(&peer, type);
    }
    peer_close(&peer);
    printf("windows: all right\n");
    return 0;
}
