#include "rnic/verbs/devices_text.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LENGTH_MAX 63u /* as struct ibv_device has room for */

uint32_t devices_text_number(const char *digits, uint32_t most)
{
    char *end;
    unsigned long number = strtoul(digits, &end, 10);
    return isdigit((unsigned char)digits[0]) && *end == '\0' && number <= most ? (uint32_t)number
                                                                               : 0;
}

static bool name_is_sound(const char *name)
{
    size_t length = strlen(name);
    bool sound = length > 0 && length <= NAME_LENGTH_MAX;
    for (size_t i = 0; i < length; i++) {
        sound &= isalnum((unsigned char)name[i]) || (i > 0 && strchr("_-", name[i]) != NULL);
    }
    return sound;
}

static bool places_are_sound(const char *places)
{
    size_t length = strlen(places);
    return length > 0 && places[0] != '+' && places[length - 1] != '+' &&
           strstr(places, "++") == NULL;
}

/* What follows `separator`, which becomes the end of `text`; NULL: it is not there. */
static char *cut_at(char *text, char separator)
{
    char *found = strchr(text, separator);
    if (found != NULL) {
        *found++ = '\0';
    }
    return found;
}

bool devices_text_next(char **list, struct device_words *ret_words)
{
    char *entry = *list;
    char *rest = cut_at(entry, ',');
    const char *places = cut_at(entry, '=');
    const char *port = cut_at(entry, ':');
    struct device_words words = {
        .name = entry,
        .port = port == NULL ? 1 : devices_text_number(port, PORTS_MAX),
        .places = places,
    };
    if (!name_is_sound(entry) || words.port == 0 || (places != NULL && !places_are_sound(places))) {
        return false;
    }
    *list = rest;
    *ret_words = words;
    return true;
}
