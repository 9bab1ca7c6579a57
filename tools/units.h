/* Numbers with a unit, as rsync takes them: "10", "1.5M", "200KB", "4GiB". */
#ifndef TOOLS_UNITS_H
#define TOOLS_UNITS_H

#include <stdbool.h>

/* "K", "M" and so on up to "P", and these with "iB", by 1024; with "B" by 1000; "B" alone is bytes.
 * Without a letter it is `unit`, one of "BKMGTP". False: it is no such number, which is below 0 or
 * has something behind it. */
bool units_parse(const char *text, char unit, double *ret_value);

#endif
