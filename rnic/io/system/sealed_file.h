/* A file in memory that nobody can cut short: one of ours, or one of another process, opened
 * through /proc by the number that it has there, under which anything may stand: another process's,
 * another namespace's, no such file at all. */
#ifndef WEIR_IO_SEALED_FILE_H
#define WEIR_IO_SEALED_FILE_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "rnic/base/status.h"

/* What /proc says of a memfd of that name, a literal. */
#define SEALED_FILE_LINK(name) "/memfd:" name " (deleted)"

/* Of so many bytes, for ever. -1: the kernel has no such files, or gives none; or a limit on the
 * sizes of files forbids it. */
int sealed_file_create(const char *name, uint64_t bytes);
/* The same, mapped at *ret_bytes, through which alone it is ever written to; who else has it open
 * can only read. (Before Linux 5.1 nothing keeps others from writing.) */
int sealed_file_create_to_show(const char *name, uint64_t bytes, void **ret_bytes);
/* To read and to write. `thread`: any of the process. `link`: see SEALED_FILE_LINK. -1 and
 * *ret_status; DENIED: it is not for us; NO_MEMORY: of that, or of descriptors, there is none left;
 * NOT_FOUND: there is none of that name, or one that can be cut short. */
int sealed_file_open(pid_t thread, int descriptor, const char *link, struct stat *ret_stat,
                     enum status *ret_status);

#endif
