/* What a far side that was started through a remote shell says on its standard output before the
 * transfer: lines of text, which the near side does not trust.
 *
 *   weir-session 1 RELEASE TRANSFER    the version of these lines, and what it speaks
 *   host ID                            the same for two processes of one host and network
 *   device NAME KIND                   KIND: soft or rdma
 *   address HOST:PORT [device] [ssh]   one it listens at: of the device; of the shell's connection
 *   secret HEX
 *   ready
 *
 * What a login script prints before them is passed over. */
#ifndef TOOLS_REMOTE_GREETING_H
#define TOOLS_REMOTE_GREETING_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/trust/secret.h"

#define GREETING_VERSION         1
#define GREETING_ADDRESSES_MAX   64
#define GREETING_ADDRESS_LENGTH  64
#define GREETING_LINE_LENGTH_MAX 512
/* What a key of a session that a shell started is called. */
#define GREETING_KEY_NAME "session"

struct greeting_address {
    char text[GREETING_ADDRESS_LENGTH]; /* "192.0.2.7:7471", "[2001:db8::7]:7471" */
    bool of_device, of_shell;
};

struct greeting {
    bool begun, ready;
    unsigned version, transfer_version;
    char release[32], host[128], device[64];
    bool is_soft;
    struct greeting_address addresses[GREETING_ADDRESSES_MAX];
    unsigned address_count;
    bool has_secret;
    struct secret secret;
    char noise[GREETING_LINE_LENGTH_MAX]; /* the first line before it; "" */
};

/* Takes one line, without its end. NULL: go on, until `ready`; else what is wrong. */
const char *greeting_take(struct greeting *greeting, const char *line);
/* The whole of it; 0: no room. */
size_t greeting_print(const struct greeting *greeting, char *ret_text, size_t capacity);
/* What is to be tried, best first: this host's own way, the device's addresses, the one that the
 * shell came by, all others. `same_host`: greeting->host is ours. Addresses that lead nowhere from
 * here are gone. */
void greeting_sort(struct greeting *greeting, bool same_host);

#endif
