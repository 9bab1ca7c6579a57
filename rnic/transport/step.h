/* What an attempt to send one packet came to. */
#ifndef WEIR_TRANSPORT_STEP_H
#define WEIR_TRANSPORT_STEP_H

enum step {
    STEP_SENT,
    STEP_IDLE, /* nothing to send now; an event will change that */
    STEP_FULL, /* the sink takes no more; nothing has changed */
};

#endif
