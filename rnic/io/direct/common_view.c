#include "rnic/io/direct/common_view.h"

#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "rnic/io/direct/common.h"
#include "rnic/io/system/raw_file.h"
#include "rnic/io/system/sealed_file.h"

#define PAGE          4096u
#define AT_ONCE_BYTES (256u << 10) /* mapped page by page at once, not as it is touched */

void common_view_init(struct common_view *view)
{
    memset(view, 0, sizeof *view);
}

void common_view_end(struct common_view *view)
{
    for (uint32_t i = 0; i < COMMON_VIEW_PARTS; i++) {
        if (view->parts[i].part.length != 0) {
            munmap(view->parts[i].bytes, view->parts[i].part.length);
        }
    }
    common_view_init(view);
}

static int open_file(const struct common_owner *owner, enum status *ret_status)
{
    struct stat stat;
    struct statfs system;
    int file = sealed_file_open(owner->thread, owner->descriptor, SEALED_FILE_LINK(COMMON_NAME),
                                &stat, ret_status);
    if (file < 0) {
        return -1;
    }
    *ret_status = STATUS_DENIED;
    bool sound = stat.st_uid == geteuid() && fstatfs(file, &system) == 0 &&
                 system.f_type == TMPFS_MAGIC; /* others may have no page to give */
    if (!sound) {
        raw_close(file);
        return -1;
    }
    return file;
}

static bool file_has(int file, const struct direct_common *part)
{
    struct stat stat;
    return part->offset % PAGE == 0 && part->length % PAGE == 0 && fstat(file, &stat) == 0 &&
           part->offset <= (uint64_t)stat.st_size &&
           part->length <= (uint64_t)stat.st_size - part->offset;
}

/* NULL: it is not there. */
static uint8_t *map_part(int file, const struct direct_common *part)
{
    if (!file_has(file, part)) {
        return NULL;
    }
    int flags = MAP_SHARED | (part->length <= AT_ONCE_BYTES ? MAP_POPULATE : 0);
    void *bytes =
        mmap(NULL, part->length, PROT_READ | PROT_WRITE, flags, file, (off_t)part->offset);
    if (bytes == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(bytes, part->length, MADV_DONTFORK);
    (void)madvise(bytes, part->length, MADV_DONTDUMP);
    return bytes;
}

static bool is_same(const struct direct_common *one, const struct direct_common *other)
{
    return one->length == other->length && one->offset == other->offset;
}

/* The file is not kept open: who has many peers would soon have no descriptors left. */
static uint8_t *map_at(struct common_view *view, uint32_t place, const struct common_owner *owner,
                       const struct direct_common *part)
{
    enum status status;
    int file = open_file(owner, &status);
    if (file < 0) {
        view->hopeless = status != STATUS_NO_MEMORY;
        return NULL;
    }
    uint8_t *bytes = map_part(file, part);
    raw_close(file);
    if (bytes != NULL) {
        if (view->parts[place].part.length != 0) {
            munmap(view->parts[place].bytes, view->parts[place].part.length);
        }
        view->parts[place].part = *part;
        view->parts[place].bytes = bytes;
    }
    return bytes;
}

/* In a place that is free; in one that is taken, or after a failure, only after many misses. */
static uint8_t *take_up(struct common_view *view, uint32_t first, const struct common_owner *owner,
                        const struct direct_common *part)
{
    uint32_t place = first;
    for (uint32_t i = 1; i < COMMON_VIEW_WAYS && view->parts[place].part.length != 0; i++) {
        place = (first + i) % COMMON_VIEW_PARTS;
    }
    bool is_free = view->parts[place].part.length == 0 && view->misses == 0;
    if (!is_free && ++view->misses < COMMON_VIEW_MISSES) {
        return NULL;
    }
    uint8_t *bytes = map_at(view, place, owner, part);
    view->misses = bytes == NULL;
    return bytes;
}

uint8_t *common_view_find(struct common_view *view, const struct common_owner *owner,
                          const struct direct_common *part)
{
    uint32_t first =
        (uint32_t)((part->offset / PAGE) * UINT64_C(0x9e3779b97f4a7c15) >> 32) % COMMON_VIEW_PARTS;
    for (uint32_t i = 0; i < COMMON_VIEW_WAYS; i++) {
        uint32_t place = (first + i) % COMMON_VIEW_PARTS;
        if (is_same(&view->parts[place].part, part)) {
            return view->parts[place].bytes;
        }
    }
    return view->hopeless ? NULL : take_up(view, first, owner, part);
}
