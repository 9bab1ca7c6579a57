/* What a stream has once it knows its device: completion queue, queue pair, and the registered
 * memory that both ends write to; and the greeting in which they tell each other where that is.
 *
 * Invariant: the peer can write to `tables` and `receive_buffer` at any time; what it writes into
 * the tables is its own memory's description and never an address of ours. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rnic/rdmacm/rsocket.h"

static uint16_t limit(uint32_t value, uint32_t least, uint32_t most)
{
    return (uint16_t)(value < least ? least : value > most ? most : value);
}

static int fit_sizes(struct stream *stream)
{
    struct rsocket_sizes *sizes = &stream->base.sizes;
    struct ibv_device_attr attributes;
    int error = ibv_query_device(stream->id->verbs, &attributes);
    if (error != 0) {
        return cma_error(error);
    }
    uint32_t most = QUEUE_LENGTH_MAX;
    most = (uint32_t)attributes.max_qp_wr < most ? (uint32_t)attributes.max_qp_wr : most;
    most = (uint32_t)attributes.max_cqe / 2 < most ? (uint32_t)attributes.max_cqe / 2 : most;
    sizes->send_queue = limit(sizes->send_queue, QUEUE_LENGTH_MIN, most);
    sizes->receive_queue = limit(sizes->receive_queue, QUEUE_LENGTH_MIN, most);
    sizes->receive_buffer &= ~1u; /* in two halves */
    return 0;
}

static int create_queue_pair(struct stream *stream)
{
    struct rsocket_sizes *sizes = &stream->base.sizes;
    struct rdma_cm_id *id = stream->id;
    stream->channel = ibv_create_comp_channel(id->verbs);
    if (stream->channel == NULL) {
        return -1;
    }
    stream->queue = ibv_create_cq(id->verbs, sizes->send_queue + sizes->receive_queue, stream,
                                  stream->channel, 0);
    if (stream->queue == NULL) {
        return -1;
    }
    struct ibv_qp_init_attr init = {
        .qp_context = stream,
        .send_cq = stream->queue,
        .recv_cq = stream->queue,
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = sizes->send_queue,
                .max_recv_wr = sizes->receive_queue,
                .max_send_sge = 2,
                .max_recv_sge = 1,
                .max_inline_data = sizes->inline_data},
    };
    if (rdma_create_qp(id, NULL, &init) != 0) {
        return -1;
    }
    sizes->inline_data = limit(init.cap.max_inline_data, 0, QUEUE_LENGTH_MAX);
    return 0;
}

/* Whole pages of zeroes, which no other memory of the process shares. */
static uint8_t *allocate(size_t length)
{
    void *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) {
        errno = ENOMEM;
        return NULL;
    }
    return bytes;
}

static size_t send_length(const struct stream *stream)
{
    return stream->base.sizes.send_buffer + CONTROLS * RSOCKET_PLACE_LENGTH;
}

static size_t tables_length(const struct stream *stream)
{
    return RSOCKET_TARGETS * RSOCKET_PLACE_LENGTH +
           (size_t)stream->base.sizes.mappings * RSOCKET_MAPPING_LENGTH;
}

static int create_memory(struct stream *stream)
{
    const struct rsocket_sizes *sizes = &stream->base.sizes;
    const int write_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_pd *pd = stream->id->pd;
    stream->lengths = calloc(sizes->receive_queue + 1u, sizeof *stream->lengths);
    stream->send_buffer = allocate(send_length(stream));
    stream->tables = allocate(tables_length(stream));
    stream->receive_buffer = allocate(sizes->receive_buffer);
    if (stream->lengths == NULL || stream->send_buffer == NULL || stream->tables == NULL ||
        stream->receive_buffer == NULL) {
        return cma_error(ENOMEM);
    }
    stream->send_region =
        ibv_reg_mr(pd, stream->send_buffer, send_length(stream), IBV_ACCESS_LOCAL_WRITE);
    stream->tables_region = ibv_reg_mr(pd, stream->tables, tables_length(stream), write_access);
    stream->receive_region =
        ibv_reg_mr(pd, stream->receive_buffer, sizes->receive_buffer, write_access);
    if (stream->send_region == NULL || stream->tables_region == NULL ||
        stream->receive_region == NULL) {
        return -1;
    }
    stream->targets = (volatile struct rsocket_place *)stream->tables;
    stream->mappings = (volatile struct rsocket_mapping *)(stream->tables +
                                                           RSOCKET_TARGETS * RSOCKET_PLACE_LENGTH);
    return 0;
}

int stream_set_up(struct stream *stream)
{
    const struct rsocket_sizes *sizes = &stream->base.sizes;
    if (fit_sizes(stream) != 0 || create_queue_pair(stream) != 0 || create_memory(stream) != 0) {
        return -1;
    }
    stream->bytes_granted = stream->window = stream->grant_place = sizes->receive_buffer / 2;
    stream->credits_due = sizes->receive_queue / 2;
    for (unsigned i = 0; i < sizes->receive_queue; i++) {
        if (stream_post_receive(stream) != 0) {
            return -1;
        }
    }
    return 0;
}

static void release(uint8_t *bytes, size_t length, struct ibv_mr *region)
{
    if (region != NULL) {
        ibv_dereg_mr(region);
    }
    if (bytes != NULL) {
        munmap(bytes, length);
    }
}

void stream_tear_down(struct stream *stream)
{
    if (stream->id != NULL && stream->id->qp != NULL) {
        rdma_destroy_qp(stream->id);
    }
    if (stream->queue != NULL) {
        ibv_destroy_cq(stream->queue);
    }
    if (stream->channel != NULL) {
        ibv_destroy_comp_channel(stream->channel);
    }
    release(stream->send_buffer, send_length(stream), stream->send_region);
    release(stream->tables, tables_length(stream), stream->tables_region);
    release(stream->receive_buffer, stream->base.sizes.receive_buffer, stream->receive_region);
    free(stream->lengths);
}

static bool is_big_endian(void)
{
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
}

void stream_greet(const struct stream *stream, uint8_t *ret_hello)
{
    const struct rsocket_hello hello = {
        .is_big_endian = is_big_endian(),
        .has_mappings = true,
        .credits = stream->base.sizes.receive_queue,
        .mappings = stream->base.sizes.mappings,
        .table = {.address = (uintptr_t)stream->tables,
                  .key = stream->tables_region->rkey,
                  .length = RSOCKET_TARGETS},
        .buffer = {.address = (uintptr_t)stream->receive_buffer,
                   .key = stream->receive_region->rkey,
                   .length = stream->base.sizes.receive_buffer / 2},
    };
    rsocket_hello_build(&hello, ret_hello);
}

int stream_take_greeting(struct stream *stream, const struct rdma_cm_event *event)
{
    struct rsocket_hello hello;
    const struct rdma_conn_param *said = &event->param.conn;
    if (said->private_data == NULL ||
        !rsocket_hello_parse(said->private_data, said->private_data_len, &hello)) {
        return cma_error(ENOTSUP);
    }
    stream->swaps = hello.is_big_endian != is_big_endian();
    stream->peer_table = hello.table;
    stream->peer_entry = 1 % hello.table.length;
    stream->peer_mappings = (struct rsocket_place){
        .address = hello.table.address + (uint64_t)hello.table.length * RSOCKET_PLACE_LENGTH,
        .key = hello.table.key,
        .length = hello.mappings,
    };
    stream->targets[0].address = hello.buffer.address;
    stream->targets[0].key = hello.buffer.key;
    stream->targets[0].length = hello.buffer.length;
    stream->credits = hello.credits;
    atomic_store(&stream->may_send, hello.credits);
    return 0;
}
