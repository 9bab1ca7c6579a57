/* The registry's file: finding, checking, making and removing it; slots and their lives. */
#include "rnic/io/registry/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rnic/base/check.h"
#include "rnic/io/registry/registry_private.h"
#include "rnic/io/system/beyond_streams.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/system/shortage.h"
#include "rnic/io/udp/address.h"
#include "rnic/io/udp/port_holder.h"
#include "rnic/wire/roce.h"

#define NAMES            8u                   /* that are tried, should others own the first */
#define REGISTRY_HEIR_NS UINT64_C(2000000000) /* then an heir that has done nothing is stopped */

#define SWEEP_AGE_S 3600u /* then no peer waits for what a file has to tell */

void registry_path(char ret_path[REGISTRY_PATH_MAX])
{
    struct stat namespace;
    if (stat("/proc/thread-self/ns/net", &namespace) != 0) {
        namespace.st_ino = 0;
    }
    bool has_shm = faccessat(AT_FDCWD, "/dev/shm", W_OK | X_OK, AT_EACCESS) == 0;
    const char *where = has_shm ? "/dev/shm" : "/tmp";
    int length = snprintf(ret_path, REGISTRY_PATH_MAX, "%s/weir-%u-%llu", where,
                          (unsigned)geteuid(), (unsigned long long)namespace.st_ino);
    struct gid bound[2];
    if (address_read_bind(bound) == STATUS_OK) { /* other sockets: they share nothing with ours */
        for (uint32_t i = 0; i < 2 * sizeof bound[0].bytes; i++) {
            length += snprintf(ret_path + length, REGISTRY_PATH_MAX - (size_t)length, "%s%02x",
                               i % 16 == 0 ? "-" : "", bound[i / 16].bytes[i % 16]);
        }
    }
}

/* Why a file could not be opened. */
static enum status refusal(const char *path, int error)
{
    if (is_shortage(error) || error == ENOSPC || error == EDQUOT) {
        return STATUS_NO_MEMORY;
    }
    bool is_there = error != ENOENT && /* it may be made just now */
                    faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    return is_there ? STATUS_DENIED : STATUS_NOT_FOUND;
}

bool registry_is_ours(int descriptor)
{
    struct stat facts;
    return fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() &&
           (facts.st_mode & 07077) == 0 && facts.st_nlink <= 1;
}

enum status registry_open_file(const char *path, int flags, int *ret_descriptor)
{
    int descriptor =
        beyond_streams(open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | flags, 0600));
    if (descriptor < 0) {
        return refusal(path, errno);
    }
    if (!registry_is_ours(descriptor)) {
        close(descriptor);
        return STATUS_DENIED;
    }
    *ret_descriptor = descriptor;
    return STATUS_OK;
}

bool registry_anybody_lives(int descriptor)
{
    struct flock lock;
    return registry_lock_bytes(descriptor, F_OFD_GETLK, F_WRLCK, REGISTRY_LIFE_BYTE, SLOT_COUNT,
                               &lock) != 0 ||
           lock.l_type != F_UNLCK;
}

static bool is_compatible(const struct registry_file *file, const struct registry_era *era,
                          bool lives)
{
    return file->head.magic == REGISTRY_MAGIC && file->head.version == REGISTRY_VERSION &&
           file->head.size == sizeof *file && registry_era_counts(&file->era, era, lives);
}

/* A random first slot: should the file be deleted under living processes, new ones are unlikely to
 * take their numbers. Wills of another era go, for holders of slots are counted anew. */
static bool initialize(int descriptor, struct registry_file *file, const struct registry_era *era)
{
    uint32_t first;
    memset(file, 0, sizeof *file);
    if (ftruncate(descriptor, sizeof *file) != 0 ||
        getrandom(&first, sizeof first, 0) != (ssize_t)sizeof first) {
        return false;
    }
    file->next_slot = first % SLOT_COUNT;
    file->next_stamp = first;
    file->era = *era;
    file->head.version = REGISTRY_VERSION;
    file->head.size = sizeof *file;
    file->head.magic = REGISTRY_MAGIC;
    return true;
}

/* The bytes are really there: a store to a page for which there is no room ends a process. In older
 * kernels any signal interrupts that. */
static bool make_room(int descriptor)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < sizeof(struct registry_file)) {
        return false;
    }
    int error;
    do {
        error = posix_fallocate(descriptor, 0, sizeof(struct registry_file));
    } while (error == EINTR);
    return error == 0;
}

static enum status map_pages(int descriptor, struct registry_file **ret_file)
{
    struct registry_file *file =
        mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (file == MAP_FAILED) {
        return STATUS_NO_MEMORY;
    }
    *ret_file = file;
    return STATUS_OK;
}

/* Locked. Maps the file; makes it anew if it is empty, broken or of another era or version and
 * nobody living uses it. */
static enum status map_file(int descriptor, struct registry_file **ret_file)
{
    struct stat facts;
    struct registry_era era = registry_era_now();
    bool lives = registry_anybody_lives(descriptor);
    if (fstat(descriptor, &facts) != 0) {
        return STATUS_DENIED;
    }
    if (facts.st_size < (off_t)sizeof(struct registry_file) && lives) {
        return STATUS_IN_USE;
    }
    if (!make_room(descriptor)) {
        return STATUS_NO_MEMORY;
    }
    struct registry_file *file;
    enum status status = map_pages(descriptor, &file);
    if (status != STATUS_OK) {
        return status;
    }
    if (!is_compatible(file, &era, lives)) {
        status = lives                                ? STATUS_IN_USE
                 : initialize(descriptor, file, &era) ? STATUS_OK
                                                      : STATUS_NO_MEMORY;
    }
    if (status != STATUS_OK) {
        munmap(file, sizeof *file);
        return status;
    }
    *ret_file = file;
    return STATUS_OK;
}

/* Of a file of the program's that has our number everybody would seem dead. */
bool registry_slot_lives(const struct registry *registry, uint32_t slot)
{
    struct flock lock;
    if (slot == registry->slot) {
        return true;
    }
    return registry_lock_bytes(registry->descriptor, F_OFD_GETLK, F_WRLCK,
                               REGISTRY_LIFE_BYTE + (off_t)slot, 1, &lock) != 0 ||
           lock.l_type != F_UNLCK || !registry_has_file(registry);
}

void registry_group_remove(struct registry_group *group, uint32_t slot)
{
    uint32_t count = registry_group_count(group);
    for (uint32_t i = 0; i < count; i++) {
        if (group->slots[i] == slot) {
            group->slots[i] = group->slots[count - 1];
            group->count = count - 1;
            return;
        }
    }
}

/* Locked. */
static void forget_slot(struct registry *registry, uint32_t slot)
{
    struct registry_slot *entry = &registry->file->slots[slot];
    claims_forget_slot(registry, slot);
    domains_forget_slot(registry, slot);
    for (uint32_t i = 0; i < UDP_FAMILY_COUNT; i++) {
        registry_group_remove(&registry->file->groups[i], slot);
    }
    atomic_store(&entry->inbox, 0);
    atomic_store(&entry->handoff_name, 0);
    atomic_store(&entry->watches, 0);
    atomic_store(&entry->heir, 0);
    atomic_store(&entry->estate, atomic_load(&entry->will_end) > 0);
    atomic_store(&entry->used, SLOT_FREE);
}

/* Locked. */
static void become_heir(struct registry *registry, uint32_t slot)
{
    struct registry_slot *entry = &registry->file->slots[slot];
    atomic_store(&entry->inherited_ns, clock_now().ns);
    atomic_store(&entry->heir, registry->slot + 1);
    void (*wake)(void *) = atomic_load(&registry->wake);
    if (wake != NULL && atomic_load(&entry->estate) != 0) {
        wake(registry->wake_context);
    }
}

void registry_bury(struct registry *registry, uint32_t slot)
{
    forget_slot(registry, slot);
    become_heir(registry, slot);
    registry->has_buried = true;
}

bool registry_inherit(struct registry *registry)
{
    bool any = false;
    struct instant now = clock_now();
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        struct registry_slot *entry = &registry->file->slots[i];
        if (atomic_load(&entry->used) != 0 || atomic_load(&entry->estate) == 0) {
            continue;
        }
        struct instant since = {atomic_load(&entry->inherited_ns)};
        bool ours = atomic_load(&entry->heir) == registry->slot + 1;
        if (!ours && (registry_heir(registry, i) == SLOT_NONE || instant_before(now, since) ||
                      instant_elapsed_ns(since, now) >= REGISTRY_HEIR_NS)) {
            become_heir(registry, i);
            ours = true;
        }
        any |= ours;
    }
    return any;
}

uint32_t registry_bury_dead(struct registry *registry)
{
    uint32_t buried = 0;
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        if (atomic_load(&registry->file->slots[i].used) != 0 && !registry_slot_lives(registry, i)) {
            registry_bury(registry, i);
            buried++;
        }
    }
    return buried;
}

static int lock_life(struct registry *registry, uint32_t slot, short type)
{
    struct flock lock;
    return registry_lock_bytes(registry->descriptor, F_OFD_SETLK, type,
                               REGISTRY_LIFE_BYTE + (off_t)slot, 1, &lock);
}

/* Locked. Slots go round, so that a dead process's numbers rest as long as possible. Those of which
 * something is still to be done are taken last. */
static enum status take_slot(struct registry *registry)
{
    struct registry_file *file = registry->file;
    for (uint32_t i = 0; i < 2 * SLOT_COUNT; i++) {
        uint32_t slot = (file->next_slot % SLOT_COUNT + i) % SLOT_COUNT;
        struct registry_slot *entry = &file->slots[slot];
        bool rests = atomic_load(&entry->used) == 0 && atomic_load(&entry->estate) == 0;
        if ((i < SLOT_COUNT && !rests) || lock_life(registry, slot, F_WRLCK) != 0) {
            continue;
        }
        wills_forget(registry, slot);
        forget_slot(registry, slot); /* what a half-dead predecessor may have left */
        file->next_slot = (slot + 1) % SLOT_COUNT;
        entry->process = (uint32_t)getpid();
        atomic_fetch_add(&entry->generation, 1);
        atomic_store(&entry->used, SLOT_USED);
        registry->slot = slot;
        return STATUS_OK;
    }
    return STATUS_FULL;
}

/* At the name, or where it was, or made. What has no name is reached by our own number. */
static enum status find_or_make(struct registry *registry, bool searches)
{
    enum status status = registry_open_file(registry->path, 0, &registry->descriptor);
    if (status != STATUS_NOT_FOUND) {
        return status;
    }
    if (searches && registry_find_removed(registry->path, &registry->descriptor)) {
        snprintf(registry->path, sizeof registry->path, "/proc/thread-self/fd/%d",
                 registry->descriptor);
        return STATUS_OK;
    }
    return registry_open_file(registry->path, O_CREAT, &registry->descriptor);
}

/* In a folder that everybody may write to somebody else may have taken the name. Then there is the
 * next one, the same for all processes of the user. Who takes them all could take the UDP port. */
static enum status find_file(struct registry *registry, const char *path, bool searches)
{
    enum status status = STATUS_DENIED;
    for (uint32_t i = 0; i < NAMES && status == STATUS_DENIED; i++) {
        char suffix[8] = "";
        if (i > 0) {
            snprintf(suffix, sizeof suffix, ".%u", (unsigned)i);
        }
        snprintf(registry->path, sizeof registry->path, "%s%s", path, suffix);
        status = find_or_make(registry, searches);
    }
    return status;
}

bool registry_has_file(const struct registry *registry)
{
    return own_file_is_at(registry->descriptor, &registry->own_file);
}

bool registry_is_removed(int descriptor)
{
    struct stat facts;
    return fstat(descriptor, &facts) == 0 && facts.st_nlink == 0;
}

/* Locked. */
static bool counts(int descriptor)
{
    return !registry_is_removed(descriptor) || registry_anybody_lives(descriptor);
}

/* Found and locked. Who searches again might find others who search. */
static enum status find_and_lock(struct registry *registry, const char *path, bool searches)
{
    for (;; searches = false) {
        enum status status = find_file(registry, path, searches);
        if (status != STATUS_OK) {
            return status;
        }
        status = registry_lock_file(registry->descriptor);
        if (status == STATUS_OK && counts(registry->descriptor)) {
            return STATUS_OK;
        }
        close(registry->descriptor);
        registry->descriptor = -1;
        if (status != STATUS_OK) {
            return status;
        }
    }
}

enum status registry_open(const char *path, struct registry **ret_registry)
{
    char own_path[REGISTRY_PATH_MAX];
    registry_path(own_path);
    struct registry *registry = calloc(1, sizeof *registry);
    if (registry == NULL) {
        return STATUS_NO_MEMORY;
    }
    registry->slot = SLOT_NONE;
    registry->descriptor = -1;
    bool searches =
        path != NULL || (access(own_path, F_OK) != 0 && port_holder_is_ours(ROCE_UDP_PORT));
    enum status status = find_and_lock(registry, path != NULL ? path : own_path, searches);
    if (status != STATUS_OK) {
        registry_abandon(registry);
        return status;
    }
    status = map_file(registry->descriptor, &registry->file);
    if (status == STATUS_OK) {
        bool known = own_file_remember(registry->descriptor, &registry->own_file);
        status = known ? take_slot(registry) : STATUS_DENIED;
    }
    registry_unlock_file(registry->descriptor);
    if (status != STATUS_OK) {
        registry_abandon(registry);
        return status;
    }
    if (path == NULL) {
        registry_sweep(own_path, SWEEP_AGE_S);
    }
    pthread_mutex_init(&registry->mutex, NULL);
    *ret_registry = registry;
    return STATUS_OK;
}

void registry_abandon(struct registry *registry)
{
    if (registry != NULL) {
        if (registry->file != NULL) {
            munmap(registry->file, sizeof *registry->file);
        }
        if (registry->descriptor >= 0) {
            close(registry->descriptor);
        }
        free(registry);
    }
}

/* Locked. What we have inherited and not done is for others. */
static void disinherit(struct registry *registry)
{
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        struct registry_slot *entry = &registry->file->slots[i];
        if (atomic_load(&entry->used) == 0 && atomic_load(&entry->heir) == registry->slot + 1) {
            atomic_store(&entry->heir, 0);
        }
    }
}

/* Locked, our slot given back. Whoever has opened the file waits for the lock, and looks at it
 * again (registry_is_removed). */
static void remove_if_last(struct registry *registry)
{
    struct stat ours, there;
    if (!registry_anybody_lives(registry->descriptor) && fstat(registry->descriptor, &ours) == 0 &&
        lstat(registry->path, &there) == 0 && ours.st_ino == there.st_ino &&
        ours.st_dev == there.st_dev) {
        unlink(registry->path);
    }
}

/* Without the lock we end as if killed: others will find out. */
void registry_close(struct registry *registry)
{
    if (registry == NULL) {
        return;
    }
    if (registry_lock(registry) == STATUS_OK) {
        if (registry->will_count == 0) {
            wills_forget(registry, registry->slot);
        }
        forget_slot(registry, registry->slot);
        disinherit(registry);
        int result = lock_life(registry, registry->slot, F_UNLCK);
        CHECK(result == 0);
        remove_if_last(registry);
        registry_unlock(registry);
    }
    pthread_mutex_destroy(&registry->mutex);
    registry_abandon(registry);
}

uint32_t registry_slot(const struct registry *registry)
{
    return registry->slot;
}

struct qpn registry_first_qpn(const struct registry *registry)
{
    uint32_t first = registry->slot * SLOT_QPNS;
    return (struct qpn){first < SLOT_QPN_RESERVED ? SLOT_QPN_RESERVED : first};
}

uint32_t registry_qpn_count(const struct registry *registry)
{
    uint32_t end = (registry->slot + 1) * SLOT_QPNS;
    if (end > QPN_MULTICAST.value) {
        end = QPN_MULTICAST.value;
    }
    return end - registry_first_qpn(registry).value;
}

bool registry_slot_is_used(const struct registry *registry, uint32_t slot)
{
    return slot < SLOT_COUNT && atomic_load(&registry->file->slots[slot].used) != 0;
}

static bool somebody_stays(const struct registry *registry)
{
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        if (i != registry->slot && atomic_load(&registry->file->slots[i].used) == SLOT_USED &&
            registry_slot_lives(registry, i)) {
            return true;
        }
    }
    return false;
}

/* Of two that say so at once, at least one sees the other's word: either both leave by themselves,
 * or one counts on the other. */
bool registry_end(struct registry *registry)
{
    struct registry_slot *slot = &registry->file->slots[registry->slot];
    atomic_store(&slot->used, SLOT_COUNTS_ON_OTHERS);
    bool stays = somebody_stays(registry);
    if (!stays) {
        atomic_store(&slot->used, SLOT_LEAVES);
    }
    return !stays;
}

bool registry_is_counted_on(const struct registry *registry)
{
    bool owes = false;
    for (uint32_t i = 0; i < SLOT_COUNT && !owes; i++) {
        struct registry_slot *entry = &registry->file->slots[i];
        uint32_t used = atomic_load(&entry->used);
        owes = used == SLOT_COUNTS_ON_OTHERS ||
               (used == SLOT_FREE && atomic_load(&entry->estate) != 0);
    }
    return owes && !somebody_stays(registry);
}

uint32_t registry_heir(const struct registry *registry, uint32_t slot)
{
    if (slot >= SLOT_COUNT || registry_slot_is_used(registry, slot)) {
        return SLOT_NONE;
    }
    uint32_t heir = atomic_load(&registry->file->slots[slot].heir) - 1;
    return registry_slot_is_used(registry, heir) ? heir : SLOT_NONE;
}

uint32_t registry_process_count(struct registry *registry)
{
    uint32_t count = 0;
    bool locked = registry_lock(registry) == STATUS_OK;
    if (locked) {
        registry_bury_dead(registry);
    }
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        count += atomic_load(&registry->file->slots[i].used) != 0;
    }
    if (locked) {
        registry_unlock(registry);
    }
    return count;
}
