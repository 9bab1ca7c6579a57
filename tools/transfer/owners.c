#include "tools/transfer/owners.h"

#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/types.h>

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
