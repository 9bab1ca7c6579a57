/* For a test of weir serve: clients that prove that they know a key, one after the other, and then
 * say nothing; for KEYS "-" they prove nothing either. usage: silent KEYS ADDRESS COUNT [LENGTH],
 * which is the longest message that they take without fetching it. Prints what becomes of each, and
 * ends when the server has ended them all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/command.h"
#include "tools/transfer/wire/channel_link.h"
#include "tools/trust/guard.h"
#include "tools/trust/keys.h"

static const struct command command = {.name = "silent"};

struct client {
    unsigned number;
    bool is_let_in, is_gone;
};

static void opened(void *user)
{
    struct client *client = user;
    client->is_let_in = true;
    printf("%u let in\n", client->number);
    fflush(stdout);
}

static void closed(void *user, const struct weir_error *reason)
{
    struct client *client = user;
    client->is_gone = true;
    printf("%u %s: %s\n", client->number, client->is_let_in ? "ended" : "refused", reason->message);
    fflush(stdout);
}

static void received(void *user, const void *bytes, size_t length)
{
}

static const struct link_events events = {.opened = opened, .received = received, .closed = closed};

static int fail(const char *why)
{
    command_error(&command, "%s", why);
    return EXIT_SETUP;
}

/* `key`: NULL for strangers. */
static int visit(struct weir_poller *poller, const struct key *key, const char *address,
                 unsigned count, const struct weir_channel_options *options)
{
    struct client *clients = calloc(count, sizeof(*clients));
    struct weir_error error;
    struct weir_connection *connection;
    for (unsigned i = 0; i < count && clients != NULL; i++) {
        struct guard *guard =
            key != NULL ? guard_create_client(key->name, &key->secret, false) : NULL;
        struct link *link = guard != NULL || key == NULL ? channel_link_create(guard, NULL) : NULL;
        if (link == NULL) {
            return fail("not enough memory");
        }
        clients[i].number = i + 1;
        link->events = &events;
        link->user = &clients[i];
        if (weir_connect(poller, address, options, &channel_link_handler, link, &connection,
                         &error) != WEIR_OK) {
            return fail(error.message);
        }
        channel_link_attach(link, connection);
        while (!clients[i].is_let_in && !clients[i].is_gone) {
            weir_poll(poller, 100);
        }
    }
    for (unsigned i = 0; i < count && clients != NULL;) {
        weir_poll(poller, 100);
        i += clients[i].is_gone;
    }
    free(clients);
    return EXIT_DONE;
}

int main(int argc, char **argv)
{
    struct weir_fabric *fabric;
    struct weir_poller *poller;
    struct weir_error error;
    struct weir_channel_options options = channel_link_options;
    struct keys keys;
    char why[KEYS_WHY_LENGTH];
    if (argc != 4 && argc != 5) {
        return fail("usage: silent KEYS ADDRESS COUNT [LENGTH]");
    }
    bool proves = strcmp(argv[1], "-") != 0;
    if (proves && !keys_load(argv[1], &keys, why)) {
        return fail(why);
    }
    options.eager_length = argc == 5 ? (size_t)atoi(argv[4]) : options.eager_length;
    if (fabric_open(&(struct weir_fabric_options){.kind = WEIR_FABRIC_SOFT}, &fabric, &error) !=
            WEIR_OK ||
        weir_poller_create(fabric, &poller, &error) != WEIR_OK) {
        return fail(error.message);
    }
    return visit(poller, proves ? &keys.list[0] : NULL, argv[2], (unsigned)atoi(argv[3]), &options);
}
