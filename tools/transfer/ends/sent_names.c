#include "tools/transfer/ends/sent_names.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tools/transfer/wire/digest.h"

#define CAPACITY_FIRST ((size_t)1 << 10)

/* Of the filter: a key has a bit in each of the first words of its block, which is one line of the
 * cache. */
#define BLOCK_WORDS 8
#define KEY_WORDS   7

struct name {
    uint64_t salt, source;
    char below[2 * PATH_MAX];
};

/* Never 0, which is a free slot. */
static uint64_t key_of(const struct sent_names *names, unsigned source, const char *below)
{
    struct name name;
    uint8_t digest[DIGEST_LENGTH];
    uint64_t key;
    size_t length = strnlen(below, sizeof(name.below));
    name.salt = names->salt;
    name.source = source;
    memcpy(name.below, below, length);
    digest_of(&name, offsetof(struct name, below) + length, digest);
    memcpy(&key, digest, sizeof(key));
    return key + (key == 0);
}

/* Where the key is in the table, or would be. */
static uint64_t *slot_of(const struct sent_names *names, uint64_t key)
{
    size_t at = key & (names->capacity - 1);
    while (names->slots[at] != 0 && names->slots[at] != key) {
        at = (at + 1) & (names->capacity - 1);
    }
    return &names->slots[at];
}

static uint64_t *block_of(const struct sent_names *names, uint64_t key)
{
    return names->slots +
           BLOCK_WORDS * ((key >> (6 * KEY_WORDS)) % (names->capacity / BLOCK_WORDS));
}

static uint64_t bit_of(uint64_t key, unsigned word)
{
    return (uint64_t)1 << (key >> (6 * word) & 63);
}

static void put(struct sent_names *names, uint64_t key)
{
    if (!names->is_filter) {
        uint64_t *slot = slot_of(names, key);
        names->count += *slot == 0;
        *slot = key;
        return;
    }
    for (unsigned word = 0; word < KEY_WORDS; word++) {
        block_of(names, key)[word] |= bit_of(key, word);
    }
}

static bool grow(struct sent_names *names)
{
    const struct sent_names old = *names;
    size_t max = names->capacity_max != 0 ? names->capacity_max : SENT_NAMES_SLOTS;
    names->is_filter = old.capacity == max;
    names->capacity = old.capacity == 0 ? CAPACITY_FIRST : 2 * old.capacity;
    names->capacity = names->is_filter ? max : names->capacity;
    names->slots = calloc(names->capacity, sizeof(*names->slots));
    names->count = 0;
    for (size_t i = 0; i < old.capacity && names->slots != NULL; i++) {
        if (old.slots[i] != 0) {
            put(names, old.slots[i]);
        }
    }
    free(old.slots);
    return names->slots != NULL;
}

void sent_names_add(struct sent_names *names, unsigned source, const char *below)
{
    while (names->salt == 0 &&
           getrandom(&names->salt, sizeof(names->salt), 0) != sizeof(names->salt)) {
    }
    if (!names->is_filter && !names->is_lost && 4 * names->count >= 3 * names->capacity) {
        names->is_lost = !grow(names);
    }
    if (!names->is_lost) {
        put(names, key_of(names, source, below));
    }
}

bool sent_names_has(const struct sent_names *names, unsigned source, const char *below)
{
    if (names->is_lost || names->slots == NULL) {
        return names->is_lost;
    }
    uint64_t key = key_of(names, source, below);
    if (!names->is_filter) {
        return *slot_of(names, key) != 0;
    }
    for (unsigned word = 0; word < KEY_WORDS; word++) {
        if ((block_of(names, key)[word] & bit_of(key, word)) == 0) {
            return false;
        }
    }
    return true;
}

void sent_names_clear(struct sent_names *names)
{
    free(names->slots);
    *names = (struct sent_names){.slots = NULL};
}
