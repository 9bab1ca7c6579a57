/* The TCP connection between the two ends: JSON objects, one a line. The client asks, the server
 * answers once, and says nothing unasked except that it failed. */
#ifndef TOOLS_BENCH_CONTROL_H
#define TOOLS_BENCH_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/socket.h>

#include <weir/error.h>

#define CONTROL_ADDRESS_MAX 300
#define CONTROL_LINE_MAX    65536
#define PATIENCE_S          30 /* with an end that neither moves anything nor takes it */

struct control {
    int fd;
    bool is_server;
    bool is_answer_due;  /* it interrupts nothing */
    unsigned silence_ms; /* the server's: a client that asks nothing for so long is given up */
    size_t length;
    char line[CONTROL_LINE_MAX]; /* what was read and not yet taken */
};

/* Where to listen: "HOST:PORT"; the real one, with the port that port 0 became, into ret_bound. -1:
 * ret_error says why. */
int control_listen(const char *address, char ret_bound[CONTROL_ADDRESS_MAX],
                   struct weir_error *ret_error);
bool control_connect(struct control *control, const char *address, struct weir_error *ret_error);
/* The server's, of a client that it has accepted. */
void control_begin(struct control *control, int fd);
void control_close(struct control *control);

/* Gives up the reference. False: the other end is gone. */
bool control_send(struct control *control, json_t *object, struct weir_error *ret_error);
/* Waits for one object; NULL: it said that it failed, is gone, has not said it within timeout_ms,
 * or does not keep to the protocol. */
json_t *control_receive(struct control *control, unsigned timeout_ms, struct weir_error *ret_error);
json_t *control_ask(struct control *control, json_t *question, unsigned timeout_ms,
                    struct weir_error *ret_error);
/* While data are moving: the other end is gone, or, to a client, has something to say too early. */
bool control_interrupts(const struct control *control);

/* "127.0.0.1", "[::1]": this end's address, as a place to listen on. */
bool control_local(const struct control *control, struct sockaddr_storage *ret_address,
                   char ret_host[CONTROL_ADDRESS_MAX]);
/* Likewise the other end's, as it is reached from here: of an address of one link with the name
 * that the link has here. */
bool control_peer(const struct control *control, char ret_host[CONTROL_ADDRESS_MAX]);

/* Fills the error, returns false. */
bool control_error(struct weir_error *ret_error, enum weir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
