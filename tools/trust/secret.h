/* 256 bits that two ends share and nobody else knows. */
#ifndef TOOLS_TRUST_SECRET_H
#define TOOLS_TRUST_SECRET_H

#include <stdbool.h>
#include <stdint.h>

#define SECRET_LENGTH      32
#define SECRET_TEXT_LENGTH 65 /* in hexadecimal digits, with the NUL */
#define SECRET_NAME_MAX    64

struct secret {
    uint8_t bytes[SECRET_LENGTH];
};

/* False: the system has no random bytes. */
bool secret_make(struct secret *ret_secret);
void secret_print(const struct secret *secret, char ret_text[SECRET_TEXT_LENGTH]);
/* False: not 64 hexadecimal digits and nothing else. */
bool secret_parse(const char *text, struct secret *ret_secret);

/* From here on a crash leaves no core behind, nor one in the hands of whom
 * /proc/sys/kernel/core_pattern names: what is in memory is secret. */
void secret_keep_from_cores(void);

/* What a key may be called: letters, digits, ".", "_", "-" and "@", SECRET_NAME_MAX at most. */
bool secret_name_is_valid(const char *name);

#endif
