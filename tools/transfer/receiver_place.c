#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tools/transfer/receiver_private.h"

/* By number where that is asked for and there is one. */
static uint32_t owner_here(struct receiver *receiver, enum owner_kind kind, struct span name,
                           uint32_t id)
{
    const struct owner_choice *choice = &receiver->options.owners[kind];
    if (choice->set) {
        name = (struct span){choice->owner.name, strlen(choice->owner.name)};
        id = choice->owner.id;
    }
    bool by_number = (receiver->options.preserve & PRESERVE_NUMBERS) != 0 && id != ID_UNKNOWN;
    return by_number ? id : owners_id(&receiver->owners, kind, name, id);
}

/* Its owner is looked up only where it is wanted. */
static struct attributes attributes_of(struct receiver *receiver, const struct message *message)
{
    unsigned preserve = receiver->options.preserve;
    struct attributes attributes = {
        .preserve = preserve,
        .super = receiver->options.super,
        .mode = message->entry.mode,
        .mtime = {.tv_sec = message->entry.mtime_s, .tv_nsec = message->entry.mtime_ns},
        .uid = message->entry.uid,
        .gid = message->entry.gid,
        .fsync = receiver->options.fsync,
        .xattrs = &receiver->xattrs,
    };
    if ((preserve & PRESERVE_OWNER) != 0 && attributes.super) {
        attributes.uid = owner_here(receiver, OWNER_USER, message->entry.user, message->entry.uid);
    }
    if ((preserve & PRESERVE_GROUP) != 0) {
        attributes.gid =
            owner_here(receiver, OWNER_GROUP, message->entry.group, message->entry.gid);
    }
    return attributes;
}

/* Those that came before the entry become its own. */
static struct xattrs take_xattrs(struct receiver *receiver)
{
    struct xattrs xattrs = receiver->xattrs;
    receiver->xattrs = (struct xattrs){0};
    return xattrs;
}

void receiver_begin_directory(struct receiver *receiver, const struct message *message,
                              const char *name)
{
    struct tree_entry entry = {
        .force = receiver->options.force,
        .revisited =
            (receiver->options.preserve & PRESERVE_HARD_LINKS) != 0 && !receiver->options.super,
        .attributes = attributes_of(receiver, message),
        .xattrs = take_xattrs(receiver),
    };
    int error = tree_enter(&receiver->tree, name, message->entry.id, &entry);
    if (error == 0) {
        receiver->options.tally->directories++;
        return;
    }
    if (error == ENOTDIR) {
        receiver_fail(receiver, message->entry.id, PROBLEM_WRONG_KIND,
                      "exists already and is not a directory");
    } else {
        receiver_fail_errno(receiver, message->entry.id, error);
    }
    receiver->dead_depth = 1;
    tree_forget(&receiver->tree);
}

/* What has just been placed has more names, which are still to come. */
static void remember_names(struct receiver *receiver, uint32_t id, uint32_t names)
{
    if ((receiver->options.preserve & PRESERVE_HARD_LINKS) != 0) {
        hard_links_placed(&receiver->links, id, names, receiver->tree.top,
                          tree_relative(&receiver->tree));
    }
}

void receiver_place_eager(struct receiver *receiver, const struct message *message,
                          const char *name)
{
    uint8_t digest[DIGEST_LENGTH];
    const struct span data = message->entry.data;
    digest_of(data.bytes, data.length, digest);
    if (memcmp(digest, message->entry.digest, DIGEST_LENGTH) != 0) {
        receiver_fail(receiver, message->entry.id, PROBLEM_DIGEST,
                      "the bytes that arrived are not those that were read (digest)");
        return;
    }
    struct place place;
    int error = place_begin(&place, tree_directory(&receiver->tree), name, receiver->options.force);
    place.sparse = (receiver->options.preserve & PRESERVE_SPARSE) != 0;
    if (error == 0) {
        error = place_write(&place, data.bytes, data.length, 0);
        if (error == 0) {
            const struct attributes attributes = attributes_of(receiver, message);
            error = place_commit(&place, data.length, &attributes);
        } else {
            place_abandon(&place);
        }
    }
    if (error != 0) {
        receiver_fail_errno(receiver, message->entry.id, error);
        return;
    }
    remember_names(receiver, message->entry.id, message->entry.names);
    receiver->options.tally->files++;
    receiver->options.tally->bytes += data.length;
}

void receiver_begin_file(struct receiver *receiver, const struct message *message, const char *name)
{
    receiver->state = RECEIVER_FILE;
    receiver->file = (struct current_file){
        .id = message->entry.id,
        .size = message->entry.size,
        .names = message->entry.names,
        .attributes = attributes_of(receiver, message),
        .xattrs = take_xattrs(receiver),
        .place = {.fd = -1},
    };
    digest_start(receiver->digest);
    if (receiver->dead_depth > 0) {
        receiver->file.discarded = true;
        return;
    }
    int error = place_begin(&receiver->file.place, tree_directory(&receiver->tree), name,
                            receiver->options.force);
    receiver->file.place.sparse = (receiver->options.preserve & PRESERVE_SPARSE) != 0;
    if (error != 0) {
        receiver->file.discarded = true;
        receiver_fail_errno(receiver, message->entry.id, error);
    }
}

static mode_t type_of(enum entry_kind kind)
{
    switch (kind) {
    case ENTRY_SYMLINK:
        return S_IFLNK;
    case ENTRY_FIFO:
        return S_IFIFO;
    case ENTRY_SOCKET:
        return S_IFSOCK;
    case ENTRY_CHARACTER_DEVICE:
        return S_IFCHR;
    default:
        return S_IFBLK;
    }
}

static bool is_device(enum entry_kind kind)
{
    return kind == ENTRY_CHARACTER_DEVICE || kind == ENTRY_BLOCK_DEVICE;
}

void receiver_place_node(struct receiver *receiver, const struct message *message, const char *name)
{
    char target[PATH_MAX];
    memcpy(target, message->entry.data.bytes, message->entry.data.length);
    target[message->entry.data.length] = 0;
    const struct node node = {.type = type_of(message->entry.kind),
                              .device = makedev(message->entry.major, message->entry.minor),
                              .target = target};
    if (is_device(message->entry.kind) && !receiver->options.super) {
        receiver_fail(receiver, message->entry.id, PROBLEM_DENIED,
                      "devices are made by root only, and by a server only with --super");
        return;
    }
    const struct attributes attributes = attributes_of(receiver, message);
    int error = place_node(tree_directory(&receiver->tree), name, &node, &attributes,
                           receiver->options.force);
    if (error != 0) {
        receiver_fail_errno(receiver, message->entry.id, error);
        return;
    }
    remember_names(receiver, message->entry.id, message->entry.names);
    if (message->entry.kind == ENTRY_SYMLINK) {
        receiver->options.tally->symlinks++;
    } else {
        receiver->options.tally->files++;
    }
}

void receiver_place_link(struct receiver *receiver, const struct message *message, const char *name)
{
    struct stat status;
    int fd = hard_links_open(&receiver->links, message->entry.first, receiver->tree.top);
    if (fd < 0) {
        receiver_fail(receiver, message->entry.id, problem_code_of_errno(-fd),
                      "the file it is another name of is not there");
        return;
    }
    int error = fstat(fd, &status) != 0 ? errno : 0;
    if (error == 0) {
        error = place_hard_link(tree_directory(&receiver->tree), name, fd, status.st_mode & S_IFMT,
                                receiver->options.fsync, receiver->options.force);
    }
    close(fd);
    if (error != 0) {
        receiver_fail_errno(receiver, message->entry.id, error);
        return;
    }
    receiver->options.tally->files++;
}

void receiver_commit_file(struct receiver *receiver, const struct message *message)
{
    struct current_file *file = &receiver->file;
    uint8_t digest[DIGEST_LENGTH];
    digest_result(receiver->digest, digest);
    if (memcmp(digest, message->end.digest, DIGEST_LENGTH) != 0) {
        receiver->options.tally->bytes -= file->position;
        place_abandon(&file->place);
        receiver_fail(receiver, file->id, PROBLEM_DIGEST,
                      "the bytes that arrived are not those that were read (digest)");
        return;
    }
    file->attributes.xattrs = &file->xattrs;
    int error = place_commit(&file->place, file->size, &file->attributes);
    if (error != 0) {
        receiver->options.tally->bytes -= file->position;
        receiver_fail_errno(receiver, file->id, error);
        return;
    }
    remember_names(receiver, file->id, file->names);
    receiver->options.tally->files++;
}
