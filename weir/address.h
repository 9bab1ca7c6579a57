/* "HOST:PORT" to socket addresses and back. */
#ifndef WEIR_ADDRESS_H
#define WEIR_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include <weir/error.h>

#define ADDRESS_TEXT_MAX 72

/* A name may have more addresses than this; then the rest is not tried. */
#define ADDRESSES_MAX 8

/* All addresses of a name, those of IPv4 first: they are what RoCE networks have. `is_passive`: to
 * listen on, so ":PORT" and "*:PORT" are all addresses, as one of IPv6 where there is IPv6. */
enum weir_status address_resolve(const char *text, bool is_passive,
                                 struct sockaddr_storage ret_addresses[ADDRESSES_MAX],
                                 unsigned *ret_count, struct weir_error *ret_error);
/* True of that one: who listens there has to ask for the connections of IPv4, too. */
bool address_is_all_of_v6(const struct sockaddr *address);
/* An IPv4 address in the form of IPv6's is written as what it is, and one of a link with the link:
 * address_resolve takes it back. */
void address_format(const struct sockaddr *address, char ret_text[ADDRESS_TEXT_MAX]);
socklen_t address_length(const struct sockaddr *address);

#endif
