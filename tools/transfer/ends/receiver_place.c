#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tools/transfer/choice/walk.h"
#include "tools/transfer/disk/clear.h"
#include "tools/transfer/disk/compare.h"
#include "tools/transfer/disk/half_mark.h"
#include "tools/transfer/ends/receiver_private.h"

/* By number where that is asked for and there is one. */
static uint32_t owner_here(struct receiver *receiver, enum owner_kind kind, struct span name,
                           uint32_t id)
{
    const struct owner_choice *choice = &receiver->options.owners[kind];
    if (choice->set) {
        name = (struct span){choice->owner.name, strlen(choice->owner.name)};
        id = choice->owner.id;
    }
    bool by_number =
        (receiver->options.wishes->preserve & PRESERVE_NUMBERS) != 0 && id != ID_UNKNOWN;
    return by_number ? id : owners_id(&receiver->owners, kind, name, id);
}

/* Its owner is looked up only where it is wanted. */
static struct attributes attributes_of(struct receiver *receiver, const struct message *message)
{
    unsigned preserve = receiver->options.wishes->preserve;
    struct attributes attributes = {
        .preserve = preserve,
        .wishes = receiver->options.wishes,
        .super = receiver->options.super,
        .mode = message->entry.mode,
        .mtime = {.tv_sec = message->entry.mtime_s, .tv_nsec = message->entry.mtime_ns},
        .uid = message->entry.uid,
        .gid = message->entry.gid,
        .fsync = receiver_wishes(receiver, WISH_FSYNC),
        .dry = receiver_wishes(receiver, WISH_DRY_RUN),
        .xattrs = &receiver->xattrs,
    };
    if (message->entry.kind != ENTRY_SYMLINK) {
        attributes.mode = modes_apply(receiver->options.modes, attributes.mode,
                                      message->entry.kind == ENTRY_DIRECTORY);
    }
    if ((preserve & PRESERVE_OWNER) != 0 && attributes.super) {
        attributes.uid = owner_here(receiver, OWNER_USER, message->entry.user, message->entry.uid);
    }
    if ((preserve & PRESERVE_GROUP) != 0) {
        attributes.gid =
            owner_here(receiver, OWNER_GROUP, message->entry.group, message->entry.gid);
    }
    return attributes;
}

static enum replacing replacing_of(const struct receiver *receiver)
{
    if (receiver_wishes(receiver, WISH_IGNORE_EXISTING)) {
        return REPLACE_NOTHING;
    }
    return receiver_wishes(receiver, WISH_FORCE) ? REPLACE_TREES : REPLACE_FILES;
}

static void set_up(const struct receiver *receiver, struct place *place)
{
    place->sparse = (receiver->options.wishes->preserve & PRESERVE_SPARSE) != 0;
    place->tells_at_once = tree_tells_at_once(&receiver->tree);
    place->clearing = &receiver->clearing;
}

static int begin_place(struct receiver *receiver, struct place *place, const char *name,
                       const struct present *present, const struct attributes *attributes)
{
    int directory = tree_directory(&receiver->tree);
    enum replacing replacing = replacing_of(receiver);
    /* Extended attributes are set by who may write. */
    mode_t mode = (attributes->mode & 0777) | (attributes_show_in_status(attributes) ? 0 : 0600);
    int error =
        receiver_wishes(receiver, WISH_INPLACE)
            ? place_begin_inplace(place, directory, name, replacing, attributes->mtime.tv_sec)
        : present->exists ? place_begin(place, directory, name, replacing)
                          : place_begin_absent(place, directory, name, replacing, mode);
    set_up(receiver, place);
    return error;
}

int receiver_begin_place(struct receiver *receiver, struct place *place, const char *name,
                         const struct present *present, const struct attributes *attributes)
{
    int error = begin_place(receiver, place, name, present, attributes);
    if (receiver_let_go(receiver, error, name)) {
        error = begin_place(receiver, place, name, present, attributes);
    }
    return error;
}

/* In a directory that was just made there is nothing; who puts something there meanwhile is met
 * when the name is taken. */
static struct present look(const struct receiver *receiver, const char *name)
{
    struct present present = {.exists = false};
    if (tree_is_new(&receiver->tree) && replacing_of(receiver) != REPLACE_NOTHING) {
        return present;
    }
    present.exists =
        receiver_find(tree_directory(&receiver->tree), name[0] != 0 ? name : ".", &present.status);
    return present;
}

static bool may_not_go(void *user)
{
    return false;
}

/* In a dry run: says what would go to make way, or that nothing would. 0 or an errno. */
static int would_clear(const struct receiver *receiver, const char *name,
                       const struct present *present)
{
    static const struct clearing none = {.dry = true, .may_go = may_not_go};
    if (!present->exists || !S_ISDIR(present->status.st_mode)) {
        return 0;
    }
    bool goes = replacing_of(receiver) == REPLACE_TREES;
    int error =
        clear_below(tree_directory(&receiver->tree), name, goes ? &receiver->clearing : &none);
    return error == ENOTEMPTY && !goes ? EISDIR : error;
}

/* An entry that is not to be made, or to be left as it is. */
static void leave_entry(struct receiver *receiver, const struct message *message, uint32_t why)
{
    bool linked = message->entry.kind == ENTRY_HARD_LINK;
    enum entry_kind kind = linked ? message->entry.of : message->entry.kind;
    receiver_count_untouched(receiver, message->entry.id, kind, message->entry.size,
                             &receiver->options.tally->left);
    receiver_tell(receiver, kind, message->entry.size, why | (linked ? CHANGE_LINKED : 0));
}

/* Why what is the target by its own name stays. 0: it may go, as what is in a tree always may. */
static int why_it_stays(const struct receiver *receiver, const struct present *present,
                        bool for_directory)
{
    mode_t mode = present->exists ? present->status.st_mode : S_IFDIR;
    if (receiver->tree.depth > 0 || receiver->options.target->into || S_ISDIR(mode)) {
        return 0;
    }
    return !S_ISREG(mode) && !S_ISLNK(mode) ? EMEDIUMTYPE : for_directory ? ENOTDIR : 0;
}

/* A source that was another one on an earlier connection. */
static bool is_another(const struct receiver *receiver, const struct message *message)
{
    return receiver->tree.depth == 0 && receiver_wishes(receiver, WISH_DELETE) &&
           !protocol_is_identity(receiver->options.identities, message->entry.source,
                                 message->entry.identity);
}

/* The directory was entered: it may be what the one source is called here. */
static void mark_named(const struct receiver *receiver)
{
    const struct target *target = receiver->options.target;
    if (receiver->tree.depth == 1 && !target->into && target->named[0] != 0 &&
        tree_is_new(&receiver->tree)) {
        half_mark_name(tree_directory(&receiver->tree), target->named);
    }
}

void receiver_begin_directory(struct receiver *receiver, const struct message *message,
                              const char *name)
{
    const struct present present = look(receiver, name);
    struct tree_entry entry = {
        .keep_target =
            receiver_wishes(receiver, WISH_KEEP_TARGET) ||
            (!receiver_wishes(receiver, WISH_PERMS) && !receiver->options.target->created),
        .dry = receiver_wishes(receiver, WISH_DRY_RUN),
        .revisited = (receiver->options.wishes->preserve & PRESERVE_HARD_LINKS) != 0 &&
                     !receiver->options.super,
        .attributes = attributes_of(receiver, message),
        .xattrs = receiver_take_xattrs(receiver),
    };
    uint32_t left;
    if (compare_other(receiver->options.wishes, present.exists ? &present.status : NULL, true,
                      &left) == ANSWER_LEFT) {
        xattrs_clear(&entry.xattrs);
        receiver_tell(receiver, ENTRY_DIRECTORY, 0, left);
        receiver->dead_depth = 1;
        receiver->dead_left = true;
        tree_forget(&receiver->tree);
        return;
    }
    bool another = is_another(receiver, message);
    bool deep =
        receiver->options.depth_max > 0 && receiver->tree.depth >= receiver->options.depth_max;
    int stays = why_it_stays(receiver, &present, true);
    int error = stays != 0 ? stays : deep || another ? E2BIG : 0;
    if (error != 0 || (error = tree_enter(&receiver->tree, name, message->entry.id, &entry)) != 0) {
        xattrs_clear(&entry.xattrs);
    }
    bool deletes = receiver_wishes(receiver, WISH_DELETE) && receiver->tree.depth == 1;
    if (error == 0 && deletes &&
        !receiver_remember_source(receiver, message->entry.source, name, message->entry.name)) {
        receiver->source_failures++;
    }
    if (error == 0) {
        mark_named(receiver);
        receiver->options.tally->directories++;
        receiver_tell(receiver, ENTRY_DIRECTORY, 0, entry.changes);
        return;
    }
    if (another) {
        receiver_fail(receiver, message->entry.id, PROBLEM_CHANGED, PROTOCOL_OTHER_DIRECTORY);
    } else if (deep) {
        receiver_fail(receiver, message->entry.id, PROBLEM_CONFINED,
                      walk_error_text(WALK_ERROR_DEEP));
    } else {
        receiver_fail_errno(receiver, message->entry.id, error);
    }
    receiver->dead_depth = 1;
    receiver->dead_left = false;
    tree_forget(&receiver->tree);
}

void receiver_remember_names(struct receiver *receiver, uint32_t id, uint32_t names)
{
    if ((receiver->options.wishes->preserve & PRESERVE_HARD_LINKS) != 0) {
        hard_links_placed(&receiver->links, id, names, receiver->tree.top,
                          tree_relative(&receiver->tree));
    }
}

/* What a file that comes changes here; nobody may want to know. */
static uint32_t changes_of(struct receiver *receiver, const struct message *message,
                           const char *name, const struct present *present,
                           const struct attributes *attributes)
{
    uint32_t changes = CHANGE_SENT;
    if (!receiver_wishes(receiver, WISH_ITEMS)) {
        return changes;
    }
    if (receiver_wishes(receiver, WISH_CHECKSUM)) {
        changes |= CHANGE_CONTENTS;
    }
    if (!present->exists || !S_ISREG(present->status.st_mode)) {
        return changes | CHANGE_NEW;
    }
    if ((uint64_t)present->status.st_size != message->entry.size) {
        changes |= CHANGE_SIZE;
    }
    struct attributes told = *attributes;
    uint32_t others = 0;
    told.dry = true;
    place_keep(tree_directory(&receiver->tree), name, &present->status, &told, &others);
    return changes | others;
}

/* The receiver has the file's contents, as it answered. */
static void keep_file(struct receiver *receiver, const struct message *message, const char *name,
                      const struct present *present, const struct attributes *attributes)
{
    uint32_t changes = 0;
    int error =
        place_keep(tree_directory(&receiver->tree), name, &present->status, attributes, &changes);
    if (error != 0) {
        receiver_fail_errno(receiver, message->entry.id, error);
        return;
    }
    if (receiver_wishes(receiver, WISH_CHECKSUM) && !receiver_wishes(receiver, WISH_DRY_RUN)) {
        half_mark_clear_name(tree_directory(&receiver->tree), name); /* it is proven to be whole */
    }
    receiver_remember_names(receiver, message->entry.id, message->entry.names);
    receiver_count_untouched(receiver, message->entry.id, ENTRY_FILE, message->entry.size,
                             &receiver->options.tally->same);
    receiver_tell(receiver, ENTRY_FILE, message->entry.size, changes);
}

void receiver_begin_dead_file(struct receiver *receiver, const struct message *message)
{
    receiver->state = RECEIVER_FILE;
    receiver->file = (struct current_file){
        .id = message->entry.id,
        .source = message->entry.source,
        .size = message->entry.size,
        .discarded = true,
        .left = receiver->dead_left,
        .place = {.fd = -1},
    };
    receiver->resuming.awaited = protocol_is_resumed(receiver->options.wishes, receiver->file.size);
}

static void begin_chunks(struct receiver *receiver, const struct message *message, const char *name,
                         const struct present *present, const struct attributes *attributes,
                         uint32_t changes)
{
    receiver->state = RECEIVER_FILE;
    receiver->file = (struct current_file){
        .id = message->entry.id,
        .source = message->entry.source,
        .size = message->entry.size,
        .names = message->entry.names,
        .changes = changes,
        .waits = receiver_may_wait(receiver, message), /* asked while we have the xattrs */
        .attributes = *attributes,
        .place = {.fd = -1},
    };
    receiver->file.xattrs = receiver_take_xattrs(receiver);
    struct place *place = &receiver->file.place;
    uint64_t size = receiver->file.size;
    pieces_start(&receiver->pieces, size);
    receiver->resuming.awaited = protocol_is_resumed(receiver->options.wishes, size);
    bool keeps = size >= RESUMED_LENGTH_MIN && !receiver_wishes(receiver, WISH_INPLACE);
    int error = 0;
    if (keeps && receiver_begin_kept(receiver, place, name, replacing_of(receiver)) == 0) {
        set_up(receiver, place);
    } else {
        error = receiver_begin_place(receiver, place, name, present, attributes);
    }
    if (error != 0) {
        receiver->file.discarded = true;
        receiver_speak_in_turn(receiver, name);
        receiver_fail_errno(receiver, message->entry.id, error);
    } else {
        place->size = size;
        place->large = &receiver->large;
        receiver_write_behind(receiver);
    }
}

/* The peer has sent something else than what it was told, or what is here is another than when it
 * was. */
static void refuse_file(struct receiver *receiver, const struct message *message, uint32_t left)
{
    if (message->entry.content == CONTENT_CHUNKS) {
        receiver_begin_dead_file(receiver, message);
        receiver->file.left = left != 0;
    }
    if (left == 0) {
        receiver_fail_errno(receiver, message->entry.id, ESTALE);
    } else if (message->entry.content == CONTENT_CHUNKS) { /* counted at its end */
        receiver_tell(receiver, ENTRY_FILE, message->entry.size, left);
    } else {
        leave_entry(receiver, message, left);
    }
}

void receiver_place_file(struct receiver *receiver, const struct message *message, const char *name)
{
    const struct present present = look(receiver, name);
    const struct timespec mtime = {.tv_sec = message->entry.mtime_s,
                                   .tv_nsec = message->entry.mtime_ns};
    uint32_t left = 0;
    enum answer answer = receiver_compare(receiver, tree_directory(&receiver->tree), name,
                                          present.exists ? &present.status : NULL,
                                          message->entry.size, &mtime, &left);
    bool kept = message->entry.content == CONTENT_NOT_SENT;
    if (answer != ANSWER_WANTED) {
        receiver_speak_in_turn(receiver, name);
    }
    bool has =
        answer == ANSWER_SAME || (kept && answer == ANSWER_DIGEST &&
                                  receiver_still_has(receiver, message, name, &present.status));
    if (answer == ANSWER_LEFT || (kept && !has)) {
        refuse_file(receiver, message, left);
        return;
    }
    const struct attributes attributes = attributes_of(receiver, message);
    bool for_others = answer == ANSWER_SAME && receiver->options.link->carries_data;
    if (kept || for_others) { /* of a fan-out's receivers one may have what others want */
        keep_file(receiver, message, name, &present, &attributes);
        if (message->entry.content == CONTENT_CHUNKS) {
            receiver_begin_dead_file(receiver, message);
            receiver->file.left = false;
        }
        return;
    }
    if (why_it_stays(receiver, &present, false) != 0) {
        if (message->entry.content == CONTENT_CHUNKS) {
            receiver_begin_dead_file(receiver, message);
        }
        receiver_fail_errno(receiver, message->entry.id, EMEDIUMTYPE);
        return;
    }
    uint32_t changes = changes_of(receiver, message, name, &present, &attributes);
    if (message->entry.content == CONTENT_EAGER) {
        receiver_place_small(receiver, message, name, &present, &attributes, changes);
    } else if (message->entry.content == CONTENT_CHUNKS) {
        begin_chunks(receiver, message, name, &present, &attributes, changes);
    } else {
        int error = would_clear(receiver, name, &present);
        if (error != 0) {
            receiver_fail_errno(receiver, message->entry.id, error);
            return;
        }
        receiver->options.tally->files++;
        receiver->options.tally->bytes += message->entry.size;
        receiver_tell(receiver, ENTRY_FILE, message->entry.size, changes);
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

/* It is there already, but perhaps for its attributes. */
static bool is_same_node(const struct receiver *receiver, const char *name,
                         const struct present *present, const struct node *node)
{
    char target[PATH_MAX];
    if (!present->exists || (present->status.st_mode & S_IFMT) != node->type) {
        return false;
    }
    if (node->type == S_IFCHR || node->type == S_IFBLK) {
        return present->status.st_rdev == node->device;
    }
    if (node->type != S_IFLNK) {
        return true;
    }
    ssize_t length = readlinkat(tree_directory(&receiver->tree), name, target, sizeof(target));
    return length == (ssize_t)strlen(node->target) &&
           memcmp(target, node->target, (size_t)length) == 0;
}

static void count_node(struct receiver *receiver, enum entry_kind kind)
{
    struct tally *tally = receiver->options.tally;
    ++*(kind == ENTRY_SYMLINK ? &tally->symlinks : &tally->files);
    tally->specials += kind != ENTRY_SYMLINK && kind != ENTRY_FILE;
}

/* What a new node changes: all of it, or what it is. It takes nothing over from the one before it,
 * so the other's ACL and extended attributes count for nothing, as with rsync. */
static uint32_t node_changes(struct receiver *receiver, const char *name,
                             const struct present *present, const struct node *node,
                             const struct attributes *attributes)
{
    uint32_t changes = 0;
    struct attributes told = *attributes;
    if (!present->exists || (present->status.st_mode & S_IFMT) != node->type) {
        return CHANGE_NEW | CHANGE_MADE;
    }
    told.dry = true;
    place_keep(tree_directory(&receiver->tree), name, &present->status, &told, &changes);
    changes &= ~(uint32_t)(CHANGE_ACL | CHANGE_XATTR);
    return changes | attributes_of_new(attributes) | CHANGE_MADE | CHANGE_CONTENTS;
}

static int place_or_keep(struct receiver *receiver, enum entry_kind kind, const char *name,
                         const struct present *present, const struct node *node,
                         const struct attributes *attributes, uint32_t *ret_changes)
{
    int directory = tree_directory(&receiver->tree), error = 0;
    if (is_same_node(receiver, name, present, node)) {
        error = place_keep(directory, name, &present->status, attributes, ret_changes);
        if (error == 0) {
            receiver_count_untouched(receiver, receiver->last_id, kind, 0,
                                     &receiver->options.tally->same);
        }
        return error;
    }
    if (why_it_stays(receiver, present, false) != 0) {
        return EMEDIUMTYPE;
    }
    *ret_changes = node_changes(receiver, name, present, node, attributes);
    if (!attributes->dry) {
        error = place_node(directory, name, node, attributes, replacing_of(receiver),
                           &receiver->clearing);
    } else {
        error = would_clear(receiver, name, present);
    }
    if (error == 0) {
        count_node(receiver, kind);
    }
    return error;
}

void receiver_place_node(struct receiver *receiver, const struct message *message, const char *name)
{
    char target[PATH_MAX];
    memcpy(target, message->entry.data.bytes, message->entry.data.length);
    target[message->entry.data.length] = 0;
    const struct node node = {.type = type_of(message->entry.kind),
                              .device = makedev(message->entry.major, message->entry.minor),
                              .target = target};
    const struct present present = look(receiver, name);
    uint32_t changes = 0;
    if (is_device(message->entry.kind) && !receiver->options.super) {
        receiver_fail(receiver, message->entry.id, PROBLEM_DENIED,
                      "devices are made by root only, and by a server only with --super");
        return;
    }
    if (compare_other(receiver->options.wishes, present.exists ? &present.status : NULL, false,
                      &changes) == ANSWER_LEFT) {
        leave_entry(receiver, message, changes);
        return;
    }
    const struct attributes attributes = attributes_of(receiver, message);
    int error =
        place_or_keep(receiver, message->entry.kind, name, &present, &node, &attributes, &changes);
    if (error != 0) {
        receiver_fail_errno(receiver, message->entry.id, error);
        return;
    }
    receiver_remember_names(receiver, message->entry.id, message->entry.names);
    receiver_tell(receiver, message->entry.kind, 0, changes);
}

/* The name is one of that file's already. */
static bool is_linked(const struct present *present, int fd)
{
    struct stat status;
    return present->exists && fstat(fd, &status) == 0 && status.st_dev == present->status.st_dev &&
           status.st_ino == present->status.st_ino;
}

void receiver_place_link(struct receiver *receiver, const struct message *message, const char *name)
{
    bool dry = receiver_wishes(receiver, WISH_DRY_RUN);
    const struct present present = look(receiver, name);
    uint32_t changes = 0;
    if (receiver_compare_link(receiver, message, name, present.exists ? &present.status : NULL,
                              &changes) == ANSWER_LEFT) {
        hard_links_pass(&receiver->links, message->entry.first);
        leave_entry(receiver, message, changes);
        return;
    }
    int fd = hard_links_open(&receiver->links, message->entry.first, receiver->tree.top);
    if (fd < 0 && !dry) {
        receiver_fail(receiver, message->entry.id, problem_code_of_errno(-fd),
                      "the file it is another name of is not there");
        return;
    }
    bool linked = fd >= 0 && is_linked(&present, fd);
    int error = 0;
    if (!linked && !dry) {
        error = place_hard_link(tree_directory(&receiver->tree), name, fd,
                                receiver_wishes(receiver, WISH_FSYNC), replacing_of(receiver),
                                &receiver->clearing);
    } else if (dry) {
        error = would_clear(receiver, name, &present);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (error != 0) {
        receiver_fail_errno(receiver, message->entry.id, error);
        return;
    }
    if (linked) {
        receiver_count_untouched(receiver, message->entry.id, message->entry.of, 0,
                                 &receiver->options.tally->same);
    } else {
        count_node(receiver, message->entry.of);
    }
    changes = linked ? 0 : CHANGE_MADE | (present.exists ? 0 : CHANGE_NEW);
    receiver_tell(receiver, message->entry.of, 0, changes | CHANGE_LINKED);
}

bool receiver_check_file(struct receiver *receiver, const struct message *message)
{
    uint8_t digest[DIGEST_LENGTH];
    pieces_result(&receiver->pieces, digest);
    return memcmp(digest, message->end.digest, DIGEST_LENGTH) == 0;
}

void receiver_commit_file(struct receiver *receiver)
{
    struct current_file *file = &receiver->file;
    if (file->waits) {
        receiver_give_file(receiver);
        return;
    }
    file->attributes.xattrs = &file->xattrs;
    int error = place_commit(&file->place, file->size, &file->attributes);
    if (error != 0) {
        receiver_uncount_file(receiver);
        receiver_fail_errno(receiver, file->id, error);
        return;
    }
    receiver_remember_names(receiver, file->id, file->names);
    receiver->options.tally->files++;
    receiver_tell(receiver, ENTRY_FILE, file->size, file->changes);
}
