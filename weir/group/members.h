/* The addresses of a group's ranks. */
#ifndef WEIR_GROUP_MEMBERS_H
#define WEIR_GROUP_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct members {
    uint32_t count, capacity;
    uint32_t *offsets; /* of each address in `text` */
    char *text;
    size_t length, room;
};

void members_fini(struct members *members);
/* As the next rank. False: no memory. */
bool members_add(struct members *members, const char *address);
/* Until the next is added. */
const char *members_address(const struct members *members, uint32_t rank);

#endif
