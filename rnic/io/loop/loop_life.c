/* The one loop of a process: from first acquire to last release; what fork and exit do to it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "rnic/base/check.h"
#include "rnic/base/heap.h"
#include "rnic/cm/cm.h"
#include "rnic/device/device.h"
#include "rnic/io/loop/loop_private.h"
#include "rnic/io/system/heavy_fence.h"
#include "rnic/io/system/mapping.h"
#include "rnic/io/udp/address.h"
#include "rnic/io/udp/address_watch.h"
#include "rnic/io/udp/port_holder.h"
#include "rnic/wire/roce.h"

#define REGIONS_MAX       131072u /* regions and windows */
#define READS_MAX         128u
#define SELECTIVE_QPS     1024u /* at once */
#define SELECTIVE_PACKETS 4096u
#define CONNECTIONS_MAX   65536u
#define RELEASE_NS        (2 * LOOP_GOODBYE_NS) /* a release takes less, if nobody is stopped */
#define RELEASE_LOOK_NS   1000000u

/* The process's loop, and the lock of acquire and release. */
static struct {
    pthread_mutex_t mutex;
    struct loop *loop;
    pid_t owner; /* of the loop: a process made without the handlers of fork has a copy */
    int cancel;  /* of who has it, see cancel.h */
    char error[384];
} house = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void raise_event(struct event_sink *sink, const struct event *event)
{
    struct loop *loop = (struct loop *)((char *)sink - offsetof(struct loop, events));
    if (loop->event_target != NULL) {
        loop->event_target->raise(loop->event_target, event);
    }
}

static void wake_for_cm(void *context)
{
    struct loop *loop = context;
    if (loop->cm_wake != NULL) {
        loop->cm_wake(loop->cm_wake_context);
    }
}

/* EUI-64 of the first address that has a MAC; else made from the address. */
static uint64_t make_guid(void)
{
    uint8_t bytes[8] = {0x02, 'w', 'e', 0xff, 0xfe, 'i', 'r', 0};
    struct address_table table;
    uint64_t guid = 0;
    if (address_read(&table) == STATUS_OK) {
        const struct address *first = &table.entries[0];
        static const uint8_t none[6];
        if (memcmp(first->mac, none, sizeof none) != 0) {
            const uint8_t *mac = first->mac;
            const uint8_t eui[8] = {mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
            memcpy(bytes, eui, sizeof bytes);
        } else {
            memcpy(bytes + 4, first->gid.bytes + 12, 4);
        }
    }
    for (uint32_t i = 0; i < sizeof bytes; i++) {
        guid = guid << 8 | bytes[i];
    }
    return guid;
}

/* Waits for the kernel to have random bytes, early after boot. */
static enum status make_keys(struct siphash_key *keys, size_t count)
{
    size_t length = count * sizeof *keys;
    if (getrandom(keys, length, 0) != (ssize_t)length) {
        snprintf(house.error, sizeof house.error, "the kernel gives no random bytes: %s",
                 strerror(errno));
        return STATUS_UNSUPPORTED;
    }
    return STATUS_OK;
}

static void explain_registry(const char *path, enum status status)
{
    const char *reason = "could not be opened: out of memory, files or disk, or ulimit -f";
    char text[64];
    if (status == STATUS_DENIED) {
        reason = "and .1 to .7 after it are not files of ours with mode 0600";
    } else if (status == STATUS_NOT_FOUND) {
        reason = "cannot be made: its folder is missing, or not to be written to";
    } else if (status == STATUS_FULL) {
        reason = "has no free slot: 1024 processes of this user have opened RDMA devices";
    } else if (status == STATUS_IN_USE) {
        reason = "is used by processes of another Weir version or namespace: end them first";
    } else if (status == STATUS_TIMED_OUT) {
        snprintf(text, sizeof text, "is locked by process %u: is it stopped?",
                 registry_lock_holder(path));
        reason = text;
    }
    snprintf(house.error, sizeof house.error, "%s %s", path, reason);
}

static enum status open_registry(struct loop *loop)
{
    char path[REGISTRY_PATH_MAX];
    registry_path(path);
    enum status status = registry_open(NULL, &loop->registry);
    if (status != STATUS_OK) {
        explain_registry(path, status);
    }
    return status;
}

static enum status open_link(struct loop *loop)
{
    struct udp_config config = {.port = ROCE_UDP_PORT, .fault = secure_getenv("WEIR_FAULT")};
    const char *message = "WEIR_BIND does not read like 10.0.0.1 or 10.0.0.1,fd00::1";
    enum status status = address_read_bind(loop->bind);
    loop->is_bound = status == STATUS_OK;
    config.bind = loop->is_bound ? loop->bind : NULL;
    status = status == STATUS_MALFORMED
                 ? STATUS_INVALID
                 : steering_open(&loop->steering, loop->registry, &config, &message);
    if (status == STATUS_IN_USE) {
        port_holder_describe(config.port, house.error, sizeof house.error);
    } else if (status != STATUS_OK) {
        snprintf(house.error, sizeof house.error, "%s", message);
    } else if (steering_has_strangers(&loop->steering)) {
        char path[REGISTRY_PATH_MAX];
        registry_path(path);
        snprintf(house.error, sizeof house.error,
                 "UDP port %u is shared with processes of this user that are not in %s: have they "
                 "another /dev/shm, or was the file removed? Share it, or use WEIR_BIND or a "
                 "network namespace",
                 config.port, path);
        status = STATUS_IN_USE;
    }
    return status;
}

enum same_host_link {
    LINK_UDP,
    LINK_MEMORY,
    LINK_COPY
};

/* Who wants packets damaged wants all of them to be where that is done. */
static enum same_host_link choose_link(void)
{
    const char *link = secure_getenv("WEIR_LINK"), *fault = secure_getenv("WEIR_FAULT");
    if ((fault != NULL && *fault != '\0') || (link != NULL && strcmp(link, "udp") == 0)) {
        return LINK_UDP;
    }
    return link != NULL && strcmp(link, "copy") == 0 ? LINK_COPY : LINK_MEMORY;
}

/* Who has written any other word wants something else than what is so without it. `third` may be
 * NULL. */
static enum status take_words(const char *variable, const char *first, const char *second,
                              const char *third)
{
    const char *word = secure_getenv(variable);
    if (word == NULL || *word == '\0' || strcmp(word, first) == 0 || strcmp(word, second) == 0 ||
        (third != NULL && strcmp(word, third) == 0)) {
        return STATUS_OK;
    }
    snprintf(house.error, sizeof house.error, "%s is \"%.40s\", which is neither %s nor %s%s%s",
             variable, word, first, second, third != NULL ? " nor " : "",
             third != NULL ? third : "");
    return STATUS_INVALID;
}

static enum status check_words(void)
{
    enum status status = take_words("WEIR_LINK", "memory", "copy", "udp");
    if (status == STATUS_OK) {
        status = take_words("WEIR_DIRECT", "1", "calls", "0");
    }
    return status == STATUS_OK ? take_words("WEIR_SELECTIVE", "1", "0", NULL) : status;
}

static enum status open_links(struct loop *loop)
{
    enum same_host_link link = choose_link();
    enum status status = check_words();
    if (status == STATUS_OK) {
        status = open_registry(loop);
    }
    if (status == STATUS_OK) {
        status = open_link(loop);
    }
    if (status != STATUS_OK) {
        return status;
    }
    loop->groups = groups_create(loop->steering.udp);
    if (loop->groups == NULL) {
        snprintf(house.error, sizeof house.error, "out of memory");
        return STATUS_NO_MEMORY;
    }
    status = handoff_create(loop->registry, &loop->handoff);
    if (status != STATUS_OK) {
        snprintf(house.error, sizeof house.error, "no local socket: %s", strerror(errno));
        return status;
    }
    struct siphash_key key;
    status = make_keys(&key, 1);
    if (status != STATUS_OK) {
        return status;
    }
    struct same_host_config same_host = {
        .registry = loop->registry,
        .handoff = loop->handoff,
        .otherwise = udp_sink(loop->steering.udp),
        .seed = key.halves[0],
        .bind = loop->is_bound ? loop->bind : NULL,
        .off = link == LINK_UDP,
        .copies = link == LINK_COPY,
    };
    status = same_host_create(&same_host, &loop->same_host);
    if (status != STATUS_OK) {
        snprintf(house.error, sizeof house.error, "out of memory");
    }
    return status;
}

/* Bytes that a queue pair may have in flight, given what the kernel grants to sockets like that of
 * the peer: it counts about twice the packet's length, and two queue pairs may be busy. */
static uint32_t window_for(uint32_t receive_buffer)
{
    return receive_buffer / 4 < UDP_FLIGHT_MAX ? receive_buffer / 4 : UDP_FLIGHT_MAX;
}

static bool is_nobodys(void *context, uint32_t communication_id)
{
    return !registry_slot_is_used(context, slot_of_communication_id(communication_id));
}

static void keep_will(void *context, uint32_t index, const struct cm_will *will)
{
    registry_keep_will(context, index, will);
}

static void wake_for_burial(void *context)
{
    loop_wake_thread(context);
}

static bool selective_repeat_is_wanted(void)
{
    const char *wanted = secure_getenv("WEIR_SELECTIVE");
    return wanted == NULL || strcmp(wanted, "0") != 0;
}

static enum status create_engine(struct loop *loop)
{
    struct siphash_key keys[2];
    enum status status = make_keys(keys, 2);
    if (status != STATUS_OK) {
        return status;
    }
    relays_init(&loop->relays, loop->registry, loop->handoff);
    struct device_config device = {
        .allocator = heap_allocator(),
        .sink = same_host_sink(loop->same_host),
        .events = &loop->events,
        .relay_link = &loop->relays.link,
        .key = keys[0],
        .direct = same_host_direct(loop->same_host),
        .heavy_fence = heavy_fence_prepare() ? heavy_fence : NULL,
        .first_qpn = registry_first_qpn(loop->registry),
        .qpn_count = registry_qpn_count(loop->registry),
        .max_regions = REGIONS_MAX,
        .max_reads_in = READS_MAX,
        .window_max = window_for(udp_receive_buffer(loop->steering.udp)),
        .selective_qps = selective_repeat_is_wanted() ? SELECTIVE_QPS : 0,
        .selective_packets = SELECTIVE_PACKETS,
    };
    status = device_create(&device, &loop->engine.device);
    if (status == STATUS_OK) {
        loop->relays.device = loop->engine.device;
        memory_set_probe(device_memory(loop->engine.device), mapping_probe());
        struct cm_config cm = {
            .allocator = heap_allocator(),
            .device = loop->engine.device,
            .key = keys[1],
            .id_prefix = registry_slot(loop->registry),
            .id_prefix_bits = SLOT_BITS,
            .is_nobodys = is_nobodys,
            .is_nobodys_context = loop->registry,
            .keep_will = keep_will,
            .keep_will_context = loop->registry,
            .max_connections = CONNECTIONS_MAX,
            .ca_guid = make_guid(),
            .wake = wake_for_cm,
            .wake_context = loop,
        };
        status = cm_create(&cm, &loop->engine.cm);
    }
    if (status != STATUS_OK) {
        snprintf(house.error, sizeof house.error, "no memory for the device");
        return status;
    }
    loop->ingress = (struct ingress){
        .device = loop->engine.device,
        .cm = loop->engine.cm,
        .registry = loop->registry,
        .steering = &loop->steering,
        .handoff = loop->handoff,
        .complaints = udp_complaints(loop->steering.udp),
    };
    ingress_init(&loop->ingress);
    return STATUS_OK;
}

static enum status start_thread(struct loop *loop)
{
    loop->wake_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->wake_descriptor < 0) {
        snprintf(house.error, sizeof house.error, "no eventfd: %s", strerror(errno));
        return STATUS_NO_MEMORY;
    }
    burial_open(&loop->burial, loop->registry, &loop->engine, wake_for_burial, loop);
    int error = loop_start_thread(loop);
    if (error != 0) {
        snprintf(house.error, sizeof house.error, "no thread: %s", strerror(error));
        return STATUS_NO_MEMORY;
    }
    return STATUS_OK;
}

/* Takes half-made loops too; the thread is gone. */
static void destroy_loop(struct loop *loop)
{
    burial_close(&loop->burial);
    groups_destroy(loop->groups);
    if (loop->steering.udp != NULL) {
        loop->ingress.closing = true;
        steering_close(&loop->steering,
                       loop->ingress.handoff != NULL ? &loop->ingress.receiver : NULL);
    }
    cm_destroy(loop->engine.cm);
    device_destroy(loop->engine.device);
    same_host_destroy(loop->same_host);
    handoff_destroy(loop->handoff);
    registry_close(loop->registry);
    if (loop->wake_descriptor >= 0) {
        close(loop->wake_descriptor);
    }
    if (loop->address_descriptor >= 0) {
        close(loop->address_descriptor);
    }
    free(loop);
}

static enum status create_loop(struct loop **ret_loop)
{
    struct loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL) {
        snprintf(house.error, sizeof house.error, "out of memory");
        return STATUS_NO_MEMORY;
    }
    loop->engine.operations = &loop_operations;
    loop->events.raise = raise_event;
    loop->local.receive = loop_receive_local;
    loop->local.expect = loop_expect_local;
    loop->wake_descriptor = -1;
    loop->address_descriptor = address_watch_open();
    enum status status = open_links(loop);
    if (status == STATUS_OK) {
        status = create_engine(loop);
    }
    if (status == STATUS_OK) {
        status = start_thread(loop);
    }
    if (status != STATUS_OK) {
        destroy_loop(loop);
        return status;
    }
    *ret_loop = loop;
    return STATUS_OK;
}

static void lock_house(void)
{
    int cancel = cancel_hold();
    pthread_mutex_lock(&house.mutex);
    house.cancel = cancel;
}

static void unlock_house(void)
{
    int cancel = house.cancel;
    pthread_mutex_unlock(&house.mutex);
    cancel_restore(cancel);
}

static void before_fork(void)
{
    lock_house();
    loop_before_fork(house.loop);
}

static void after_fork_in_parent(void)
{
    loop_after_fork(house.loop);
    unlock_house();
}

/* Only descriptors are given back: the child's copies would keep the parent's slot and its place
 * in the socket group alive after its death. The memory stays for handles that dangle. */
static void after_fork_in_child(void)
{
    struct loop *loop = house.loop;
    house.loop = NULL;
    if (loop != NULL) {
        loop->engine.operations = &loop_dead_operations;
        groups_abandon(loop->groups);
        udp_abandon(loop->steering.udp);
        same_host_abandon(loop->same_host);
        handoff_abandon(loop->handoff);
        relays_abandon(&loop->relays);
        burial_abandon(&loop->burial);
        registry_abandon(loop->registry);
        loop->registry = NULL;
        close(loop->wake_descriptor);
        if (loop->address_descriptor >= 0) {
            close(loop->address_descriptor);
        }
    }
    unlock_house();
}

static void watch_forks(void)
{
    CHECK(pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0);
}

enum status loop_acquire(struct engine **ret_engine)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    lock_house();
    enum status status = STATUS_OK;
    if (house.loop == NULL) {
        house.owner = getpid();
        status = create_loop(&house.loop);
    }
    if (status == STATUS_OK) {
        house.error[0] = '\0';
        house.loop->users++;
        *ret_engine = &house.loop->engine;
    }
    unlock_house();
    return status;
}

bool loop_is_ours(const struct engine *engine)
{
    return engine->operations == &loop_operations;
}

const char *loop_last_error(void)
{
    return house.error;
}

void loop_release(struct engine *engine)
{
    if (!loop_is_ours(engine)) {
        return;
    }
    struct loop *loop = loop_of(engine);
    lock_house();
    CHECK(loop == house.loop && loop->users > 0);
    if (--loop->users == 0) {
        loop_take_leave(loop);
        atomic_store(&loop->stopping, true);
        loop_wake_thread(loop);
        pthread_join(loop->thread, NULL);
        loop_report(loop);
        destroy_loop(loop);
        house.loop = NULL;
    }
    unlock_house();
}

struct registry *loop_registry(struct engine *engine)
{
    return loop_of(engine)->registry;
}

const char *loop_describe_same_host(struct engine *engine)
{
    return loop_is_ours(engine) ? same_host_describe(loop_of(engine)->same_host) : NULL;
}

enum status loop_join_group(struct engine *engine, const struct gid *group,
                            uint32_t interface_index)
{
    if (!loop_is_ours(engine)) {
        return STATUS_CLOSED;
    }
    struct loop *loop = loop_of(engine);
    return loop->is_bound ? STATUS_UNSUPPORTED : groups_join(loop->groups, group, interface_index);
}

void loop_leave_group(struct engine *engine, const struct gid *group, uint32_t interface_index)
{
    if (loop_is_ours(engine)) {
        groups_leave(loop_of(engine)->groups, group, interface_index);
    }
}

void loop_set_cm_wake(struct engine *engine, void (*wake)(void *context), void *context)
{
    struct loop *loop = loop_of(engine);
    engine_lock(engine);
    loop->cm_wake = wake;
    loop->cm_wake_context = context;
    engine_unlock(engine);
}

void loop_set_address_watch(struct engine *engine, void (*changed)(void))
{
    atomic_store(&loop_of(engine)->addresses_changed, changed);
}

void loop_set_event_sink(struct engine *engine, struct event_sink *sink)
{
    engine_lock(engine);
    loop_of(engine)->event_target = sink;
    engine_unlock(engine);
}

/* Not for ever: who exits may be a handler of a signal that its holder has got. */
static bool lock_house_with_patience(void)
{
    struct instant end = instant_after(clock_now(), RELEASE_NS);
    bool locked = pthread_mutex_trylock(&house.mutex) == 0;
    while (!locked && instant_before(clock_now(), end)) {
        nanosleep(&(struct timespec){.tv_nsec = RELEASE_LOOK_NS}, NULL);
        locked = pthread_mutex_trylock(&house.mutex) == 0;
    }
    return locked;
}

static void end_without_release(struct loop *loop)
{
    loop_take_leave(loop);
    if (loop_lock_with_patience(loop)) {
        loop_send_held(loop);
        loop_report(loop);
        lock_give_in_order(&loop->lock, LOCK_INNER);
    }
}

/* A process that ends without a release: the kernel gives back what it had. The thread goes on, for
 * whoever still waits for something in a destructor of his own. Another may just release it. */
__attribute__((destructor)) static void at_exit(void)
{
    if (house.owner != getpid() || !lock_house_with_patience()) {
        return;
    }
    if (house.loop != NULL) {
        end_without_release(house.loop);
    }
    pthread_mutex_unlock(&house.mutex);
}
