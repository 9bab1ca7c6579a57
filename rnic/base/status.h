/* The one error type of the core. errno appears only in io/ and in the API folders. */
#ifndef WEIR_BASE_STATUS_H
#define WEIR_BASE_STATUS_H

enum status {
    STATUS_OK = 0,
    STATUS_FULL,         /* a queue, table or sink has no room now */
    STATUS_EMPTY,        /* nothing there now */
    STATUS_INVALID,      /* an argument, or a combination of arguments, is wrong */
    STATUS_STATE,        /* right call, wrong state of the object */
    STATUS_NO_MEMORY,    /* the allocator refused */
    STATUS_NOT_FOUND,    /* no object of that name */
    STATUS_BUSY,         /* others still use the object */
    STATUS_IN_USE,       /* the name is taken (listen) */
    STATUS_DENIED,       /* no right to do that */
    STATUS_OUT_OF_RANGE, /* outside a region, table or limit */
    STATUS_TOO_LONG,     /* more bytes than the place takes */
    STATUS_MALFORMED,    /* bytes that do not parse */
    STATUS_UNSUPPORTED,  /* known, and not offered */
    STATUS_TIMED_OUT,
    STATUS_CLOSED, /* the other end is gone */
    STATUS_COUNT,
};

#define MUST_USE __attribute__((warn_unused_result))

/* A short English name of the status, static. */
const char *status_name(enum status status);

#endif
