#include "tools/trust/secret.h"

#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

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

/* Not 0 bytes: the kernel heeds no limit for the program that a pattern with a pipe starts, except
 * this one; and a file that short it does not begin. PR_SET_DUMPABLE does as well, but then other
 * processes of the user reach ours by UDP only: it is for who may not have the limit, since it was
 * lowered for good before. */
void secret_keep_from_cores(void)
{
    const struct rlimit limit = {1, 1};
    if (setrlimit(RLIMIT_CORE, &limit) != 0) {
        prctl(PR_SET_DUMPABLE, 0);
    }
}

bool secret_name_is_valid(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789._-@");
    return length > 0 && length <= SECRET_NAME_MAX && name[length] == 0;
}
