/* Names and sentences from files and peers, made fit for a terminal and for JSON. */
#ifndef TOOLS_PRINTABLE_H
#define TOOLS_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

/* Copies, with control characters, backslashes and bytes that are not UTF-8 as \xHH, cut to fit
 * with its terminating zero. Returns false if anything was replaced or cut. */
bool printable(const void *bytes, size_t length, char *ret_text, size_t capacity);

#endif
