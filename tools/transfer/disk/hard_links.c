#include "tools/transfer/disk/hard_links.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/disk/confine.h"

struct identity {
    uint32_t major, minor;
    uint64_t inode;
    struct birth birth;
    uint16_t type;
};

/* The key is device, inode and birth for a sender, 0 and the entry for a receiver; of an entry that
 * was refused, which is not looked for among the others, NO_DEVICE and the entry. */
#define NO_DEVICE UINT64_MAX
struct hard_link {
    uint64_t device, inode;
    struct birth birth;
    uint32_t id;
    uint64_t left; /* names that are still to come */
    struct identity placed;
    size_t counted;
    char path[];
};

static int compare(const void *one, const void *other)
{
    const struct hard_link *a = one, *b = other;
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    if (a->inode != b->inode) {
        return a->inode < b->inode ? -1 : 1;
    }
    return birth_compare(&a->birth, &b->birth);
}

void hard_links_clear(struct hard_links *links)
{
    tdestroy(links->tree, free);
    *links = (struct hard_links){0};
}

static struct hard_link *find(const struct hard_links *links, const struct hard_link *key)
{
    struct hard_link **found = tfind(key, &links->tree, compare);
    return found != NULL ? *found : NULL;
}

static void forget(struct hard_links *links, struct hard_link *link)
{
    tdelete(link, &links->tree, compare);
    links->count--;
    links->length -= link->counted;
    free(link);
}

/* What cannot be remembered is copied again by a sender, and missed by a receiver. `counted` stands
 * for the path, which a sender does not keep. */
static void remember(struct hard_links *links, const struct hard_link *key, const char *path,
                     const char *counted)
{
    const char *slash = strchr(counted, '/');
    size_t length = strlen(path) + 1, count = slash != NULL ? strlen(slash) : 1;
    if (links->count >= HARD_LINKS_MAX || links->length + count > HARD_LINKS_LENGTH_MAX ||
        key->left == 0) {
        return;
    }
    struct hard_link *link = malloc(sizeof(*link) + length);
    if (link == NULL) {
        return;
    }
    *link = *key;
    link->counted = count;
    memcpy(link->path, path, length);
    struct hard_link **kept = tsearch(link, &links->tree, compare);
    if (kept == NULL || *kept != link) {
        free(link);
        return;
    }
    links->count++;
    links->length += count;
}

static void count_name(struct hard_links *links, struct hard_link *link)
{
    if (--link->left == 0) {
        forget(links, link);
    }
}

static struct hard_link key_of(const struct stat *status, const struct birth *birth)
{
    return (struct hard_link){.device = status->st_dev, .inode = status->st_ino, .birth = *birth};
}

uint32_t hard_links_first(struct hard_links *links, const struct stat *status,
                          const struct birth *birth)
{
    const struct hard_link key = key_of(status, birth);
    struct hard_link *link = find(links, &key);
    if (link == NULL) {
        return 0;
    }
    const struct hard_link refused = {.device = NO_DEVICE, .inode = link->id};
    uint32_t id = link->id;
    struct hard_link *no = find(links, &refused);
    if (no != NULL) {
        forget(links, no);
        forget(links, link);
        return 0;
    }
    count_name(links, link);
    return id;
}

void hard_links_sent(struct hard_links *links, const struct stat *status, const struct birth *birth,
                     uint32_t id, const char *path)
{
    struct hard_link key = key_of(status, birth);
    key.id = id;
    key.left = (uint64_t)status->st_nlink - 1;
    remember(links, &key, "", path);
}

void hard_links_withdraw(struct hard_links *links, const struct stat *status,
                         const struct birth *birth)
{
    const struct hard_link key = key_of(status, birth);
    struct hard_link *link = find(links, &key);
    if (link != NULL) {
        forget(links, link);
    }
}

void hard_links_refused(struct hard_links *links, uint32_t id)
{
    const struct hard_link key = {.device = NO_DEVICE, .inode = id, .left = 1};
    remember(links, &key, "", "");
}

/* Below `top`, through no symbolic link, however long the path is. */
static int open_path(int top, const char *path)
{
    char part[PATH_MAX];
    int directory = top;
    for (;;) {
        size_t length = strlen(path);
        bool last = length < sizeof(part);
        if (!last) {
            length = sizeof(part) - 1;
            while (length > 0 && path[length] != '/') {
                length--;
            }
        }
        memcpy(part, path, length);
        part[length] = 0;
        int fd = confine_open(directory, part, O_PATH | (last ? O_NOFOLLOW : O_DIRECTORY), 0,
                              CONFINE_NO_SYMLINKS);
        if (directory != top) {
            close(directory);
        }
        if (fd < 0 || last) {
            return fd;
        }
        directory = fd;
        path += length + 1;
    }
}

static bool identify(int fd, struct identity *ret_identity)
{
    struct statx status;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_TYPE, &status) != 0) {
        return false;
    }
    *ret_identity = (struct identity){
        .major = status.stx_dev_major,
        .minor = status.stx_dev_minor,
        .inode = status.stx_ino,
        .birth = birth_of(fd),
        .type = status.stx_mode & S_IFMT,
    };
    return true;
}

static bool is_same(const struct identity *one, const struct identity *other)
{
    return one->major == other->major && one->minor == other->minor && one->inode == other->inode &&
           one->type == other->type && birth_compare(&one->birth, &other->birth) == 0;
}

void hard_links_placed(struct hard_links *links, uint32_t id, uint32_t names, int top,
                       const char *path)
{
    struct hard_link key = {.inode = id, .id = id, .left = (uint64_t)names - 1};
    if (names < 2) {
        return;
    }
    int fd = open_path(top, path);
    if (fd < 0) {
        return;
    }
    if (identify(fd, &key.placed)) {
        remember(links, &key, path, path);
    }
    close(fd);
}

int hard_links_open(struct hard_links *links, uint32_t id, int top)
{
    const struct hard_link key = {.inode = id};
    struct hard_link *link = find(links, &key);
    struct identity found;
    if (link == NULL) {
        return -ENOENT;
    }
    int fd = open_path(top, link->path);
    if (fd >= 0 && (!identify(fd, &found) || !is_same(&found, &link->placed))) {
        close(fd);
        fd = -ESTALE;
    }
    count_name(links, link);
    return fd;
}

void hard_links_pass(struct hard_links *links, uint32_t id)
{
    const struct hard_link key = {.inode = id};
    struct hard_link *link = find(links, &key);
    if (link != NULL) {
        count_name(links, link);
    }
}
