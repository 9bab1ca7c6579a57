/* Names and numbers of users and groups: what is asked of the system is kept, for a while.
 *
 * As in rsync: a name decides where it is known here, the number where it is not; 0 is always 0. */
#ifndef TOOLS_TRANSFER_OWNERS_H
#define TOOLS_TRANSFER_OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/transfer/wire/protocol.h"

enum owner_kind {
    OWNER_USER,
    OWNER_GROUP,
};

#define OWNERS_KEPT 64

struct owner {
    char name[NAME_LENGTH_MAX + 1]; /* "": there is none */
    uint32_t id;                    /* ID_UNKNOWN: there is none */
};

/* Whose all files are to be, whoever they belong to at the source (--chown). */
struct owner_choice {
    bool set;
    struct owner owner; /* an id without a name, or a name whose id only the receiver knows */
};

/* "USER", "USER:GROUP" or ":GROUP", names or numbers, into the choices for users and groups. False:
 * none of these. */
bool owners_parse(const char *text, struct owner_choice ret_choices[2]);

struct owners {
    struct owner kept[2][OWNERS_KEPT];
    unsigned count[2], next[2];
};

/* The number's name; "" where it has none, and for 0. */
const char *owners_name(struct owners *owners, enum owner_kind kind, uint32_t id);
/* The number of `name` here, or else `id`, which may be ID_UNKNOWN. */
uint32_t owners_id(struct owners *owners, enum owner_kind kind, struct span name, uint32_t id);

#endif
