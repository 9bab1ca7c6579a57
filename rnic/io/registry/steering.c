#include "rnic/io/registry/steering.h"

#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "rnic/io/registry/registry_private.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/udp/port_holder.h"
#include "rnic/wire/mad.h"
#include "rnic/wire/packet.h"

/* Longer than a packet waits in the socket of a process that drives, or dozes. */
#define SETTLING_NS 10000000u

#define STRANGER_LOOKS   100u
#define STRANGER_WAIT_NS 10000000

/* Places in the UDP payload. */
#define AT_DESTINATION_QPN 4u /* 32 bits of which the lower 24 count */
#define AT_MAD             (BTH_LENGTH + 8u /* DETH */)
#define AT_ATTRIBUTE       (AT_MAD + 16u)
#define AT_LOCAL_ID        (AT_MAD + 24u)
#define AT_REMOTE_ID       (AT_MAD + 24u + 4u)
#define AT_SERVICE         (AT_MAD + 24u + 12u) /* the lower half of the service id */

#define NOBODY 0xffffffffu /* no such place: the kernel picks by hash */

#define SERVICES_MAX 512u /* of those that listen; more are found by their REQ's first reader */
#define HEAD_LENGTH  15u
#define PROGRAM_MAX  (HEAD_LENGTH + 2 + 2 * SERVICES_MAX + 2 * SLOT_COUNT + 1)

struct program {
    struct sock_filter steps[PROGRAM_MAX];
    uint16_t length;
};

static void add(struct program *program, struct sock_filter step)
{
    program->steps[program->length++] = step;
}

/* If the number is `value`, the socket is that at `place`. */
static void add_choice(struct program *program, uint32_t value, uint32_t place)
{
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    add(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, place));
}

static uint32_t place_of(const struct registry_group *group, uint32_t slot)
{
    uint32_t place = 0;
    while (place < registry_group_count(group) && group->slots[place] != slot) {
        place++;
    }
    return place;
}

/* From the service that a REQ asks for to a place. Addresses are not looked at: where two listen at
 * one service, the first may have to hand on. */
static void add_services(struct program *program, const struct registry_file *file,
                         const struct registry_group *group)
{
    uint32_t added = 0;
    add(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT_SERVICE));
    for (uint32_t i = 0; i < file->claim_end && i < REGISTRY_CLAIMS && added < SERVICES_MAX; i++) {
        const struct registry_claim *claim = &file->claims[i];
        uint32_t place = place_of(group, claim->slot);
        if (claims_is_listening(claim) && place < registry_group_count(group)) {
            add_choice(program, (uint32_t)claim->name.service_id, place);
            added++;
        }
    }
    add(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0));
}

static void build_program(const struct registry_file *file, const struct registry_group *group,
                          bool with_services, struct program *ret_program)
{
    struct program *program = ret_program;
    const struct sock_filter head[HEAD_LENGTH] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT_DESTINATION_QPN),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, QPN_MANAGEMENT.value, 2, 0),
        BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, SLOT_QPNS),
        BPF_STMT(BPF_JMP | BPF_JA, 0), /* to the slots */
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, AT_ATTRIBUTE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CM_MESSAGE_REQ, 7, 0), /* to the services */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CM_MESSAGE_SIDR_REQ, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CM_MESSAGE_SIDR_REP, 2, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT_REMOTE_ID),
        BPF_STMT(BPF_JMP | BPF_JA, 1),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT_LOCAL_ID), /* a SIDR_REP's only one, and ours */
        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 32 - SLOT_BITS),
        BPF_STMT(BPF_JMP | BPF_JA, 0), /* to the slots */
        BPF_STMT(BPF_RET | BPF_K, 0),  /* where services do not fit: whoever reads it */
    };
    memcpy(program->steps, head, sizeof head);
    program->length = with_services ? HEAD_LENGTH - 1 : HEAD_LENGTH;
    if (with_services) {
        add_services(program, file, group);
    }
    program->steps[4].k = program->length - 5u;
    program->steps[13].k = program->length - 14u;
    for (uint32_t i = 0; i < registry_group_count(group); i++) {
        add_choice(program, group->slots[i], i);
    }
    add(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, NOBODY));
}

static bool attach(const struct program *program, int descriptor)
{
    struct sock_fprog whole;
    memset(&whole, 0, sizeof whole); /* the kernel reads its padding, too, and valgrind looks */
    whole.len = program->length;
    whole.filter = (struct sock_filter *)program->steps;
    return setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &whole, sizeof whole) == 0;
}

/* Replaces each group's program, through our socket in it. Where the kernel finds it too long, one
 * without services is tried; where it refuses all, its hash picks sockets and packets are handed
 * on. */
void steering_attach(struct registry *registry)
{
    struct program *program = malloc(sizeof *program);
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT && program != NULL; family++) {
        const struct registry_group *group = &registry->file->groups[family];
        int descriptor = registry->udp != NULL ? udp_descriptor(registry->udp, family) : -1;
        if (descriptor < 0) {
            continue;
        }
        build_program(registry->file, group, true, program);
        if (!attach(program, descriptor)) {
            build_program(registry->file, group, false, program);
            bool attached = attach(program, descriptor);
            (void)attached;
        }
    }
    free(program);
}

void steering_attach_changed(struct registry *registry)
{
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
        atomic_store(&registry->file->groups[family].changed_ns, clock_now().ns);
    }
    registry->has_buried = false;
    steering_attach(registry);
}

/* Locked. A killed process may have left half an entry: counts beyond the table, places doubled. */
static void tidy(struct registry_group *group)
{
    uint32_t kept = 0;
    uint32_t count = registry_group_count(group);
    for (uint32_t i = 0; i < count; i++) {
        bool doubled = group->slots[i] >= SLOT_COUNT;
        for (uint32_t j = 0; j < kept; j++) {
            doubled |= group->slots[j] == group->slots[i];
        }
        if (!doubled) {
            group->slots[kept++] = group->slots[i];
        }
    }
    group->count = kept;
}

enum status steering_open(struct steering *steering, struct registry *registry,
                          const struct udp_config *config, const char **ret_message)
{
    struct udp *udp;
    enum status status = registry_lock(registry);
    if (status != STATUS_OK) {
        *ret_message = "the registry of processes is locked by one that is stopped";
        return status;
    }
    registry_bury_dead(registry);
    status = udp_create(config, &udp, ret_message);
    if (status == STATUS_OK) {
        *steering = (struct steering){.registry = registry, .udp = udp};
        for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
            struct registry_group *group = &registry->file->groups[family];
            tidy(group);
            uint32_t count = registry_group_count(group);
            if (udp_descriptor(udp, family) >= 0 && count < SLOT_COUNT) {
                group->slots[count] = registry->slot;
                group->count = count + 1;
            }
        }
        registry->udp = udp;
        steering_attach_changed(registry);
    }
    registry_unlock(registry);
    return status;
}

/* A process that is just dying has lost its slot before its sockets, so it takes several looks. */
bool steering_has_strangers(const struct steering *steering)
{
    struct registry *registry = steering->registry;
    bool found = true;
    for (uint32_t look = 0; look < STRANGER_LOOKS && found; look++) {
        if (look > 0) {
            nanosleep(&(const struct timespec){.tv_nsec = STRANGER_WAIT_NS}, NULL);
        }
        if (registry_lock(registry) != STATUS_OK) {
            return false;
        }
        found = false;
        for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
            int descriptor = udp_descriptor(steering->udp, family);
            found |= descriptor >= 0 && port_holder_count(descriptor, family) >
                                            registry_group_count(&registry->file->groups[family]);
        }
        registry_unlock(registry);
    }
    return found;
}

void steering_close(struct steering *steering, struct udp_receiver *last_reader)
{
    struct registry *registry = steering->registry;
    bool locked = registry_lock(registry) == STATUS_OK;
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT && locked; family++) {
        registry_group_remove(&registry->file->groups[family], registry->slot);
    }
    if (locked) {
        steering_attach_changed(registry);
    }
    registry->udp = NULL;
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT && last_reader != NULL; family++) {
        udp_receive(steering->udp, family, last_reader);
    }
    udp_destroy(steering->udp);
    if (locked) {
        registry_unlock(registry);
    }
    steering->udp = NULL;
}

/* Somebody died: the kernel has moved sockets, and burying repeats that for the record. Nobody
 * died: the record names a place for `slot`, and it was ours: then ours must be where `slot` is. */
void steering_correct(struct steering *steering, enum udp_family family, uint32_t slot)
{
    struct registry *registry = steering->registry;
    struct registry_group *group = &registry->file->groups[family];
    struct instant changed = {atomic_load(&group->changed_ns)};
    if (instant_elapsed_ns(changed, clock_now()) < SETTLING_NS) {
        return;
    }
    if (!registry_try_lock(registry)) {
        return; /* by whoever may be stopped; the next packet asks again */
    }
    bool died = registry_bury_dead(registry) > 0;
    changed.ns = atomic_load(&group->changed_ns);
    if (instant_elapsed_ns(changed, clock_now()) >= SETTLING_NS) {
        tidy(group);
        uint32_t theirs = place_of(group, slot), ours = place_of(group, registry->slot);
        uint32_t count = registry_group_count(group);
        if (!died && theirs < count && ours < count) {
            group->slots[theirs] = registry->slot;
            group->slots[ours] = slot;
        }
        steering->corrections++;
        steering_attach_changed(registry);
    }
    registry_unlock(registry);
}
