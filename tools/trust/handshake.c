#include "tools/trust/handshake.h"

#include <stdio.h>
#include <string.h>

#define NONCE_LENGTH  32
#define MAGIC         "Weir"
#define MAGIC_LENGTH  4
#define FLAG_ENCRYPT  1
#define AT_VERSION    (1 + MAGIC_LENGTH)
#define AT_FLAGS      (AT_VERSION + 2)
#define AT_NAME       (AT_FLAGS + 1)
#define ANSWER_PROVEN (2 + NONCE_LENGTH) /* of the answer: what its own proof is of */
#define ANSWER_LENGTH (ANSWER_PROVEN + MAC_LENGTH)
#define PROOF_LENGTH  (1 + MAC_LENGTH)

static const uint8_t no_salt[MAC_LENGTH];

static enum handshake_state fail(struct handshake *handshake, const char *told, const char *why)
{
    handshake->state = HANDSHAKE_FAILED;
    handshake->told = told;
    snprintf(handshake->why, sizeof(handshake->why), "%s", why);
    return handshake->state;
}

static enum handshake_state fail_here(struct handshake *handshake)
{
    return fail(handshake, "no memory for a handshake", "no memory, or no random bytes");
}

/* `label` tells whose proof it is; the answer counts up to `answer_length`. */
static bool prove(const struct handshake *handshake, const char *label, size_t answer_length,
                  uint8_t ret_proof[MAC_LENGTH])
{
    uint8_t key[KEY_LENGTH];
    const struct piece pieces[] = {
        {handshake->prove.bytes, handshake->prove.length},
        {handshake->answer.bytes, answer_length},
        {handshake->parameters, handshake->parameters_length},
    };
    bool good = crypto_derive(handshake->secret.bytes, no_salt, label, key) &&
                crypto_mac(key, pieces, 3, ret_proof);
    crypto_wipe(key, sizeof(key));
    return good;
}

static bool prove_server(const struct handshake *handshake, uint8_t ret_proof[MAC_LENGTH])
{
    return prove(handshake, "weir handshake 1: server", ANSWER_PROVEN, ret_proof);
}

static bool prove_client(const struct handshake *handshake, uint8_t ret_proof[MAC_LENGTH])
{
    return prove(handshake, "weir handshake 1: client", ANSWER_LENGTH, ret_proof);
}

static void begin(struct handshake *handshake, const void *parameters, size_t length)
{
    memset(handshake, 0, sizeof(*handshake));
    length = length < HANDSHAKE_PARAMETERS_MAX ? length : HANDSHAKE_PARAMETERS_MAX;
    memcpy(handshake->parameters, parameters, length);
    handshake->parameters_length = length;
}

void handshake_begin_server(struct handshake *handshake, handshake_find *find, void *user,
                            const void *parameters, size_t length)
{
    begin(handshake, parameters, length);
    handshake->is_server = true;
    handshake->find = find;
    handshake->user = user;
}

bool handshake_begin_client(struct handshake *handshake, const char *name,
                            const struct secret *secret, bool encrypt, const void *parameters,
                            size_t length, struct handshake_message *ret_prove)
{
    begin(handshake, parameters, length);
    handshake->encrypt = encrypt;
    handshake->secret = *secret;
    snprintf(handshake->name, sizeof(handshake->name), "%s", name);
    size_t name_length = strlen(handshake->name);
    uint8_t *bytes = handshake->prove.bytes;
    bytes[0] = HANDSHAKE_PROVE;
    memcpy(bytes + 1, MAGIC, MAGIC_LENGTH);
    bytes[AT_VERSION] = 0;
    bytes[AT_VERSION + 1] = HANDSHAKE_VERSION;
    bytes[AT_FLAGS] = encrypt ? FLAG_ENCRYPT : 0;
    bytes[AT_NAME] = (uint8_t)name_length;
    memcpy(bytes + AT_NAME + 1, handshake->name, name_length);
    handshake->prove.length = AT_NAME + 1 + name_length + NONCE_LENGTH;
    bool good = crypto_random(bytes + AT_NAME + 1 + name_length, NONCE_LENGTH);
    *ret_prove = handshake->prove;
    return good;
}

/* False, after the handshake has failed: not a PROVE that we take. */
static bool take_prove(struct handshake *handshake, const uint8_t *bytes, size_t length)
{
    static const char no_key[] = "this side wants a key first";
    if (length < AT_FLAGS || bytes[0] != HANDSHAKE_PROVE ||
        memcmp(bytes + 1, MAGIC, MAGIC_LENGTH) != 0) {
        fail(handshake, no_key, "it has no key");
        return false;
    }
    if (bytes[AT_VERSION] != 0 || bytes[AT_VERSION + 1] != HANDSHAKE_VERSION) {
        fail(handshake, "this side speaks version 1 of the handshake",
             "it speaks another version of the handshake");
        return false;
    }
    size_t name_length = length > AT_NAME ? bytes[AT_NAME] : 0;
    if (length != AT_NAME + 1 + name_length + NONCE_LENGTH || name_length > SECRET_NAME_MAX ||
        bytes[AT_FLAGS] > FLAG_ENCRYPT) {
        fail(handshake, "the handshake is malformed", "its handshake is malformed");
        return false;
    }
    memcpy(handshake->name, bytes + AT_NAME + 1, name_length);
    if (name_length > 0 && !secret_name_is_valid(handshake->name)) {
        fail(handshake, "the handshake is malformed", "its key's name is none");
        return false;
    }
    memcpy(handshake->prove.bytes, bytes, length);
    handshake->prove.length = length;
    handshake->encrypt = bytes[AT_FLAGS] == FLAG_ENCRYPT;
    return true;
}

static enum handshake_state answer(struct handshake *handshake, struct handshake_message *ret_reply)
{
    const struct secret *secret = handshake->find(handshake->user, handshake->name);
    struct handshake_message *answer = &handshake->answer;
    handshake->is_known = secret != NULL;
    if (secret != NULL) {
        handshake->secret = *secret;
    } else if (!secret_make(&handshake->secret)) {
        return fail_here(handshake);
    }
    answer->length = ANSWER_LENGTH;
    answer->bytes[0] = HANDSHAKE_ANSWER;
    answer->bytes[1] = handshake->encrypt ? FLAG_ENCRYPT : 0;
    if (!crypto_random(answer->bytes + 2, NONCE_LENGTH) ||
        !prove_server(handshake, answer->bytes + ANSWER_PROVEN)) {
        return fail_here(handshake);
    }
    *ret_reply = *answer;
    return handshake->state;
}

static enum handshake_state refuse_key(struct handshake *handshake)
{
    char why[128];
    snprintf(why, sizeof(why), "%s key '%s'", handshake->is_known ? "wrong" : "unknown",
             handshake->name);
    return fail(handshake, "this side does not know that key", why);
}

static enum handshake_state hear_as_server(struct handshake *handshake, const uint8_t *bytes,
                                           size_t length, struct handshake_message *ret_reply)
{
    uint8_t proof[MAC_LENGTH];
    if (handshake->prove.length == 0) {
        return take_prove(handshake, bytes, length) ? answer(handshake, ret_reply)
                                                    : handshake->state;
    }
    if (length != PROOF_LENGTH || bytes[0] != HANDSHAKE_PROOF) {
        return fail(handshake, "the handshake is malformed", "its proof is malformed");
    }
    if (!prove_client(handshake, proof)) {
        return fail_here(handshake);
    }
    if (!crypto_equal(proof, bytes + 1, MAC_LENGTH) || !handshake->is_known) {
        return refuse_key(handshake);
    }
    handshake->state = HANDSHAKE_PROVEN;
    return handshake->state;
}

static enum handshake_state hear_as_client(struct handshake *handshake, const uint8_t *bytes,
                                           size_t length, struct handshake_message *ret_reply)
{
    uint8_t proof[MAC_LENGTH];
    if (length != ANSWER_LENGTH || bytes[0] != HANDSHAKE_ANSWER ||
        bytes[1] != (handshake->encrypt ? FLAG_ENCRYPT : 0)) {
        return fail(handshake, "the handshake is malformed",
                    "the other side does not answer as one that wants a key");
    }
    memcpy(handshake->answer.bytes, bytes, length);
    handshake->answer.length = length;
    if (!prove_server(handshake, proof)) {
        return fail_here(handshake);
    }
    if (!crypto_equal(proof, bytes + ANSWER_PROVEN, MAC_LENGTH)) {
        return fail(handshake, "the client does not know that key",
                    "the other side does not know this key, or is not who it should be");
    }
    ret_reply->bytes[0] = HANDSHAKE_PROOF;
    ret_reply->length = PROOF_LENGTH;
    if (!prove_client(handshake, ret_reply->bytes + 1)) {
        ret_reply->length = 0;
        return fail_here(handshake);
    }
    handshake->state = HANDSHAKE_PROVEN;
    return handshake->state;
}

enum handshake_state handshake_hear(struct handshake *handshake, const void *bytes, size_t length,
                                    struct handshake_message *ret_reply)
{
    ret_reply->length = 0;
    if (handshake->state != HANDSHAKE_UNDER_WAY) {
        return handshake->state;
    }
    return handshake->is_server ? hear_as_server(handshake, bytes, length, ret_reply)
                                : hear_as_client(handshake, bytes, length, ret_reply);
}

bool handshake_derive(const struct handshake *handshake, const char *label,
                      uint8_t ret_key[KEY_LENGTH])
{
    uint8_t salt[MAC_LENGTH];
    /* A digest of all that was said: both nonces are in it. */
    return prove(handshake, "weir handshake 1: session", ANSWER_LENGTH, salt) &&
           crypto_derive(handshake->secret.bytes, salt, label, ret_key);
}
