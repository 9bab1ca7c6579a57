/* What a stranger may say before anybody is believed: to both ends of a handshake, on the pipe of a
 * remote shell, and as the name of a place. Nobody is ever let in, and nothing is read out of
 * bounds.
 *
 * Input: for the handshake, messages: two octets of length, then so many bytes. The same input is
 * taken as lines of a greeting, and as a name. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/location.h"
#include "tools/remote/greeting.h"
#include "tools/trust/guard.h"

static const struct secret secret = {{1, 2, 3}};

static const struct secret *find(void *user, const char *name)
{
    return &secret;
}

static void must(bool good)
{
    if (!good) {
        abort();
    }
}

static void talk(struct guard *guard, const uint8_t *data, size_t size)
{
    struct guard_message reply;
    uint8_t copy[4096];
    must(guard != NULL && guard_begin(guard, "parameters", 10, &reply));
    while (size >= 2) {
        size_t length = (size_t)data[0] << 8 | data[1];
        length = length < size - 2 ? length : size - 2;
        must(guard_hear(guard, data + 2, length, &reply) != GUARD_PROVEN);
        if (reply.length > 0) {
            must(reply.length <= sizeof(copy));
            memcpy(copy, reply.bytes, reply.length);
        }
        data += 2 + length;
        size -= 2 + length;
    }
    must(guard_state(guard) != GUARD_FAILED || guard_told(guard)[0] != 0);
    guard_destroy(guard);
}

static void greet(const char *text)
{
    struct greeting greeting = {0};
    const char *wrong = NULL;
    while (*text != 0 && wrong == NULL && !greeting.ready) {
        char line[GREETING_LINE_LENGTH_MAX] = "";
        size_t length = strcspn(text, "\n");
        memcpy(line, text, length < sizeof(line) ? length : sizeof(line) - 1);
        wrong = greeting_take(&greeting, line);
        text += length + (text[length] == '\n');
    }
    must(wrong != NULL || !greeting.ready || (greeting.has_secret && greeting.address_count > 0));
    greeting_sort(&greeting, greeting.is_soft);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct location where;
    talk(guard_create_server(find, NULL, NULL, false), data, size);
    talk(guard_create_client("name", &secret, true), data, size);
    char *text = malloc(size + 1);
    must(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    greet(text);
    location_parse(text, &where);
    must(where.kind == LOCATION_WRONG ? where.why != NULL : where.path != NULL);
    must(where.kind != LOCATION_SHELL || (where.address[0] != '-' && where.address[0] != 0));
    free(text);
    return 0;
}
