/* A file that is written in place is marked until it is whole, so that what a killed writer leaves
 * half new and newer than its source is known as that. A directory that was made to be what a
 * source is called at the target is marked with the source's own name until the copy is whole, so
 * that one that goes on does not go into it. The marks are extended attributes, which no copy takes
 * along; where the file system has none there is no mark. */
#ifndef TOOLS_TRANSFER_HALF_MARK_H
#define TOOLS_TRANSFER_HALF_MARK_H

#include <stdbool.h>

#define HALF_MARK_PREFIX "user.weir."
#define HALF_MARK        HALF_MARK_PREFIX "half"
#define HALF_MARK_NAMED  HALF_MARK_PREFIX "named"

void half_mark_set(int fd);
void half_mark_clear(int fd);
bool half_mark_is_on(int directory, const char *name);
void half_mark_clear_name(int directory, const char *name);

/* `directory` is being made of a source with that name. */
void half_mark_name(int directory, const char *source);
bool half_mark_is_named(int directory, const char *source);
/* It is whole. */
void half_mark_unname(int parent, const char *name);

#endif
