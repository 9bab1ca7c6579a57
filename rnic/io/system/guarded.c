/* By a restartable sequence (rseq(2)): the kernel leads a thread that was interrupted between the
 * labels 1 and 2 to label 4. The call is the sequence's last instruction, so one that has begun is
 * no part of it; of a copy every store is. Where the C library keeps its registration is asked at
 * run time, so that the library loads with one that knows nothing of it. */
#include "rnic/io/system/guarded.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>

#define LONG_LEAST    768u /* bytes; from here on a string move is the fastest there is */
#define ORDERED_BYTES 64u  /* at the end of such a one */
#define PART_BYTES    32768u

/* What is copied: first bytes whose stores may be seen in any order, then words, then 8, 4, 2 and 1
 * bytes, as `rest` has these bits; each seen after all before it. */
struct copy {
    uint64_t bulk, words;
    uint32_t rest;
};

#ifdef __x86_64__

/* struct rseq, of which these offsets are the kernel's ABI. */
#define PROCESSOR_OFFSET 4 /* negative: this thread is not registered */

static pthread_once_t asked = PTHREAD_ONCE_INIT;
static ptrdiff_t area; /* from the thread pointer; 0: there is none */

static void ask(void)
{
    const unsigned *size = dlsym(RTLD_DEFAULT, "__rseq_size");
    const ptrdiff_t *offset = dlsym(RTLD_DEFAULT, "__rseq_offset");
    area = size != NULL && offset != NULL && *size > 0 ? *offset : 0;
}

bool guarded_is_possible(void)
{
    int32_t processor = -1;
    (void)pthread_once(&asked, ask);
    if (area != 0) {
        __asm__("movl %%fs:%c[at](%[area]), %[processor]"
                : [processor] "=r"(processor)
                : [area] "r"(area), [at] "i"(PROCESSOR_OFFSET));
    }
    return processor >= 0;
}

/* Instructions with the sequence (labels 1 to 2) in them, and those from label 4 on; a register for
 * a moment. The bytes before label 4 are what the kernel wants to find there, as an instruction
 * that no one executes. */
#define WITH_SEQUENCE(scratch, before, from_4)                                                     \
    ".pushsection __rseq_cs, \"aw\"\n\t"                                                           \
    ".balign 32\n\t"                                                                               \
    "3: .long 0, 0\n\t"                                                                            \
    ".quad 1f, 2f - 1f, 4f\n\t"                                                                    \
    ".popsection\n\t"                                                                              \
    "leaq 3b(%%rip), %%" scratch "\n\t"                                                            \
    "movq %%" scratch ", %%fs:8(%[area])\n\t" before ".byte 0x0f, 0xb9, 0x3d\n\t"                  \
    ".long 0x53053053\n\t" from_4 "movq $0, %%fs:8(%[area])\n\t"

/* What the call returns; -EINTR: interrupted before; -ESTALE. */
static long call(const _Atomic uint64_t *word, uint64_t expected, long number, long process,
                 const struct iovec *here, long here_count, const struct iovec *there,
                 long there_count)
{
    long result = number;
    register const struct iovec *fourth __asm__("r10") = there;
    register long fifth __asm__("r8") = there_count;
    register long sixth __asm__("r9") = 0;
    __asm__ volatile(WITH_SEQUENCE("r11",
                                   "1: cmpq %[expected], (%[word])\n\t"
                                   "jne 5f\n\t"
                                   "syscall\n\t"
                                   "2: jmp 6f\n\t",
                                   "4: movq %[interrupted], %%rax\n\t"
                                   "jmp 6f\n\t"
                                   "5: movq %[stale], %%rax\n\t"
                                   "6:\n\t")
                     : "+a"(result)
                     : [area] "r"(area), [word] "r"(word), [expected] "r"(expected),
                       [interrupted] "i"(-EINTR), [stale] "i"(-ESTALE), "D"(process), "S"(here),
                       "d"(here_count), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory", "cc");
    return result;
}

/* 0; -EINTR: interrupted, some of it may be copied; -ESTALE. The last store and the step behind it
 * are one instruction: who was interrupted behind that has come to the end, and is not to store
 * again what others may have changed since. */
static long copy(const _Atomic uint64_t *word, uint64_t expected, uint8_t *to, const uint8_t *from,
                 const struct copy *copy)
{
    const uint8_t *end = to + copy->bulk + copy->words * sizeof(uint64_t) + copy->rest;
    uint64_t bulk = copy->bulk, words = copy->words;
    long result;
    __asm__ volatile(
        WITH_SEQUENCE("rax",
                      "1: cmpq %[expected], (%[word])\n\t"
                      "jne 5f\n\t"
                      "testq %%rcx, %%rcx\n\t"
                      "jz 7f\n\t"
                      "rep movsb\n\t"
                      "7: testq %[words], %[words]\n\t"
                      "jz 9f\n\t"
                      "8: movq (%%rsi), %%rax\n\t"
                      "movq %%rax, (%%rdi)\n\t"
                      "addq $8, %%rsi\n\t"
                      "addq $8, %%rdi\n\t"
                      "decq %[words]\n\t"
                      "jnz 8b\n\t"
                      "9: testl $8, %[rest]\n\t"
                      "jz 10f\n\t"
                      "movsq\n\t"
                      "10: testl $4, %[rest]\n\t"
                      "jz 11f\n\t"
                      "movsl\n\t"
                      "11: testl $2, %[rest]\n\t"
                      "jz 12f\n\t"
                      "movsw\n\t"
                      "12: testl $1, %[rest]\n\t"
                      "jz 2f\n\t"
                      "movsb\n\t"
                      "2: xorl %%eax, %%eax\n\t"
                      "jmp 6f\n\t",
                      "4: cmpq %%rdi, %[end]\n\t"
                      "je 2b\n\t"
                      "movq %[interrupted], %%rax\n\t"
                      "jmp 6f\n\t"
                      "5: movq %[stale], %%rax\n\t"
                      "6:\n\t")
        : "=&a"(result), "+D"(to), "+S"(from), "+c"(bulk), [words] "+r"(words)
        : [area] "r"(area), [word] "r"(word), [expected] "r"(expected), [rest] "r"(copy->rest),
          [end] "m"(end), [interrupted] "i"(-EINTR), [stale] "i"(-ESTALE)
        : "memory", "cc");
    return result;
}

#else

bool guarded_is_possible(void)
{
    return false;
}

static long copy(const _Atomic uint64_t *word, uint64_t expected, uint8_t *to, const uint8_t *from,
                 const struct copy *copy)
{
    return -ESTALE;
}

static long call(const _Atomic uint64_t *word, uint64_t expected, long number, long process,
                 const struct iovec *here, long here_count, const struct iovec *there,
                 long there_count)
{
    return -ENOTSUP;
}

#endif

/* Interrupted, it begins again: so a part is short. */
static bool copy_part(const _Atomic uint64_t *word, uint64_t expected, uint8_t *to,
                      const uint8_t *from, const struct copy *part)
{
    long result;
    do {
        result = copy(word, expected, to, from, part);
    } while (result == -EINTR);
    return result == 0;
}

bool guarded_copy(const _Atomic uint64_t *word, uint64_t expected, uint8_t *to, const uint8_t *from,
                  uint64_t length)
{
    uint64_t bulk = length >= LONG_LEAST ? length - ORDERED_BYTES : 0;
    uint64_t ordered = length - bulk;
    if (!guarded_is_possible()) {
        return false;
    }
    for (; bulk > PART_BYTES; bulk -= PART_BYTES, to += PART_BYTES, from += PART_BYTES) {
        if (!copy_part(word, expected, to, from, &(struct copy){.bulk = PART_BYTES})) {
            return false;
        }
    }
    bool whole = ordered > 0 && ordered % sizeof(uint64_t) == 0;
    struct copy last = {
        .bulk = bulk,
        .words = ordered / sizeof(uint64_t) - whole,
        .rest = whole ? sizeof(uint64_t) : (uint32_t)(ordered % sizeof(uint64_t)),
    };
    return copy_part(word, expected, to, from, &last);
}

ssize_t guarded_move(const _Atomic uint64_t *word, uint64_t expected, bool write, pid_t process,
                     const struct iovec *here, uint32_t here_count, const struct iovec *there,
                     uint32_t there_count)
{
    long number = write ? SYS_process_vm_writev : SYS_process_vm_readv;
    long result;
    if (!guarded_is_possible()) {
        errno = ENOTSUP;
        return -1;
    }
    do {
        result = call(word, expected, number, process, here, here_count, there, there_count);
    } while (result == -EINTR);
    errno = result < 0 ? (int)-result : errno;
    return result < 0 ? -1 : result;
}
