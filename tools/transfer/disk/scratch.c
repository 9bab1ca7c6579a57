#include "tools/transfer/disk/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A test cannot go on without its directory. */
static void need(bool good)
{
    if (!good) {
        perror("scratch directory");
        abort();
    }
}

struct scratch *scratch_create(void)
{
    struct scratch *scratch = calloc(1, sizeof(*scratch));
    need(scratch != NULL);
    strcpy(scratch->path, "/tmp/weir-test-XXXXXX");
    need(mkdtemp(scratch->path) != NULL);
    scratch->fd = open(scratch->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    need(scratch->fd >= 0);
    return scratch;
}

static int open_up(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    return kind == FTW_D || kind == FTW_DNR ? chmod(path, 0700) : 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    return remove(path);
}

void scratch_destroy(struct scratch *scratch)
{
    close(scratch->fd);
    nftw(scratch->path, open_up, 16, FTW_PHYS);
    nftw(scratch->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(scratch);
}

void scratch_write(const struct scratch *scratch, const char *name, const char *text)
{
    int fd = openat(scratch->fd, name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    need(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

void scratch_fill(const struct scratch *scratch, const char *name, size_t length, unsigned seed)
{
    uint8_t *bytes = malloc(length + 1);
    need(bytes != NULL);
    for (size_t i = 0; i < length; i++) {
        seed = seed * 1664525 + 1013904223;
        bytes[i] = (uint8_t)(seed >> 24);
    }
    int fd = openat(scratch->fd, name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    need(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
    close(fd);
    free(bytes);
}

void scratch_directory(const struct scratch *scratch, const char *name)
{
    need(mkdirat(scratch->fd, name, 0755) == 0);
}

bool scratch_exists(const struct scratch *scratch, const char *name)
{
    struct stat status;
    return fstatat(scratch->fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static char *contents(const struct scratch *scratch, const char *name, size_t *ret_length)
{
    struct stat status;
    int fd = openat(scratch->fd, name, O_RDONLY | O_CLOEXEC);
    need(fd >= 0 && fstat(fd, &status) == 0);
    char *bytes = calloc(1, (size_t)status.st_size + 1);
    need(bytes != NULL && read(fd, bytes, (size_t)status.st_size) == status.st_size);
    close(fd);
    *ret_length = (size_t)status.st_size;
    return bytes;
}

void scratch_expect(const struct scratch *scratch, const char *name, const char *text)
{
    size_t length;
    char *bytes = contents(scratch, name, &length);
    if (strcmp(bytes, text) != 0 || length != strlen(text)) {
        fprintf(stderr, "%s holds \"%s\", not \"%s\"\n", name, bytes, text);
        abort();
    }
    free(bytes);
}

bool scratch_same(const struct scratch *scratch, const char *one, const char *other)
{
    size_t lengths[2];
    char *bytes[2] = {contents(scratch, one, &lengths[0]), contents(scratch, other, &lengths[1])};
    bool same = lengths[0] == lengths[1] && memcmp(bytes[0], bytes[1], lengths[0]) == 0;
    free(bytes[0]);
    free(bytes[1]);
    return same;
}

int scratch_count(const struct scratch *scratch)
{
    DIR *stream = opendir(scratch->path);
    int count = -2; /* "." and ".." */
    need(stream != NULL);
    while (readdir(stream) != NULL) {
        count++;
    }
    closedir(stream);
    return count;
}
