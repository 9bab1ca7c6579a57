/* What an end hears, in words, and the calls that both ends make. */
#include "test/interop/tour/cm_party.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

void note(struct party *party, const char *word)
{
    char *text = party->report->text;
    size_t used = strcmp(text, "-") == 0 ? 0 : strlen(text);
    snprintf(text + used, TEXT_MAX - used, "%s%s", used > 0 ? "," : "", word);
}

void note_error(struct party *party, const char *call)
{
    char word[48];
    snprintf(word, sizeof word, "%s:%s", call, strerrorname_np(errno));
    note(party, word);
}

/* How many bytes of private data begin with the pattern; the field itself may be longer. */
static unsigned private_bytes(const struct rdma_cm_event *event)
{
    const char *bytes = event->param.conn.private_data;
    unsigned count = 0;
    while (bytes != NULL && count < event->param.conn.private_data_len && bytes[count] == PATTERN) {
        count++;
    }
    return count;
}

static void note_event(struct party *party, const struct rdma_cm_event *event)
{
    const char *name = rdma_event_str(event->event) + strlen("RDMA_CM_EVENT_");
    char word[64];
    unsigned bytes = private_bytes(event);
    int length = snprintf(word, sizeof word, "%s", name);
    if (event->status != 0) {
        length += snprintf(word + length, sizeof word - (size_t)length, "(%d)", event->status);
    }
    if (bytes > 0) {
        length += snprintf(word + length, sizeof word - (size_t)length, "+%u", bytes);
    }
    if (party->row->resources != 0 && event->event != RDMA_CM_EVENT_DISCONNECTED &&
        event->param.conn.responder_resources != 0) {
        snprintf(word + length, sizeof word - (size_t)length, "[%u/%u]",
                 event->param.conn.responder_resources, event->param.conn.initiator_depth);
    }
    note(party, word);
}

bool has_event(const struct party *party, int timeout_ms)
{
    struct pollfd readable = {.fd = party->channel->fd, .events = POLLIN};
    return poll(&readable, 1, timeout_ms) == 1;
}

int await(struct party *party)
{
    struct rdma_cm_event *event;
    if (!has_event(party, PATIENCE_MS) || rdma_get_cm_event(party->channel, &event) != 0) {
        note(party, "silence");
        return -1;
    }
    int kind = event->event;
    note_event(party, event);
    if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
        party->id = event->id;
    }
    rdma_ack_cm_event(event);
    return kind;
}

void create_qp(struct party *party, enum ibv_qp_type type)
{
    struct ibv_qp_init_attr init = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = type,
    };
    if (rdma_create_qp(party->id, NULL, &init) != 0) {
        tour_die("rdma_create_qp");
    }
}

void migrate(struct party *party)
{
    struct rdma_event_channel *own = rdma_create_event_channel();
    if (own == NULL || party->migrations == MIGRATIONS || rdma_migrate_id(party->id, own) != 0) {
        note_error(party, "migrate");
        return;
    }
    if (has_event(party, 0)) {
        note(party, "left_behind");
    }
    party->left[party->migrations++] = party->channel;
    party->channel = own;
}
