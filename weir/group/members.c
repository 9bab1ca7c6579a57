/* Addresses, one behind the other. */
#include "weir/group/members.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_LEAST 16u
#define ROOM_LEAST     512u

void members_fini(struct members *members)
{
    free(members->offsets);
    free(members->text);
    *members = (struct members){0};
}

static bool make_room(struct members *members, size_t length)
{
    if (members->count == members->capacity) {
        uint32_t capacity = members->capacity > 0 ? 2 * members->capacity : CAPACITY_LEAST;
        uint32_t *offsets = realloc(members->offsets, capacity * sizeof(*offsets));
        if (offsets == NULL) {
            return false;
        }
        members->offsets = offsets;
        members->capacity = capacity;
    }
    if (members->room - members->length < length) {
        size_t room = 2 * members->room + length;
        room = room > ROOM_LEAST ? room : ROOM_LEAST;
        char *text = realloc(members->text, room);
        if (text == NULL) {
            return false;
        }
        members->text = text;
        members->room = room;
    }
    return true;
}

bool members_add(struct members *members, const char *address)
{
    size_t length = strlen(address) + 1;
    if (!make_room(members, length)) {
        return false;
    }
    memcpy(members->text + members->length, address, length);
    members->offsets[members->count++] = (uint32_t)members->length;
    members->length += length;
    return true;
}

const char *members_address(const struct members *members, uint32_t rank)
{
    return members->text + members->offsets[rank];
}
