/* Completions, and what follows from them: data that has come, room that is free again, credits
 * for the peer, its control messages, the end.
 *
 * Here too: waiting for any of it. One thread sleeps for the completion queue, others wait for that
 * one, and all look after each event; so a sender without credits does not keep a receiver from its
 * data.
 *
 * A peer that breaks the rules (grants more than it has, writes more than it was granted, says what
 * is not defined) loses the connection. */
#include <endian.h>
#include <errno.h>

#include "rnic/rdmacm/rsocket.h"

#define POLL_BATCH 16

/* The peer writes to the table whenever it likes, its lengths last; no lock of ours orders that, so
 * ThreadSanitizer is not to look. */
__attribute__((no_sanitize("thread"))) static bool has_target(const struct stream *stream)
{
    return stream->targets[stream->target].length != 0;
}

bool stream_can_send(struct stream *stream)
{
    const struct rsocket_sizes *sizes = &stream->base.sizes;
    uint32_t posted = atomic_load(&stream->sends_posted) - atomic_load(&stream->sends_done);
    return stream_is_connected(stream) && posted < sizes->send_queue - CONTROLS &&
           stream_room(stream) >= LOW_WATER &&
           atomic_load(&stream->sent) != atomic_load(&stream->may_send) && has_target(stream);
}

bool stream_can_send_or_never(struct stream *stream)
{
    return !atomic_load(&stream->is_writable) || stream_can_send(stream);
}

bool stream_has_data(struct stream *stream)
{
    return atomic_load(&stream->lengths_head) != atomic_load(&stream->lengths_tail);
}

bool stream_has_data_or_never(struct stream *stream)
{
    return stream_has_data(stream) || !atomic_load(&stream->is_readable);
}

static bool control_is_free(struct stream *stream)
{
    return stream->controls_posted - atomic_load(&stream->controls_done) < CONTROLS;
}

static bool control_is_free_or_never(struct stream *stream)
{
    return control_is_free(stream) || !stream_is_connected(stream);
}

bool stream_all_sent_or_never(struct stream *stream)
{
    return atomic_load(&stream->state) == STREAM_BROKEN || stream->is_left ||
           (atomic_load(&stream->sends_posted) == atomic_load(&stream->sends_done) &&
            stream->controls_posted == atomic_load(&stream->controls_done));
}

bool stream_is_armed(struct stream *stream)
{
    return atomic_load(&stream->is_armed);
}

bool stream_settled(struct stream *stream)
{
    return stream != NULL;
}

int stream_post_receive(struct stream *stream)
{
    struct ibv_recv_wr work = {.wr_id = stream_work_id(STREAM_RECEIVE, 0)};
    struct ibv_recv_wr *bad;
    return cma_error(ibv_post_recv(stream->id->qp, &work, &bad));
}

/* With queue_lock held. */
static void end(struct stream *stream, enum stream_state state, int error)
{
    enum stream_state expected = STREAM_CONNECTED;
    if (!atomic_compare_exchange_strong(&stream->state, &expected, state)) {
        return;
    }
    if (error != 0) {
        atomic_store(&stream->base.error, error);
    }
    atomic_store(&stream->is_readable, false);
    atomic_store(&stream->is_writable, false);
    /* What is flushed wakes everybody who waits for the completion queue. A goodbye came by that
     * queue itself, and its acknowledgement shall still leave. */
    if (state == STREAM_BROKEN) {
        cma_modify_error(cma_id(stream->id));
    }
    rsocket_wake_pollers();
}

void stream_break(struct stream *stream, enum stream_state state, int error)
{
    pthread_mutex_lock(&stream->queue_lock);
    end(stream, state, error);
    pthread_mutex_unlock(&stream->queue_lock);
}

static void breach(struct stream *stream)
{
    end(stream, STREAM_BROKEN, EPROTO);
}

static void take_data(struct stream *stream, uint32_t length)
{
    uint32_t capacity = stream->base.sizes.receive_queue + 1u;
    uint32_t tail = atomic_load(&stream->lengths_tail);
    uint32_t next = (tail + 1) % capacity;
    if (length == 0 || length > stream->window || next == atomic_load(&stream->lengths_head)) {
        breach(stream);
        return;
    }
    stream->window -= length;
    stream->lengths[tail] = length;
    atomic_store(&stream->lengths_tail, next);
}

/* A peer counts up to its receive queue ahead of what it has read, and it has read no more than we
 * have sent. */
static void take_credits(struct stream *stream, uint32_t value)
{
    uint16_t ahead = (uint16_t)(value - atomic_load(&stream->sent));
    if (ahead > stream->credits) {
        breach(stream);
        return;
    }
    atomic_store(&stream->may_send, (uint16_t)value);
}

static void take_control(struct stream *stream, uint32_t control)
{
    switch (control) {
    case RSOCKET_DISCONNECT:
        stream->is_left = true;
        end(stream, STREAM_DISCONNECTED, 0);
        break;
    case RSOCKET_SHUTDOWN:
        atomic_store(&stream->is_readable, false);
        if (stream->has_said_end) {
            end(stream, STREAM_DISCONNECTED, 0);
        }
        break;
    case RSOCKET_KEEPALIVE:
    default: /* of a later version: it asks for nothing that we know */
        break;
    }
}

static void take_message(struct stream *stream, const struct ibv_wc *completion)
{
    if ((completion->wc_flags & IBV_WC_WITH_IMM) == 0) {
        breach(stream);
        return;
    }
    struct rsocket_message message = rsocket_message_decode(be32toh(completion->imm_data));
    switch (message.operation) {
    case RSOCKET_DATA:
        take_data(stream, message.value);
        break;
    case RSOCKET_CREDITS:
        take_credits(stream, message.value);
        break;
    case RSOCKET_MAPPING:
        /* It counts as a message at the sender; nobody reads it, so its credit is free at once. */
        stream->mappings_received++;
        break;
    case RSOCKET_CONTROL:
        take_control(stream, message.value);
        break;
    default:
        breach(stream);
    }
}

static void finish_send(struct stream *stream, const struct ibv_wc *completion)
{
    switch ((enum stream_work)(completion->wr_id >> 32)) {
    case STREAM_SEND:
        atomic_fetch_add(&stream->bytes_done, (uint32_t)completion->wr_id);
        atomic_fetch_add(&stream->sends_done, 1);
        break;
    case STREAM_GOODBYE:
        atomic_fetch_add(&stream->controls_done, 1);
        if (completion->status == IBV_WC_SUCCESS) {
            end(stream, STREAM_DISCONNECTED, 0);
        }
        break;
    case STREAM_CONTROL:
    case STREAM_RECEIVE:
        atomic_fetch_add(&stream->controls_done, 1);
        break;
    }
}

/* Returns how many receives were used up. */
static int take_completion(struct stream *stream, const struct ibv_wc *completion)
{
    bool is_receive = completion->wr_id >> 32 == STREAM_RECEIVE;
    if (!is_receive) {
        finish_send(stream, completion);
    }
    if (completion->status != IBV_WC_SUCCESS) {
        end(stream, STREAM_BROKEN, is_receive ? ECONNRESET : EIO);
        return 0;
    }
    if (is_receive) {
        take_message(stream, completion);
    }
    return is_receive;
}

/* With queue_lock held. Data that came before the end is still taken in. */
static int poll_queue(struct stream *stream)
{
    struct ibv_wc completions[POLL_BATCH];
    int taken;
    do {
        int receives = 0;
        taken = ibv_poll_cq(stream->queue, POLL_BATCH, completions);
        for (int i = 0; i < taken; i++) {
            receives += take_completion(stream, &completions[i]);
        }
        while (stream_is_connected(stream) && receives-- > 0) {
            if (stream_post_receive(stream) != 0) {
                end(stream, STREAM_BROKEN, errno);
            }
        }
    } while (taken == POLL_BATCH);
    return taken < 0 ? cma_error(EIO) : 0;
}

static int post(struct stream *stream, struct ibv_send_wr *work)
{
    struct ibv_send_wr *bad;
    int error = ibv_post_send(stream->id->qp, work, &bad);
    if (error != 0) {
        end(stream, STREAM_BROKEN, error);
    }
    return cma_error(error);
}

/* The place of a control message's data, where it is not sent inline. With queue_lock held. */
static uint8_t *control_place(struct stream *stream)
{
    return stream->send_buffer + stream->base.sizes.send_buffer +
           (size_t)(stream->controls_posted % CONTROLS) * RSOCKET_PLACE_LENGTH;
}

/* The half of the receive buffer that is free goes to the peer's table of targets. */
static void grant(struct stream *stream, struct ibv_send_wr *work, struct ibv_sge *sge)
{
    uint32_t half = stream->base.sizes.receive_buffer / 2;
    uint8_t *bytes = control_place(stream);
    const struct rsocket_place place = {
        .address = (uintptr_t)stream->receive_buffer + stream->grant_place,
        .key = stream->receive_region->rkey,
        .length = half,
    };
    rsocket_place_encode(&place, stream->swaps, bytes);
    *sge = (struct ibv_sge){(uintptr_t)bytes, RSOCKET_PLACE_LENGTH, stream->send_region->lkey};
    work->sg_list = sge;
    work->num_sge = 1;
    work->send_flags = stream->base.sizes.inline_data >= RSOCKET_PLACE_LENGTH ? IBV_SEND_INLINE : 0;
    work->wr.rdma.remote_addr =
        stream->peer_table.address + (uint64_t)stream->peer_entry * RSOCKET_PLACE_LENGTH;
    work->wr.rdma.rkey = stream->peer_table.key;
    stream->peer_entry = (stream->peer_entry + 1) % stream->peer_table.length;
    stream->bytes_granted += half;
    stream->window += half;
    stream->grant_place = stream->grant_place == 0 ? half : 0;
}

/* With queue_lock held. */
static void give_credits(struct stream *stream)
{
    const struct rsocket_sizes *sizes = &stream->base.sizes;
    uint16_t consumed = (uint16_t)(atomic_load(&stream->messages_read) + stream->mappings_received);
    uint32_t unread = stream->bytes_granted - atomic_load(&stream->bytes_read);
    bool has_room = unread <= sizes->receive_buffer / 2;
    bool is_due = (int16_t)(uint16_t)(consumed - stream->credits_due) >= 0;
    if ((!has_room && !is_due) || !control_is_free(stream) || !stream_is_connected(stream)) {
        return;
    }
    struct ibv_sge sge;
    struct ibv_send_wr work = {
        .wr_id = stream_work_id(STREAM_CONTROL, 0),
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
        .imm_data = htobe32(
            rsocket_message_encode(RSOCKET_CREDITS, (uint16_t)(consumed + sizes->receive_queue))),
    };
    stream->credits_due = (uint16_t)(consumed + sizes->receive_queue / 2);
    if (has_room) {
        grant(stream, &work, &sge);
    }
    stream->controls_posted++;
    (void)post(stream, &work); /* who cannot is broken now */
}

/* An event was taken, or may have been by a thread that is cancelled: everybody looks again, and
 * asks for the next one. With queue_lock held. */
static void look_again(struct stream *stream)
{
    atomic_store(&stream->is_armed, false);
    rsocket_wake_pollers();
    rsocket_wake(&stream->event_taken);
}

/* Waits for it. A read, unlike a poll, goes on after a signal whose handler says so. */
static int take_event(struct stream *stream)
{
    struct ibv_cq *queue;
    void *context;
    int result = ibv_get_cq_event(stream->channel, &queue, &context);
    if (result == 0) {
        ibv_ack_cq_events(queue, 1);
    }
    return result;
}

void stream_take_event(struct stream *stream)
{
    struct pollfd ready = {.fd = stream->channel->fd, .events = POLLIN};
    int cancel = cancel_hold();
    pthread_mutex_lock(&stream->queue_lock);
    /* Who sleeps for it takes it. */
    if (!stream->has_sleeper && poll(&ready, 1, 0) == 1 && take_event(stream) == 0) {
        look_again(stream);
    }
    pthread_mutex_unlock(&stream->queue_lock);
    cancel_restore(cancel);
}

/* The sleeper is awake, or cancelled: one of the others may be the next. */
static void stop_sleeping(struct stream **stream)
{
    pthread_mutex_lock(&(*stream)->queue_lock);
    (*stream)->has_sleeper = false;
    look_again(*stream);
}

/* With queue_lock held at both ends, but not in between. */
static int be_sleeper(struct stream *stream)
{
    __attribute__((cleanup(stop_sleeping))) struct stream *slept_for = stream;
    slept_for->has_sleeper = true;
    pthread_mutex_unlock(&stream->queue_lock);
    return take_event(slept_for) == 0 ? 0 : errno;
}

/* Sleeps until the armed completion queue speaks, or somebody else has heard it. With queue_lock
 * held, but not while it sleeps. */
static int sleep_for_event(struct stream *stream)
{
    return stream->has_sleeper ? rsocket_wait(&stream->event_taken, &stream->queue_lock)
                               : cma_error(be_sleeper(stream));
}

int stream_process(struct stream *stream, bool blocks, stream_test *test)
{
    int result = 0;
    RSOCKET_HOLDS(held, &stream->queue_lock);
    while (result == 0) {
        give_credits(stream);
        result = poll_queue(stream);
        if (result != 0 || test(stream)) {
            break;
        }
        if (!blocks) {
            result = cma_error(EAGAIN);
        } else if (!atomic_load(&stream->is_armed)) {
            ibv_req_notify_cq(stream->queue, 0);
            atomic_store(&stream->is_armed, true);
        } else {
            give_credits(stream);
            result = sleep_for_event(stream);
        }
    }
    int error = errno; /* why nothing came; what sends may have another, though it succeeds */
    give_credits(stream);
    errno = error;
    return result;
}

int stream_process_to_the_end(struct stream *stream, stream_test *test)
{
    int result;
    do {
        result = stream_process(stream, true, test);
    } while (result != 0 && errno == EINTR);
    return result;
}

int stream_wait(struct stream *stream, bool blocks, stream_test *test)
{
    uint64_t start_us = 0;
    do {
        int result = stream_process(stream, false, test);
        if (result == 0 || !blocks || errno != EAGAIN) {
            return result;
        }
        start_us = start_us != 0 ? start_us : rsocket_now_us();
    } while (rsocket_now_us() - start_us <= rsocket_config()->polling_time_us);
    return stream_process(stream, true, test);
}

/* False: credits were quicker to take what was free. */
static bool say(struct stream *stream, enum rsocket_control control, int *ret_result)
{
    RSOCKET_HOLDS(held, &stream->queue_lock);
    if (!atomic_load(&stream->is_readable)) { /* the peer's end has come meanwhile */
        control = RSOCKET_DISCONNECT;
    }
    struct ibv_send_wr work = {
        .wr_id = stream_work_id(control == RSOCKET_DISCONNECT ? STREAM_GOODBYE : STREAM_CONTROL, 0),
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
        .imm_data = htobe32(rsocket_message_encode(RSOCKET_CONTROL, control)),
    };
    if (stream_is_connected(stream) && !control_is_free(stream)) {
        return false;
    }
    if (stream_is_connected(stream)) {
        stream->controls_posted++;
        stream->has_said_end = true;
        *ret_result = post(stream, &work);
    }
    return true;
}

int stream_control(struct stream *stream, enum rsocket_control control)
{
    int result;
    do {
        result = stream_process_to_the_end(stream, control_is_free_or_never);
    } while (result == 0 && !say(stream, control, &result));
    return result;
}

void stream_keep_alive(struct stream *stream)
{
    pthread_mutex_lock(&stream->queue_lock);
    if (stream_is_connected(stream) && control_is_free(stream)) {
        struct ibv_send_wr work = {
            .wr_id = stream_work_id(STREAM_CONTROL, 0),
            .opcode = IBV_WR_RDMA_WRITE,
        };
        stream->controls_posted++;
        (void)post(stream, &work);
    }
    pthread_mutex_unlock(&stream->queue_lock);
}
