/* Targets, least recently used first to go. */
#include "weir/group/links.h"

#include <stdlib.h>

static struct link **bucket_of(struct links *links, uint32_t rank)
{
    return &links->buckets[rank % LINK_BUCKETS];
}

static void take_from_order(struct link *link)
{
    struct links *links = link->links;
    *(link->newer != NULL ? &link->newer->older : &links->newest) = link->older;
    *(link->older != NULL ? &link->older->newer : &links->oldest) = link->newer;
}

static void put_newest(struct link *link)
{
    struct links *links = link->links;
    link->newer = NULL;
    link->older = links->newest;
    *(links->newest != NULL ? &links->newest->newer : &links->oldest) = link;
    links->newest = link;
}

static void free_link(struct link *link)
{
    struct link **from = bucket_of(link->links, link->rank);
    while (*from != link) {
        from = &(*from)->chain;
    }
    *from = link->chain;
    take_from_order(link);
    link->links->count--;
    weir_target_destroy(link->target);
    free(link);
}

/* Lets go who is not being called, until there are `most`. */
static void shrink(struct links *links, unsigned most)
{
    struct link *link = links->oldest;
    while (link != NULL && links->count > most) {
        struct link *newer = link->newer;
        if (link->under_way == 0) {
            free_link(link);
        }
        link = newer;
    }
}

void links_fini(struct links *links)
{
    while (links->oldest != NULL) {
        struct link *link = links->oldest;
        link->under_way++; /* those that end now do not end it */
        weir_target_destroy(link->target);
        link->target = NULL;
        free_link(link);
    }
}

static struct link *make(struct links *links, uint32_t rank, const char *address)
{
    shrink(links, links->most - 1);
    struct link *link = calloc(1, sizeof(*link));
    if (link == NULL || weir_target_create(links->rpc, address, &link->target, NULL) != WEIR_OK) {
        free(link);
        return NULL;
    }
    link->links = links;
    link->rank = rank;
    link->chain = *bucket_of(links, rank);
    *bucket_of(links, rank) = link;
    links->count++;
    put_newest(link);
    return link;
}

struct link *links_take(struct links *links, uint32_t rank, const char *address)
{
    struct link *link = *bucket_of(links, rank);
    while (link != NULL && link->rank != rank) {
        link = link->chain;
    }
    if (link != NULL) {
        take_from_order(link);
        put_newest(link);
    } else {
        link = make(links, rank, address);
    }
    if (link != NULL) {
        link->under_way++;
    }
    return link;
}

void links_give(struct link *link)
{
    link->under_way--;
    if (link->links->count > link->links->most) {
        shrink(link->links, link->links->most);
    }
}
