/* A store of values by key, called by rpc. Keys and lengths go in requests and replies; values are
 * shown, and the server pulls them in, and pushes them out, itself.
 *
 *     rpc server [ADDRESS]      prints the address it listens on
 *     rpc client ADDRESS        puts values of growing length, gets them, compares; a key that
 * there is not must be refused
 *
 * The server ends when its last client has gone. */
#include <string.h>

#include <weir/rpc.h>

#include "examples/common.h"

#define VALUE_MAX  ((size_t)1 << 20)
#define KEYS       32u
#define TIMEOUT_MS 2000

enum refusal {
    NO_SUCH_KEY = 1,
    TOO_LONG = 2,
    FAILED = 3
};

/* --- server --- */

struct store {
    struct example example;
    struct weir_memory *values; /* KEYS of VALUE_MAX each */
    size_t lengths[KEYS];       /* 0: none */
};

/* The key that a request is about; KEYS: none. */
static unsigned key_of(const void *bytes, size_t length)
{
    return length == 1 && *(const unsigned char *)bytes < KEYS ? *(const unsigned char *)bytes
                                                               : KEYS;
}

static void reply_if(struct weir_request *request, enum weir_status status, const void *bytes,
                     size_t length)
{
    struct weir_piece piece = {bytes, length};
    if (status == WEIR_OK) {
        weir_request_reply(request, &piece, 1);
    } else { /* its client has gone, or what it shows is not what it says */
        weir_request_refuse(request, FAILED, weir_status_name(status));
    }
}

static void value_is_here(struct weir_request *request, enum weir_status status, void *argument)
{
    if (status == WEIR_OK) {
        weir_request_bulk(request, 0, argument, NULL);
    }
    reply_if(request, status, NULL, 0);
}

static void handle_put(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct store *store = user;
    unsigned key = key_of(bytes, length);
    struct weir_bulk_part part = {.memory = store->values, .offset = key * VALUE_MAX};
    if (key == KEYS || !weir_request_bulk(request, 0, &part.length, NULL)) {
        weir_request_refuse(request, NO_SUCH_KEY, "no such key, or no value");
    } else if (part.length > VALUE_MAX) {
        weir_request_refuse(request, TOO_LONG, "a value of more than 1 MiB");
    } else {
        store->lengths[key] = 0;
        enum weir_status status =
            weir_request_pull(request, &part, value_is_here, &store->lengths[key]);
        if (status != WEIR_OK) {
            reply_if(request, status, NULL, 0);
        }
    }
}

static void value_is_there(struct weir_request *request, enum weir_status status, void *argument)
{
    size_t *length = argument;
    reply_if(request, status, length, sizeof(*length));
}

static void handle_get(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct store *store = user;
    unsigned key = key_of(bytes, length);
    if (key == KEYS || store->lengths[key] == 0) {
        weir_request_refuse(request, NO_SUCH_KEY, "no such key");
        return;
    }
    struct weir_bulk_part part = {
        .memory = store->values, .offset = key * VALUE_MAX, .length = store->lengths[key]};
    enum weir_status status =
        weir_request_push(request, &part, value_is_there, &store->lengths[key]);
    if (status != WEIR_OK) {
        reply_if(request, status, NULL, 0);
    }
}

static void name(struct weir_rpc *rpc, const char *name, weir_procedure_handler *handler,
                 void *user, struct weir_procedure **ret_procedure)
{
    struct weir_error error;
    if (weir_rpc_register(rpc, name, handler, user, ret_procedure, &error) != WEIR_OK) {
        example_fail("procedure", error.message);
    }
}

static void serve(struct weir_rpc *rpc, struct store *store, const char *address)
{
    struct weir_error error;
    struct weir_server_statistics statistics;
    store->values = example_memory(&store->example, KEYS * VALUE_MAX);
    name(rpc, "put", handle_put, store, NULL);
    name(rpc, "get", handle_get, store, NULL);
    if (weir_rpc_listen(rpc, address != NULL ? address : "127.0.0.1:0", &error) != WEIR_OK) {
        example_fail("listen", error.message);
    }
    printf("%s\n", weir_rpc_address(rpc));
    fflush(stdout);
    do {
        weir_poll(store->example.poller, -1);
        weir_rpc_server_statistics(rpc, &statistics);
    } while (statistics.clients_taken == 0 || statistics.clients > 0);
}

/* --- client --- */

struct user {
    struct example example;
    struct weir_target *target;
    struct weir_procedure *put, *get;
    unsigned char *value;
    bool is_told;
    enum weir_status status;
    unsigned code;
    size_t length; /* of the value that was got */
};

static void replied(const struct weir_reply *reply, void *argument)
{
    struct user *user = argument;
    user->is_told = true;
    user->status = reply->status;
    user->code = reply->code;
    if (reply->length == sizeof(user->length)) {
        memcpy(&user->length, reply->bytes, reply->length);
    }
    if (reply->status != WEIR_OK && reply->code != NO_SUCH_KEY) {
        fprintf(stderr, "%s\n", reply->words);
    }
}

/* One after the other, to be short: any number may be under way. */
static enum weir_status call(struct user *user, struct weir_procedure *procedure, unsigned char key,
                             size_t length, unsigned rights)
{
    struct weir_piece piece = {&key, 1};
    struct weir_bulk bulk = {user->value, length, rights};
    struct weir_call_options options = {
        .timeout_ms = TIMEOUT_MS, .is_idempotent = true, .bulk = &bulk, .bulk_count = 1};
    user->is_told = false;
    if (weir_rpc_call(user->target, procedure, &piece, 1, &options, replied, user, NULL) !=
        WEIR_OK) {
        return WEIR_INVALID;
    }
    while (!user->is_told) {
        weir_poll(user->example.poller, -1);
    }
    return user->status;
}

static size_t length_of(unsigned key)
{
    return 1 + (size_t)key * key * 1031 % VALUE_MAX;
}

static bool is_value(const unsigned char *bytes, unsigned key)
{
    for (size_t i = 0; i < length_of(key); i++) {
        if (bytes[i] != (unsigned char)(i * 7 + key)) {
            return false;
        }
    }
    return true;
}

static bool use(struct user *user)
{
    for (unsigned key = 0; key + 1 < KEYS; key++) {
        for (size_t i = 0; i < length_of(key); i++) {
            user->value[i] = (unsigned char)(i * 7 + key);
        }
        if (call(user, user->put, (unsigned char)key, length_of(key), WEIR_REMOTE_READ) !=
            WEIR_OK) {
            return false;
        }
    }
    for (unsigned key = 0; key + 1 < KEYS; key++) {
        memset(user->value, 0, VALUE_MAX);
        if (call(user, user->get, (unsigned char)key, VALUE_MAX, WEIR_REMOTE_WRITE) != WEIR_OK ||
            user->length != length_of(key) || !is_value(user->value, key)) {
            return false;
        }
    }
    return call(user, user->get, KEYS - 1, VALUE_MAX, WEIR_REMOTE_WRITE) == WEIR_REFUSED &&
           user->code == NO_SUCH_KEY;
}

static bool be_client(struct weir_rpc *rpc, struct user *user, const char *address)
{
    struct weir_error error;
    if (weir_target_create(rpc, address, &user->target, &error) != WEIR_OK) {
        example_fail("target", error.message);
    }
    name(rpc, "put", NULL, NULL, &user->put);
    name(rpc, "get", NULL, NULL, &user->get);
    user->value = calloc(1, VALUE_MAX);
    bool is_right = use(user);
    free(user->value);
    printf("%u values put and got%s\n", KEYS - 1, is_right ? "" : ": not so");
    return is_right;
}

int main(int argc, char **argv)
{
    struct store store = {0};
    struct user user = {0};
    struct weir_rpc *rpc;
    struct weir_error error;
    bool is_server = argc > 1 && strcmp(argv[1], "server") == 0;
    if (!is_server && (argc < 3 || strcmp(argv[1], "client") != 0)) {
        fprintf(stderr, "usage: rpc server [ADDRESS] | rpc client ADDRESS\n");
        return 2;
    }
    struct example *example = is_server ? &store.example : &user.example;
    example_open(example);
    if (weir_rpc_create(example->poller, NULL, &rpc, &error) != WEIR_OK) {
        example_fail("rpc", error.message);
    }
    bool is_right = true;
    if (is_server) {
        serve(rpc, &store, argv[2]);
    } else {
        is_right = be_client(rpc, &user, argv[2]);
    }
    weir_rpc_destroy(rpc);
    weir_memory_deregister(store.values);
    weir_poller_destroy(example->poller);
    weir_fabric_close(example->fabric);
    return is_right ? 0 : 1;
}
