#include "rnic/io/registry/relays.h"

#include "rnic/base/check.h"
#include "rnic/base/container.h"
#include "rnic/device/device.h"
#include "rnic/io/registry/registry_private.h"
#include "rnic/io/system/clock.h"

BUILD_CHECK(SLOT_COUNT <= RELAY_PROCESSES);

static struct relays *relays_of(struct relay_link *link)
{
    return CONTAINER_OF(link, struct relays, link);
}

static uint32_t owner(struct relay_link *link, uint32_t number)
{
    const struct registry *registry = relays_of(link)->registry;
    uint32_t slot = slot_of_xrc_queue(number);
    bool is_others = slot != registry_slot(registry) && registry_slot_is_used(registry, slot);
    return is_others ? slot : RELAY_NOBODY;
}

static bool send(struct relay_link *link, uint32_t process, const struct relay_message *message,
                 const uint8_t *bytes, uint32_t length)
{
    struct relays *relays = relays_of(link);
    return registry_slot_is_used(relays->registry, process) &&
           handoff_send_relayed(relays->handoff, clock_now(), process, message, bytes, length) ==
               STATUS_OK;
}

static bool lives(struct relay_link *link, uint32_t process)
{
    const struct registry *registry = relays_of(link)->registry;
    return registry_slot_is_used(registry, process) && registry_slot_lives(registry, process);
}

static void receive(struct handoff_relay_receiver *receiver, uint32_t from,
                    const struct relay_message *message, const uint8_t *bytes, uint32_t length)
{
    struct relays *relays = CONTAINER_OF(receiver, struct relays, receiver);
    device_receive_relayed(relays->device, clock_now(), from, message, bytes, length);
}

void relays_init(struct relays *relays, struct registry *registry, struct handoff *handoff)
{
    *relays = (struct relays){
        .link = {.owner = owner, .send = send, .lives = lives},
        .receiver = {.receive = receive},
        .registry = registry,
        .handoff = handoff,
    };
    handoff_set_relay_receiver(handoff, &relays->receiver);
}

static uint32_t no_owner(struct relay_link *link, uint32_t number)
{
    return RELAY_NOBODY;
}

static bool send_nothing(struct relay_link *link, uint32_t process,
                         const struct relay_message *message, const uint8_t *bytes, uint32_t length)
{
    return false;
}

static bool is_gone(struct relay_link *link, uint32_t process)
{
    return false;
}

void relays_abandon(struct relays *relays)
{
    relays->link = (struct relay_link){.owner = no_owner, .send = send_nothing, .lives = is_gone};
}
