/* A directory of its own for a test, and what one asks of it. */
#ifndef TOOLS_TRANSFER_SCRATCH_H
#define TOOLS_TRANSFER_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

struct scratch {
    int fd;
    char path[64];
};

struct scratch *scratch_create(void);
/* Removes everything below it. */
void scratch_destroy(struct scratch *scratch);
/* Names are relative and may have slashes. */
void scratch_write(const struct scratch *scratch, const char *name, const char *text);
void scratch_fill(const struct scratch *scratch, const char *name, size_t length, unsigned seed);
void scratch_directory(const struct scratch *scratch, const char *name);
bool scratch_exists(const struct scratch *scratch, const char *name);
void scratch_expect(const struct scratch *scratch, const char *name, const char *text);
/* True if both files hold the same bytes. */
bool scratch_same(const struct scratch *scratch, const char *one, const char *other);
/* Entries directly in it, dot files too. */
int scratch_count(const struct scratch *scratch);

#endif
