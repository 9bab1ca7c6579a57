/* WEIR_STRICT and WEIR_STRICT_LOG, read once when the library is loaded. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/strict/strict.h"

#define PROFILE_DEFAULT "mlx5"

static const char *const families[] = {"mlx5", "mlx4", "irdma", "bnxt", "rxe"}; /* verbs/limits.c */

struct strict_settings strict_settings;

/* "64K", "1G": bytes. */
static bool parse_size(const char *text, uint64_t *ret_bytes)
{
    static const char units[] = "KMGT";
    char *end;
    if (!isdigit((unsigned char)*text)) {
        return false;
    }
    uint64_t bytes = strtoull(text, &end, 10);
    const char *unit = *end == '\0' ? NULL : strchr(units, toupper((unsigned char)*end));
    if (*end != '\0') {
        if (unit == NULL || end[1] != '\0' || bytes > UINT64_MAX >> 40) {
            return false;
        }
        bytes <<= 10 * (unit - units + 1);
    }
    *ret_bytes = bytes;
    return true;
}

static bool parse_word(char *word, struct strict_settings *settings)
{
    if (strcmp(word, "1") == 0 || strcmp(word, "yes") == 0 || strcmp(word, "on") == 0) {
        return true;
    }
    if (strncmp(word, "memlock=", 8) == 0) {
        settings->has_memlock = true;
        return parse_size(word + 8, &settings->memlock_bytes);
    }
    if (strncmp(word, "no-", 3) == 0) {
        return pitfall_disable(word + 3);
    }
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(word, families[i]) == 0) {
            snprintf(settings->profile, sizeof settings->profile, "%s", families[i]);
            return true;
        }
    }
    return false;
}

bool strict_parse(const char *text, struct strict_settings *ret_settings, const char **ret_bad)
{
    struct strict_settings settings = {.on = true, .profile = PROFILE_DEFAULT};
    while (*text != '\0') {
        char word[32];
        size_t length = strcspn(text, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        if (length >= sizeof word || !parse_word(word, &settings)) {
            *ret_bad = text;
            pitfall_enable_all();
            return false;
        }
        text += length + (text[length] == ',');
    }
    *ret_settings = settings;
    return true;
}

__attribute__((constructor)) static void read_environment(void)
{
    const char *text = secure_getenv("WEIR_STRICT");
    const char *log = secure_getenv("WEIR_STRICT_LOG");
    const char *bad;
    if (text == NULL || text[0] == '\0' || strcmp(text, "0") == 0) {
        return;
    }
    if (log != NULL && !pitfall_log_to(log)) {
        fprintf(stderr, "weir strict: WEIR_STRICT_LOG: %s: %s\n", log, strerror(errno));
    }
    if (!strict_parse(text, &strict_settings, &bad)) {
        fprintf(stderr,
                "weir strict: WEIR_STRICT: \"%s\" is not understood; it is 1, or a list of an "
                "adapter family (mlx5, mlx4, irdma, bnxt, rxe), memlock=SIZE, no-PITFALL. "
                "Strict mode is on, with its defaults.\n",
                bad);
        strict_settings = (struct strict_settings){.on = true, .profile = PROFILE_DEFAULT};
    }
}
