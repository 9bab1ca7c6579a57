/* What became of an entry, in words. */
#ifndef TOOLS_ITEMS_H
#define TOOLS_ITEMS_H

#include <stdbool.h>

#include "tools/transfer/ends/report.h"

#define ITEM_LETTERS 12

/* "<f.st......" as rsync's --itemize-changes has it; `sent` from here, else received. */
void item_letters(const struct item *item, bool sent, char ret_letters[ITEM_LETTERS]);
/* "file", "directory", ... */
const char *item_kind_name(const struct item *item);
/* Why nothing was done: "same", "newer", "exists", "missing". NULL: something was. */
const char *item_reason(const struct item *item);

#endif
