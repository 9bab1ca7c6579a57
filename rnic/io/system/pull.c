#include "rnic/io/system/pull.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "rnic/base/check.h"
#include "rnic/base/random.h"

#define PAGE_BYTES 4096u

enum status pull_identity_create(uint64_t seed, struct pull_identity *ret_identity)
{
    struct random random;
    random_seed(&random, seed);
    uint64_t *words =
        mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED) {
        return STATUS_NO_MEMORY;
    }
    if (madvise(words, PAGE_BYTES, MADV_WIPEONFORK) != 0) {
        (void)madvise(words, PAGE_BYTES, MADV_DONTFORK);
    }
    *ret_identity = (struct pull_identity){
        .thread = (uint64_t)syscall(SYS_gettid),
        .address = (uintptr_t)words,
    };
    for (uint32_t i = 0; i < PULL_WORDS; i++) {
        words[i] = ret_identity->words[i] = random_u64(&random);
    }
    return STATUS_OK;
}

void pull_identity_destroy(const struct pull_identity *identity)
{
    if (identity->address != 0) {
        munmap((void *)(uintptr_t)identity->address, PAGE_BYTES);
    }
}

/* What of the pieces lies in `length` bytes from `offset` on. */
static uint32_t choose(const struct pull_piece *pieces, uint32_t count, uint32_t offset,
                       uint64_t length, struct iovec *ret_vectors)
{
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < count && length > 0; i++) {
        if (offset >= pieces[i].length) {
            offset -= pieces[i].length;
            continue;
        }
        uint64_t part = pieces[i].length - offset;
        part = part < length ? part : length;
        ret_vectors[chosen].iov_base = (void *)(uintptr_t)(pieces[i].address + offset);
        ret_vectors[chosen++].iov_len = part;
        length -= part;
        offset = 0;
    }
    CHECK(length == 0);
    return chosen;
}

bool pull(const struct pull_identity *identity, const struct pull_piece *pieces, uint32_t count,
          uint32_t offset, const struct payload_place *places, uint32_t place_count)
{
    struct iovec there[PULL_PIECES_MAX + 1], here[PULL_PIECES_MAX + 1];
    uint64_t words[PULL_WORDS], length = 0;
    CHECK(count <= PULL_PIECES_MAX && place_count <= PULL_PIECES_MAX);
    if (identity->address == 0) {
        return false;
    }
    for (uint32_t i = 0; i < place_count; i++) {
        here[i].iov_base = places[i].bytes;
        here[i].iov_len = places[i].length;
        length += places[i].length;
    }
    here[place_count] = (struct iovec){words, sizeof words};
    uint32_t chosen = choose(pieces, count, offset, length, there);
    there[chosen] = (struct iovec){(void *)(uintptr_t)identity->address, sizeof words};
    ssize_t got =
        process_vm_readv((pid_t)identity->thread, here, place_count + 1, there, chosen + 1, 0);
    return got == (ssize_t)(length + sizeof words) &&
           memcmp(words, identity->words, sizeof words) == 0;
}
