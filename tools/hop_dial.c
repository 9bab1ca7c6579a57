#include "tools/hop_dial.h"

#include <stdio.h>
#include <stdlib.h>

#include "tools/location.h"
#include "tools/transfer/wire/channel_link.h"
#include "tools/trust/guard.h"

/* Of several addresses each gets so long. */
#define TRY_TIMEOUT_MS 3000
/* Whoever has others fed from here may leave so many connections to end at a time. */
#define ENDING_MAX 16

struct dialed {
    struct dialed *next;
    struct link *link;
    bool dropped;
};

struct link *hop_dial_to(struct hop_dial *dial, const char *address, struct guard *guard,
                         char ret_why[HOP_WHY_LENGTH])
{
    struct weir_error error;
    struct weir_connection *connection;
    struct weir_channel_options options = channel_link_options;
    struct dialed *dialed = calloc(1, sizeof(*dialed));
    if (dialed == NULL) {
        guard_destroy(guard);
    } else {
        dialed->link = channel_link_create(guard, NULL);
    }
    if (dialed == NULL || dialed->link == NULL) {
        free(dialed);
        snprintf(ret_why, HOP_WHY_LENGTH, "not enough memory");
        return NULL;
    }
    options.connect_timeout_ms = TRY_TIMEOUT_MS;
    if (weir_connect(dial->poller, address, &options, &channel_link_handler, dialed->link,
                     &connection, &error) != WEIR_OK) {
        snprintf(ret_why, HOP_WHY_LENGTH, "%s", error.message);
        channel_link_destroy(dialed->link);
        free(dialed);
        return NULL;
    }
    channel_link_attach(dialed->link, connection);
    dialed->next = dial->list;
    dial->list = dialed;
    return dialed->link;
}

static unsigned count_ending(const struct hop_dial *dial)
{
    unsigned count = 0;
    for (const struct dialed *dialed = dial->list; dialed != NULL; dialed = dialed->next) {
        count += dialed->dropped;
    }
    return count;
}

/* A name is the source's to resolve: here it would hold up all others. */
static struct link *dial_target(void *user, const struct hop_target *target, unsigned address,
                                char ret_why[HOP_WHY_LENGTH])
{
    char name[HOP_NAME_LENGTH];
    struct guard *guard = NULL;
    if (!location_is_numeric(target->addresses[address])) {
        snprintf(ret_why, HOP_WHY_LENGTH, "'%.200s' is no numeric address",
                 target->addresses[address]);
        return NULL;
    }
    if (count_ending(user) >= ENDING_MAX) {
        snprintf(ret_why, HOP_WHY_LENGTH, "too many connections are ending there");
        return NULL;
    }
    hop_name(target->token.id, name);
    if (target->token.guarded) {
        guard = guard_create_client(name, &target->token.secret, target->encrypt);
        if (guard == NULL) {
            snprintf(ret_why, HOP_WHY_LENGTH, "not enough memory");
            return NULL;
        }
    }
    return hop_dial_to(user, target->addresses[address], guard, ret_why);
}

static void drop(void *user, struct link *link)
{
    const struct hop_dial *dial = user;
    for (struct dialed *dialed = dial->list; dialed != NULL; dialed = dialed->next) {
        if (dialed->link == link) {
            dialed->dropped = true;
            link->events = &link_unheard;
            link->operations->abort(link, "not needed any more");
        }
    }
}

struct hop_dialer hop_dialer_of(struct hop_dial *dial)
{
    return (struct hop_dialer){.dial = dial_target, .drop = drop, .user = dial};
}

static void take_away(struct dialed **at)
{
    struct dialed *dialed = *at;
    *at = dialed->next;
    channel_link_destroy(dialed->link);
    free(dialed);
}

void hop_dial_sweep(struct hop_dial *dial)
{
    for (struct dialed **at = &dial->list; *at != NULL;) {
        if ((*at)->dropped && channel_link_connection((*at)->link) == NULL) {
            take_away(at);
        } else {
            at = &(*at)->next;
        }
    }
}

void hop_dial_end(struct hop_dial *dial)
{
    while (dial->list != NULL) {
        take_away(&dial->list);
    }
}
