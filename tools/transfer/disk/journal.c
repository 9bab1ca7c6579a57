#include "tools/transfer/disk/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/disk/confine.h"

#define HEAD_SUMMED   (JOURNAL_HEAD_LENGTH - DIGEST_LENGTH)
#define RECORD_SUMMED (JOURNAL_RECORD_LENGTH - DIGEST_LENGTH)

#define STRUCK_AT_ONCE 64

static const char magic[8] = "WeirJrnl";

enum record_kind {
    RECORD_PIECE = 1,
    RECORD_STRUCK,
};

static void put(uint8_t **at, unsigned length, uint64_t value)
{
    for (unsigned i = 0; i < length; i++) {
        (*at)[i] = (uint8_t)(value >> 8 * (length - 1 - i));
    }
    *at += length;
}

static uint64_t get(const uint8_t **at, unsigned length)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < length; i++) {
        value = value << 8 | (*at)[i];
    }
    *at += length;
    return value;
}

const char *journal_state_text(enum journal_state state)
{
    switch (state) {
    case JOURNAL_SOUND:
        return "is sound";
    case JOURNAL_MISSING:
        return "is missing, or can be written to by others";
    case JOURNAL_NONE:
        return "is no journal";
    case JOURNAL_OTHER_VERSION:
        return "is of another version";
    case JOURNAL_DAMAGED:
        return "is damaged";
    case JOURNAL_OTHER_FILE:
        return "is about another file";
    case JOURNAL_OTHER_SOURCE:
        return "is about a source of another size or time";
    }
    return "";
}

void journal_pack_head(const struct journal_head *head, uint8_t ret_bytes[JOURNAL_HEAD_LENGTH])
{
    uint8_t *at = ret_bytes;
    memset(ret_bytes, 0, JOURNAL_HEAD_LENGTH);
    memcpy(at, magic, sizeof(magic));
    at += sizeof(magic);
    put(&at, 4, JOURNAL_VERSION);
    put(&at, 8, pieces_length(head->size));
    put(&at, 8, head->size);
    put(&at, 8, (uint64_t)head->mtime_s);
    put(&at, 4, head->mtime_ns);
    put(&at, 8, head->inode);
    memcpy(at, head->name, DIGEST_LENGTH);
    at += DIGEST_LENGTH;
    put(&at, 8, head->random);
    digest_of(ret_bytes, HEAD_SUMMED, ret_bytes + HEAD_SUMMED);
}

void journal_pack_record(uint64_t random, uint32_t number, bool struck, const struct piece *piece,
                         uint8_t ret_bytes[JOURNAL_RECORD_LENGTH])
{
    uint8_t *at = ret_bytes;
    put(&at, 8, random);
    put(&at, 4, number);
    put(&at, 4, struck ? RECORD_STRUCK : RECORD_PIECE);
    put(&at, 8, piece->offset);
    put(&at, 8, piece->length);
    memcpy(at, piece->digest, DIGEST_LENGTH);
    digest_of(ret_bytes, RECORD_SUMMED, ret_bytes + RECORD_SUMMED);
}

static bool sum_is_right(const uint8_t *bytes, size_t length)
{
    uint8_t digest[DIGEST_LENGTH];
    digest_of(bytes, length, digest);
    return memcmp(digest, bytes + length, DIGEST_LENGTH) == 0;
}

static enum journal_state parse_head(const uint8_t *bytes, size_t length,
                                     const struct journal_head *expected, uint64_t *ret_random)
{
    uint8_t name[DIGEST_LENGTH];
    if (length < JOURNAL_HEAD_LENGTH || memcmp(bytes, magic, sizeof(magic)) != 0) {
        return JOURNAL_NONE;
    }
    const uint8_t *at = bytes + sizeof(magic);
    if (get(&at, 4) != JOURNAL_VERSION) {
        return JOURNAL_OTHER_VERSION;
    }
    if (!sum_is_right(bytes, HEAD_SUMMED)) {
        return JOURNAL_DAMAGED;
    }
    uint64_t piece_length = get(&at, 8), size = get(&at, 8);
    int64_t mtime_s = (int64_t)get(&at, 8);
    uint32_t mtime_ns = (uint32_t)get(&at, 4);
    uint64_t inode = get(&at, 8);
    memcpy(name, at, DIGEST_LENGTH);
    at += DIGEST_LENGTH;
    *ret_random = get(&at, 8);
    if (inode != expected->inode || memcmp(name, expected->name, DIGEST_LENGTH) != 0) {
        return JOURNAL_OTHER_FILE;
    }
    bool same = piece_length == pieces_length(size) && size == expected->size &&
                mtime_s == expected->mtime_s && mtime_ns == expected->mtime_ns;
    return same ? JOURNAL_SOUND : JOURNAL_OTHER_SOURCE;
}

static bool parse_record(const uint8_t *bytes, uint64_t random, uint32_t number, uint64_t size,
                         struct journal_claim *ret_claim)
{
    const uint8_t *at = bytes;
    if (!sum_is_right(bytes, RECORD_SUMMED) || get(&at, 8) != random || get(&at, 4) != number) {
        return false;
    }
    uint64_t kind = get(&at, 4);
    struct piece piece = {.offset = get(&at, 8)};
    piece.length = get(&at, 8);
    memcpy(piece.digest, at, DIGEST_LENGTH);
    if ((kind != RECORD_PIECE && kind != RECORD_STRUCK) || piece.offset > size ||
        piece.length == 0 || piece.length > size - piece.offset ||
        piece.length > pieces_length(size)) {
        return false;
    }
    *ret_claim =
        (struct journal_claim){.piece = piece, .number = number, .gone = kind == RECORD_STRUCK};
    return true;
}

static int compare_claims(const void *one, const void *other)
{
    const struct journal_claim *a = one, *b = other;
    if (a->piece.offset != b->piece.offset) {
        return a->piece.offset < b->piece.offset ? -1 : 1;
    }
    return (a->number > b->number) - (a->number < b->number);
}

/* As a copy leaves them that was never gone on with: a million take long to sort. */
static bool is_in_order(const struct journal_claims *claims)
{
    unsigned i = 1;
    while (i < claims->count && compare_claims(&claims->list[i - 1], &claims->list[i]) < 0) {
        i++;
    }
    return i >= claims->count;
}

/* Of those that overlap the later one was written last; only the same place is believed. */
static void sort_out(struct journal_claims *claims)
{
    unsigned kept = 0;
    if (!is_in_order(claims)) {
        qsort(claims->list, claims->count, sizeof(claims->list[0]), compare_claims);
    }
    for (unsigned i = 0; i < claims->count; i++) {
        const struct journal_claim claim = claims->list[i];
        struct journal_claim *last = kept > 0 ? &claims->list[kept - 1] : NULL;
        if (last == NULL || last->piece.offset + last->piece.length <= claim.piece.offset) {
            claims->list[kept++] = claim;
        } else if (last->piece.offset == claim.piece.offset &&
                   last->piece.length == claim.piece.length) {
            *last = claim;
        } else {
            kept--;
        }
    }
    claims->count = kept;
}

enum journal_state journal_parse(const void *bytes, size_t length,
                                 const struct journal_head *expected,
                                 struct journal_claims *ret_claims)
{
    uint64_t random = 0;
    *ret_claims = (struct journal_claims){0};
    enum journal_state state = parse_head(bytes, length, expected, &random);
    if (state != JOURNAL_SOUND) {
        return state;
    }
    const uint8_t *at = (const uint8_t *)bytes + JOURNAL_HEAD_LENGTH;
    size_t left = length - JOURNAL_HEAD_LENGTH, records = left / JOURNAL_RECORD_LENGTH;
    records = records < JOURNAL_RECORDS_MAX ? records : JOURNAL_RECORDS_MAX;
    struct journal_claims claims = {.list = calloc(records + 1, sizeof(claims.list[0])),
                                    .records = (uint32_t)records,
                                    .torn = left % JOURNAL_RECORD_LENGTH != 0,
                                    .random = random};
    if (claims.list == NULL) {
        return JOURNAL_MISSING;
    }
    for (uint32_t i = 0; i < records; i++, at += JOURNAL_RECORD_LENGTH) {
        bool sound = parse_record(at, random, i, expected->size, &claims.list[claims.count]);
        claims.count += sound && !claims.list[claims.count].gone;
        claims.damaged += !sound;
    }
    sort_out(&claims);
    *ret_claims = claims;
    return JOURNAL_SOUND;
}

void journal_claims_clear(struct journal_claims *claims)
{
    free(claims->list);
    *claims = (struct journal_claims){0};
}

static int write_at(int fd, const void *bytes, size_t length, uint64_t offset)
{
    ssize_t written;
    do {
        written = pwrite(fd, bytes, length, (off_t)offset);
    } while (written < 0 && errno == EINTR);
    return written < 0 ? errno : written == (ssize_t)length ? 0 : ENOSPC;
}

int journal_create(struct journal *journal, int directory, const char *name,
                   const struct journal_head *head, bool durable)
{
    struct journal_head chosen = *head;
    uint8_t bytes[JOURNAL_HEAD_LENGTH];
    *journal = (struct journal){.fd = -1, .durable = durable};
    while (getrandom(&chosen.random, sizeof(chosen.random), 0) != sizeof(chosen.random)) {
    }
    journal_pack_head(&chosen, bytes);
    if (unlinkat(directory, name, 0) != 0 && errno != ENOENT) {
        return errno;
    }
    int fd = confine_open(directory, name, O_CREAT | O_EXCL | O_RDWR, 0600, CONFINE_NO_SYMLINKS);
    if (fd < 0) {
        return -fd;
    }
    int error = write_at(fd, bytes, sizeof(bytes), 0);
    if (error != 0) {
        unlinkat(directory, name, 0);
        close(fd);
        return error;
    }
    journal->fd = fd;
    journal->random = chosen.random;
    return 0;
}

/* The whole of it, or NULL. */
static uint8_t *read_all(int fd, size_t length)
{
    uint8_t *bytes = malloc(length + 1);
    size_t done = 0;
    while (bytes != NULL && done < length) {
        ssize_t count = pread(fd, bytes + done, length - done, (off_t)done);
        if (count <= 0 && !(count < 0 && errno == EINTR)) {
            free(bytes);
            return NULL;
        }
        done += count > 0 ? (size_t)count : 0;
    }
    return bytes;
}

static enum journal_state read_journal(int fd, const struct journal_head *expected,
                                       struct journal_claims *ret_claims)
{
    const size_t length_max =
        JOURNAL_HEAD_LENGTH + (size_t)JOURNAL_RECORDS_MAX * JOURNAL_RECORD_LENGTH;
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
        status.st_nlink != 1 || (status.st_mode & 022) != 0) {
        return JOURNAL_MISSING;
    }
    if ((uint64_t)status.st_size > length_max) {
        return JOURNAL_NONE;
    }
    uint8_t *bytes = read_all(fd, (size_t)status.st_size);
    if (bytes == NULL) {
        return JOURNAL_MISSING;
    }
    enum journal_state state = journal_parse(bytes, (size_t)status.st_size, expected, ret_claims);
    free(bytes);
    return state;
}

enum journal_state journal_open(struct journal *journal, int directory, const char *name,
                                const struct journal_head *expected, bool durable,
                                struct journal_claims *ret_claims)
{
    *journal = (struct journal){.fd = -1, .durable = durable};
    *ret_claims = (struct journal_claims){0};
    int fd =
        confine_open(directory, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0, CONFINE_NO_SYMLINKS);
    if (fd < 0) {
        return JOURNAL_MISSING;
    }
    enum journal_state state = read_journal(fd, expected, ret_claims);
    if (state != JOURNAL_SOUND) {
        close(fd);
        return state;
    }
    journal->fd = fd;
    journal->random = ret_claims->random;
    journal->next = ret_claims->records;
    return state;
}

static uint64_t offset_of(uint32_t number)
{
    return JOURNAL_HEAD_LENGTH + (uint64_t)number * JOURNAL_RECORD_LENGTH;
}

/* One that cannot be written any more is left as it is: what it says is true. */
static void give_up(struct journal *journal)
{
    close(journal->fd);
    journal->fd = -1;
    journal->next -= journal->count;
    journal->count = 0;
}

static void write_waiting(struct journal *journal, int data)
{
    if (journal->fd < 0 || journal->count == 0) {
        return;
    }
    size_t length = (size_t)journal->count * JOURNAL_RECORD_LENGTH;
    journal->lost = journal->durable && fdatasync(data) != 0 ? errno : 0;
    bool written = journal->lost == 0 &&
                   write_at(journal->fd, journal->waiting, length,
                            offset_of(journal->next - journal->count)) == 0 &&
                   (!journal->durable || fdatasync(journal->fd) == 0);
    if (written) {
        journal->count = 0;
    } else {
        give_up(journal);
    }
}

void journal_add(struct journal *journal, int data, const struct piece *piece)
{
    if (journal->fd < 0 || piece->length < JOURNAL_PIECE_MIN ||
        journal->next == JOURNAL_RECORDS_MAX) {
        return;
    }
    journal_pack_record(journal->random, journal->next, false, piece,
                        journal->waiting + (size_t)journal->count * JOURNAL_RECORD_LENGTH);
    journal->next++;
    journal->count++;
    if (!journal->durable || journal->count == JOURNAL_BATCH) {
        write_waiting(journal, data);
    }
}

/* Records that follow each other are written at once. How many of the claims these were. */
static unsigned strike_row(const struct journal *journal, const struct journal_claim *claims,
                           unsigned count, int *ret_error)
{
    static const struct piece nothing = {.length = 1};
    uint8_t bytes[STRUCK_AT_ONCE * JOURNAL_RECORD_LENGTH];
    unsigned row = 0;
    while (row < count && row < STRUCK_AT_ONCE && !claims[row].gone &&
           claims[row].number == claims[0].number + row) {
        journal_pack_record(journal->random, claims[row].number, true, &nothing,
                            bytes + (size_t)row * JOURNAL_RECORD_LENGTH);
        row++;
    }
    *ret_error = row > 0 ? write_at(journal->fd, bytes, (size_t)row * JOURNAL_RECORD_LENGTH,
                                    offset_of(claims[0].number))
                         : 0;
    return row > 0 ? row : 1; /* one that is gone already */
}

void journal_strike(struct journal *journal, struct journal_claim *claims, unsigned count)
{
    int error = 0;
    for (unsigned i = 0; i < count && journal->fd >= 0 && error == 0;) {
        i += strike_row(journal, claims + i, count - i, &error);
    }
    if (journal->fd >= 0 && (error != 0 || (journal->durable && fdatasync(journal->fd) != 0))) {
        give_up(journal);
    }
    for (unsigned i = 0; i < count; i++) {
        claims[i].gone = true;
    }
}

void journal_close(struct journal *journal, int data)
{
    write_waiting(journal, data);
    if (journal->fd >= 0) {
        give_up(journal);
    }
}

bool journal_is_of_use(const struct journal *journal)
{
    return journal->next > 0;
}
