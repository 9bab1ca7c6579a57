/* A queue for each number of times told. Indices are plus one; 0: none. */
#include "weir/group/news.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_LEAST 32u

struct news_item {
    uint32_t rank, next;
};

void news_init(struct news *news, unsigned times)
{
    *news = (struct news){.times = times};
}

void news_fini(struct news *news)
{
    free(news->items);
    *news = (struct news){0};
}

static struct news_item *at(const struct news *news, uint32_t place)
{
    return &news->items[place - 1];
}

static uint32_t take_first(struct news *news, unsigned told)
{
    uint32_t place = news->first[told];
    news->first[told] = at(news, place)->next;
    if (news->first[told] == 0) {
        news->last[told] = 0;
    }
    return place;
}

static void put_last(struct news *news, unsigned told, uint32_t place)
{
    at(news, place)->next = 0;
    *(news->last[told] != 0 ? &at(news, news->last[told])->next : &news->first[told]) = place;
    news->last[told] = place;
}

static void give_back(struct news *news, uint32_t place)
{
    at(news, place)->next = news->free;
    news->free = place;
    news->count--;
}

static bool grow(struct news *news)
{
    uint32_t capacity = news->capacity > 0 ? 2 * news->capacity : CAPACITY_LEAST;
    if (capacity > NEWS_MOST) {
        return false;
    }
    struct news_item *items = realloc(news->items, capacity * sizeof(*items));
    if (items == NULL) {
        return false;
    }
    news->items = items;
    for (uint32_t place = capacity; place > news->capacity; place--) {
        at(news, place)->next = news->free;
        news->free = place;
    }
    news->capacity = capacity;
    return true;
}

/* What was told the most often. False: there is nothing. */
static bool forget_one(struct news *news)
{
    for (unsigned told = news->times; told-- > 0;) {
        if (news->first[told] != 0) {
            give_back(news, take_first(news, told));
            return true;
        }
    }
    return false;
}

void news_add(struct news *news, uint32_t rank)
{
    if (news->free == 0 && !grow(news) && !forget_one(news)) {
        return;
    }
    uint32_t place = news->free;
    news->free = at(news, place)->next;
    news->count++;
    at(news, place)->rank = rank;
    put_last(news, 0, place);
}

/* They are put back when all are taken, so that none is taken twice. */
unsigned news_tell(struct news *news, uint32_t *ret_ranks, unsigned most)
{
    unsigned taken = 0;
    uint32_t places[64];
    uint8_t told_before[64];
    most = most < 64 ? most : 64;
    for (unsigned told = 0; told < news->times && taken < most; told++) {
        while (news->first[told] != 0 && taken < most) {
            places[taken] = take_first(news, told);
            told_before[taken++] = (uint8_t)told;
        }
    }
    for (unsigned i = 0; i < taken; i++) {
        ret_ranks[i] = at(news, places[i])->rank;
        if (told_before[i] + 1u < news->times) {
            put_last(news, told_before[i] + 1u, places[i]);
        } else {
            give_back(news, places[i]);
        }
    }
    return taken;
}
