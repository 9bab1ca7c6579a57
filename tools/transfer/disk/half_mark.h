/* A file that is written in place is marked until it is whole, so that what a killed writer leaves
 * half new and newer than its source is known as that. The mark is an extended attribute, which no
 * copy takes along; where the file system has none there is no mark. */
#ifndef TOOLS_TRANSFER_HALF_MARK_H
#define TOOLS_TRANSFER_HALF_MARK_H

#include <stdbool.h>

#define HALF_MARK "user.weir.half"

void half_mark_set(int fd);
void half_mark_clear(int fd);
bool half_mark_is_on(int directory, const char *name);

#endif
