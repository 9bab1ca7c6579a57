/* Questions to the kernel that touch nothing themselves, so that a hole is an answer and no signal.
 */
#include "rnic/io/system/mapping.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rnic/io/system/cancel.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define PAGES_AT_A_TIME 4096u

/* The whole pages around a range; false: it wraps. */
static bool pages_around(const void *address, size_t length, void **ret_first, size_t *ret_length)
{
    uintptr_t mask = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
    uintptr_t start = (uintptr_t)address;
    if (length > UINTPTR_MAX - mask - start) {
        return false;
    }
    uintptr_t first = start & ~mask;
    *ret_first = (void *)first;
    *ret_length = ((start + length + mask) & ~mask) - first;
    return true;
}

/* mincore says ENOMEM for a hole. msync would, too, and quicker for large ranges; but then tools
 * such as valgrind take the whole pages for read, and what is not yet written in them for a
 * mistake. */
bool mapping_is_there(const void *address, size_t length)
{
    unsigned char in_memory[PAGES_AT_A_TIME];
    void *first;
    size_t size;
    if (length == 0) {
        return true;
    }
    if (!pages_around(address, length, &first, &size)) {
        return false;
    }
    size_t most = sizeof in_memory * (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < size; at += most) {
        size_t part = size - at < most ? size - at : most;
        if (mincore((char *)first + at, part, in_memory) != 0 && errno == ENOMEM) {
            return false;
        }
    }
    return true;
}

/* Asks for a page that is certainly there. */
static bool knows_populate(void)
{
    void *first;
    size_t size;
    char here = 0;
    return pages_around(&here, 1, &first, &size) && madvise(first, size, MADV_POPULATE_READ) == 0;
}

bool mapping_populate(void *address, size_t length, bool write)
{
    void *first;
    size_t size;
    if (length == 0) {
        return true;
    }
    if (!pages_around(address, length, &first, &size)) {
        return false;
    }
    if (madvise(first, size, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) {
        return true;
    }
    /* EINVAL: rights that forbid it, memory of a device; or a kernel too old for the question. */
    return errno == EINVAL && !knows_populate() && mapping_is_there(address, length);
}

/* What the kernel lists of a page: true also where it lists nothing. */
static bool is_listed_writable(uintptr_t page)
{
    char line[512];
    uintptr_t first, end;
    char rights[5] = "?w??";
    int cancel = cancel_hold();
    FILE *file = fopen("/proc/thread-self/maps", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char found[5];
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &first, &end, found) == 3 &&
            page >= first && page < end) {
            memcpy(rights, found, sizeof rights);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    cancel_restore(cancel);
    return rights[1] == 'w';
}

/* The answer to the first question may also be EINVAL for a device's memory or an old kernel. */
static bool is_page_writable(uintptr_t address)
{
    void *first;
    size_t size;
    return pages_around((void *)address, 1, &first, &size) &&
           (madvise(first, size, MADV_POPULATE_WRITE) == 0 ||
            (errno == EINVAL && is_listed_writable((uintptr_t)first)));
}

bool mapping_is_writable(void *address, size_t length)
{
    uintptr_t start = (uintptr_t)address;
    return length == 0 || (is_page_writable(start) && is_page_writable(start + length - 1));
}

static bool probe_populates(struct memory_probe *probe, uint8_t *bytes, uint64_t length, bool write)
{
    return mapping_populate(bytes, length, write);
}

struct memory_probe *mapping_probe(void)
{
    static struct memory_probe the_probe = {probe_populates};
    return &the_probe;
}
