/* An intrusive list: nodes are embedded in their owners, nothing is allocated.
 *
 * Circular and doubly linked; a node is in at most one list. A zeroed node, and one that was
 * removed, is in none. */
#ifndef WEIR_BASE_LIST_H
#define WEIR_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "rnic/base/check.h"
#include "rnic/base/container.h"

struct list_node {
    struct list_node *next;
    struct list_node *previous;
};

struct list {
    struct list_node head;
};

static inline void list_init(struct list *list)
{
    list->head = (struct list_node){&list->head, &list->head};
}

static inline bool list_is_empty(const struct list *list)
{
    return list->head.next == &list->head;
}

static inline bool list_node_is_linked(const struct list_node *node)
{
    return node->next != NULL;
}

static inline void list_insert_before(struct list_node *place, struct list_node *node)
{
    CHECK(!list_node_is_linked(node));
    *node = (struct list_node){place, place->previous};
    place->previous->next = node;
    place->previous = node;
}

static inline void list_append(struct list *list, struct list_node *node)
{
    list_insert_before(&list->head, node);
}

static inline void list_prepend(struct list *list, struct list_node *node)
{
    list_insert_before(list->head.next, node);
}

/* Does nothing to a node that is in no list. */
static inline void list_remove(struct list_node *node)
{
    if (!list_node_is_linked(node)) {
        return;
    }
    node->next->previous = node->previous;
    node->previous->next = node->next;
    *node = (struct list_node){NULL, NULL};
}

/* NULL if empty. */
static inline struct list_node *list_first(const struct list *list)
{
    return list_is_empty(list) ? NULL : list->head.next;
}

/* NULL if empty. */
static inline struct list_node *list_last(const struct list *list)
{
    return list_is_empty(list) ? NULL : list->head.previous;
}

/* NULL after the last. */
static inline struct list_node *list_next(const struct list *list, const struct list_node *node)
{
    return node->next == &list->head ? NULL : node->next;
}

/* Takes the first node out; NULL if empty. */
static inline struct list_node *list_pop_first(struct list *list)
{
    struct list_node *node = list_first(list);
    if (node != NULL) {
        list_remove(node);
    }
    return node;
}

/* Every node from first to last; the body may remove `node` itself, and no other. */
#define LIST_FOR_EACH(node, list)                                                                  \
    for (struct list_node *node = (list)->head.next, *node##_next = node->next;                    \
         node != &(list)->head; node = node##_next, node##_next = node->next)

#endif
