#include "rnic/io/system/stretch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAME_BYTES 128u /* [anon:...] has at most 87 */

/* struct procmap_query of linux/fs.h, since 6.11. */
struct query {
    uint64_t size, flags, address;
    uint64_t start, end, found, page_bytes, offset, inode;
    uint32_t major, minor, name_bytes, build_bytes;
    uint64_t name, build;
};

#define QUERY         _IOWR('f', 17, struct query)
#define FOUND_READ    0x01u
#define FOUND_WRITE   0x02u
#define FOUND_EXECUTE 0x04u
#define FOUND_SHARED  0x08u
#define AT_OR_NEXT    0x10u

int stretch_open(void)
{
    int stretches = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);
    struct stretch here;
    if (stretches >= 0 && !stretch_at(stretches, (uintptr_t)&here, &here)) {
        close(stretches);
        stretches = -1;
    }
    return stretches;
}

/* Not "[stack]", for one; and not what has a longer name than any plain one. */
static bool has_plain_name(const char *name)
{
    return name[0] == '\0' || strcmp(name, "[heap]") == 0 || strncmp(name, "[anon:", 6) == 0;
}

static bool ask(int stretches, uintptr_t address, struct query *query, char *name)
{
    *query = (struct query){.size = sizeof *query, .flags = AT_OR_NEXT, .address = address};
    if (name != NULL) {
        name[0] = '\0';
        query->name = (uintptr_t)name;
        query->name_bytes = NAME_BYTES;
    }
    return syscall(SYS_ioctl, stretches, QUERY, query) == 0;
}

bool stretch_at(int stretches, uintptr_t address, struct stretch *ret_stretch)
{
    struct query query;
    char name[NAME_BYTES];
    bool named = ask(stretches, address, &query, name);
    if (!named && !ask(stretches, address, &query, NULL)) {
        return false;
    }
    *ret_stretch = (struct stretch){
        .start = (uintptr_t)query.start,
        .end = (uintptr_t)query.end,
        .protection = ((query.found & FOUND_READ) != 0 ? PROT_READ : 0) |
                      ((query.found & FOUND_WRITE) != 0 ? PROT_WRITE : 0) |
                      ((query.found & FOUND_EXECUTE) != 0 ? PROT_EXEC : 0),
        .plain = named && (query.found & FOUND_SHARED) == 0 && query.inode == 0 &&
                 query.page_bytes == (uint64_t)sysconf(_SC_PAGESIZE) && has_plain_name(name),
        .inode = query.inode,
        .offset = query.offset,
        .major = query.major,
        .minor = query.minor,
    };
    return true;
}
