#include "peer.h"

#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT       "18600"
#define PATIENCE_S 60
#define GAP        13u /* bytes between pieces */
#define POISON     0xa5

void expect(bool truth, const char *format, ...)
{
    if (truth)
        return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "wrong: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

struct peer_options peer_arguments(int argc, char **argv)
{
    struct peer_options options = {.mtu = 1024, .type = IBV_QPT_RC};
    int letter;
    while ((letter = getopt(argc, argv, "g:m:t:l:")) != -1) {
        if (letter == 'g')
            options.gid_index = (uint8_t)atoi(optarg);
        else if (letter == 'm')
            options.mtu = (unsigned)atoi(optarg);
        else if (letter == 'l')
            options.longest = strtoul(optarg, NULL, 0);
        else if (letter == 't' && strcmp(optarg, "uc") == 0)
            options.type = IBV_QPT_UC;
        else
            expect(letter == 't' && strcmp(optarg, "rc") == 0,
                   "-g GID_INDEX -m MTU -t rc|uc -l LONGEST [SERVER]");
    }
    options.server = argv[optind];
    return options;
}

static int accept_one(const struct addrinfo *at)
{
    int listener = socket(at->ai_family, SOCK_STREAM, 0);
    int one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    expect(bind(listener, at->ai_addr, at->ai_addrlen) == 0 && listen(listener, 1) == 0,
           "%m: port " PORT);
    int control = accept(listener, NULL, NULL);
    expect(control >= 0, "%m: accept");
    close(listener);
    return control;
}

static int connect_control(const char *server)
{
    struct addrinfo hints = {.ai_family = AF_INET,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE},
                    *at;
    expect(getaddrinfo(server, PORT, &hints, &at) == 0, "an address of %s", server);
    int control;
    if (server == NULL) {
        control = accept_one(at);
    } else {
        control = socket(at->ai_family, SOCK_STREAM, 0);
        expect(connect(control, at->ai_addr, at->ai_addrlen) == 0, "%m: Connection to %s", server);
    }
    struct timeval patience = {.tv_sec = PATIENCE_S};
    setsockopt(control, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    freeaddrinfo(at);
    return control;
}

void peer_exchange(struct peer *peer, const void *ours, void *ret_theirs, size_t size)
{
    expect(write(peer->control, ours, size) == (ssize_t)size, "%m: tell the other end");
    expect(recv(peer->control, ret_theirs, size, MSG_WAITALL) == (ssize_t)size,
           "the other end has ended: %m");
}

void peer_meet(struct peer *peer)
{
    char ours = 'm', theirs;
    peer_exchange(peer, &ours, &theirs, 1);
}

static enum ibv_mtu coded(unsigned mtu)
{
    enum ibv_mtu code = IBV_MTU_256;
    while (code < IBV_MTU_4096 && mtu > 256) {
        mtu /= 2;
        code++;
    }
    return code;
}

static void to_init(struct peer *peer)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND};
    if (peer->options.type == IBV_QPT_UC)
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    expect(ibv_modify_qp(peer->qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
           "to INIT");
}

static void to_rts(struct peer *peer)
{
    bool reliable = peer->options.type == IBV_QPT_RC;
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                              .path_mtu = coded(peer->options.mtu),
                              .dest_qp_num = peer->there.qpn,
                              .rq_psn = peer->there.psn,
                              .max_dest_rd_atomic = 4,
                              .min_rnr_timer = 12,
                              .ah_attr = {.is_global = 1,
                                          .port_num = 1,
                                          .grh = {.dgid = peer->there.gid,
                                                  .sgid_index = peer->options.gid_index,
                                                  .hop_limit = 64}}};
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    expect(ibv_modify_qp(
               peer->qp, &rtr,
               mask | (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)) == 0,
           "to RTR");
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                              .timeout = 14,
                              .retry_cnt = 7,
                              .rnr_retry = 7,
                              .sq_psn = peer->here.psn,
                              .max_rd_atomic = 4};
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    expect(ibv_modify_qp(peer->qp, &rts,
                         mask | (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                                IBV_QP_MAX_QP_RD_ATOMIC
                                          : 0)) == 0,
           "to RTS");
}

static void open_device(struct peer *peer)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    expect(list != NULL && list[0] != NULL, "a device");
    peer->context = ibv_open_device(list[0]);
    expect(peer->context != NULL, "opened");
    printf("on %s\n", ibv_get_device_name(list[0]));
    ibv_free_device_list(list);
    peer->pd = ibv_alloc_pd(peer->context);
    peer->cq = ibv_create_cq(peer->context, 64, NULL, NULL, 0);
    peer->buffer = aligned_alloc(4096, BUFFER_SIZE);
    expect(peer->pd != NULL && peer->cq != NULL && peer->buffer != NULL,
           "a domain, a queue, memory");
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
    peer->region = ibv_reg_mr(peer->pd, peer->buffer, BUFFER_SIZE, access);
    expect(peer->region != NULL, "a region: %m");
    struct ibv_qp_init_attr init = {
        .send_cq = peer->cq,
        .recv_cq = peer->cq,
        .qp_type = peer->options.type,
        .cap = {.max_send_wr = 16,
                .max_recv_wr = 16,
                .max_send_sge = PIECES_MAX,
                .max_recv_sge = PIECES_MAX},
    };
    peer->qp = ibv_create_qp(peer->pd, &init);
    expect(peer->qp != NULL, "a queue pair: %m");
}

void peer_open(struct peer *peer, const struct peer_options *options)
{
    *peer = (struct peer){.options = *options};
    open_device(peer);
    to_init(peer);
    peer->here = (struct peer_address){.buffer = (uintptr_t)peer->buffer,
                                       .qpn = peer->qp->qp_num,
                                       .psn = options->server != NULL ? 0xfffff0 : 0x123456,
                                       .rkey = peer->region->rkey};
    expect(ibv_query_gid(peer->context, 1, options->gid_index, &peer->here.gid) == 0, "a GID");
    peer->control = connect_control(options->server);
    peer_exchange(peer, &peer->here, &peer->there, sizeof peer->here);
    to_rts(peer);
    peer_meet(peer);
}

void peer_close(struct peer *peer)
{
    peer_meet(peer);
    expect(ibv_destroy_qp(peer->qp) == 0 && ibv_dereg_mr(peer->region) == 0 &&
               ibv_destroy_cq(peer->cq) == 0 && ibv_dealloc_pd(peer->pd) == 0 &&
               ibv_close_device(peer->context) == 0,
           "all destroyed");
    close(peer->control);
    free(peer->buffer);
}

struct ibv_wc peer_wait(struct peer *peer, const char *what)
{
    struct ibv_wc wc;
    time_t until = time(NULL) + PATIENCE_S;
    int found;
    while ((found = ibv_poll_cq(peer->cq, 1, &wc)) == 0)
        expect(time(NULL) < until, "%s: no completion within %d s", what, PATIENCE_S);
    expect(found == 1, "%s: the queue cannot be polled", what);
    expect(wc.status == IBV_WC_SUCCESS, "%s: %s (%d, vendor %u)", what,
           ibv_wc_status_str(wc.status), wc.status, wc.vendor_err);
    return wc;
}

void peer_do(struct peer *peer, struct ibv_send_wr *request, const char *what)
{
    struct ibv_send_wr *bad;
    request->wr_id = 1;
    request->send_flags |= IBV_SEND_SIGNALED;
    int refused = ibv_post_send(peer->qp, request, &bad);
    expect(refused == 0, "%s: post: %s", what, strerror(refused));
    struct ibv_wc wc = peer_wait(peer, what);
    expect(wc.wr_id == 1, "%s: a completion of something else", what);
}

void peer_post_receive(struct peer *peer, struct ibv_sge *pieces, int count)
{
    struct ibv_recv_wr request = {.wr_id = 2, .sg_list = pieces, .num_sge = count}, *bad;
    expect(ibv_post_recv(peer->qp, &request, &bad) == 0, "a receive posted");
}

int peer_lay_out(struct peer *peer, size_t length, int count, struct ibv_sge *ret_pieces)
{
    size_t left = length, end = length + GAP * (size_t)(count + 1);
    for (int i = 0; i < count; i++) {
        size_t part = i + 1 == count ? left : left / 3;
        end -= GAP + part;
        ret_pieces[i] = (struct ibv_sge){.addr = (uintptr_t)peer->buffer + end,
                                         .length = (uint32_t)part,
                                         .lkey = peer->region->lkey};
        left -= part;
    }
    return length == 0 ? 0 : count;
}

static size_t extent(size_t length)
{
    return length + 8192; /* the pieces, and what a wrong write behind them would hit */
}

void peer_poison(struct peer *peer, size_t length)
{
    memset(peer->buffer, POISON, extent(length));
}

static uint8_t byte_of(uint64_t seed, size_t at)
{
    uint64_t mixed = (seed + at / 7) * 0x9e3779b97f4a7c15u;
    return (uint8_t)((mixed >> 40) ^ at);
}

void peer_fill(const struct ibv_sge *pieces, int count, uint64_t seed)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        uint8_t *bytes = (uint8_t *)(uintptr_t)pieces[i].addr;
        for (uint32_t j = 0; j < pieces[i].length; j++)
            bytes[j] = byte_of(seed, at++);
    }
}

void peer_check(struct peer *peer, const struct ibv_sge *pieces, int count, size_t length,
                uint64_t seed, const char *what)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        uint8_t *bytes = (uint8_t *)(uintptr_t)pieces[i].addr;
        for (uint32_t j = 0; j < pieces[i].length; j++, at++) {
            expect(bytes[j] == byte_of(seed, at), "%s: byte %zu of %zu is %02x, not %02x", what, at,
                   length, bytes[j], byte_of(seed, at));
            bytes[j] = POISON; /* seen; what is left is to be poison */
        }
    }
    for (size_t i = 0; i < extent(length); i++)
        expect(peer->buffer[i] == POISON, "%s: byte %zu of the buffer was written to", what, i);
}
