/* Memory with a known content, for the tests of io/direct/common. */
#ifndef WEIR_IO_COMMON_TEST_H
#define WEIR_IO_COMMON_TEST_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "rnic/io/direct/common.h"

#define PAGE 4096u

static struct common *common;

static inline uint8_t *make_pages(uint32_t count)
{
    uint8_t *pages = mmap(NULL, (size_t)count * PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    return pages;
}

/* Any bytes, other ones for each seed. */
static inline void fill(uint8_t *bytes, uint64_t length, uint8_t seed)
{
    for (uint64_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(seed + i + (i >> 8) + (i >> 16));
    }
}

static inline bool is_filled(const uint8_t *bytes, uint64_t length, uint8_t seed)
{
    for (uint64_t i = 0; i < length; i++) {
        if (bytes[i] != (uint8_t)(seed + i + (i >> 8) + (i >> 16))) {
            return false;
        }
    }
    return true;
}

static inline struct common_range begin(uint8_t *bytes, uint64_t length)
{
    struct common_range range;
    assert_int_equal(common_begin(common, bytes, length, &range), STATUS_OK);
    return range;
}

static inline void assert_denied(uint8_t *bytes, uint64_t length)
{
    struct common_range range;
    assert_int_equal(common_begin(common, bytes, length, &range), STATUS_DENIED);
}

/* That the file takes. */
static inline uint64_t file_pages(void)
{
    struct stat stat;
    assert_int_equal(fstat(common_descriptor(common), &stat), 0);
    return (uint64_t)stat.st_blocks * 512 / PAGE;
}

/* The line of /proc/self/smaps after the one for that address, or the line itself ("" as what). */
static inline void read_listing(const uint8_t *address, const char *what, char *ret_line,
                                int length)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    assert_non_null(file);
    bool inside = false;
    while (fgets(ret_line, length, file) != NULL) {
        uintptr_t start, end;
        bool head = sscanf(ret_line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2;
        inside = head ? (uintptr_t)address >= start && (uintptr_t)address < end : inside;
        if (inside && strncmp(ret_line, what, strlen(what)) == 0) {
            fclose(file);
            return;
        }
    }
    fclose(file);
    fail();
}

/* 77, which is "skipped", where pages cannot be turned. */
static inline int run_with_common(int (*run)(void))
{
    enum status status = common_create(&common);
    if (status == STATUS_UNSUPPORTED) {
        puts("skipped: this kernel cannot turn pages, or does not let us");
        return 77;
    }
    int failures = status == STATUS_OK ? run() : 1;
    common_destroy(common);
    return failures;
}

#endif
