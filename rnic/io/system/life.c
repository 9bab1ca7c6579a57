/* The kernel's list of robust futexes, with one entry: it looks at it when the thread ends, and
 * marks those whose word holds the thread's number. */
#include "rnic/io/system/life.h"

#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Thread_local struct {
    struct robust_list_head head;
    struct robust_list entry;
} held;

bool life_hold(_Atomic uint32_t *word)
{
    held.entry.next = &held.head.list;
    held.head.list.next = &held.entry;
    held.head.futex_offset = (long)((intptr_t)word - (intptr_t)&held.entry);
    if (syscall(SYS_set_robust_list, &held.head, sizeof held.head) != 0) {
        return false;
    }
    atomic_store_explicit(word, (uint32_t)syscall(SYS_gettid), memory_order_release);
    return true;
}

bool life_is_held(uint32_t value)
{
    return (value & FUTEX_TID_MASK) != 0;
}

bool life_is_stopped(uint32_t any, uint32_t thread)
{
    char name[64], text[256];
    (void)snprintf(name, sizeof name, "/proc/%u/task/%u/stat", any, thread);
    FILE *file = fopen(name, "re");
    if (file == NULL) {
        return false;
    }
    size_t length = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[length] = '\0';
    const char *behind_name = strrchr(text, ')');
    return behind_name != NULL && strncmp(behind_name, ") T", 3) == 0;
}
