#include "tools/remote/greeting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_WORD "weir-session "

/* The next word of the line into ret_word. False: there is none, or it is too long. */
static bool next_word(const char **line, char *ret_word, size_t capacity)
{
    size_t length = strcspn(*line, " ");
    if (length == 0 || length >= capacity) {
        return false;
    }
    memcpy(ret_word, *line, length);
    ret_word[length] = 0;
    *line += length;
    *line += **line == ' ';
    return true;
}

static bool next_number(const char **line, unsigned *ret_number)
{
    char word[8];
    if (!next_word(line, word, sizeof(word)) || strspn(word, "0123456789") != strlen(word)) {
        return false;
    }
    *ret_number = (unsigned)atoi(word);
    return true;
}

static const char *take_first(struct greeting *greeting, const char *line)
{
    if (strncmp(line, FIRST_WORD, strlen(FIRST_WORD)) != 0) {
        if (greeting->noise[0] == 0) {
            snprintf(greeting->noise, sizeof(greeting->noise), "%s", line);
        }
        return NULL;
    }
    line += strlen(FIRST_WORD);
    greeting->begun = true;
    if (!next_number(&line, &greeting->version) ||
        !next_word(&line, greeting->release, sizeof(greeting->release)) ||
        !next_number(&line, &greeting->transfer_version)) {
        return "its first line is malformed";
    }
    return NULL;
}

static bool is_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    return colon != NULL && colon > text && colon[1] != 0 &&
           strspn(text, "0123456789abcdefABCDEF.:[]") == strlen(text);
}

static bool take_address(struct greeting *greeting, const char *line)
{
    char word[16];
    if (greeting->address_count == GREETING_ADDRESSES_MAX) {
        return true; /* there are enough to try */
    }
    struct greeting_address *address = &greeting->addresses[greeting->address_count];
    memset(address, 0, sizeof(*address));
    if (!next_word(&line, address->text, sizeof(address->text)) || !is_address(address->text)) {
        return false;
    }
    while (next_word(&line, word, sizeof(word))) {
        address->of_device |= strcmp(word, "device") == 0;
        address->of_shell |= strcmp(word, "ssh") == 0;
    }
    greeting->address_count++;
    return true;
}

static bool take_device(struct greeting *greeting, const char *line)
{
    char kind[8];
    if (!next_word(&line, greeting->device, sizeof(greeting->device)) ||
        !next_word(&line, kind, sizeof(kind))) {
        return false;
    }
    greeting->is_soft = strcmp(kind, "soft") == 0;
    return true;
}

static const char *take_ready(struct greeting *greeting)
{
    greeting->ready = true;
    if (!greeting->has_secret) {
        return "it has no secret";
    }
    return greeting->address_count == 0 ? "it has no address" : NULL;
}

const char *greeting_take(struct greeting *greeting, const char *line)
{
    char word[16];
    bool good = true;
    if (!greeting->begun) {
        return take_first(greeting, line);
    }
    if (!next_word(&line, word, sizeof(word))) {
        good = false;
    } else if (strcmp(word, "host") == 0) {
        good = next_word(&line, greeting->host, sizeof(greeting->host));
    } else if (strcmp(word, "device") == 0) {
        good = take_device(greeting, line);
    } else if (strcmp(word, "address") == 0) {
        good = take_address(greeting, line);
    } else if (strcmp(word, "secret") == 0) {
        good = greeting->has_secret = secret_parse(line, &greeting->secret);
    } else if (strcmp(word, "ready") == 0) {
        return take_ready(greeting);
    } /* others are a later version's */
    return good ? NULL : "it is malformed";
}

size_t greeting_print(const struct greeting *greeting, char *ret_text, size_t capacity)
{
    char secret[SECRET_TEXT_LENGTH];
    FILE *stream = fmemopen(ret_text, capacity, "w");
    if (stream == NULL) {
        return 0;
    }
    secret_print(&greeting->secret, secret);
    fprintf(stream, FIRST_WORD "%u %s %u\nhost %s\ndevice %s %s\n", greeting->version,
            greeting->release, greeting->transfer_version, greeting->host, greeting->device,
            greeting->is_soft ? "soft" : "rdma");
    for (unsigned i = 0; i < greeting->address_count; i++) {
        const struct greeting_address *address = &greeting->addresses[i];
        fprintf(stream, "address %s%s%s\n", address->text, address->of_device ? " device" : "",
                address->of_shell ? " ssh" : "");
    }
    fprintf(stream, "secret %s\nready\n", secret);
    long length = ftell(stream);
    bool good = fclose(stream) == 0 && length > 0 && (size_t)length < capacity;
    return good ? (size_t)length : 0;
}

static bool is_loopback(const struct greeting_address *address)
{
    return strncmp(address->text, "127.", 4) == 0 || strncmp(address->text, "[::1]", 5) == 0;
}

/* The smaller, the better. */
static unsigned rank(const struct greeting_address *address)
{
    if (is_loopback(address)) {
        return 0;
    }
    return 1 + (address->of_device ? 0 : 2) + (address->of_shell ? 0 : 1);
}

void greeting_sort(struct greeting *greeting, bool same_host)
{
    unsigned count = 0;
    for (unsigned i = 0; i < greeting->address_count; i++) {
        struct greeting_address address = greeting->addresses[i];
        if (is_loopback(&address) && !same_host) {
            continue;
        }
        unsigned at = count++;
        for (; at > 0 && rank(&greeting->addresses[at - 1]) > rank(&address); at--) {
            greeting->addresses[at] = greeting->addresses[at - 1];
        }
        greeting->addresses[at] = address;
    }
    greeting->address_count = count;
}
