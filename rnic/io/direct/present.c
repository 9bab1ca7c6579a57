#include "rnic/io/direct/present.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* struct page_region and struct pm_scan_arg of linux/fs.h, since 6.7. */
struct region {
    uint64_t start, end, categories;
};
struct scan {
    uint64_t size, flags, start, end, walk_end, regions, region_count, pages_max;
    uint64_t inverted, all_of, any_of, told;
};

#define SCAN      _IOWR('f', 16, struct scan)
#define PRESENT   (UINT64_C(1) << 3)
#define SWAPPED   (UINT64_C(1) << 4)
#define ZERO_PAGE (UINT64_C(1) << 5) /* what was read and never written */

/* The regions found, at most one; below 0: it failed. */
static long scan_pages(int pages, uintptr_t start, uintptr_t end, struct region *ret_region)
{
    struct scan scan = {
        .size = sizeof scan,
        .start = start,
        .end = end,
        .regions = (uintptr_t)ret_region,
        .region_count = 1,
        .inverted = ZERO_PAGE,
        .all_of = ZERO_PAGE,
        .any_of = PRESENT | SWAPPED,
        .told = PRESENT | SWAPPED,
    };
    return syscall(SYS_ioctl, pages, SCAN, &scan);
}

int present_open(void)
{
    int pages = open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC);
    struct region region = {0};
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t page = (uintptr_t)&region / page_bytes * page_bytes;
    if (pages >= 0 && scan_pages(pages, page, page + page_bytes, &region) != 1) {
        close(pages);
        pages = -1;
    }
    return pages;
}

bool present_next(int pages, uint8_t *bytes, uint64_t length, struct present_run *ret_run)
{
    struct region region = {0};
    long found =
        length == 0 ? 0 : scan_pages(pages, (uintptr_t)bytes, (uintptr_t)bytes + length, &region);
    *ret_run = found <= 0 ? (struct present_run){bytes, length}
                          : (struct present_run){bytes + (region.start - (uintptr_t)bytes),
                                                 region.end - region.start};
    return found != 0;
}
