/* Text into a caller's buffer, for the core has no stdio: traces, names, messages. Like snprintf:
 * what does not fit is counted and cut, and the text always ends in a zero byte. */
#ifndef WEIR_BASE_TEXT_H
#define WEIR_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct text {
    char *buffer;
    size_t capacity; /* with the zero byte; 0: only count */
    size_t length;   /* that the whole text needs, without the zero byte */
};

struct text text_init(char *buffer, size_t capacity);
void text_put(struct text *text, const char *string);
void text_put_decimal(struct text *text, uint64_t number);
/* "0x1f" */
void text_put_hex(struct text *text, uint64_t number);

#endif
