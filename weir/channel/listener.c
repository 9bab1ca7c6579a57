/* Listening addresses. */
#include "weir/channel/listener.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/channel/bootstrap_cm.h"
#include "weir/channel/bootstrap_tcp.h"
#include "weir/channel/connection.h"
#include "weir/error_private.h"

enum weir_status weir_listen(struct weir_poller *poller, const char *address,
                             const struct weir_channel_options *options,
                             weir_accept_callback *accepted, void *user,
                             struct weir_listener **ret_listener, struct weir_error *ret_error)
{
    struct weir_channel_options resolved;
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    struct sockaddr *local = (struct sockaddr *)&addresses[0];
    unsigned count;
    enum weir_status status =
        connection_resolve_options(poller->fabric, options, &resolved, ret_error);
    if (status == WEIR_OK && accepted == NULL) {
        status = error_set(ret_error, WEIR_INVALID, "nobody to accept");
    }
    if (status == WEIR_OK) {
        status = address_resolve(address, true, addresses, &count, ret_error);
    }
    if (status != WEIR_OK) {
        return status;
    }
    struct weir_listener *listener = calloc(1, sizeof(*listener));
    if (listener == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    listener->poller = poller;
    listener->options = resolved;
    listener->accepted = accepted;
    listener->user = user;
    listener->tcp.fd = -1;
    address_format(local, listener->address);
    listener->next = poller->listeners;
    poller->listeners = listener;
    status = resolved.bootstrap == WEIR_BOOTSTRAP_CM
                 ? bootstrap_cm_listen(listener, local, ret_error)
                 : bootstrap_tcp_listen(listener, local, ret_error);
    if (status != WEIR_OK) {
        listener_destroy(listener);
        return status;
    }
    *ret_listener = listener;
    return WEIR_OK;
}

const char *weir_listener_address(const struct weir_listener *listener)
{
    return listener->address;
}

/* By rdma_cm each further queue pair of a connection is a request to the listener's address. */
static bool is_awaited(const struct weir_listener *listener)
{
    const struct weir_connection *stranger = listener->strangers;
    while (stranger != NULL && (stranger->lane_count == 0 || stranger->lanes[0].id == NULL)) {
        stranger = stranger->next_stranger;
    }
    return stranger != NULL;
}

static void stop_listening(struct weir_listener *listener)
{
    bootstrap_cm_unlisten(listener);
    bootstrap_tcp_unlisten(listener);
    while (listener->strangers != NULL) {
        listener_let_go(listener->strangers);
    }
}

void weir_listener_close(struct weir_listener *listener)
{
    if (listener == NULL) {
        return;
    }
    /* An event of this round may still name it. */
    listener->is_closed = true;
    poller_note_end(listener->poller);
    if (!is_awaited(listener)) {
        stop_listening(listener);
    }
}

void listener_destroy(struct weir_listener *listener)
{
    stop_listening(listener);
    struct weir_listener **link = &listener->poller->listeners;
    while (*link != listener) {
        link = &(*link)->next;
    }
    *link = listener->next;
    free(listener);
}

void listeners_reap(struct weir_poller *poller)
{
    struct weir_listener *listener = poller->listeners;
    while (listener != NULL) {
        struct weir_listener *next = listener->next;
        if (listener->is_closed && !is_awaited(listener)) {
            listener_destroy(listener);
        }
        listener = next;
    }
}

void weir_refuse(struct weir_connection *connection, const char *words)
{
    snprintf(connection->refusal, sizeof(connection->refusal), "%s", words);
}

void listener_take(struct weir_listener *listener, struct weir_connection *connection)
{
    connection->listener = listener;
    connection->next_stranger = listener->strangers;
    if (connection->next_stranger != NULL) {
        connection->next_stranger->previous_stranger = connection;
    }
    listener->strangers = connection;
}

void listener_let_go(struct weir_connection *connection)
{
    struct weir_listener *listener = connection->listener;
    if (listener == NULL) {
        return;
    }
    if (connection->previous_stranger != NULL) {
        connection->previous_stranger->next_stranger = connection->next_stranger;
    } else {
        listener->strangers = connection->next_stranger;
    }
    if (connection->next_stranger != NULL) {
        connection->next_stranger->previous_stranger = connection->previous_stranger;
    }
    connection->next_stranger = connection->previous_stranger = NULL;
    connection->listener = NULL;
    if (listener->is_closed) {
        poller_note_end(listener->poller); /* it may go */
    }
}

bool listener_ask(struct weir_listener *listener, struct weir_connection *connection)
{
    struct weir_handler handler = {0};
    void *user = NULL;
    listener->poller->callbacks++;
    if (!listener->accepted(connection, listener->user, &handler, &user)) {
        return false;
    }
    connection->handler = handler;
    connection->user = user;
    return true;
}

static bool is_same_host(const char *left, const char *right)
{
    size_t length = (size_t)(strrchr(left, ':') - left);
    return strncmp(left, right, length + 1) == 0 && strrchr(right, ':') == right + length;
}

bool listener_is_crowded(const struct weir_listener *listener, const char *peer)
{
    unsigned strangers = 0, of_host = 0;
    for (const struct weir_connection *stranger = listener->strangers; stranger != NULL;
         stranger = stranger->next_stranger) {
        strangers++;
        of_host += is_same_host(peer, stranger->peer_name);
    }
    return strangers >= LISTENER_STRANGERS_MAX || of_host >= LISTENER_STRANGERS_PER_HOST;
}
