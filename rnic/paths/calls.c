/* libweir-paths.so: the C library's calls that take a path, each with its path redirected and then
 * as it is in the library that comes next. Preloaded; it decides nothing (redirect.c does) and
 * makes nothing (tree.c does).
 *
 * Calls can come before our constructor (from constructors of other libraries): then the first one
 * does the constructor's work. After that no call here allocates, locks or looks up a symbol, so
 * each is as safe in a signal handler as the one behind it. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "rnic/paths/redirect.h"

#define PUBLIC __attribute__((visibility("default")))

/* What older binaries and fortified ones call; the headers no longer declare these. */
int __xstat(int version, const char *path, struct stat *ret_stat);
int __xstat64(int version, const char *path, struct stat64 *ret_stat);
int __lxstat(int version, const char *path, struct stat *ret_stat);
int __lxstat64(int version, const char *path, struct stat64 *ret_stat);
int __fxstatat(int version, int folder, const char *path, struct stat *ret_stat, int flags);
int __fxstatat64(int version, int folder, const char *path, struct stat64 *ret_stat, int flags);
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);
ssize_t __readlink_chk(const char *path, char *ret_text, size_t size, size_t room);
ssize_t __readlinkat_chk(int folder, const char *path, char *ret_text, size_t size, size_t room);
char *__realpath_chk(const char *path, char *ret_path, size_t room);

#define CALLS(X)                                                                                   \
    X(stat), X(stat64), X(lstat), X(lstat64), X(fstatat), X(fstatat64), X(statx), X(__xstat),      \
        X(__xstat64), X(__lxstat), X(__lxstat64), X(__fxstatat), X(__fxstatat64), X(access),       \
        X(faccessat), X(eaccess), X(euidaccess), X(open), X(open64), X(openat), X(openat64),       \
        X(__open_2), X(__open64_2), X(__openat_2), X(__openat64_2), X(fopen), X(fopen64),          \
        X(opendir), X(scandir), X(scandir64), X(scandirat), X(scandirat64), X(readlink),           \
        X(readlinkat), X(__readlink_chk), X(__readlinkat_chk), X(realpath), X(__realpath_chk),     \
        X(canonicalize_file_name), X(chdir), X(getxattr), X(lgetxattr)

#define AS_NUMBER(name) CALL_##name
#define AS_NAME(name)   #name
enum call {
    CALLS(AS_NUMBER),
    CALL_COUNT
};

static const char *const names[CALL_COUNT] = {CALLS(AS_NAME)};
static _Atomic(void *) followers[CALL_COUNT];
static char root[REDIRECT_ROOM];
static atomic_bool ready;

static void *follower(enum call call)
{
    void *found = atomic_load_explicit(&followers[call], memory_order_relaxed);
    if (found == NULL) {
        found = dlsym(RTLD_NEXT, names[call]);
        atomic_store_explicit(&followers[call], found, memory_order_relaxed);
    }
    return found;
}

/* Before the C library has its environment, nothing can be decided, nor is it. */
static void prepare(void)
{
    if (environ == NULL) {
        return;
    }
    const char *tree = secure_getenv(REDIRECT_VARIABLE);
    if (tree != NULL && tree[0] == '/' && tree[1] != 0 && strlen(tree) < sizeof root) {
        strcpy(root, tree);
    }
    atomic_store_explicit(&ready, true, memory_order_release);
}

__attribute__((constructor)) static void look_up_all(void)
{
    if (!atomic_load_explicit(&ready, memory_order_acquire)) {
        prepare();
    }
    for (enum call call = 0; call < CALL_COUNT; call++) {
        follower(call);
    }
}

static const char *place(const char *path, char room[REDIRECT_ROOM])
{
    if (!atomic_load_explicit(&ready, memory_order_acquire)) {
        prepare();
    }
    return redirect(root, path, room);
}

#define NEXT(name) ((__typeof__(&name))follower(CALL_##name))
/* The whole body of a call whose path only needs its place. */
#define PASS(name, path, ...)                                                                      \
    char room[REDIRECT_ROOM];                                                                      \
    const char *there = place(path, room);                                                         \
    return NEXT(name)(__VA_ARGS__)

/* A device of the tree: a link there, and a device to programs. */
static bool is_node(const char *path, const char *there)
{
    return there != path && redirect_is_device(path);
}

PUBLIC int stat(const char *path, struct stat *ret_stat)
{
    PASS(stat, path, there, ret_stat);
}

PUBLIC int stat64(const char *path, struct stat64 *ret_stat)
{
    PASS(stat64, path, there, ret_stat);
}

PUBLIC int lstat(const char *path, struct stat *ret_stat)
{
    char room[REDIRECT_ROOM];
    const char *there = place(path, room);
    return is_node(path, there) ? NEXT(stat)(there, ret_stat) : NEXT(lstat)(there, ret_stat);
}

PUBLIC int lstat64(const char *path, struct stat64 *ret_stat)
{
    char room[REDIRECT_ROOM];
    const char *there = place(path, room);
    return is_node(path, there) ? NEXT(stat64)(there, ret_stat) : NEXT(lstat64)(there, ret_stat);
}

static int followed(const char *path, const char *there, int flags)
{
    return is_node(path, there) ? flags & ~AT_SYMLINK_NOFOLLOW : flags;
}

PUBLIC int fstatat(int folder, const char *path, struct stat *ret_stat, int flags)
{
    PASS(fstatat, path, folder, there, ret_stat, followed(path, there, flags));
}

PUBLIC int fstatat64(int folder, const char *path, struct stat64 *ret_stat, int flags)
{
    PASS(fstatat64, path, folder, there, ret_stat, followed(path, there, flags));
}

PUBLIC int statx(int folder, const char *path, int flags, unsigned mask, struct statx *ret_stat)
{
    PASS(statx, path, folder, there, followed(path, there, flags), mask, ret_stat);
}

PUBLIC int __xstat(int version, const char *path, struct stat *ret_stat)
{
    PASS(__xstat, path, version, there, ret_stat);
}

PUBLIC int __xstat64(int version, const char *path, struct stat64 *ret_stat)
{
    PASS(__xstat64, path, version, there, ret_stat);
}

PUBLIC int __lxstat(int version, const char *path, struct stat *ret_stat)
{
    char room[REDIRECT_ROOM];
    const char *there = place(path, room);
    return is_node(path, there) ? NEXT(__xstat)(version, there, ret_stat)
                                : NEXT(__lxstat)(version, there, ret_stat);
}

PUBLIC int __lxstat64(int version, const char *path, struct stat64 *ret_stat)
{
    char room[REDIRECT_ROOM];
    const char *there = place(path, room);
    return is_node(path, there) ? NEXT(__xstat64)(version, there, ret_stat)
                                : NEXT(__lxstat64)(version, there, ret_stat);
}

PUBLIC int __fxstatat(int version, int folder, const char *path, struct stat *ret_stat, int flags)
{
    PASS(__fxstatat, path, version, folder, there, ret_stat, followed(path, there, flags));
}

PUBLIC int __fxstatat64(int version, int folder, const char *path, struct stat64 *ret_stat,
                        int flags)
{
    PASS(__fxstatat64, path, version, folder, there, ret_stat, followed(path, there, flags));
}

PUBLIC int access(const char *path, int mode)
{
    PASS(access, path, there, mode);
}

PUBLIC int faccessat(int folder, const char *path, int mode, int flags)
{
    PASS(faccessat, path, folder, there, mode, flags);
}

PUBLIC int eaccess(const char *path, int mode)
{
    PASS(eaccess, path, there, mode);
}

PUBLIC int euidaccess(const char *path, int mode)
{
    PASS(euidaccess, path, there, mode);
}

/* Only with these flags has the caller passed a mode. */
#define MODE_OF(flags, ret_mode)                                                                   \
    mode_t ret_mode = 0;                                                                           \
    if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) {                              \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        ret_mode = va_arg(more, mode_t);                                                           \
        va_end(more);                                                                              \
    }

/* Trees are shared by all programs that see the same devices, so nobody writes to one, root
 * neither: sysfs refuses it where an attribute is for reading, too. */
static bool may_write(const char *there)
{
    if (NEXT(access)(there, F_OK) == 0) {
        errno = EACCES;
    }
    return false;
}

/* False and errno; else what is asked of the tree. */
static bool may_open(const char *path, const char *there, int *flags)
{
    if (is_node(path, there)) {
        *flags &= ~(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW);
    } else if (there != path) {
        if ((*flags & O_ACCMODE) != O_RDONLY || (*flags & O_TRUNC) != 0) {
            return may_write(there);
        }
        *flags &= ~(O_CREAT | O_EXCL);
    }
    return true;
}

static bool may_open_stream(const char *path, const char *there, const char *mode)
{
    bool reads = mode[0] == 'r' && strpbrk(mode, "+") == NULL;
    if (there == path || reads) {
        return true;
    }
    return is_node(path, there) ? NEXT(access)(there, F_OK) == 0 : may_write(there);
}

/* The whole body of a call that opens. */
#define OPEN(name, path, flags, ...)                                                               \
    char room[REDIRECT_ROOM];                                                                      \
    const char *there = place(path, room);                                                         \
    return may_open(path, there, &(flags)) ? NEXT(name)(__VA_ARGS__) : -1

PUBLIC int open(const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    OPEN(open, path, flags, there, flags, mode);
}

PUBLIC int open64(const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    OPEN(open64, path, flags, there, flags, mode);
}

PUBLIC int openat(int folder, const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    OPEN(openat, path, flags, folder, there, flags, mode);
}

PUBLIC int openat64(int folder, const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    OPEN(openat64, path, flags, folder, there, flags, mode);
}

PUBLIC int __open_2(const char *path, int flags)
{
    OPEN(__open_2, path, flags, there, flags);
}

PUBLIC int __open64_2(const char *path, int flags)
{
    OPEN(__open64_2, path, flags, there, flags);
}

PUBLIC int __openat_2(int folder, const char *path, int flags)
{
    OPEN(__openat_2, path, flags, folder, there, flags);
}

PUBLIC int __openat64_2(int folder, const char *path, int flags)
{
    OPEN(__openat64_2, path, flags, folder, there, flags);
}

PUBLIC FILE *fopen(const char *path, const char *mode)
{
    char room[REDIRECT_ROOM];
    const char *there = place(path, room);
    return may_open_stream(path, there, mode) ? NEXT(fopen)(there, mode) : NULL;
}

PUBLIC FILE *fopen64(const char *path, const char *mode)
{
    char room[REDIRECT_ROOM];
    const char *there = place(path, room);
    return may_open_stream(path, there, mode) ? NEXT(fopen64)(there, mode) : NULL;
}

PUBLIC DIR *opendir(const char *path)
{
    PASS(opendir, path, there);
}

/* Inside the C library these do not call the opendir above. */
PUBLIC int scandir(const char *path, struct dirent ***ret_entries,
                   int (*wanted)(const struct dirent *),
                   int (*compare)(const struct dirent **, const struct dirent **))
{
    PASS(scandir, path, there, ret_entries, wanted, compare);
}

PUBLIC int scandir64(const char *path, struct dirent64 ***ret_entries,
                     int (*wanted)(const struct dirent64 *),
                     int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
    PASS(scandir64, path, there, ret_entries, wanted, compare);
}

PUBLIC int scandirat(int folder, const char *path, struct dirent ***ret_entries,
                     int (*wanted)(const struct dirent *),
                     int (*compare)(const struct dirent **, const struct dirent **))
{
    PASS(scandirat, path, folder, there, ret_entries, wanted, compare);
}

PUBLIC int scandirat64(int folder, const char *path, struct dirent64 ***ret_entries,
                       int (*wanted)(const struct dirent64 *),
                       int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
    PASS(scandirat64, path, folder, there, ret_entries, wanted, compare);
}

PUBLIC ssize_t readlink(const char *path, char *ret_text, size_t size)
{
    PASS(readlink, path, there, ret_text, size);
}

PUBLIC ssize_t readlinkat(int folder, const char *path, char *ret_text, size_t size)
{
    PASS(readlinkat, path, folder, there, ret_text, size);
}

PUBLIC ssize_t __readlink_chk(const char *path, char *ret_text, size_t size, size_t room_of_text)
{
    PASS(__readlink_chk, path, there, ret_text, size, room_of_text);
}

PUBLIC ssize_t __readlinkat_chk(int folder, const char *path, char *ret_text, size_t size,
                                size_t room_of_text)
{
    PASS(__readlinkat_chk, path, folder, there, ret_text, size, room_of_text);
}

/* What a program resolves it may print, compare or open: it gets the name that it knows. `result`
 * is the caller's buffer of PATH_MAX bytes, or a fresh string that may be too short for another. */
static char *resolved(const char *path, const char *there, char *result, bool is_fresh)
{
    if (result == NULL || there == path) {
        return result;
    }
    if (!redirect_is_device(path)) {
        redirect_undo(root, result);
        return result;
    }
    if (is_fresh) {
        free(result);
        return strdup(path);
    }
    return strcpy(result, path); /* shorter than PATH_MAX, or it would not have been redirected */
}

PUBLIC char *realpath(const char *path, char *ret_path)
{
    char room[REDIRECT_ROOM];
    const char *there = place(path, room);
    return resolved(path, there, NEXT(realpath)(there, ret_path), ret_path == NULL);
}

PUBLIC char *__realpath_chk(const char *path, char *ret_path, size_t room_of_path)
{
    char room[REDIRECT_ROOM];
    const char *there = place(path, room);
    return resolved(path, there, NEXT(__realpath_chk)(there, ret_path, room_of_path), false);
}

PUBLIC char *canonicalize_file_name(const char *path)
{
    char room[REDIRECT_ROOM];
    const char *there = place(path, room);
    return resolved(path, there, NEXT(canonicalize_file_name)(there), true);
}

PUBLIC int chdir(const char *path)
{
    PASS(chdir, path, there);
}

PUBLIC ssize_t getxattr(const char *path, const char *name, void *ret_value, size_t size)
{
    PASS(getxattr, path, there, name, ret_value, size);
}

PUBLIC ssize_t lgetxattr(const char *path, const char *name, void *ret_value, size_t size)
{
    PASS(lgetxattr, path, there, name, ret_value, size);
}
