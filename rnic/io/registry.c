/* The registry's file: finding, checking and locking it; slots and their lives. */
#include "rnic/io/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rnic/base/check.h"
#include "rnic/io/registry_private.h"

/* Bytes of the file that are locked, not read: the table's lock, then one for each slot's life. */
#define TABLE_LOCK_BYTE 0
#define LIFE_LOCK_BYTE  4096

#define NAMES           8u /* that are tried, should others own the first */
#define NAME_MAX_LENGTH 256u

static int file_lock(int descriptor, int command, short type, off_t start, off_t length,
                     struct flock *ret_lock)
{
    *ret_lock = (struct flock){
        .l_type = type,
        .l_whence = SEEK_SET,
        .l_start = start,
        .l_len = length,
    };
    int result;
    do {
        result = fcntl(descriptor, command, ret_lock);
    } while (result != 0 && errno == EINTR);
    return result;
}

/* False: somebody has it. */
static bool try_lock_table(int descriptor)
{
    struct flock lock;
    return file_lock(descriptor, F_OFD_SETLK, F_WRLCK, TABLE_LOCK_BYTE, 1, &lock) == 0;
}

static void lock_table(int descriptor)
{
    struct flock lock;
    int result = file_lock(descriptor, F_OFD_SETLKW, F_WRLCK, TABLE_LOCK_BYTE, 1, &lock);
    CHECK(result == 0);
}

static void unlock_table(int descriptor)
{
    struct flock lock;
    int result = file_lock(descriptor, F_OFD_SETLK, F_UNLCK, TABLE_LOCK_BYTE, 1, &lock);
    CHECK(result == 0);
}

void registry_lock(struct registry *registry)
{
    pthread_mutex_lock(&registry->mutex);
    lock_table(registry->descriptor);
}

bool registry_try_lock(struct registry *registry)
{
    if (pthread_mutex_trylock(&registry->mutex) != 0) {
        return false;
    }
    bool locked = try_lock_table(registry->descriptor);
    if (!locked) {
        pthread_mutex_unlock(&registry->mutex);
    }
    return locked;
}

void registry_unlock(struct registry *registry)
{
    unlock_table(registry->descriptor);
    pthread_mutex_unlock(&registry->mutex);
}

void registry_path(char ret_path[REGISTRY_PATH_MAX])
{
    struct stat namespace, folder;
    if (stat("/proc/self/ns/net", &namespace) != 0) {
        namespace.st_ino = 0;
    }
    const char *where = stat("/dev/shm", &folder) == 0 ? "/dev/shm" : "/tmp";
    snprintf(ret_path, REGISTRY_PATH_MAX, "%s/weir-%u-%llu", where, (unsigned)geteuid(),
             (unsigned long long)namespace.st_ino);
}

/* DENIED: something else lies there. */
static enum status open_file(const char *path, int *ret_descriptor)
{
    int descriptor = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (descriptor < 0) {
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? STATUS_NO_MEMORY
                                                                     : STATUS_DENIED;
    }
    struct stat facts;
    if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != geteuid() ||
        (facts.st_mode & 07077) != 0 || facts.st_nlink != 1) {
        close(descriptor);
        return STATUS_DENIED;
    }
    *ret_descriptor = descriptor;
    return STATUS_OK;
}

static bool anybody_lives(int descriptor)
{
    struct flock lock;
    return file_lock(descriptor, F_OFD_GETLK, F_WRLCK, LIFE_LOCK_BYTE, REGISTRY_SLOTS, &lock) !=
               0 ||
           lock.l_type != F_UNLCK;
}

static bool is_compatible(const struct registry_file *file)
{
    return file->magic == REGISTRY_MAGIC && file->version == REGISTRY_VERSION &&
           file->size == sizeof *file;
}

/* A random first slot: should the file be deleted under living processes, new ones are unlikely to
 * take their numbers. */
static bool initialize(struct registry_file *file)
{
    uint32_t first;
    memset(file, 0, sizeof *file);
    if (getrandom(file->cookie, sizeof file->cookie, 0) != (ssize_t)sizeof file->cookie ||
        getrandom(&first, sizeof first, 0) != (ssize_t)sizeof first) {
        return false;
    }
    file->next_slot = first % REGISTRY_SLOTS;
    file->next_stamp = first;
    file->version = REGISTRY_VERSION;
    file->size = sizeof *file;
    file->magic = REGISTRY_MAGIC;
    return true;
}

/* Locked. Maps the file; makes it anew if it is empty, broken or of another version and nobody
 * living uses it. */
static enum status map_file(int descriptor, struct registry_file **ret_file)
{
    struct stat facts;
    bool lives = anybody_lives(descriptor);
    if (fstat(descriptor, &facts) != 0) {
        return STATUS_DENIED;
    }
    if (facts.st_size != (off_t)sizeof(struct registry_file)) {
        if (lives) {
            return STATUS_IN_USE;
        }
        if (ftruncate(descriptor, sizeof(struct registry_file)) != 0) {
            return STATUS_NO_MEMORY;
        }
    }
    struct registry_file *file =
        mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (file == MAP_FAILED) {
        return STATUS_NO_MEMORY;
    }
    enum status status = STATUS_OK;
    if (!is_compatible(file)) {
        status = lives ? STATUS_IN_USE : initialize(file) ? STATUS_OK : STATUS_NO_MEMORY;
    }
    if (status != STATUS_OK) {
        munmap(file, sizeof *file);
        return status;
    }
    *ret_file = file;
    return STATUS_OK;
}

bool registry_slot_lives(const struct registry *registry, uint32_t slot)
{
    struct flock lock;
    if (slot == registry->slot) {
        return true;
    }
    return file_lock(registry->descriptor, F_OFD_GETLK, F_WRLCK, LIFE_LOCK_BYTE + (off_t)slot, 1,
                     &lock) != 0 ||
           lock.l_type != F_UNLCK;
}

void registry_group_remove(struct registry_group *group, uint32_t slot)
{
    for (uint32_t i = 0; i < group->count && i < REGISTRY_SLOTS; i++) {
        if (group->slots[i] == slot) {
            group->slots[i] = group->slots[--group->count];
            return;
        }
    }
}

void registry_bury(struct registry *registry, uint32_t slot)
{
    claims_forget_slot(registry, slot);
    for (uint32_t i = 0; i < UDP_FAMILY_COUNT; i++) {
        registry_group_remove(&registry->file->groups[i], slot);
    }
    atomic_store(&registry->file->slots[slot].used, 0);
}

uint32_t registry_bury_dead(struct registry *registry)
{
    uint32_t buried = 0;
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++) {
        if (atomic_load(&registry->file->slots[i].used) != 0 && !registry_slot_lives(registry, i)) {
            registry_bury(registry, i);
            buried++;
        }
    }
    return buried;
}

/* Locked. Slots go round, so that a dead process's numbers rest as long as possible. */
static enum status take_slot(struct registry *registry)
{
    struct registry_file *file = registry->file;
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++) {
        uint32_t slot = (file->next_slot + i) % REGISTRY_SLOTS;
        struct flock lock;
        if (file_lock(registry->descriptor, F_OFD_SETLK, F_WRLCK, LIFE_LOCK_BYTE + (off_t)slot, 1,
                      &lock) != 0) {
            continue;
        }
        registry_bury(registry, slot); /* what a half-dead predecessor may have left */
        file->next_slot = (slot + 1) % REGISTRY_SLOTS;
        file->slots[slot].process = (uint32_t)getpid();
        atomic_store(&file->slots[slot].used, 1);
        registry->slot = slot;
        return STATUS_OK;
    }
    return STATUS_FULL;
}

/* In a folder that everybody may write to somebody else may have taken the name. Then there is the
 * next one, the same for all processes of the user. Who takes them all could take the UDP port. */
static enum status find_file(const char *path, int *ret_descriptor)
{
    enum status status = open_file(path, ret_descriptor);
    for (uint32_t i = 1; i < NAMES && status == STATUS_DENIED; i++) {
        char name[NAME_MAX_LENGTH];
        snprintf(name, sizeof name, "%s.%u", path, (unsigned)i);
        status = open_file(name, ret_descriptor);
    }
    return status;
}

enum status registry_open(const char *path, struct registry **ret_registry)
{
    char own_path[REGISTRY_PATH_MAX];
    registry_path(own_path);
    struct registry *registry = calloc(1, sizeof *registry);
    if (registry == NULL) {
        return STATUS_NO_MEMORY;
    }
    registry->slot = REGISTRY_NO_SLOT;
    enum status status = find_file(path != NULL ? path : own_path, &registry->descriptor);
    if (status != STATUS_OK) {
        free(registry);
        return status;
    }
    lock_table(registry->descriptor);
    status = map_file(registry->descriptor, &registry->file);
    if (status == STATUS_OK) {
        status = take_slot(registry);
    }
    unlock_table(registry->descriptor);
    if (status != STATUS_OK) {
        registry_abandon(registry);
        return status;
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
        close(registry->descriptor);
        free(registry);
    }
}

void registry_close(struct registry *registry)
{
    if (registry == NULL) {
        return;
    }
    struct flock lock;
    registry_lock(registry);
    registry_bury(registry, registry->slot);
    int result = file_lock(registry->descriptor, F_OFD_SETLK, F_UNLCK,
                           LIFE_LOCK_BYTE + (off_t)registry->slot, 1, &lock);
    CHECK(result == 0);
    registry_unlock(registry);
    pthread_mutex_destroy(&registry->mutex);
    registry_abandon(registry);
}

uint32_t registry_slot(const struct registry *registry)
{
    return registry->slot;
}

struct qpn registry_first_qpn(const struct registry *registry)
{
    uint32_t first = registry->slot * REGISTRY_QPNS_PER_SLOT;
    return (struct qpn){first < REGISTRY_QPN_RESERVED ? REGISTRY_QPN_RESERVED : first};
}

uint32_t registry_qpn_count(const struct registry *registry)
{
    uint32_t end = (registry->slot + 1) * REGISTRY_QPNS_PER_SLOT;
    if (end > QPN_MULTICAST.value) {
        end = QPN_MULTICAST.value;
    }
    return end - registry_first_qpn(registry).value;
}

bool registry_slot_is_used(const struct registry *registry, uint32_t slot)
{
    return slot < REGISTRY_SLOTS && atomic_load(&registry->file->slots[slot].used) != 0;
}

uint32_t registry_process_count(struct registry *registry)
{
    uint32_t count = 0;
    registry_lock(registry);
    registry_bury_dead(registry);
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++) {
        count += atomic_load(&registry->file->slots[i].used) != 0;
    }
    registry_unlock(registry);
    return count;
}
