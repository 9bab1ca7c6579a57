/* Errors of libweir: a kind for programs, a sentence for people. */
#ifndef WEIR_ERROR_H
#define WEIR_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum weir_status {
    WEIR_OK = 0,
    WEIR_INVALID,     /* an argument is wrong */
    WEIR_STATE,       /* right call, wrong moment: not connected yet, or closed */
    WEIR_NO_MEMORY,   /* also: memory could not be registered (memlock) */
    WEIR_NO_DEVICE,   /* no RDMA device of the kind asked for */
    WEIR_NO_LIBRARY,  /* the verbs library could not be loaded */
    WEIR_ADDRESS,     /* the address does not resolve, or is not ours to listen on */
    WEIR_REFUSED,     /* nobody listens there, or the peer said no */
    WEIR_UNREACHABLE, /* no answer */
    WEIR_TIMED_OUT,
    WEIR_DISCONNECTED, /* the peer ended the connection in order */
    WEIR_PEER_LOST,    /* the peer died or the network between is gone */
    WEIR_TOO_LONG,     /* message longer than the receiver takes */
    WEIR_ACCESS,       /* a remote key did not grant what was tried */
    WEIR_PROTOCOL,     /* the peer broke the protocol */
    WEIR_UNSUPPORTED,
    WEIR_SYSTEM,   /* an operating system call failed */
    WEIR_CANCELED, /* the connection closed before the operation ran */
    WEIR_STATUS_COUNT,
};

/* `message` names the peer and what was tried: "10.0.0.2:7471: no answer to the connection request
 * for 5.0 s". One line, no full stop. */
struct weir_error {
    enum weir_status status;
    char message[384];
};

/* A short English name, static. */
const char *weir_status_name(enum weir_status status);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
