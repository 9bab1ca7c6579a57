#include "tools/trust/secret.h"

#include <string.h>

#include "tools/trust/crypto.h"

static const char digits[] = "0123456789abcdef";

bool secret_make(struct secret *ret_secret)
{
    return crypto_random(ret_secret->bytes, SECRET_LENGTH);
}

void secret_print(const struct secret *secret, char ret_text[SECRET_TEXT_LENGTH])
{
    for (unsigned i = 0; i < SECRET_LENGTH; i++) {
        ret_text[2 * i] = digits[secret->bytes[i] >> 4];
        ret_text[2 * i + 1] = digits[secret->bytes[i] & 15];
    }
    ret_text[SECRET_TEXT_LENGTH - 1] = 0;
}

bool secret_parse(const char *text, struct secret *ret_secret)
{
    if (strspn(text, digits) != SECRET_TEXT_LENGTH - 1 || text[SECRET_TEXT_LENGTH - 1] != 0) {
        return false;
    }
    for (unsigned i = 0; i < SECRET_LENGTH; i++) {
        ret_secret->bytes[i] = (uint8_t)((strchr(digits, text[2 * i]) - digits) << 4 |
                                         (strchr(digits, text[2 * i + 1]) - digits));
    }
    return true;
}

bool secret_name_is_valid(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789._-@");
    return length > 0 && length <= SECRET_NAME_MAX && name[length] == 0;
}
