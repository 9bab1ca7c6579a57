#include "tools/trust/certificates.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/trust/guard_private.h"
#include "tools/trust/tls.h"

/* No prompt: a file with a passphrase fails. */
static int no_passphrase(char *buffer, int size, int writing, void *user)
{
    return -1;
}

/* Says what OpenSSL has found wrong with a file that is to hold `what`; false for the caller to
 * return. Of the errors in its queue the first is the cause, and others say what it was to. */
static bool explain(const char *path, const char *what, char ret_why[CERTIFICATES_WHY_LENGTH])
{
    unsigned long first = ERR_get_error();
    const char *text = ERR_reason_error_string(first);
    bool is_absent = first == 0, has_passphrase = false, is_other = false, is_mute = false;
    for (unsigned long error = first; error != 0; error = ERR_get_error()) {
        int reason = ERR_GET_REASON(error);
        is_absent |= ERR_GET_LIB(error) == ERR_LIB_PEM && reason == PEM_R_NO_START_LINE;
        is_absent |= ERR_GET_LIB(error) == ERR_LIB_OSSL_DECODER && reason == ERR_R_UNSUPPORTED;
        has_passphrase |= ERR_GET_LIB(error) == ERR_LIB_PEM && reason == PEM_R_BAD_PASSWORD_READ;
        is_other |= ERR_GET_LIB(error) == ERR_LIB_X509 && reason == X509_R_KEY_VALUES_MISMATCH;
        is_other |= ERR_GET_LIB(error) == ERR_LIB_SSL && reason == SSL_R_NO_CERTIFICATE_ASSIGNED;
        is_mute |= ERR_GET_LIB(error) == ERR_LIB_SSL && reason == SSL_R_UNKNOWN_CERTIFICATE_TYPE;
    }
    if (has_passphrase) {
        text = "it has a passphrase, for which nobody is asked: give one without";
    } else if (is_other) {
        text = "it is not the key of this certificate"; /* of its kind, or of any */
    } else if (is_mute) {
        text = "a key of its kind signs nothing";
    }
    if (is_absent || text == NULL) {
        snprintf(ret_why, CERTIFICATES_WHY_LENGTH, "%s: there is no %s in PEM in it", path, what);
    } else {
        snprintf(ret_why, CERTIFICATES_WHY_LENGTH, "%s: %s", path, text);
    }
    return false;
}

static bool is_readable(const char *path, bool is_secret, char ret_why[CERTIFICATES_WHY_LENGTH])
{
    FILE *file = fopen(path, "re");
    struct stat status;
    bool good = file != NULL && fstat(fileno(file), &status) == 0;
    if (!good) {
        snprintf(ret_why, CERTIFICATES_WHY_LENGTH, "%s: %s", path, strerror(errno));
    } else if (is_secret && (status.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
        snprintf(ret_why, CERTIFICATES_WHY_LENGTH, "%s: others may read or write it (chmod 600)",
                 path);
        good = false;
    }
    if (file != NULL) {
        fclose(file);
    }
    return good;
}

/* What of a flight is not certificates, nor a signature. */
#define REST_OF_FLIGHT 1024u

/* All of what is shown goes in one flight with its proof. */
static bool fits(SSL_CTX *context, const char *path, char ret_why[CERTIFICATES_WHY_LENGTH])
{
    STACK_OF(X509) *chain = NULL;
    size_t length = (size_t)i2d_X509(SSL_CTX_get0_certificate(context), NULL);
    size_t signature = (size_t)EVP_PKEY_get_size(SSL_CTX_get0_privatekey(context));
    SSL_CTX_get0_chain_certs(context, &chain);
    for (int i = 0; i < sk_X509_num(chain); i++) {
        length += (size_t)i2d_X509(sk_X509_value(chain, i), NULL) + 5;
    }
    size_t most = FLIGHT_LENGTH_MAX - REST_OF_FLIGHT - signature;
    if (length > most) {
        snprintf(ret_why, CERTIFICATES_WHY_LENGTH,
                 "%s: its certificates take %zu bytes, and %zu are the most", path, length, most);
    }
    return length <= most;
}

static bool load_own(SSL_CTX *context, const struct certificate_files *files,
                     char ret_why[CERTIFICATES_WHY_LENGTH])
{
    if (!is_readable(files->certificate, false, ret_why) ||
        !is_readable(files->key, true, ret_why)) {
        return false;
    }
    if (SSL_CTX_use_certificate_chain_file(context, files->certificate) != 1) {
        return explain(files->certificate, "certificate", ret_why);
    }
    if (SSL_CTX_use_PrivateKey_file(context, files->key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
        return explain(files->key, "private key", ret_why);
    }
    return fits(context, files->certificate, ret_why);
}

static bool load_authorities(SSL_CTX *context, const char *path,
                             char ret_why[CERTIFICATES_WHY_LENGTH])
{
    if (!is_readable(path, false, ret_why)) {
        return false;
    }
    if (SSL_CTX_load_verify_file(context, path) != 1) {
        return explain(path, "certificate", ret_why);
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return true;
}

bool certificates_load(const struct certificate_files *files, bool is_server,
                       struct certificates *ret_certificates, char ret_why[CERTIFICATES_WHY_LENGTH])
{
    SSL_CTX *context = tls_context_create(is_server, is_server);
    *ret_certificates = (struct certificates){.context = context};
    if (context == NULL) {
        snprintf(ret_why, CERTIFICATES_WHY_LENGTH, "no memory for TLS");
        return false;
    }
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    ERR_clear_error();
    if ((files->certificate != NULL && !load_own(context, files, ret_why)) ||
        (files->authorities != NULL && !load_authorities(context, files->authorities, ret_why))) {
        certificates_free(ret_certificates);
        return false;
    }
    ret_certificates->demand = is_server && files->authorities != NULL;
    return true;
}

const char *certificates_doubt(const struct certificates *certificates)
{
    const X509 *own = SSL_CTX_get0_certificate(certificates->context);
    if (own != NULL && X509_cmp_current_time(X509_get0_notAfter(own)) < 0) {
        return "it has expired, so nobody believes it";
    }
    if (own != NULL && X509_cmp_current_time(X509_get0_notBefore(own)) > 0) {
        return "its time has not begun, so nobody believes it yet";
    }
    return NULL;
}

void certificates_free(struct certificates *certificates)
{
    SSL_CTX_free(certificates->context);
    certificates->context = NULL;
}
