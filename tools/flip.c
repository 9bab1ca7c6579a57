/* Preloaded into one end of a test's transfer, flips one bit of what passes through it, once:
 *
 * WEIR_FLIP=copy:LENGTH:NUMBER     in the source of the NUMBERth memcpy of so many bytes, before it
 *           write:LENGTH:NUMBER    in the buffer of the NUMBERth pwrite of so many bytes, before it
 *           storage:LENGTH:NUMBER  in what that writes, while the buffer stays as it is
 * WEIR_FLIP_MARK=FILE              is made then, so that a test knows that it has tested something
 *
 * The RNIC copies a packet's payload to its place when the ICRC has been found right: such a
 * memcpy. The receiver of a transfer writes from the chunk that the bytes came to, its staging
 * buffer. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum place {
    NOWHERE,
    COPY,
    WRITE,
    STORAGE
};

static enum place place;
static size_t flip_length;
static long left; /* until it is done */
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);

__attribute__((constructor)) static void prepare(void)
{
    const char *text = getenv("WEIR_FLIP");
    char kind[16];
    unsigned long number;
    *(void **)&real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    if (text != NULL && sscanf(text, "%15[a-z]:%zu:%lu", kind, &flip_length, &number) == 3) {
        left = (long)number;
        place = strcmp(kind, "copy") == 0 ? COPY : strcmp(kind, "write") == 0 ? WRITE : STORAGE;
    }
}

/* It is this one's turn. */
static int is_due(enum place here, size_t length)
{
    if (place != here || length != flip_length ||
        __atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED) != 0) {
        return 0;
    }
    close(open(getenv("WEIR_FLIP_MARK"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    return 1;
}

static void flip(const void *bytes, size_t length)
{
    ((unsigned char *)(size_t)bytes)[length / 3] ^= 0x10;
}

/* By memmove, which is not ours. */
#pragma GCC visibility push(default)
void *memcpy(void *restrict to, const void *restrict from, size_t length)
{
    if (is_due(COPY, length)) {
        flip(from, length);
    }
    return memmove(to, from, length);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t at)
{
    if (is_due(WRITE, length)) {
        flip(bytes, length);
    } else if (is_due(STORAGE, length)) {
        flip(bytes, length);
        ssize_t written = real_pwrite(fd, bytes, length, at);
        flip(bytes, length);
        return written;
    }
    return real_pwrite(fd, bytes, length, at);
}
