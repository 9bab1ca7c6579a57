/* Text without stdio. */
#include "rnic/base/text.h"

struct text text_init(char *buffer, size_t capacity)
{
    if (capacity != 0) {
        buffer[0] = '\0';
    }
    return (struct text){buffer, capacity, 0};
}

static void put_character(struct text *text, char character)
{
    if (text->length + 1 < text->capacity) {
        text->buffer[text->length] = character;
        text->buffer[text->length + 1] = '\0';
    }
    text->length++;
}

void text_put(struct text *text, const char *string)
{
    while (*string != '\0') {
        put_character(text, *string++);
    }
}

static void put_number(struct text *text, uint64_t number, unsigned base)
{
    char digits[20]; /* of 2^64 - 1 in decimal */
    int count = 0;
    do {
        digits[count++] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number != 0);
    while (count > 0) {
        put_character(text, digits[--count]);
    }
}

void text_put_decimal(struct text *text, uint64_t number)
{
    put_number(text, number, 10);
}

void text_put_hex(struct text *text, uint64_t number)
{
    text_put(text, "0x");
    put_number(text, number, 16);
}
