/* See scatter.h. One function, next_piece, walks; gathering and copying differ in what they do
 * with a piece. */
#include "rnic/memory/scatter.h"

#include <string.h>

#include "rnic/base/check.h"

#define PLACES_MAX 34u /* SGE limit and two */

static void pass_finished(struct scatter *scatter)
{
    while (scatter->index < scatter->sge_count &&
           scatter->within == scatter->sges[scatter->index].length) {
        scatter->index++;
        scatter->within = 0;
    }
}

void scatter_init(struct scatter *ret_scatter, const struct memory *memory, struct domain domain,
                  const struct sge *sges, uint32_t sge_count)
{
    uint64_t length = 0;
    for (uint32_t i = 0; i < sge_count; i++) {
        length += sges[i].length;
    }
    *ret_scatter = (struct scatter){
        .memory = memory, .domain = domain, .sges = sges, .sge_count = sge_count, .length = length};
    pass_finished(ret_scatter);
}

void scatter_init_inline(struct scatter *ret_scatter, const uint8_t *bytes, uint32_t length)
{
    *ret_scatter = (struct scatter){.inline_bytes = bytes, .length = length};
}

void scatter_seek(struct scatter *scatter, uint64_t offset)
{
    CHECK(offset <= scatter->length);
    if (scatter->inline_bytes != NULL) {
        scatter->offset = offset;
        return;
    }
    if (offset < scatter->offset) {
        scatter->index = 0;
        scatter->within = 0;
        scatter->offset = 0;
    }
    pass_finished(scatter);
    while (scatter->offset < offset) {
        uint32_t rest = scatter->sges[scatter->index].length - scatter->within;
        uint64_t wanted = offset - scatter->offset;
        uint32_t step = wanted < rest ? (uint32_t)wanted : rest;
        scatter->within += step;
        scatter->offset += step;
        pass_finished(scatter);
    }
}

/* Finds the piece at the cursor, of at most `length` bytes (not 0, and at most what is left), and
 * passes it. Inline bytes come back writable, but copying in never meets them. */
static enum memory_verdict next_piece(struct scatter *scatter, uint32_t length, unsigned rights,
                                      uint8_t **ret_bytes, uint32_t *ret_length)
{
    if (scatter->inline_bytes != NULL) {
        *ret_bytes = (uint8_t *)scatter->inline_bytes + scatter->offset;
        *ret_length = length;
        scatter->offset += length;
        return MEMORY_GRANTED;
    }
    const struct sge *sge = &scatter->sges[scatter->index];
    uint32_t rest = sge->length - scatter->within;
    uint32_t step = length < rest ? length : rest;
    struct memory_request request = {.domain = scatter->domain,
                                     .key = sge->key,
                                     .address = sge->address + scatter->within,
                                     .length = step,
                                     .rights = rights,
                                     .is_touched = true};
    enum memory_verdict verdict = memory_check(scatter->memory, &request, ret_bytes);
    if (verdict == MEMORY_GRANTED) {
        *ret_length = step;
        scatter->within += step;
        scatter->offset += step;
        pass_finished(scatter);
    }
    return verdict;
}

/* Whether the next `length` bytes (not 0, and at most what is left) lie in one piece: the usual
 * case, which needs no copy of the cursor to go back to. */
static bool is_one_piece(const struct scatter *scatter, uint32_t length)
{
    return scatter->inline_bytes != NULL ||
           length <= scatter->sges[scatter->index].length - scatter->within;
}

enum memory_verdict scatter_gather(struct scatter *scatter, uint32_t length,
                                   struct fragment_list *list)
{
    if (length > scatter_left(scatter)) {
        return MEMORY_OUT_OF_RANGE;
    }
    if (length > 0 && list->count < list->capacity && is_one_piece(scatter, length)) {
        uint8_t *bytes;
        uint32_t step;
        enum memory_verdict verdict = next_piece(scatter, length, ACCESS_LOCAL_READ, &bytes, &step);
        if (verdict == MEMORY_GRANTED) {
            list->fragments[list->count++] = (struct fragment){bytes, step};
        }
        return verdict;
    }
    struct scatter at = *scatter;
    uint32_t count = list->count;
    while (length > 0) {
        if (count == list->capacity) {
            return MEMORY_OUT_OF_RANGE;
        }
        uint8_t *bytes;
        uint32_t step;
        enum memory_verdict verdict = next_piece(&at, length, ACCESS_LOCAL_READ, &bytes, &step);
        if (verdict != MEMORY_GRANTED) {
            return verdict;
        }
        list->fragments[count++] = (struct fragment){bytes, step};
        length -= step;
    }
    list->count = count;
    *scatter = at;
    return MEMORY_GRANTED;
}

enum memory_verdict scatter_copy_in(struct scatter *scatter, const uint8_t *bytes, uint32_t length)
{
    CHECK(scatter->inline_bytes == NULL);
    if (length > scatter_left(scatter)) {
        return MEMORY_OUT_OF_RANGE;
    }
    if (length > 0 && is_one_piece(scatter, length)) {
        uint8_t *to;
        uint32_t step;
        enum memory_verdict verdict = next_piece(scatter, length, ACCESS_LOCAL_WRITE, &to, &step);
        if (verdict == MEMORY_GRANTED) {
            memmove(to, bytes, step);
        }
        return verdict;
    }
    struct scatter at = *scatter;
    while (length > 0) {
        uint8_t *to;
        uint32_t step;
        enum memory_verdict verdict = next_piece(&at, length, ACCESS_LOCAL_WRITE, &to, &step);
        if (verdict != MEMORY_GRANTED) {
            return verdict;
        }
        memmove(to, bytes, step);
        bytes += step;
        length -= step;
    }
    *scatter = at;
    return MEMORY_GRANTED;
}

/* Moves the cursor past them, unless they are not granted. */
static enum memory_verdict find_places(struct scatter *scatter, uint32_t length, unsigned rights,
                                       struct payload_place *places, uint32_t capacity,
                                       uint32_t *ret_count)
{
    uint32_t count = 0;
    if (length > scatter_left(scatter)) {
        return MEMORY_OUT_OF_RANGE;
    }
    for (uint32_t left = length; left > 0; left -= places[count++].length) {
        if (count == capacity) {
            return MEMORY_OUT_OF_RANGE;
        }
        struct payload_place *place = &places[count];
        enum memory_verdict verdict =
            next_piece(scatter, left, rights, &place->bytes, &place->length);
        if (verdict != MEMORY_GRANTED) {
            return verdict;
        }
        if (place->bytes == NULL) {
            return MEMORY_NOT_MAPPED;
        }
    }
    *ret_count = count;
    return MEMORY_GRANTED;
}

enum memory_verdict scatter_find(const struct scatter *scatter, uint32_t length, unsigned rights,
                                 struct payload_place *ret_places, uint32_t capacity,
                                 uint32_t *ret_count)
{
    struct scatter at = *scatter;
    return find_places(&at, length, rights, ret_places, capacity, ret_count);
}

enum memory_verdict scatter_read_in(struct scatter *scatter, struct payload_reader *reader,
                                    uint32_t length)
{
    struct payload_place places[PLACES_MAX];
    struct scatter at = *scatter;
    uint32_t count;
    enum memory_verdict verdict =
        find_places(&at, length, ACCESS_LOCAL_WRITE, places, PLACES_MAX, &count);
    if (verdict != MEMORY_GRANTED) {
        return verdict;
    }
    if (!reader->read(reader, 0, places, count)) {
        return MEMORY_NOT_MAPPED;
    }
    *scatter = at;
    return MEMORY_GRANTED;
}

enum memory_verdict scatter_copy_out(struct scatter *scatter, uint8_t *ret_bytes, uint32_t length)
{
    if (length > scatter_left(scatter)) {
        return MEMORY_OUT_OF_RANGE;
    }
    struct scatter at = *scatter;
    while (length > 0) {
        uint8_t *from;
        uint32_t step;
        enum memory_verdict verdict = next_piece(&at, length, ACCESS_LOCAL_READ, &from, &step);
        if (verdict != MEMORY_GRANTED) {
            return verdict;
        }
        memmove(ret_bytes, from, step);
        ret_bytes += step;
        length -= step;
    }
    *scatter = at;
    return MEMORY_GRANTED;
}
