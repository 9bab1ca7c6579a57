/* What users write into the environment: WEIR_DEVICES, WEIR_STRICT, WEIR_FAULT, and the paths that
 * programs name. The first byte says which; the rest is the text. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "rnic/base/check.h"
#include "rnic/io/udp/fault.h"
#include "rnic/paths/redirect.h"
#include "rnic/strict/strict.h"
#include "rnic/verbs/devices_text.h"

static void try_devices(char *text)
{
    const char *first = text;
    const char *end = text + strlen(text);
    struct device_words words;
    (void)devices_text_number(text, DEVICES_MAX);
    while (text != NULL && devices_text_next(&text, &words)) {
        CHECK(words.name >= first && words.name < end && words.name[0] != '\0');
        CHECK(strlen(words.name) < 64 && strpbrk(words.name, ",=:+/. ") == NULL);
        CHECK(words.port >= 1 && words.port <= PORTS_MAX);
        CHECK(words.places == NULL || (words.places > words.name && words.places < end));
    }
}

static void try_strict(const char *text)
{
    struct strict_settings settings = {.profile = "none"};
    const char *bad = NULL;
    if (strict_parse(text, &settings, &bad)) {
        CHECK(settings.on && bad == NULL);
        CHECK(memchr(settings.profile, '\0', sizeof settings.profile) != NULL);
    } else {
        CHECK(!settings.on && strcmp(settings.profile, "none") == 0);
        CHECK(bad >= text && bad <= text + strlen(text));
    }
}

static void try_fault(const char *text)
{
    const uint64_t half = UINT64_C(1) << 31;
    struct fault fault;
    if (fault_parse(text, &fault) == STATUS_OK) {
        CHECK(fault.loss.digits[0] <= half && fault.reorder.digits[0] <= half &&
              fault.duplicate.digits[0] <= half && fault.corrupt.digits[0] <= half);
        uint8_t byte = 0;
        (void)fault_decide(&fault);
        fault_corrupt(&fault, &byte, 1);
        CHECK(byte != 0);
    }
}

/* Up two from a device of a class is its adapter; all else is as it was. */
static bool is_climbed(const char *path, const char *text)
{
    static const char up[] = "../..", adapter[] = "device";
    size_t same = 0;
    while (path[same] != '\0' && path[same] == text[same]) {
        same++;
    }
    return strncmp(text + same, up, sizeof up - 1) == 0 &&
           strncmp(path + same, adapter, sizeof adapter - 1) == 0 &&
           strcmp(text + same + sizeof up - 1, path + same + sizeof adapter - 1) == 0;
}

/* A path leads into the tree or stays as it is; what was led there comes back. */
static void try_path(const char *text)
{
    static const char root[] = "/tree";
    char room[REDIRECT_ROOM];
    const char *found = redirect(root, text, room);
    CHECK(found == text || found == room);
    (void)redirect_is_device(text);
    if (found == room) {
        CHECK(strncmp(room, root, strlen(root)) == 0);
        redirect_undo(root, room);
        CHECK(strcmp(room, text) == 0 || is_climbed(room, text));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    char *text = malloc(size); /* to the byte, so that ASan sees a read behind it */
    CHECK(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 4) {
    case 0:
        try_devices(text);
        break;
    case 1:
        try_strict(text);
        break;
    case 2:
        try_fault(text);
        break;
    default:
        try_path(text);
        break;
    }
    free(text);
    return 0;
}
