/* The list is in posting order: the oldest buffer that a tag fits gets it. A handle is the place of
 * a buffer and how often that place was used, so that an old one names nothing. */
#include "rnic/transport/tag.h"

#include <string.h>

#include "rnic/base/bytes.h"
#include "rnic/base/check.h"
#include "rnic/base/container.h"
#include "rnic/transport/qp_private.h"

#define TAGS_MAX     (1u << 16)
#define HANDLE_SHIFT 16

/* Operations of a tag matching header. */
enum header_operation {
    HEADER_NO_TAG = 0,
    HEADER_RENDEZVOUS = 1,
    HEADER_FIN = 2,
    HEADER_EAGER = 3,
};

struct entry {
    struct list_node node; /* in `buffers` or in `unused` */
    uint64_t id;
    uint64_t tag, mask;
    uint64_t length;
    uint32_t sge_count;
    uint16_t uses;
    bool posted;
    bool active; /* matches: the application knew of all unexpected messages since */
};

struct tag_matcher {
    struct tag_config config;
    struct entry *entries;
    struct sge *sges; /* max_sge of each entry */
    struct list buffers, unused;
    uint32_t unexpected;
    uint32_t handled; /* of these, as the application has told */
};

enum status tag_matcher_create(const struct tag_config *config, struct tag_matcher **ret_matcher)
{
    if (config->max_tags == 0 || config->max_tags > TAGS_MAX || config->max_sge == 0 ||
        config->max_sge > QUEUE_SGE_MAX) {
        return STATUS_INVALID;
    }
    struct allocator *allocator = config->allocator;
    struct tag_matcher *matcher = allocator->allocate(allocator, sizeof *matcher);
    if (matcher == NULL) {
        return STATUS_NO_MEMORY;
    }
    matcher->config = *config;
    matcher->entries = allocator->allocate(allocator, config->max_tags * sizeof(struct entry));
    matcher->sges = allocator->allocate(allocator, (size_t)config->max_tags * config->max_sge *
                                                       sizeof(struct sge));
    if (matcher->entries == NULL || matcher->sges == NULL) {
        allocator->release(allocator, matcher->entries);
        allocator->release(allocator, matcher->sges);
        allocator->release(allocator, matcher);
        return STATUS_NO_MEMORY;
    }
    list_init(&matcher->buffers);
    list_init(&matcher->unused);
    for (uint32_t i = 0; i < config->max_tags; i++) {
        list_append(&matcher->unused, &matcher->entries[i].node);
    }
    completion_queue_use(config->completions, 1);
    *ret_matcher = matcher;
    return STATUS_OK;
}

void tag_matcher_destroy(struct tag_matcher *matcher)
{
    if (matcher != NULL) {
        struct allocator *allocator = matcher->config.allocator;
        completion_queue_use(matcher->config.completions, -1);
        allocator->release(allocator, matcher->entries);
        allocator->release(allocator, matcher->sges);
        allocator->release(allocator, matcher);
    }
}

uint32_t tag_matcher_max_sge(const struct tag_matcher *matcher)
{
    return matcher->config.max_sge;
}

struct send_queue_limits tag_send_limits(const struct tag_matcher *matcher)
{
    return (struct send_queue_limits){.capacity = TAG_SENDS,
                                      .max_sge = matcher->config.max_sge,
                                      .max_inline = TAG_RENDEZVOUS_LENGTH};
}

static struct sge *sges_of(const struct tag_matcher *matcher, const struct entry *entry)
{
    return matcher->sges + (size_t)(entry - matcher->entries) * matcher->config.max_sge;
}

static bool agrees(const struct tag_matcher *matcher)
{
    return matcher->handled == matcher->unexpected;
}

/* What was posted in doubt matches from now on, if the two agree. */
static void synchronize(struct tag_matcher *matcher, const struct tag_operation *operation)
{
    if (operation->synchronizes) {
        matcher->handled = operation->unexpected;
    }
    if (!agrees(matcher)) {
        return;
    }
    LIST_FOR_EACH(node, &matcher->buffers)
    {
        CONTAINER_OF(node, struct entry, node)->active = true;
    }
}

static void complete(struct tag_matcher *matcher, const struct tag_operation *operation,
                     enum completion_kind kind, enum completion_status status)
{
    struct completion completion = {
        .id = operation->id,
        .kind = kind,
        .status = status,
        .tag_flags = agrees(matcher) ? 0 : TAG_SYNCHRONIZE,
        .time = operation->now,
    };
    if (operation->signaled || status != COMPLETION_SUCCESS) {
        (void)completion_queue_push(matcher->config.completions, &completion, false);
    }
}

enum status tag_add(struct tag_matcher *matcher, const struct tag_operation *operation,
                    const struct tag_buffer *buffer, uint32_t *ret_handle)
{
    if (buffer->sge_count > matcher->config.max_sge) {
        return STATUS_INVALID;
    }
    struct list_node *node = list_pop_first(&matcher->unused);
    if (node == NULL) {
        return STATUS_FULL;
    }
    struct entry *entry = CONTAINER_OF(node, struct entry, node);
    entry->id = buffer->id;
    entry->tag = buffer->tag;
    entry->mask = buffer->mask;
    entry->sge_count = buffer->sge_count;
    entry->length = 0;
    entry->posted = true;
    entry->active = false;
    for (uint32_t i = 0; i < buffer->sge_count; i++) {
        sges_of(matcher, entry)[i] = buffer->sges[i];
        entry->length += buffer->sges[i].length;
    }
    list_append(&matcher->buffers, &entry->node);
    synchronize(matcher, operation);
    complete(matcher, operation, COMPLETED_TAG_ADD, COMPLETION_SUCCESS);
    *ret_handle = (uint32_t)entry->uses << HANDLE_SHIFT | (uint32_t)(entry - matcher->entries);
    return STATUS_OK;
}

static void retire(struct tag_matcher *matcher, struct entry *entry)
{
    list_remove(&entry->node);
    entry->posted = false;
    entry->uses++;
    list_append(&matcher->unused, &entry->node);
}

void tag_remove(struct tag_matcher *matcher, const struct tag_operation *operation, uint32_t handle)
{
    uint32_t place = handle & (TAGS_MAX - 1);
    struct entry *entry = place < matcher->config.max_tags ? &matcher->entries[place] : NULL;
    bool found = entry != NULL && entry->posted && entry->uses == handle >> HANDLE_SHIFT;
    if (found) {
        retire(matcher, entry);
    }
    synchronize(matcher, operation);
    complete(matcher, operation, COMPLETED_TAG_REMOVE,
             found ? COMPLETION_SUCCESS : COMPLETION_TAG_ERROR);
}

void tag_synchronize(struct tag_matcher *matcher, const struct tag_operation *operation)
{
    synchronize(matcher, operation);
    complete(matcher, operation, COMPLETED_TAG_SYNC, COMPLETION_SUCCESS);
}

static struct entry *find(const struct tag_matcher *matcher, uint64_t tag)
{
    LIST_FOR_EACH(node, &matcher->buffers)
    {
        struct entry *entry = CONTAINER_OF(node, struct entry, node);
        if (entry->active && (tag & entry->mask) == entry->tag) {
            return entry;
        }
    }
    return NULL;
}

/* What the header asks for, before the list is looked at: read once, for the peer may change it
 * meanwhile. A rendezvous that does not come in one packet is none that could be answered. */
static enum tag_course read_header(const struct packet *packet, struct tag_message *ret_message)
{
    const uint8_t *header = packet->payload;
    bool says_none = packet->payload_length > 0 && header[0] == HEADER_NO_TAG;
    if (packet->payload_length < TAG_HEADER_LENGTH) {
        return says_none ? TAG_NONE : TAG_PLAIN;
    }
    ret_message->context = bytes_load_u32(header + 4);
    ret_message->tag = bytes_load_u64(header + 8);
    switch (header[0]) {
    case HEADER_NO_TAG:
        return TAG_NONE;
    case HEADER_EAGER:
        return TAG_EAGER;
    case HEADER_RENDEZVOUS:
        if (packet->payload_length < TAG_RENDEZVOUS_LENGTH || !packet->info->last) {
            return TAG_UNEXPECTED;
        }
        ret_message->length = bytes_load_u32(header + 28);
        return TAG_RENDEZVOUS;
    default:
        return TAG_PLAIN;
    }
}

static bool begin_unmatched(struct qp *qp, const struct tag_message *message)
{
    bool taken_before = qp->responder.receive_taken;
    if (!responder_take_receive(qp)) {
        return false;
    }
    qp->rare.tagged = *message;
    if (message->course == TAG_UNEXPECTED && !taken_before) {
        qp->rare.matcher->unexpected++;
    }
    return true;
}

bool tag_begin(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    struct tag_message message = {.course = TAG_PLAIN};
    message.course = read_header(packet, &message);
    bool wants_buffer = message.course == TAG_EAGER || message.course == TAG_RENDEZVOUS;
    struct entry *entry = wants_buffer ? find(qp->rare.matcher, message.tag) : NULL;
    if (entry == NULL) {
        message.course = wants_buffer ? TAG_UNEXPECTED : message.course;
        return begin_unmatched(qp, &message);
    }
    if (message.course == TAG_RENDEZVOUS) {
        uint64_t used = send_queue_tail(qp->sends) - send_queue_head(qp->sends);
        if (entry->length < message.length || message.length > MESSAGE_LENGTH_MAX) {
            message.course = TAG_INCOMPLETE;
        } else if (used + 2 > send_queue_capacity(qp->sends)) {
            return false; /* later, as if there were no receive */
        }
    }
    qp->rare.tagged = message;
    responder->receive_id = entry->id;
    responder->receive_sge_count = (uint16_t)entry->sge_count;
    if (entry->sge_count > 0) {
        memcpy(qp_receive_sges(qp), sges_of(qp->rare.matcher, entry),
               entry->sge_count * sizeof(struct sge));
    }
    responder->receive_taken = true;
    responder_begin_receive(qp);
    retire(qp->rare.matcher, entry);
    return true;
}

void tag_strip(const struct qp *qp, const struct packet *packet, const uint8_t **ret_bytes,
               uint32_t *ret_length)
{
    *ret_bytes = packet->payload;
    *ret_length = packet->payload_length;
    if (!qp->matches_tags || !packet->info->first) {
        return;
    }
    const struct tag_message *message = &qp->rare.tagged;
    if (message->course == TAG_EAGER) {
        *ret_bytes += TAG_HEADER_LENGTH;
        *ret_length -= TAG_HEADER_LENGTH;
    } else if (message->course == TAG_INCOMPLETE) {
        *ret_length = TAG_RENDEZVOUS_LENGTH;
    } else if (message->course == TAG_RENDEZVOUS) {
        *ret_length = 0;
    }
}

static void fetch(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    uint8_t header[TAG_RENDEZVOUS_LENGTH];
    memcpy(header, packet->payload, sizeof header);
    uint32_t left = qp->rare.tagged.length;
    uint32_t count = 0;
    while (left > 0 && count < responder->receive_sge_count) { /* that is enough, see tag_begin */
        struct sge *sge = &qp_receive_sges(qp)[count++];
        sge->length = sge->length < left ? sge->length : left;
        left -= sge->length;
    }
    struct send_request read = {
        .id = responder->receive_id,
        .kind = WORK_READ,
        .sges = qp_receive_sges(qp),
        .sge_count = count,
        .remote_address = bytes_load_u64(header + 16),
        .remote_key = {bytes_load_u32(header + 24)},
    };
    header[0] = HEADER_FIN;
    struct sge bytes = {.address = (uintptr_t)header, .length = sizeof header};
    struct send_request fin = {
        .kind = WORK_SEND,
        .fence = true, /* the sender may take its buffer back when it hears of it */
        .inline_data = true,
        .sges = &bytes,
        .sge_count = 1,
    };
    enum status status = send_queue_post(qp->sends, &read);
    if (status == STATUS_OK) {
        status = send_queue_post(qp->sends, &fin);
    }
    CHECK(status == STATUS_OK); /* tag_begin has seen room for both */
    qp_schedule(qp);
}

void tag_executed(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    if (!qp->matches_tags) {
        return;
    }
    if (qp->rare.tagged.course == TAG_RENDEZVOUS) {
        fetch(qp, packet);
    } else if (qp->rare.tagged.course == TAG_EAGER && packet->info->first && !packet->info->last) {
        struct completion completion = {
            .id = responder->receive_id,
            .kind = COMPLETED_TAG_RECEIVE,
            .qpn = qp->number,
            .source = qp->attributes.destination,
            .tag = qp->rare.tagged.tag,
            .tag_context = qp->rare.tagged.context,
            .tag_flags = TAG_MATCHED,
        };
        qp_push(qp, qp->receive_completions, &completion, false);
    }
}

void tag_end(struct qp *qp)
{
    if (qp->matches_tags) {
        qp->rare.tagged = (struct tag_message){.course = TAG_PLAIN};
    }
}

void tag_forget(struct qp *qp)
{
    if (qp->matches_tags && qp->rare.tagged.course == TAG_UNEXPECTED) {
        qp->rare.matcher->unexpected--; /* the application will never have handled it */
    }
    tag_end(qp);
}

void tag_describe(struct qp *qp, const struct packet *packet, struct completion *completion)
{
    const struct tag_message *message = &qp->rare.tagged;
    if (!qp->matches_tags || message->course == TAG_PLAIN) {
        return;
    }
    completion->kind = message->course == TAG_NONE ? COMPLETED_TAG_NONE : COMPLETED_TAG_RECEIVE;
    if (packet == NULL || message->course == TAG_NONE || message->course == TAG_UNEXPECTED) {
        return;
    }
    if (packet->info->first) {
        completion->tag_flags |= TAG_MATCHED;
        completion->tag = message->tag;
        completion->tag_context = message->context;
    }
    if (message->course == TAG_EAGER) {
        completion->tag_flags |= TAG_DATA_VALID;
    } else if (message->course == TAG_INCOMPLETE) {
        completion->status = COMPLETION_TAG_RENDEZVOUS_INCOMPLETE;
    }
}

void tag_sent(struct qp *qp, const struct completion *completion)
{
    if (completion->kind != COMPLETED_READ) {
        return; /* a FIN: the READ before it has said everything */
    }
    struct completion receive = *completion;
    receive.kind = COMPLETED_TAG_RECEIVE;
    receive.source = qp->attributes.destination;
    receive.tag_flags = completion->status == COMPLETION_SUCCESS ? TAG_DATA_VALID : 0;
    qp_push(qp, qp->receive_completions, &receive, true);
}
