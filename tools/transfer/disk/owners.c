#include "tools/transfer/disk/owners.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* A name, a number in digits, or nothing. */
static bool parse_one(const char *text, size_t length, struct owner_choice *ret_choice)
{
    struct owner_choice choice = {.set = length > 0, .owner = {.id = ID_UNKNOWN}};
    if (length > NAME_LENGTH_MAX) {
        return false;
    }
    if (length > 0 && strspn(text, "0123456789") >= length) {
        errno = 0;
        unsigned long number = strtoul(text, NULL, 10);
        if (errno != 0 || number >= ID_UNKNOWN) {
            return false;
        }
        choice.owner.id = (uint32_t)number;
    } else {
        memcpy(choice.owner.name, text, length);
    }
    *ret_choice = choice;
    return true;
}

bool owners_parse(const char *text, struct owner_choice ret_choices[2])
{
    const char *colon = strchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    const char *group = colon != NULL ? colon + 1 : "";
    return text[0] != 0 && strcmp(text, ":") != 0 && strchr(group, ':') == NULL &&
           parse_one(text, length, &ret_choices[OWNER_USER]) &&
           parse_one(group, strlen(group), &ret_choices[OWNER_GROUP]);
}

static struct owner *keep(struct owners *owners, enum owner_kind kind)
{
    struct owner *owner = &owners->kept[kind][owners->next[kind]];
    owners->next[kind] = (owners->next[kind] + 1) % OWNERS_KEPT;
    if (owners->count[kind] < OWNERS_KEPT) {
        owners->count[kind]++;
    }
    *owner = (struct owner){.id = ID_UNKNOWN};
    return owner;
}

static const char *look_up_name(enum owner_kind kind, uint32_t id)
{
    if (kind == OWNER_USER) {
        const struct passwd *user = getpwuid(id);
        return user != NULL ? user->pw_name : "";
    }
    const struct group *group = getgrgid(id);
    return group != NULL ? group->gr_name : "";
}

static uint32_t look_up_id(enum owner_kind kind, const char *name)
{
    if (kind == OWNER_USER) {
        const struct passwd *user = getpwnam(name);
        return user != NULL ? user->pw_uid : ID_UNKNOWN;
    }
    const struct group *group = getgrnam(name);
    return group != NULL ? group->gr_gid : ID_UNKNOWN;
}

const char *owners_name(struct owners *owners, enum owner_kind kind, uint32_t id)
{
    if (id == 0) {
        return "";
    }
    for (unsigned i = 0; i < owners->count[kind]; i++) {
        if (owners->kept[kind][i].id == id) {
            return owners->kept[kind][i].name;
        }
    }
    struct owner *owner = keep(owners, kind);
    const char *name = look_up_name(kind, id);
    owner->id = id;
    if (strlen(name) <= NAME_LENGTH_MAX) {
        strcpy(owner->name, name);
    }
    return owner->name;
}

uint32_t owners_id(struct owners *owners, enum owner_kind kind, struct span name, uint32_t id)
{
    if (name.length == 0 || id == 0) {
        return id;
    }
    for (unsigned i = 0; i < owners->count[kind]; i++) {
        const struct owner *owner = &owners->kept[kind][i];
        if (strlen(owner->name) == name.length &&
            memcmp(owner->name, name.bytes, name.length) == 0) {
            return owner->id != ID_UNKNOWN ? owner->id : id;
        }
    }
    struct owner *owner = keep(owners, kind);
    memcpy(owner->name, name.bytes, name.length);
    owner->id = look_up_id(kind, owner->name);
    return owner->id != ID_UNKNOWN ? owner->id : id;
}
