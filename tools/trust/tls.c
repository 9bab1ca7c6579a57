#include "tools/trust/tls.h"

#include <string.h>

#include "tools/trust/guard_private.h"

#define BINDING_TYPE 0xff57

static struct guard *guard_of(const SSL *ssl)
{
    return SSL_get_app_data(ssl);
}

static int show_binding(SSL *ssl, unsigned type, unsigned context, const unsigned char **ret_bytes,
                        size_t *ret_length, X509 *certificate, size_t index, int *ret_alert,
                        void *user)
{
    struct guard *guard = guard_of(ssl);
    guard->binding[1] = guard->encrypt ? BINDING_FLAG_ENCRYPT : 0;
    *ret_bytes = guard->binding;
    *ret_length = guard->binding_length;
    return 1;
}

static int compare_binding(SSL *ssl, unsigned type, unsigned context, const unsigned char *bytes,
                           size_t length, X509 *certificate, size_t index, int *ret_alert,
                           void *user)
{
    struct guard *guard = guard_of(ssl);
    *ret_alert = SSL_AD_ILLEGAL_PARAMETER;
    if (length != guard->binding_length || bytes[0] != BINDING_VERSION ||
        bytes[1] > BINDING_FLAG_ENCRYPT ||
        memcmp(bytes + BINDING_HEAD_LENGTH, guard->binding + BINDING_HEAD_LENGTH,
               length - BINDING_HEAD_LENGTH) != 0) {
        return 0;
    }
    bool encrypt = bytes[1] == BINDING_FLAG_ENCRYPT;
    if (!guard->is_server && encrypt != guard->encrypt) {
        return 0;
    }
    guard->encrypt = encrypt;
    guard->is_bound = true;
    return 1;
}

/* A secret as what TLS takes for the state of an earlier session. */
static SSL_SESSION *session_of(SSL *ssl, const struct secret *secret)
{
    static const unsigned char suite[] = {0x13, 0x02}; /* TLS_AES_256_GCM_SHA384 */
    SSL_SESSION *session = SSL_SESSION_new();
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    if (session != NULL && cipher != NULL &&
        SSL_SESSION_set1_master_key(session, secret->bytes, SECRET_LENGTH) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
        return session;
    }
    SSL_SESSION_free(session);
    return NULL;
}

static int use_secret(SSL *ssl, const EVP_MD *digest, const unsigned char **ret_identity,
                      size_t *ret_length, SSL_SESSION **ret_session)
{
    struct guard *guard = guard_of(ssl);
    *ret_identity = (const unsigned char *)guard->name;
    *ret_length = strlen(guard->name);
    *ret_session = session_of(ssl, &guard->secret);
    return *ret_session != NULL;
}

/* Of the names that a client offers only the first counts. For one that is not known the secret is
 * one that nobody has. */
static int find_secret(SSL *ssl, const unsigned char *identity, size_t length,
                       SSL_SESSION **ret_session)
{
    struct guard *guard = guard_of(ssl);
    const struct secret *secret = NULL;
    guard->is_named = true;
    memset(guard->name, 0, sizeof(guard->name));
    if (!secret_make(&guard->secret)) {
        return 0;
    }
    if (length <= SECRET_NAME_MAX) {
        memcpy(guard->name, identity, length);
        if (strlen(guard->name) == length && secret_name_is_valid(guard->name)) {
            secret = guard->find(guard->user, guard->name);
        } else {
            guard->name[0] = 0;
        }
    }
    guard->is_known = secret != NULL;
    if (secret != NULL) {
        guard->secret = *secret;
    }
    *ret_session = session_of(ssl, &guard->secret);
    return *ret_session != NULL;
}

/* What there is no word of here is as OpenSSL has it: no early data, no compression, no
 * authentication after the handshake, a fresh key share always. */
static bool restrict_to_ours(SSL_CTX *context)
{
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(context, FLIGHT_LENGTH_MAX);
    SSL_CTX_set_mode(context, SSL_MODE_NO_AUTO_CHAIN); /* what a file of certificates has */
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384") == 1 &&
           SSL_CTX_set1_groups_list(context, "X25519:P-256") == 1 &&
           SSL_CTX_set_num_tickets(context, 0) == 1 &&
           SSL_CTX_add_custom_ext(context, BINDING_TYPE,
                                  SSL_EXT_CLIENT_HELLO | SSL_EXT_TLS1_3_ENCRYPTED_EXTENSIONS,
                                  show_binding, NULL, NULL, compare_binding, NULL) == 1;
}

SSL_CTX *tls_context_create(bool is_server, bool with_secrets)
{
    SSL_CTX *context = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());
    if (context == NULL || !restrict_to_ours(context)) {
        SSL_CTX_free(context);
        return NULL;
    }
    if (!is_server) { /* where no authority is known, no certificate is good */
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    }
    if (is_server) { /* it has to have one, to ask clients for certificates */
        SSL_CTX_set_session_id_context(context, (const unsigned char *)"weir", 4);
    }
    if (is_server && with_secrets) {
        SSL_CTX_set_psk_find_session_callback(context, find_secret);
    } else if (with_secrets) {
        SSL_CTX_set_psk_use_session_callback(context, use_secret);
    }
    return context;
}

SSL_CTX *tls_context(bool is_server)
{
    static SSL_CTX *contexts[2];
    if (contexts[is_server] == NULL) {
        contexts[is_server] = tls_context_create(is_server, true);
    }
    return contexts[is_server];
}

SSL *tls_create(SSL_CTX *context, struct guard *guard)
{
    SSL *ssl = context != NULL ? SSL_new(context) : NULL;
    BIO *bio = ssl != NULL ? carrier_bio(&guard->carrier) : NULL;
    if (bio == NULL) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_bio(ssl, bio, bio);
    SSL_set_app_data(ssl, guard);
    if (guard->is_server) {
        SSL_set_accept_state(ssl);
    } else {
        SSL_set_connect_state(ssl);
    }
    return ssl;
}
