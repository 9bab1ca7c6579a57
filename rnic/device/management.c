/* A ring of MADs on their way out; those that arrive go to the handler at once. */
#include "rnic/device/management.h"

#include <string.h>

#include "rnic/device/device.h"
#include "rnic/wire/psn.h"

enum status management_init(struct management *management, struct allocator *allocator)
{
    size_t size = MANAGEMENT_BACKLOG * sizeof *management->waiting;
    management->waiting = allocator->allocate(allocator, size);
    return management->waiting != NULL ? STATUS_OK : STATUS_NO_MEMORY;
}

void management_fini(struct management *management, struct allocator *allocator)
{
    allocator->release(allocator, management->waiting);
}

void management_receive(struct management *management, struct environment *environment,
                        struct instant now, const struct arrival *arrival,
                        const struct packet *packet)
{
    if (packet->info->service != SERVICE_UD) {
        environment_refuse(environment, REFUSED_SERVICE);
        return;
    }
    if (packet->qkey.value != QKEY_MANAGEMENT.value) {
        environment_refuse(environment, REFUSED_QKEY);
        return;
    }
    if (management->handler == NULL || packet->payload_length != MAD_LENGTH) {
        environment_refuse(environment, REFUSED_MANAGEMENT);
        return;
    }
    management->handler->receive(management->handler, now, arrival, packet->source, packet->payload,
                                 packet->payload_length);
}

enum status management_post(struct management *management, const struct path *path,
                            const uint8_t *mad, uint32_t length)
{
    if (length > MAD_LENGTH) {
        return STATUS_TOO_LONG;
    }
    if (management->tail - management->head == MANAGEMENT_BACKLOG) {
        return STATUS_FULL;
    }
    struct management_datagram *datagram =
        &management->waiting[management->tail % MANAGEMENT_BACKLOG];
    datagram->path = *path;
    datagram->length = length;
    memcpy(datagram->mad, mad, length);
    management->tail++;
    return STATUS_OK;
}

static bool transmit_one(struct management *management, struct environment *environment)
{
    const struct management_datagram *datagram =
        &management->waiting[management->head % MANAGEMENT_BACKLOG];
    struct packet packet = {
        .opcode = OPCODE(SERVICE_UD, FORM_SEND_ONLY),
        .pkey = PKEY_DEFAULT,
        .destination = QPN_MANAGEMENT,
        .psn = management->psn,
        .qkey = QKEY_MANAGEMENT,
        .source = QPN_MANAGEMENT,
        .payload_length = datagram->length,
    };
    uint8_t header[PACKET_HEADER_MAX];
    struct fragment fragment = {datagram->mad, datagram->length};
    struct outgoing outgoing = {
        .path = &datagram->path,
        .header = header,
        .header_length = packet_build(&packet, header),
        .fragments = &fragment,
        .fragment_count = 1,
        .payload_length = datagram->length,
    };
    return environment->sink->emit(environment->sink, &outgoing);
}

bool management_transmit(struct management *management, struct environment *environment,
                         uint32_t *sent)
{
    while (management->head != management->tail) {
        if (!transmit_one(management, environment)) {
            environment_count(environment, COUNTER_SINK_FULL);
            return false;
        }
        environment_count(environment, COUNTER_PACKETS_SENT);
        management->head++;
        management->psn = psn_next(management->psn);
        ++*sent;
    }
    return true;
}
