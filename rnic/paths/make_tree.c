/* weir-tree: makes the tree that libweir-paths.so answers from, and prints its path. `weir run`
 * calls it before each program.
 *
 * Trees lie in one folder of this user, each named after the digest of what it shows, so that one
 * serves all programs that see the same devices, is never written to once it has its name, and
 * stays while a process uses it, for programs outlive who started them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rnic/paths/prune.h"
#include "rnic/paths/tree.h"

#define NAMES 16 /* of the folder, as many as somebody else may have taken */

static int complain(const char *what, int error)
{
    fprintf(stderr, "weir-tree: %s: %s\n", what, strerror(error));
    return 1;
}

/* Ours, and writable by nobody else: what lies in it is believed. Returns its descriptor; -1 and
 * errno. */
static int open_home(const char *home)
{
    struct stat facts;
    if (mkdir(home, 0755) != 0 && errno != EEXIST) {
        return -1;
    }
    int folder = open(home, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0 && fstat(folder, &facts) == 0 && facts.st_uid == geteuid() &&
        (facts.st_mode & 022) == 0) {
        return folder;
    }
    if (folder >= 0) {
        close(folder);
        errno = EPERM;
    }
    return -1;
}

/* Where the registry is, too (registry_path). In a folder that everybody may write to somebody else
 * may have taken the name, then there is the next one. Of all that write trees one does so at a
 * time, until it ends. */
static bool make_home(char ret_home[PATH_MAX])
{
    bool has_shm = faccessat(AT_FDCWD, "/dev/shm", W_OK | X_OK, AT_EACCESS) == 0;
    const char *where = has_shm ? "/dev/shm" : "/tmp";
    snprintf(ret_home, PATH_MAX, "%s/weir-%u-paths", where, (unsigned)geteuid());
    size_t length = strlen(ret_home);
    int folder = open_home(ret_home);
    for (unsigned i = 1; folder < 0 && i < NAMES; i++) {
        snprintf(ret_home + length, PATH_MAX - length, ".%u", i);
        folder = open_home(ret_home);
    }
    return folder >= 0 && flock(folder, LOCK_EX) == 0;
}

/* Writes beside, then names: a tree that has its name is whole. Who comes second finds the name
 * taken by an equal tree. */
static int write_tree(const char *home, const char *path)
{
    char beside[PATH_MAX + 16];
    struct tree tree;
    snprintf(beside, sizeof beside, "%s/.new-XXXXXX", home);
    if (mkdtemp(beside) == NULL || chmod(beside, 0755) != 0) {
        return complain(home, errno);
    }
    tree_begin(&tree, beside);
    if (!tree_describe(&tree)) {
        remove_tree(beside);
        return complain(tree.culprit, tree.error);
    }
    if (rename(beside, path) != 0) {
        int error = errno;
        remove_tree(beside);
        if (error != EEXIST && error != ENOTEMPTY) {
            return complain(path, error);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 1) {
        fprintf(stderr, "usage: weir-tree\nMakes the tree of the RDMA devices, prints its path.\n");
        return 2;
    }
    char home[PATH_MAX], path[PATH_MAX + 32];
    struct stat facts;
    struct tree tree;
    umask(022);
    tree_begin(&tree, "");
    if (!tree_describe(&tree)) {
        return complain(tree.culprit, tree.error);
    }
    if (!make_home(home)) {
        return complain(home, errno);
    }
    snprintf(path, sizeof path, "%s/%016" PRIx64, home, tree.digest);
    if (lstat(path, &facts) != 0) {
        prune_trees(home);
        int status = write_tree(home, path);
        if (status != 0) {
            return status;
        }
    }
    utimensat(AT_FDCWD, path, NULL, 0); /* in use from now on, for prune_trees */
    puts(path);
    return fflush(stdout) == 0 ? 0 : complain("standard output", errno);
}
