/* What weir serve tells on its terminal, or as events. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/printable.h"
#include "tools/progress.h"
#include "tools/remote/here.h"
#include "tools/serve_private.h"

/* Files that fail are named up to so many of one transfer: no client fills a log, nor what reads
 * the events. */
#define COMPLAINTS_MAX 10
/* Strangers are named up to so many a minute, and counted in any case. */
#define STRANGERS_PER_MINUTE 20

void serve_say_problem(void *user, const struct problem *problem)
{
    struct served *served = user;
    bool json = served->output.json;
    if (!json && (problem->remote || served->serve->options.session)) { /* the client tells */
        return;
    }
    if (served->complaints++ < COMPLAINTS_MAX) {
        output_problem(&served->output, problem);
    } else if (served->complaints == COMPLAINTS_MAX + 1 && json) {
        output_json(json_pack("{s:s, s:s}", "event", "more-problems", "peer", served->peer));
    } else if (served->complaints == COMPLAINTS_MAX + 1) {
        command_error(served->serve->command, "%s: more files fail; the client is told of each",
                      served->peer);
    }
}

void serve_say_connected(const struct served *served, const char *name)
{
    json_t *object = json_pack("{s:s, s:s}", "event", "connected", "peer", served->peer);
    if (name != NULL) {
        json_object_set_new(object, "key", json_string(name));
    }
    output_json(object);
}

void serve_say_stranger(struct serve *serve, const char *peer, const char *why)
{
    double now_s = progress_now_s();
    char text[512];
    printable(why, strlen(why), text, sizeof(text));
    serve->strangers++;
    if (now_s - serve->minute_s > 60) {
        serve->minute_s = now_s;
        serve->strangers_of_minute = 0;
    }
    if (++serve->strangers_of_minute > STRANGERS_PER_MINUTE) {
        return;
    }
    if (serve->options.json) {
        output_json(json_pack("{s:s, s:s, s:s, s:i}", "event", "stranger", "peer", peer, "reason",
                              text, "count", (int)serve->strangers));
    } else {
        command_error(serve->command, "stranger %u: %s: %s", serve->strangers, peer, text);
    }
}

static void report_as_json(const struct served *served, double seconds)
{
    const struct session *session = served->session;
    const char *path = session_path(session);
    const char *reason = session_reason(session);
    char text[4 * TEXT_LENGTH_MAX];
    printable(reason, strlen(reason), text, sizeof(text));
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:f}", "event", "transfer", "peer", served->peer, "direction",
        session_direction(session) == DIRECTION_PULL ? "pull" : "push", "outcome",
        output_outcome_name(session_outcome(session)), "reason", text, "seconds", seconds);
    if (served->key[0] != 0) {
        json_object_set_new(object, "key", json_string(served->key));
    }
    json_object_set_new(object, "dry_run", json_boolean(session_is_dry(session)));
    output_json_path(object, (struct span){path, strlen(path)});
    output_json_tally(object, session_tally(session));
    output_json(object);
}

void serve_say_end(const struct served *served)
{
    static const char *const rests[] = {
        [REST_NONE] = "",
        [REST_LOST] = "; the file under way was thrown away",
        [REST_KEPT] = "; what came of the file under way is kept",
    };
    const struct session *session = served->session;
    const struct tally *tally = session_tally(session);
    double seconds = progress_now_s() - served->began_s;
    if (served->serve->options.json) {
        report_as_json(served, seconds);
    }
    if (served->serve->options.json || served->serve->options.session) {
        return;
    }
    char path[1024], text[1024], files[PROGRESS_TEXT], bytes[PROGRESS_TEXT], failed[PROGRESS_TEXT];
    printable(session_path(session), strlen(session_path(session)), path, sizeof(path));
    printable(session_reason(session), strlen(session_reason(session)), text, sizeof(text));
    progress_count(tally->files, files);
    progress_size(tally->bytes, bytes);
    progress_count(tally->failed, failed);
    if (session_outcome(session) != SESSION_COMPLETE) {
        command_error(served->serve->command, "%s: %s: %s%s", served->peer,
                      output_outcome_name(session_outcome(session)), text,
                      rests[session_rest(session)]);
    } else if (!served->serve->options.quiet) {
        printf("%s%s%s: %s%s %s: %s file%s, %s in %.2f s, %s not copied\n", served->key,
               served->key[0] != 0 ? " from " : "", served->peer,
               session_is_dry(session) ? "dry run, nothing done: " : "",
               session_direction(session) == DIRECTION_PULL ? "pulled" : "pushed", path, files,
               tally->files == 1 ? "" : "s", bytes, seconds, failed);
        fflush(stdout);
    }
}

/* What clients may name: of "every address" those that the host has. */
static void list_addresses(const struct serve *serve, struct greeting *ret_list)
{
    *ret_list = (struct greeting){0};
    for (unsigned i = 0; i < SERVE_LISTENERS_MAX && serve->listeners[i] != NULL; i++) {
        const char *address = weir_listener_address(serve->listeners[i]);
        unsigned port = (unsigned)atoi(strrchr(address, ':') + 1);
        if (strncmp(address, "[::]:", 5) == 0) {
            here_addresses(serve->fabric, port, port, ret_list);
        } else if (strncmp(address, "0.0.0.0:", 8) == 0) {
            here_addresses(serve->fabric, port, 0, ret_list);
        } else if (ret_list->address_count < GREETING_ADDRESSES_MAX) {
            snprintf(ret_list->addresses[ret_list->address_count++].text, GREETING_ADDRESS_LENGTH,
                     "%s", address);
        }
    }
}

static void say_where(const struct serve *serve, const struct greeting *list, const char *root)
{
    printf("weir serve: %s%s at", root, serve->service.read_only ? ", read-only," : "");
    for (unsigned i = 0; i < list->address_count; i++) {
        printf(" weir://%s/", list->addresses[i].text);
    }
    printf(" (%s)\n", serve->device);
    fflush(stdout);
}

void serve_say_listening(const struct serve *serve, const char *root)
{
    static struct greeting list;
    const char *address = weir_listener_address(serve->listeners[0]);
    char text[4 * PATH_MAX];
    printable(root, strlen(root), text, sizeof(text));
    list_addresses(serve, &list);
    if (serve->options.json) {
        json_t *object =
            json_pack("{s:s, s:s, s:s, s:b, s:s, s:s, s:s}", "event", "listening", "address",
                      address, "root", text, "read_only", serve->service.read_only, "device",
                      weir_fabric_device(serve->fabric), "fabric",
                      weir_fabric_kind(serve->fabric) == WEIR_FABRIC_SOFT ? "soft" : "rdma",
                      "fabric_reason", fabric_reason(serve->fabric));
        json_t *addresses = json_array();
        for (unsigned i = 0; i < list.address_count; i++) {
            json_array_append_new(addresses, json_string(list.addresses[i].text));
        }
        json_object_set_new(object, "addresses", addresses);
        output_json_path(object, (struct span){root, strlen(root)});
        output_json(object);
    } else if (!serve->options.quiet) {
        say_where(serve, &list, text);
    }
}
