/* Which TLS is spoken: see guard.h. */
#ifndef TOOLS_TRUST_TLS_H
#define TOOLS_TRUST_TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>

struct guard;

/* What sessions have in common; `with_secrets`: a peer may prove that it knows one, or a client
 * does. NULL: no memory, or the system's OpenSSL cannot do it. */
SSL_CTX *tls_context_create(bool is_server, bool with_secrets);
/* One with secrets alone, which is made once and never freed; of one thread at a time. */
SSL_CTX *tls_context(bool is_server);
/* One end of a session, which reads and writes by the guard's carrier. NULL: no memory. */
SSL *tls_create(SSL_CTX *context, struct guard *guard);

#endif
