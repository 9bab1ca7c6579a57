#include "tools/private_mounts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* sysfs takes no new folder, nor does /dev from everybody: so each of these is covered with a
 * folder in memory, in which what was there before is mounted again, and ours besides. */
static const struct {
    const char *folder;
    const char *hidden; /* what begins so is the machine's own, and stays out */
} covered[] = {
    {"/sys/class", "infiniband"},
    {"/sys/class/misc", "rdma_cm"},
    {"/dev", "infiniband"},
};

struct cover {
    const char *folder;
    int before; /* the folder as it was */
    char *reason;
};

static bool refuse(char *ret_reason, const char *what, const char *about)
{
    int error = errno;
    snprintf(ret_reason, PRIVATE_MOUNTS_REASON, "%s%s%.300s: %s", what, about[0] != 0 ? " " : "",
             about, strerror(error));
    return false;
}

static bool write_file(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    bool good = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0) {
        close(file);
    }
    return good;
}

static bool make_user_namespace(char *ret_reason)
{
    uid_t user = geteuid();
    gid_t group = getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        refuse(ret_reason, "this system refuses a user namespace", "");
        size_t length = strlen(ret_reason);
        snprintf(ret_reason + length, PRIVATE_MOUNTS_REASON - length,
                 " (see sysctl user.max_user_namespaces and kernel.unprivileged_userns_clone; in a "
                 "container, its seccomp profile). Without --namespace all programs but scripts "
                 "and static ones see the device");
        return false;
    }
    char map[64];
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)user, (unsigned)user);
    if (!write_file("/proc/self/uid_map", map)) {
        return refuse(ret_reason, "/proc/self/uid_map", "");
    }
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)group, (unsigned)group);
    if (!write_file("/proc/self/setgroups", "deny") || !write_file("/proc/self/gid_map", map)) {
        return refuse(ret_reason, "/proc/self/gid_map", "");
    }
    return true;
}

static bool bind_mount(const char *from, const char *to, char *ret_reason)
{
    return mount(from, to, NULL, MS_BIND | MS_REC, NULL) == 0 ||
           refuse(ret_reason, "cannot mount", to);
}

/* The tree is shared with other programs: nobody writes to it, root neither. */
static bool mount_tree(const char *from, const char *to, char *ret_reason)
{
    const unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    return bind_mount(from, to, ret_reason) &&
           (mount(NULL, to, NULL, flags, NULL) == 0 || refuse(ret_reason, "cannot protect", to));
}

/* An empty file for something to be mounted on. */
static bool make_file(const char *path, char *ret_reason)
{
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    return file >= 0 ? close(file) == 0 : refuse(ret_reason, "cannot make", path);
}

static bool restore_one(const struct cover *cover, const char *name)
{
    char from[PATH_MAX], to[PATH_MAX], target[PATH_MAX];
    struct stat facts;
    snprintf(from, sizeof(from), "/proc/self/fd/%d/%s", cover->before, name);
    snprintf(to, sizeof(to), "%s/%s", cover->folder, name);
    if (fstatat(cover->before, name, &facts, AT_SYMLINK_NOFOLLOW) != 0) {
        return true; /* gone since it was listed */
    }
    if (S_ISLNK(facts.st_mode)) {
        ssize_t length = readlinkat(cover->before, name, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = 0;
        return symlink(target, to) == 0 || refuse(cover->reason, "cannot make", to);
    }
    bool made = S_ISDIR(facts.st_mode)
                    ? mkdir(to, 0755) == 0 || refuse(cover->reason, "cannot make", to)
                    : make_file(to, cover->reason);
    return made && bind_mount(from, to, cover->reason);
}

/* The tree's links to /dev/null, as devices. */
static bool add_devices(const char *from, const char *to, char *ret_reason)
{
    char path[PATH_MAX];
    DIR *list = opendir(from);
    bool good = list != NULL || refuse(ret_reason, "cannot read", from);
    for (struct dirent *entry; good && (entry = readdir(list)) != NULL;) {
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%.3800s/%s", to, entry->d_name);
            good = make_file(path, ret_reason) && bind_mount("/dev/null", path, ret_reason);
        }
    }
    if (list != NULL) {
        closedir(list);
    }
    return good;
}

/* One folder of the tree, in its place. */
static bool add_one(const struct cover *cover, const char *tree, const char *name)
{
    char from[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof(from), "%s%s/%s", tree, cover->folder, name);
    snprintf(to, sizeof(to), "%s/%s", cover->folder, name);
    if (mkdir(to, 0755) != 0) {
        return refuse(cover->reason, "cannot make", to);
    }
    return strcmp(cover->folder, "/dev") == 0 ? add_devices(from, to, cover->reason)
                                              : mount_tree(from, to, cover->reason);
}

/* Calls one of the above for each entry that begins with `hidden`, or for each that does not. */
static bool each(const struct cover *cover, const char *folder, const char *hidden,
                 const char *tree)
{
    DIR *list = opendir(folder);
    bool good = list != NULL || refuse(cover->reason, "cannot read", folder);
    for (struct dirent *entry; good && (entry = readdir(list)) != NULL;) {
        const char *name = entry->d_name;
        bool ours = strncmp(name, hidden, strlen(hidden)) == 0;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && ours == (tree != NULL)) {
            good = tree != NULL ? add_one(cover, tree, name) : restore_one(cover, name);
        }
    }
    if (list != NULL) {
        closedir(list);
    }
    return good;
}

static bool cover_folder(const char *folder, const char *hidden, const char *tree, char *ret_reason)
{
    char before[64], ours[PATH_MAX];
    struct cover cover = {
        .folder = folder,
        .before = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC),
        .reason = ret_reason,
    };
    if (cover.before < 0) {
        return refuse(ret_reason, "cannot open", folder);
    }
    snprintf(before, sizeof(before), "/proc/self/fd/%d", cover.before);
    snprintf(ours, sizeof(ours), "%s%s", tree, folder);
    bool good = mount("weir", folder, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=4m") == 0 ||
                refuse(ret_reason, "cannot mount", folder);
    good = good && each(&cover, before, hidden, NULL) && each(&cover, ours, hidden, tree);
    close(cover.before);
    return good;
}

bool private_mounts_enter(const char *tree, char ret_reason[PRIVATE_MOUNTS_REASON])
{
    if (unshare(CLONE_NEWNS) != 0 && !make_user_namespace(ret_reason)) {
        return false;
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) { /* nothing of this gets out */
        return refuse(ret_reason, "cannot make mounts private", "");
    }
    for (size_t i = 0; i < sizeof(covered) / sizeof(covered[0]); i++) {
        if (!cover_folder(covered[i].folder, covered[i].hidden, tree, ret_reason)) {
            return false;
        }
    }
    return true;
}
