/* Whose certificate is believed, and whose is not; and what is said of files that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/trust/certificates.h"
#include "tools/trust/guard.h"

#define PARAMETERS "token 7"
#define HOUR_S     3600

static struct secret good;

static const struct secret *find(void *user, const char *name)
{
    return strcmp(name, "alice") == 0 ? &good : NULL;
}

struct issuer {
    X509 *certificate;
    EVP_PKEY *key;
};

static void add_extension(X509 *certificate, int kind, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, kind, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static void write_key(const char *name, EVP_PKEY *key)
{
    char path[64];
    snprintf(path, sizeof(path), "%s.key", name);
    umask(077);
    FILE *file = fopen(path, "w");
    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
}

/* NAME.pem and NAME.key, of the issuer or of itself; it holds for an hour from `from_s` on. */
static struct issuer make(const char *name, const char *common_name, const char *hosts,
                          const struct issuer *issuer, long from_s)
{
    static long serial = 0x1000;
    char path[64];
    struct issuer made = {X509_new(), EVP_EC_gen("P-256")};
    X509_NAME *subject = X509_get_subject_name(made.certificate);
    X509_set_version(made.certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(made.certificate), from_s - 60);
    X509_gmtime_adj(X509_getm_notAfter(made.certificate), from_s + HOUR_S);
    if (common_name != NULL) {
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)common_name,
                                   -1, -1, 0);
    }
    X509_set_issuer_name(made.certificate,
                         issuer != NULL ? X509_get_subject_name(issuer->certificate) : subject);
    X509_set_pubkey(made.certificate, made.key);
    if (issuer == NULL) {
        add_extension(made.certificate, NID_basic_constraints, "critical,CA:TRUE");
    }
    if (hosts != NULL) {
        add_extension(made.certificate, NID_subject_alt_name, hosts);
    }
    assert_true(X509_sign(made.certificate, issuer != NULL ? issuer->key : made.key, EVP_sha256()) >
                0);
    snprintf(path, sizeof(path), "%s.pem", name);
    FILE *file = fopen(path, "w");
    assert_int_equal(PEM_write_X509(file, made.certificate), 1);
    fclose(file);
    write_key(name, made.key);
    return made;
}

static void let_go(struct issuer made)
{
    X509_free(made.certificate);
    EVP_PKEY_free(made.key);
}

static char folder[] = "/tmp/weir-certificates-XXXXXX";

static int setup(void **state)
{
    const char *hosts = "DNS:server.example,DNS:*.wild.example,IP:192.0.2.7,IP:2001:db8::7";
    assert_true(secret_make(&good));
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    struct issuer ca = make("ca", "authority", NULL, NULL, 0);
    struct issuer other = make("other", "authority", NULL, NULL, 0); /* of the same name */
    let_go(make("server", "by.common.name", hosts, &ca, 0));
    let_go(make("named", "by.common.name", NULL, &ca, 0));
    let_go(make("old", "old", hosts, &ca, -2 * HOUR_S));
    let_go(make("client", "a laptop\n of \xc3\xa9", NULL, &ca, 0));
    let_go(make("stranger", "laptop", NULL, &other, 0));
    let_go(make("mailed", NULL, "IP:192.0.2.1,email:me@home.example,DNS:laptop", &ca, 0));
    let_go(make("placed", NULL, "URI:spiffe://home/laptop", &ca, 0));
    let_go(make("numbered", NULL, "IP:192.0.2.1", &ca, 0));
    let_go(make("young", "young", hosts, &ca, 2 * HOUR_S));
    let_go(ca);
    let_go(other);
    return 0;
}

static int teardown(void **state)
{
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static struct certificates load(bool is_server, const char *own, const char *authorities)
{
    char certificate[64], key[64], why[CERTIFICATES_WHY_LENGTH] = "";
    struct certificates loaded;
    struct certificate_files files = {.authorities = authorities};
    if (own != NULL) {
        snprintf(certificate, sizeof(certificate), "%s.pem", own);
        snprintf(key, sizeof(key), "%s.key", own);
        files.certificate = certificate;
        files.key = key;
    }
    if (!certificates_load(&files, is_server, &loaded, why)) {
        fail_msg("%s", why);
    }
    return loaded;
}

struct pair {
    struct guard *client, *server;
};

/* Each hears the other until one has no more to say. */
static void talk(struct pair *pair, const char *parameters)
{
    struct guard_message message;
    assert_true(guard_begin(pair->server, PARAMETERS, strlen(PARAMETERS), &message));
    assert_true(guard_begin(pair->client, parameters, strlen(parameters), &message));
    for (bool is_servers = true; message.length > 0; is_servers = !is_servers) {
        guard_hear(is_servers ? pair->server : pair->client, message.bytes, message.length,
                   &message);
    }
}

static void part(struct pair *pair)
{
    guard_destroy(pair->client);
    guard_destroy(pair->server);
}

/* A client that wants `host` of a server that shows `own`, and takes those of `clients` (NULL:
 * anyone), of whom this one shows `shown`. */
static struct pair meet(const char *host, const char *authorities, const char *own,
                        const char *clients, const char *shown)
{
    struct certificates mine = load(false, shown, authorities);
    struct certificates theirs = load(true, own, clients);
    struct pair pair = {guard_create_client_of(&mine, host, true),
                        guard_create_server(find, NULL, &theirs, false)};
    certificates_free(&mine);
    certificates_free(&theirs);
    talk(&pair, PARAMETERS);
    return pair;
}

static void a_server_is_believed_by_its_certificate(void **state)
{
    static const struct {
        const char *host, *authorities, *own;
        const char *why; /* NULL: it is */
    } cases[] = {
        {"server.example", "ca.pem", "server", NULL},
        {"one.wild.example", "ca.pem", "server", NULL},
        {"192.0.2.7", "ca.pem", "server", NULL},
        {"2001:db8::7", "ca.pem", "server", NULL},
        {"server", "ca.pem", "server", "the server's certificate: hostname mismatch"},
        {"by.common.name", "ca.pem", "named", "the server's certificate: hostname mismatch"},
        {"192.0.2.8", "ca.pem", "server", "the server's certificate: IP address mismatch"},
        {"server.example", "other.pem", "server",
         "the server's certificate: certificate signature failure"},
        {"server.example", "ca.pem", "old", "the server's certificate: certificate has expired"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair pair = meet(cases[i].host, cases[i].authorities, cases[i].own, NULL, NULL);
        bool believed = cases[i].why == NULL;
        assert_int_equal(guard_state(pair.client), believed ? GUARD_PROVEN : GUARD_FAILED);
        assert_int_equal(guard_state(pair.server), believed ? GUARD_PROVEN : GUARD_UNDER_WAY);
        assert_string_equal(guard_why(pair.client), believed ? "" : cases[i].why);
        assert_string_equal(guard_name(pair.server), "");
        assert_true(!believed || guard_encrypts(pair.server));
        part(&pair);
    }
}

static void a_client_is_believed_by_its_certificate(void **state)
{
    static const struct {
        const char *shown;
        const char *name; /* NULL: it is not */
        const char *why;
    } cases[] = {
        {"client", "CN=a?laptop??of???", ""},
        {"mailed", "email=me@home.example", ""},
        {"placed", "URI=spiffe???home?laptop", ""},
        {"numbered", "serial=100A", ""},
        {"stranger", NULL, "its certificate: certificate signature failure"},
        {NULL, NULL, "it has neither a key nor a certificate"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair pair = meet("192.0.2.7", "ca.pem", "server", "ca.pem", cases[i].shown);
        const char *name = cases[i].name;
        assert_int_equal(guard_state(pair.client), GUARD_PROVEN); /* the server's word is to come */
        assert_int_equal(guard_state(pair.server), name != NULL ? GUARD_PROVEN : GUARD_FAILED);
        assert_string_equal(guard_why(pair.server), cases[i].why);
        assert_string_equal(guard_name(pair.server), name != NULL ? name : "");
        part(&pair);
    }
}

static void a_server_takes_keys_beside_certificates(void **state)
{
    static const char *const names[] = {"alice", "mallory"};
    for (unsigned anyone = 0; anyone < 2; anyone++) {
        for (unsigned i = 0; i < 2; i++) {
            struct certificates theirs = load(true, "server", anyone == 1 ? NULL : "ca.pem");
            struct pair pair = {guard_create_client(names[i], &good, false),
                                guard_create_server(find, NULL, &theirs, false)};
            certificates_free(&theirs);
            talk(&pair, PARAMETERS);
            assert_int_equal(guard_state(pair.server), i == 0 ? GUARD_PROVEN : GUARD_FAILED);
            assert_string_equal(guard_name(pair.server), names[i]);
            part(&pair);
        }
    }
}

static void one_of_certificates_and_one_of_keys_do_not_meet(void **state)
{
    struct certificates mine = load(false, "client", "ca.pem");
    struct pair pair = {guard_create_client_of(&mine, "192.0.2.7", false),
                        guard_create_server(find, NULL, NULL, false)};
    talk(&pair, PARAMETERS);
    assert_int_equal(guard_state(pair.server), GUARD_FAILED);
    assert_string_equal(guard_why(pair.server), "it offers no key");
    part(&pair);
    certificates_free(&mine);
}

/* Whoever has a certificate, of whatever authority, does not pass for one who knows the key. */
static void a_client_with_a_key_believes_no_certificate(void **state)
{
    struct guard_message message;
    uint8_t bytes[8192];
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate_file(context, "server.pem", SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(context, "server.key", SSL_FILETYPE_PEM);
    SSL *ssl = SSL_new(context);
    BIO *from = BIO_new(BIO_s_mem()), *to = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, from, to);
    struct guard *client = guard_create_client("alice", &good, false);
    assert_true(guard_begin(client, PARAMETERS, strlen(PARAMETERS), &message));
    BIO_write(from, message.bytes, (int)message.length);
    assert_int_equal(SSL_accept(ssl), -1);
    int length = BIO_read(to, bytes, sizeof(bytes));
    assert_true(length > 500); /* with its certificate */
    assert_int_equal(guard_hear(client, bytes, (size_t)length, &message), GUARD_FAILED);
    assert_int_equal(message.length, 0);
    assert_non_null(strstr(guard_why(client), "certificate verify failed"));
    guard_destroy(client);
    SSL_free(ssl);
    SSL_CTX_free(context);
}

static void what_is_proven_is_of_its_connection(void **state)
{
    struct certificates mine = load(false, NULL, "ca.pem"), theirs = load(true, "server", NULL);
    struct pair pair = {guard_create_client_of(&mine, "192.0.2.7", false),
                        guard_create_server(find, NULL, &theirs, false)};
    talk(&pair, "token 8");
    assert_int_equal(guard_state(pair.server), GUARD_FAILED);
    part(&pair);
    certificates_free(&mine);
    certificates_free(&theirs);
}

/* NAME.key with a passphrase, and NAME.pem, which others may not read either. */
static void close_with_passphrase(const char *name)
{
    char path[64];
    struct issuer made = make(name, name, NULL, NULL, 0);
    snprintf(path, sizeof(path), "%s.key", name);
    FILE *file = fopen(path, "w");
    assert_int_equal(PEM_write_PrivateKey(file, made.key, EVP_aes_256_cbc(),
                                          (const unsigned char *)"word", 4, NULL, NULL),
                     1);
    fclose(file);
    snprintf(path, sizeof(path), "%s.pem", name);
    assert_int_equal(chmod(path, 0600), 0);
    let_go(made);
}

static void what_nobody_will_believe_is_told_to_its_owner(void **state)
{
    static const struct {
        const char *own, *doubt;
    } cases[] = {{"server", NULL},
                 {NULL, NULL},
                 {"old", "it has expired, so nobody believes it"},
                 {"young", "its time has not begun, so nobody believes it yet"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct certificates loaded = load(false, cases[i].own, "ca.pem");
        const char *doubt = certificates_doubt(&loaded);
        assert_string_equal(doubt != NULL ? doubt : "",
                            cases[i].doubt != NULL ? cases[i].doubt : "");
        certificates_free(&loaded);
    }
}

static void make_key(const char *name, EVP_PKEY *key)
{
    write_key(name, key);
    EVP_PKEY_free(key);
}

static void what_is_wrong_with_a_file_is_said(void **state)
{
    static const struct {
        struct certificate_files files;
        const char *why;
    } cases[] = {
        {{"nowhere", "server.key", NULL}, "nowhere: No such file"},
        {{"server.pem", "nowhere", NULL}, "nowhere: No such file"},
        {{"server.key", "server.key", NULL}, "server.key: there is no certificate in PEM in it"},
        {{"server.pem", "client.key", NULL}, "client.key: it is not the key of this certificate"},
        {{"server.pem", "rsa.key", NULL}, "rsa.key: it is not the key of this certificate"},
        {{"server.pem", "x25519.key", NULL}, "x25519.key: a key of its kind signs nothing"},
        {{"server.pem", "closed.pem", NULL}, "closed.pem: there is no private key in PEM in it"},
        {{"server.pem", "closed.key", NULL}, "closed.key: it has a passphrase"},
        {{"server.pem", "open.key", NULL}, "open.key: others may read or write it"},
        {{"server.pem", "server.key", "nowhere"}, "nowhere: No such file"},
        {{"server.pem", "server.key", "server.key"}, "server.key: "},
    };
    let_go(make("open", "open", NULL, NULL, 0));
    make_key("rsa", EVP_RSA_gen(2048));
    make_key("x25519", EVP_PKEY_Q_keygen(NULL, NULL, "X25519"));
    close_with_passphrase("closed");
    assert_int_equal(chmod("open.key", 0644), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char why[CERTIFICATES_WHY_LENGTH] = "";
        struct certificates loaded;
        assert_false(certificates_load(&cases[i].files, true, &loaded, why));
        assert_null(loaded.context);
        if (strstr(why, cases[i].why) != why) {
            fail_msg("'%s' is not '%s'", why, cases[i].why);
        }
    }
}

static void copy_behind(FILE *to, const char *path)
{
    char text[4096];
    FILE *from = fopen(path, "r");
    size_t length = fread(text, 1, sizeof(text), from);
    assert_in_range(length, 1, sizeof(text) - 1);
    assert_int_equal(fwrite(text, 1, length, to), length);
    fclose(from);
}

/* A chain either goes through whole, or is refused by its length where it is loaded. */
static void a_chain_is_as_long_as_it_may_be(void **state)
{
    const struct certificate_files files = {.certificate = "long.pem", .key = "server.key"};
    struct certificates loaded;
    char why[CERTIFICATES_WHY_LENGTH];
    unsigned good_ones = 0, refused = 0;
    assert_int_equal(link("server.key", "long.key"), 0);
    FILE *file = fopen("long.pem", "w");
    copy_behind(file, "server.pem");
    for (unsigned i = 0; i < 60; i++) {
        copy_behind(file, "ca.pem");
        fflush(file);
        if (!certificates_load(&files, true, &loaded, why)) {
            refused++;
            assert_non_null(strstr(why, "long.pem: its certificates take "));
            continue;
        }
        certificates_free(&loaded);
        good_ones++;
        struct pair pair = meet("server.example", "ca.pem", "long", NULL, NULL);
        assert_string_equal(guard_why(pair.client), "");
        assert_int_equal(guard_state(pair.client), GUARD_PROVEN);
        part(&pair);
    }
    fclose(file);
    assert_in_range(good_ones, 20, 59);
    assert_true(refused > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_as_long_as_it_may_be),
        cmocka_unit_test(a_server_is_believed_by_its_certificate),
        cmocka_unit_test(a_client_is_believed_by_its_certificate),
        cmocka_unit_test(a_server_takes_keys_beside_certificates),
        cmocka_unit_test(one_of_certificates_and_one_of_keys_do_not_meet),
        cmocka_unit_test(a_client_with_a_key_believes_no_certificate),
        cmocka_unit_test(what_is_proven_is_of_its_connection),
        cmocka_unit_test(what_is_wrong_with_a_file_is_said),
        cmocka_unit_test(what_nobody_will_believe_is_told_to_its_owner),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
