/* Which TLS is spoken: see guard.h. */
#ifndef TOOLS_TRUST_TLS_H
#define TOOLS_TRUST_TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>

struct guard;

/* For peers with a secret. It is made once and never freed; of one thread at a time. NULL: no
 * memory, or the system's OpenSSL cannot do it. */
SSL_CTX *tls_context(bool is_server);
/* One end of a session, which reads and writes by the guard's carrier. NULL: no memory. */
SSL *tls_create(SSL_CTX *context, struct guard *guard);

#endif
