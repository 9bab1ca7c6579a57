#include "tools/trust/guard.h"

#include <stdlib.h>
#include <string.h>

enum way {
    TO_SERVER,
    TO_CLIENT
};

struct guard {
    struct handshake handshake;
    bool is_server;
    bool demands; /* a server: chunks are to be sealed */
    bool failed;  /* there is no memory for the keys, or chunks would not be sealed */
    const char *why;
    /* A client's, until the connection is there. */
    char name[SECRET_NAME_MAX + 1];
    struct secret secret;
    bool encrypt;
    handshake_find *find; /* a server's */
    void *user;
    struct seal *closing[2], *opening[2]; /* by enum guarded */
};

static const char *const labels[2][2] = {
    [GUARDED_MESSAGE] =
        {[TO_SERVER] = "weir message to server", [TO_CLIENT] = "weir message to client"},
    [GUARDED_CHUNK] = {[TO_SERVER] = "weir chunk to server", [TO_CLIENT] = "weir chunk to client"},
};

struct guard *guard_create_client(const char *name, const struct secret *secret, bool encrypt)
{
    struct guard *guard = calloc(1, sizeof(*guard));
    if (guard != NULL) {
        strncpy(guard->name, name, SECRET_NAME_MAX);
        guard->secret = *secret;
        guard->encrypt = encrypt;
    }
    return guard;
}

struct guard *guard_create_server(handshake_find *find, void *user, bool encrypt)
{
    struct guard *guard = calloc(1, sizeof(*guard));
    if (guard != NULL) {
        guard->is_server = true;
        guard->demands = encrypt;
        guard->find = find;
        guard->user = user;
    }
    return guard;
}

void guard_destroy(struct guard *guard)
{
    if (guard == NULL) {
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        seal_destroy(guard->closing[i]);
        seal_destroy(guard->opening[i]);
    }
    crypto_wipe(guard, sizeof(*guard));
    free(guard);
}

static enum handshake_state fail(struct guard *guard, const char *why)
{
    guard->failed = true;
    guard->why = why;
    return HANDSHAKE_FAILED;
}

bool guard_begin(struct guard *guard, const void *parameters, size_t length,
                 struct handshake_message *ret_message)
{
    ret_message->length = 0;
    if (guard->is_server) {
        handshake_begin_server(&guard->handshake, guard->find, guard->user, parameters, length);
        return true;
    }
    if (!handshake_begin_client(&guard->handshake, guard->name, &guard->secret, guard->encrypt,
                                parameters, length, ret_message)) {
        fail(guard, "the system has no random bytes");
        return false;
    }
    return true;
}

static struct seal *make_seal(struct guard *guard, enum guarded what, enum way way, bool closing)
{
    uint8_t key[KEY_LENGTH];
    struct seal *seal = handshake_derive(&guard->handshake, labels[what][way], key)
                            ? seal_create(key, closing)
                            : NULL;
    crypto_wipe(key, sizeof(key));
    return seal;
}

static bool make_seals(struct guard *guard)
{
    bool good = true;
    for (unsigned i = 0; i < (guard->handshake.encrypt ? 2 : 1); i++) {
        guard->closing[i] = make_seal(guard, i, guard->is_server ? TO_CLIENT : TO_SERVER, true);
        guard->opening[i] = make_seal(guard, i, guard->is_server ? TO_SERVER : TO_CLIENT, false);
        good = good && guard->closing[i] != NULL && guard->opening[i] != NULL;
    }
    return good;
}

enum handshake_state guard_hear(struct guard *guard, const void *bytes, size_t length,
                                struct handshake_message *ret_reply)
{
    enum handshake_state state = handshake_hear(&guard->handshake, bytes, length, ret_reply);
    if (state != HANDSHAKE_PROVEN || guard->closing[GUARDED_MESSAGE] != NULL || guard->failed) {
        return guard_state(guard);
    }
    if (guard->demands && !guard->handshake.encrypt) {
        return fail(guard, "this side serves only what is encrypted: give --encrypt");
    }
    return make_seals(guard) ? state : fail(guard, "no memory for the session's keys");
}

enum handshake_state guard_state(const struct guard *guard)
{
    return guard->failed ? HANDSHAKE_FAILED : guard->handshake.state;
}

const char *guard_why(const struct guard *guard)
{
    return guard->failed ? guard->why : guard->handshake.why;
}

const char *guard_told(const struct guard *guard)
{
    return guard->failed ? guard->why : guard->handshake.told;
}

const char *guard_name(const struct guard *guard)
{
    return guard->handshake.name;
}

bool guard_encrypts(const struct guard *guard)
{
    return guard->handshake.encrypt;
}

bool guard_close(struct guard *guard, enum guarded what, const void *from, size_t length, void *to,
                 uint8_t ret_tag[TAG_LENGTH])
{
    return guard->closing[what] != NULL &&
           seal_close(guard->closing[what], from, length, to, ret_tag);
}

bool guard_open(struct guard *guard, enum guarded what, const void *from, size_t length, void *to,
                const uint8_t tag[TAG_LENGTH])
{
    return guard->opening[what] != NULL && seal_open(guard->opening[what], from, length, to, tag);
}
