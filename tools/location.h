/* Addresses as people type them. */
#ifndef TOOLS_LOCATION_H
#define TOOLS_LOCATION_H

#include <stdbool.h>

#define LOCATION_PORT_DEFAULT   "7471"
#define LOCATION_ADDRESS_LENGTH 280

/* HOST, HOST:PORT, [V6], [V6]:PORT, V6, :PORT, *, *:PORT into "HOST:PORT" (a V6 in brackets).
 * False: none of these. */
bool location_parse_address(const char *text, char ret_address[LOCATION_ADDRESS_LENGTH]);

/* The host of "HOST:PORT", without the brackets of a V6. */
void location_host(const char *address, char ret_host[LOCATION_ADDRESS_LENGTH]);

/* Every address that the host part of "HOST:PORT" stands for is this machine's loopback. */
bool location_is_loopback(const char *address);
/* Its host is an IP address and no name. */
bool location_is_numeric(const char *address);

/* weir://HOST[:PORT][/PATH]: the address, and the path from its first slash on, "/" if there is
 * none, which points into `text`. False: not a URL of this kind. */
bool location_parse_url(const char *text, char ret_address[LOCATION_ADDRESS_LENGTH],
                        const char **ret_path);
/* It looks like a URL of ours, well-formed or not. */
bool location_is_url(const char *text);

enum location_kind {
    LOCATION_LOCAL,
    LOCATION_SERVER, /* weir://HOST[:PORT]/PATH */
    LOCATION_SHELL,  /* [USER@]HOST:PATH, reached by a remote shell */
    LOCATION_WRONG,
};

/* Where a source or target of weir cp is, as scp and rsync tell it: what has a colon before its
 * first slash is on another host. */
struct location {
    enum location_kind kind;
    char address[LOCATION_ADDRESS_LENGTH]; /* server: "HOST:PORT"; shell: "[USER@]HOST" */
    const char *path; /* points into the text or is static; with a shell, "~/" is taken off */
    const char *why;  /* wrong: what is */
};

void location_parse(const char *text, struct location *ret_location);

#endif
