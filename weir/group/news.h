/* Of whom a member tells others: what was told the least often goes first, and is forgotten when it
 * has been told often enough. Ranks only; what holds of them is looked up when it is told. */
#ifndef WEIR_GROUP_NEWS_H
#define WEIR_GROUP_NEWS_H

#include <stdbool.h>
#include <stdint.h>

#define NEWS_TIMES_MAX 32u
#define NEWS_MOST      1024u

struct news_item;

struct news {
    struct news_item *items;
    uint32_t capacity, count;
    uint32_t free;                                        /* first of those not in use */
    uint32_t first[NEWS_TIMES_MAX], last[NEWS_TIMES_MAX]; /* by the times told */
    unsigned times;                                       /* that each is told */
};

/* `times`: at most NEWS_TIMES_MAX. */
void news_init(struct news *news, unsigned times);
void news_fini(struct news *news);
/* Told before all that were told already. Beyond NEWS_MOST, or without memory, something else is
 * not told any more. */
void news_add(struct news *news, uint32_t rank);
/* Up to `most` of them, which counts as told. */
unsigned news_tell(struct news *news, uint32_t *ret_ranks, unsigned most);

#endif
