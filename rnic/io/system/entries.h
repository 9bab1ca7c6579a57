/* The names in a folder of /proc, without malloc. */
#ifndef WEIR_IO_ENTRIES_H
#define WEIR_IO_ENTRIES_H

#include <stdbool.h>

typedef bool entries_test(int folder, const char *name, const void *context);

/* Whether one of the names in the folder, by its path, passes the test. True also if the folder
 * cannot be read. */
bool entries_have(const char *path, entries_test *test, const void *context);

#endif
