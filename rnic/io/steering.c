#include "rnic/io/steering.h"

#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "rnic/io/clock.h"
#include "rnic/io/registry_private.h"
#include "rnic/wire/mad.h"
#include "rnic/wire/packet.h"

/* Longer than a packet waits in the socket of a process that drives, or dozes. */
#define SETTLING_NS 10000000u

/* Places in the UDP payload. */
#define AT_DESTINATION_QPN 4u /* 32 bits of which the lower 24 count */
#define AT_MAD             (BTH_LENGTH + 8u /* DETH */)
#define AT_ATTRIBUTE       (AT_MAD + 16u)
#define AT_REMOTE_ID       (AT_MAD + 24u + 4u)

#define NOBODY 0xffffffffu /* no such place: the kernel picks by hash */

#define PROGRAM_HEAD 10u
#define PROGRAM_MAX  (PROGRAM_HEAD + 2 * REGISTRY_SLOTS + 1)

/* From the numbers in a packet to a slot, then from the slot to a place. Returns its length. */
static uint16_t build_program(const struct registry_group *group,
                              struct sock_filter ret_program[PROGRAM_MAX])
{
    const struct sock_filter head[PROGRAM_HEAD] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT_DESTINATION_QPN),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, QPN_MANAGEMENT.value, 2, 0),
        BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, REGISTRY_QPNS_PER_SLOT),
        BPF_STMT(BPF_JMP | BPF_JA, 5),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, AT_ATTRIBUTE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CM_MESSAGE_REQ, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0), /* its first reader finds the listener */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT_REMOTE_ID),
        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 32 - REGISTRY_SLOT_BITS),
    };
    memcpy(ret_program, head, sizeof head);
    uint16_t length = PROGRAM_HEAD;
    for (uint32_t i = 0; i < group->count; i++) {
        ret_program[length++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, group->slots[i], 0, 1);
        ret_program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, i);
    }
    ret_program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, NOBODY);
    return length;
}

/* Replaces the group's program, through any of its sockets. Where the kernel refuses, its hash
 * picks sockets, and packets are handed on. */
static void attach(struct registry_group *group, int descriptor)
{
    atomic_store(&group->changed_ns, clock_now().ns);
    struct sock_filter *program = malloc(PROGRAM_MAX * sizeof *program);
    if (program == NULL || descriptor < 0) {
        free(program);
        return;
    }
    struct sock_fprog whole = {.len = build_program(group, program), .filter = program};
    int result = setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &whole, sizeof whole);
    (void)result;
    free(program);
}

/* Locked. A killed process may have left half an entry: counts beyond the table, places doubled. */
static void tidy(struct registry_group *group)
{
    uint32_t kept = 0;
    uint32_t count = group->count < REGISTRY_SLOTS ? group->count : REGISTRY_SLOTS;
    for (uint32_t i = 0; i < count; i++) {
        bool doubled = group->slots[i] >= REGISTRY_SLOTS;
        for (uint32_t j = 0; j < kept; j++) {
            doubled |= group->slots[j] == group->slots[i];
        }
        if (!doubled) {
            group->slots[kept++] = group->slots[i];
        }
    }
    group->count = kept;
}

static void attach_all(struct steering *steering)
{
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
        attach(&steering->registry->file->groups[family], udp_descriptor(steering->udp, family));
    }
}

enum status steering_open(struct steering *steering, struct registry *registry,
                          const struct udp_config *config, const char **ret_message)
{
    struct udp *udp;
    registry_lock(registry);
    registry_bury_dead(registry);
    enum status status = udp_create(config, &udp, ret_message);
    if (status == STATUS_OK) {
        *steering = (struct steering){.registry = registry, .udp = udp};
        for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
            struct registry_group *group = &registry->file->groups[family];
            tidy(group);
            if (udp_descriptor(udp, family) >= 0 && group->count < REGISTRY_SLOTS) {
                group->slots[group->count++] = registry->slot;
            }
        }
        attach_all(steering);
    }
    registry_unlock(registry);
    return status;
}

void steering_close(struct steering *steering)
{
    struct registry *registry = steering->registry;
    registry_lock(registry);
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
        registry_group_remove(&registry->file->groups[family], registry->slot);
    }
    attach_all(steering);
    udp_destroy(steering->udp);
    registry_unlock(registry);
    steering->udp = NULL;
}

static uint32_t place_of(const struct registry_group *group, uint32_t slot)
{
    uint32_t place = 0;
    while (place < group->count && group->slots[place] != slot) {
        place++;
    }
    return place;
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
    registry_lock(registry);
    bool died = registry_bury_dead(registry) > 0;
    changed.ns = atomic_load(&group->changed_ns);
    if (instant_elapsed_ns(changed, clock_now()) >= SETTLING_NS) {
        tidy(group);
        uint32_t theirs = place_of(group, slot), ours = place_of(group, registry->slot);
        if (!died && theirs < group->count && ours < group->count) {
            group->slots[theirs] = registry->slot;
            group->slots[ours] = slot;
        }
        steering->corrections++;
        attach_all(steering);
    }
    registry_unlock(registry);
}
