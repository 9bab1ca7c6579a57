#include "tools/run_strict.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* rnic/strict/settings.c and pitfall.c have the same, and test/run_test.sh compares. */
static const char *const words[] = {"1", "yes", "on", "mlx5", "mlx4", "irdma", "bnxt", "rxe"};
static const char *const pitfalls[] = {
    "late-receive", "short-receive", "cq-overrun",   "unpolled",      "unsignaled-full",
    "dead-key",     "unknown-key",   "wrong-access", "out-of-region", "buffer-reuse",
    "write-order",  "unacked-event", "memlock",      "path-mtu",      "unanswered",
    "wrong-call",   "limit"};

static bool is_one_of(const char *const *list, size_t count, const char *word, size_t length)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(list[i]) == length && memcmp(list[i], word, length) == 0) {
            return true;
        }
    }
    return false;
}

/* "64K": bytes, or with a unit. */
static bool is_size(const char *text, size_t length)
{
    size_t digits = strspn(text, "0123456789");
    bool has_unit = digits + 1 == length && strchr("KMGT", toupper((unsigned char)text[digits]));
    return digits > 0 &&
           (digits == length || (has_unit && strtoull(text, NULL, 10) <= UINT64_MAX >> 40));
}

static bool is_known(const char *word, size_t length)
{
    if (length > 8 && memcmp(word, "memlock=", 8) == 0) {
        return is_size(word + 8, length - 8);
    }
    if (length > 3 && memcmp(word, "no-", 3) == 0) {
        return is_one_of(pitfalls, sizeof(pitfalls) / sizeof(pitfalls[0]), word + 3, length - 3);
    }
    return is_one_of(words, sizeof(words) / sizeof(words[0]), word, length);
}

static int refuse(const struct command *command, const char *word, size_t length)
{
    char names[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof(pitfalls) / sizeof(pitfalls[0]); i++) {
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "",
                                 pitfalls[i]);
    }
    return command_usage_error(command,
                               "--strict: '%.*s' is not understood; it takes a list of mlx5, mlx4, "
                               "irdma, bnxt or rxe, of memlock=SIZE, and of no- before one of %s",
                               (int)length, word, names);
}

int run_strict_check(const struct command *command, const char *list)
{
    if (strcmp(list, "0") == 0) { /* off */
        return EXIT_DONE;
    }
    do {
        size_t length = strcspn(list, ",");
        if (!is_known(list, length)) {
            return refuse(command, list, length);
        }
        list += length + (list[length] == ',');
    } while (*list != 0);
    return EXIT_DONE;
}
