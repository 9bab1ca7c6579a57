#include "tools/items.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    char letter;
} kinds[] = {[ENTRY_FILE] = {"file", 'f'},
             [ENTRY_DIRECTORY] = {"directory", 'd'},
             [ENTRY_SYMLINK] = {"symlink", 'L'},
             [ENTRY_HARD_LINK] = {"hard-link", 'f'},
             [ENTRY_FIFO] = {"fifo", 'S'},
             [ENTRY_SOCKET] = {"socket", 'S'},
             [ENTRY_CHARACTER_DEVICE] = {"character-device", 'D'},
             [ENTRY_BLOCK_DEVICE] = {"block-device", 'D'}};

static char first_letter(const struct item *item, bool sent)
{
    if ((item->changes & CHANGE_LINKED) != 0) {
        return 'h';
    }
    if ((item->changes & CHANGE_SENT) != 0) {
        return sent ? '<' : '>';
    }
    return (item->changes & CHANGE_MADE) != 0 ? 'c' : '.';
}

void item_letters(const struct item *item, bool sent, char ret_letters[ITEM_LETTERS])
{
    static const struct {
        uint32_t change;
        char letter;
    } places[] = {
        {CHANGE_CONTENTS, 'c'}, {CHANGE_SIZE, 's'},  {CHANGE_TIME, 't'}, {CHANGE_MODE, 'p'},
        {CHANGE_OWNER, 'o'},    {CHANGE_GROUP, 'g'}, {0, 'u'},           {CHANGE_ACL, 'a'},
        {CHANGE_XATTR, 'x'}};
    if ((item->changes & CHANGE_DELETED) != 0) {
        strcpy(ret_letters, "*deleting  ");
        return;
    }
    ret_letters[0] = first_letter(item, sent);
    ret_letters[1] = kinds[item->kind].letter;
    bool new = (item->changes & CHANGE_NEW) != 0;
    bool nothing = (item->changes & ~(uint32_t)CHANGE_LINKED) == 0;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        bool changed = (item->changes & places[i].change) != 0;
        ret_letters[2 + i] = new ? '+' : changed ? places[i].letter : nothing ? ' ' : '.';
    }
    ret_letters[ITEM_LETTERS - 1] = 0;
}

const char *item_kind_name(const struct item *item)
{
    return kinds[(item->changes & CHANGE_LINKED) != 0 ? ENTRY_HARD_LINK : item->kind].name;
}

const char *item_reason(const struct item *item)
{
    switch (item->changes & ~(uint32_t)CHANGE_LINKED) {
    case 0:
        return "same";
    case LEFT_NEWER:
        return "newer";
    case LEFT_EXISTS:
        return "exists";
    case LEFT_MISSING:
        return "missing";
    case LEFT_SIZE:
        return "size";
    default:
        return NULL;
    }
}
