/* Certificates, where keys (keys.h) are not shared beforehand: what this side shows, and whose it
 * believes. */
#ifndef TOOLS_TRUST_CERTIFICATES_H
#define TOOLS_TRUST_CERTIFICATES_H

#include <stdbool.h>

#define CERTIFICATES_WHY_LENGTH 512

/* Files in PEM; NULL: none. */
struct certificate_files {
    const char *certificate; /* this side's, then what leads from it to an authority */
    const char *key;         /* its private key, with a certificate; without a passphrase */
    const char *authorities; /* whose certificates of the other side are believed */
};

struct ssl_ctx_st; /* OpenSSL's */

struct certificates {
    struct ssl_ctx_st *context;
    /* A server: whoever comes without a key has to show a certificate; else he may show nothing. */
    bool demand;
};

/* A client needs authorities, a server a certificate. False: ret_why names the file. */
bool certificates_load(const struct certificate_files *files, bool is_server,
                       struct certificates *ret_certificates,
                       char ret_why[CERTIFICATES_WHY_LENGTH]);
/* NULL, or why nobody believes what this side shows, though it can be loaded. */
const char *certificates_doubt(const struct certificates *certificates);
/* Guards may go on with them. */
void certificates_free(struct certificates *certificates);

#endif
