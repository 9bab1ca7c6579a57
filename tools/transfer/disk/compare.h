/* Whether a file needs to be sent: what rsync's options of these names say. */
#ifndef TOOLS_TRANSFER_COMPARE_H
#define TOOLS_TRANSFER_COMPARE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "tools/transfer/wire/protocol.h"

/* Whether the wishes leave anything to ask about: else every file is sent. */
bool compare_is_wanted(const struct wishes *wishes);

/* `there` is what has the name at the receiver; NULL: nothing. With ANSWER_LEFT, ret_left is why:
 * one of LEFT_EVERYTHING. */
enum answer compare_file(const struct wishes *wishes, const struct stat *there, uint64_t size,
                         const struct timespec *mtime, uint32_t *ret_left);
/* The same for what is no regular file, whose contents need no thought: ANSWER_LEFT or
 * ANSWER_WANTED. */
enum answer compare_other(const struct wishes *wishes, const struct stat *there, bool is_directory,
                          uint32_t *ret_left);
/* What is there is a file that is not to be replaced by an older one. */
bool compare_is_newer(const struct wishes *wishes, const struct stat *there,
                      const struct timespec *mtime);
/* As far as WISH_WINDOW wants it. */
bool compare_times(const struct wishes *wishes, const struct timespec *one,
                   const struct timespec *other);

#endif
