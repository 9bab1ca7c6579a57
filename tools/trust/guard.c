#include "tools/trust/guard.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trust/certificates.h"
#include "tools/trust/guard_private.h"
#include "tools/trust/tls.h"

/* A handshake that takes more messages of a peer than this is none of ours: they are two. */
#define HEARD_MAX 8
/* A key seals so many records; 2^24.5 would be allowed (RFC 8446, 5.5). */
#define RECORDS_MAX (1u << 23)
/* Of a record on the wire. */
#define RECORD_HEAD_LENGTH 5
#define RECORD_LENGTH_MAX  (16384 + 256)
#define TYPE_HANDSHAKE     22
#define TYPE_DATA          23
#define CLIENT_HELLO       1

static const char to_server[] = "EXPERIMENTAL weir chunk to server";
static const char to_client[] = "EXPERIMENTAL weir chunk to client";

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

static struct guard *with_context(struct guard *guard, const struct certificates *certificates)
{
    if (guard != NULL && certificates != NULL) {
        guard->context = certificates->context;
        SSL_CTX_up_ref(guard->context);
    }
    return guard;
}

struct guard *guard_create_client_of(const struct certificates *certificates, const char *host,
                                     bool encrypt)
{
    size_t length = strlen(host);
    struct guard *guard = length > 0 && length <= GUARD_HOST_MAX ? calloc(1, sizeof(*guard)) : NULL;
    if (guard != NULL) {
        memcpy(guard->host, host, length);
        guard->encrypt = encrypt;
    }
    return with_context(guard, certificates);
}

struct guard *guard_create_server(guard_find *find, void *user,
                                  const struct certificates *certificates, bool encrypt)
{
    struct guard *guard = calloc(1, sizeof(*guard));
    if (guard != NULL) {
        guard->is_server = true;
        guard->demands = encrypt;
        guard->takes_anyone = certificates != NULL && !certificates->demand;
        guard->find = find;
        guard->user = user;
    }
    return with_context(guard, certificates);
}

void guard_destroy(struct guard *guard)
{
    if (guard == NULL) {
        return;
    }
    SSL_free(guard->ssl);
    SSL_CTX_free(guard->context);
    seal_destroy(guard->closing);
    seal_destroy(guard->opening);
    crypto_wipe(guard, sizeof(*guard));
    free(guard);
}

static enum guard_state fail(struct guard *guard, const char *told, const char *why)
{
    guard->state = GUARD_FAILED;
    guard->told = told;
    snprintf(guard->why, sizeof(guard->why), "%s", why);
    return guard->state;
}

static enum guard_state fail_here(struct guard *guard)
{
    return fail(guard, "no memory for a handshake", "no memory, or no random bytes");
}

static enum guard_state fail_malformed(struct guard *guard)
{
    return fail(guard, "the handshake is malformed", "its handshake is malformed");
}

static enum guard_state refuse_key(struct guard *guard)
{
    char why[128];
    snprintf(why, sizeof(why), "%s key '%s'", guard->is_known ? "wrong" : "unknown", guard->name);
    return fail(guard, "the other side does not know this key", why);
}

static enum guard_state refuse_certificate(struct guard *guard)
{
    char why[192];
    snprintf(why, sizeof(why), "%s certificate: %s", guard->is_server ? "its" : "the server's",
             X509_verify_cert_error_string(SSL_get_verify_result(guard->ssl)));
    return fail(guard,
                guard->is_server ? "the other side does not believe this certificate"
                                 : "the client does not believe that certificate",
                why);
}

/* TLS has failed at a client: `text` is OpenSSL's. */
static enum guard_state explain_server(struct guard *guard, int reason, const char *text)
{
    char why[192];
    bool of_key = guard->host[0] == 0;
    if (!of_key && reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        return refuse_certificate(guard);
    }
    snprintf(why, sizeof(why),
             of_key ? "the other side does not know this key, or is not who it should be (%s)"
                    : "the other side's handshake is malformed (%s)",
             text);
    return fail(guard, of_key ? "the client does not know that key" : "the handshake is malformed",
                why);
}

/* TLS has failed: why, from the last of the errors that it names, which is what it made of all. */
static enum guard_state explain(struct guard *guard)
{
    unsigned long error = ERR_peek_last_error();
    int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
    const char *text = ERR_reason_error_string(error);
    char why[192];
    text = text != NULL ? text : "no reason given";
    if (ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE) {
        return fail_here(guard);
    }
    if (reason == SSL_R_EXCESSIVE_MESSAGE_SIZE) {
        return fail(guard, "these certificates are longer than 16 KiB",
                    "its certificates are longer than 16 KiB");
    }
    if (!guard->is_server) {
        return explain_server(guard, reason, text);
    }
    switch (reason) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
        return refuse_key(guard);
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
        return refuse_certificate(guard);
    case SSL_R_UNSUPPORTED_PROTOCOL:
        return fail(guard, "this side speaks TLS 1.3", "it does not speak TLS 1.3");
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
        return fail(guard, "this side has no certificate: it wants a key", "it offers no key");
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        return fail(guard, "this side wants a key, or a client's certificate",
                    "it has neither a key nor a certificate");
    default:
        snprintf(why, sizeof(why), "its handshake is malformed (%s)", text);
        return fail(guard, "the handshake is malformed", why);
    }
}

#define NAME_LENGTH (SECRET_NAME_MAX + 1)

/* The first name that is one of a person, a host or a program; NULL: there is none. */
static const char *find_alternative(X509 *certificate, char ret_text[NAME_LENGTH])
{
    static const char *const kinds[] = {
        [GEN_EMAIL] = "email=", [GEN_DNS] = "DNS=", [GEN_URI] = "URI="};
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    const char *kind = NULL;
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && kind == NULL; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        kind = name->type >= 0 && name->type <= GEN_URI ? kinds[name->type] : NULL;
        if (kind != NULL) {
            snprintf(ret_text, NAME_LENGTH, "%.*s", ASN1_STRING_length(name->d.ia5),
                     (const char *)ASN1_STRING_get0_data(name->d.ia5));
        }
    }
    GENERAL_NAMES_free(names);
    return kind;
}

static const char *take_serial(X509 *certificate, char ret_text[NAME_LENGTH])
{
    BIGNUM *number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), NULL);
    char *digits = number != NULL ? BN_bn2hex(number) : NULL;
    snprintf(ret_text, NAME_LENGTH, "%s", digits != NULL ? digits : "");
    OPENSSL_free(digits);
    BN_free(number);
    return "serial=";
}

/* For a log, and to count by: other characters than those of keys' names are not shown. Many a
 * certificate has no common name, and without any all of those would be one client. */
static void take_name(struct guard *guard, X509 *certificate)
{
    char text[NAME_LENGTH] = "", one[2] = "";
    const char *kind = "CN=";
    if (X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, text,
                                  sizeof(text)) <= 0) {
        kind = find_alternative(certificate, text);
        kind = kind != NULL ? kind : take_serial(certificate, text);
    }
    for (char *at = text; *at != 0; at++) {
        one[0] = *at;
        *at = secret_name_is_valid(one) ? *at : '?';
    }
    snprintf(guard->name, sizeof(guard->name), "%s%.*s", kind,
             (int)(SECRET_NAME_MAX - strlen(kind)), text);
}

/* TLS has looked at what there was; what there has to be is for us to know. */
static bool is_believed(struct guard *guard)
{
    X509 *certificate = SSL_get0_peer_certificate(guard->ssl);
    if (SSL_session_reused(guard->ssl) == 1) { /* so it calls a secret that was taken */
        return guard->host[0] == 0 && (!guard->is_server || guard->is_known);
    }
    if (certificate != NULL && SSL_get_verify_result(guard->ssl) == X509_V_OK &&
        (guard->is_server || guard->host[0] != 0)) {
        take_name(guard, certificate);
        return true;
    }
    guard->name[0] = 0; /* a name that it has offered is not proven */
    return guard->takes_anyone;
}

static struct seal *make_seal(struct guard *guard, const char *label, bool closing)
{
    uint8_t key[KEY_LENGTH];
    struct seal *seal = NULL;
    if (SSL_export_keying_material(guard->ssl, key, sizeof(key), label, strlen(label), NULL, 0,
                                   0) == 1) {
        seal = seal_create(key, closing);
    }
    crypto_wipe(key, sizeof(key));
    return seal;
}

/* TLS has no objection. */
static enum guard_state prove(struct guard *guard)
{
    if (guard->carrier.left > 0) {
        return fail_malformed(guard);
    }
    if (!guard->is_bound) {
        return fail(guard, "the handshake is malformed", "its handshake is of no connection");
    }
    if (!is_believed(guard)) {
        return refuse_key(guard);
    }
    if (guard->demands && !guard->encrypt) {
        const char *why = "this side serves only what is encrypted: give --encrypt";
        return fail(guard, why, why);
    }
    if (guard->encrypt) {
        guard->closing = make_seal(guard, guard->is_server ? to_client : to_server, true);
        guard->opening = make_seal(guard, guard->is_server ? to_server : to_client, false);
        if (guard->closing == NULL || guard->opening == NULL) {
            return fail_here(guard);
        }
    }
    guard->state = GUARD_PROVEN;
    return guard->state;
}

static void carry(struct guard *guard, const void *from, size_t left, uint8_t *to, size_t room)
{
    guard->carrier = (struct carrier){.from = from, .left = left, .to = to, .room = room};
    ERR_clear_error();
}

static enum guard_state step(struct guard *guard, const void *bytes, size_t length,
                             struct guard_message *ret_message)
{
    carry(guard, bytes, length, guard->flight, sizeof(guard->flight));
    int result = SSL_do_handshake(guard->ssl);
    if (result == 1) {
        prove(guard);
    } else if (SSL_get_error(guard->ssl, result) != SSL_ERROR_WANT_READ) {
        explain(guard);
    }
    ERR_clear_error();
    if (guard->state != GUARD_FAILED) {
        *ret_message = (struct guard_message){guard->flight, guard->carrier.length};
    }
    return guard->state;
}

/* The name counts where it belongs, and not in what the certificate is called. */
static bool ask_for(SSL *ssl, const char *host)
{
    SSL_set_hostflags(ssl,
                      X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1;
}

bool guard_begin(struct guard *guard, const void *parameters, size_t length,
                 struct guard_message *ret_message)
{
    *ret_message = (struct guard_message){NULL, 0};
    length = length < GUARD_PARAMETERS_MAX ? length : GUARD_PARAMETERS_MAX;
    guard->binding[0] = BINDING_VERSION;
    memcpy(guard->binding + BINDING_HEAD_LENGTH, parameters, length);
    guard->binding_length = BINDING_HEAD_LENGTH + length;
    guard->ssl =
        tls_create(guard->context != NULL ? guard->context : tls_context(guard->is_server), guard);
    if (guard->ssl == NULL || (guard->host[0] != 0 && !ask_for(guard->ssl, guard->host))) {
        fail_here(guard);
        return false;
    }
    return guard->is_server || step(guard, NULL, 0, ret_message) != GUARD_FAILED;
}

/* A message holds whole records: what is cut off is seen before TLS would wait for the rest. */
static bool is_whole(const uint8_t *bytes, size_t length)
{
    while (length >= RECORD_HEAD_LENGTH) {
        size_t record = (size_t)bytes[3] << 8 | bytes[4];
        if (record > RECORD_LENGTH_MAX || record > length - RECORD_HEAD_LENGTH) {
            return false;
        }
        bytes += RECORD_HEAD_LENGTH + record;
        length -= RECORD_HEAD_LENGTH + record;
    }
    return length == 0;
}

bool guard_is_hello(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    return length > RECORD_HEAD_LENGTH && at[0] == TYPE_HANDSHAKE && at[1] == 3 &&
           at[RECORD_HEAD_LENGTH] == CLIENT_HELLO;
}

enum guard_state guard_hear(struct guard *guard, const void *bytes, size_t length,
                            struct guard_message *ret_reply)
{
    *ret_reply = (struct guard_message){NULL, 0};
    if (guard->state != GUARD_UNDER_WAY) {
        return guard->state;
    }
    if (guard->is_server && guard->heard == 0 && !guard_is_hello(bytes, length)) {
        return fail(guard, "this side wants a key first", "it has no key");
    }
    if (++guard->heard > HEARD_MAX || length == 0 || !is_whole(bytes, length)) {
        return fail_malformed(guard);
    }
    return step(guard, bytes, length, ret_reply);
}

enum guard_state guard_state(const struct guard *guard)
{
    return guard->state;
}

const char *guard_why(const struct guard *guard)
{
    return guard->why;
}

const char *guard_told(const struct guard *guard)
{
    return guard->told;
}

const char *guard_name(const struct guard *guard)
{
    return guard->name;
}

bool guard_encrypts(const struct guard *guard)
{
    return guard->encrypt;
}

void guard_renew(struct guard *guard)
{
    guard->records = RECORDS_MAX;
}

/* New keys are announced before the next message, and in one with it. */
static bool count_records(struct guard *guard, size_t length)
{
    guard->records += 1 + length / SSL3_RT_MAX_PLAIN_LENGTH;
    if (guard->records <= RECORDS_MAX) {
        return true;
    }
    guard->records = 0;
    return SSL_key_update(guard->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1;
}

bool guard_close(struct guard *guard, const void *from, size_t length, uint8_t *to,
                 size_t *ret_length)
{
    size_t written = 0;
    if (guard->state != GUARD_PROVEN || length == 0) {
        return false;
    }
    carry(guard, NULL, 0, to, GUARD_SEALED_LENGTH(length));
    bool good = count_records(guard, length) &&
                SSL_write_ex(guard->ssl, from, length, &written) == 1 && written == length;
    *ret_length = guard->carrier.length;
    carry(guard, NULL, 0, NULL, 0);
    return good;
}

bool guard_open(struct guard *guard, const void *from, size_t length, uint8_t *to, size_t room,
                size_t *ret_length)
{
    size_t opened = 0, more = 0;
    bool good = guard->state == GUARD_PROVEN && length > 0 && is_whole(from, length);
    carry(guard, from, length, NULL, 0); /* without room: nothing is to be answered */
    while (good && guard->carrier.left > 0) {
        int result = SSL_read_ex(guard->ssl, to + opened, room - opened, &more);
        opened += result == 1 ? more : 0;
        good = result == 1 || SSL_get_error(guard->ssl, result) == SSL_ERROR_WANT_READ;
        good = good && (opened < room || guard->carrier.left == 0);
    }
    good = good && SSL_pending(guard->ssl) == 0;
    carry(guard, NULL, 0, NULL, 0);
    *ret_length = opened;
    if (!good && guard->state == GUARD_PROVEN) {
        fail(guard, "a message was changed on its way, or is not of this session",
             "a message was changed on its way");
    }
    return good;
}

bool guard_close_chunk(struct guard *guard, const void *from, size_t length, void *to,
                       uint8_t ret_tag[TAG_LENGTH])
{
    return guard->closing != NULL && seal_close(guard->closing, from, length, to, ret_tag);
}

bool guard_open_chunk(struct guard *guard, const void *from, size_t length, void *to,
                      const uint8_t tag[TAG_LENGTH])
{
    return guard->opening != NULL && seal_open(guard->opening, from, length, to, tag);
}
