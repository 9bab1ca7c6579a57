#include "tools/remote/pipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/remote/greeting.h"
#include "tools/remote/here.h"
#include "tools/transfer/wire/protocol.h"
#include "tools/trust/crypto.h"

#define GREETING_LENGTH 8192

static unsigned port_of(const struct weir_listener *listener)
{
    const char *colon = listener != NULL ? strrchr(weir_listener_address(listener), ':') : NULL;
    return colon != NULL ? (unsigned)atoi(colon + 1) : 0;
}

bool pipe_greet(const struct weir_fabric *fabric, struct weir_listener *const listeners[2],
                const struct secret *secret)
{
    static struct greeting greeting;
    static char text[GREETING_LENGTH];
    greeting = (struct greeting){.version = GREETING_VERSION,
                                 .transfer_version = PROTOCOL_VERSION,
                                 .release = WEIR_VERSION,
                                 .is_soft = weir_fabric_kind(fabric) == WEIR_FABRIC_SOFT,
                                 .secret = *secret};
    snprintf(greeting.device, sizeof(greeting.device), "%s", weir_fabric_device(fabric));
    here_host(greeting.host);
    here_addresses(fabric, port_of(listeners[0]), port_of(listeners[1]), &greeting);
    size_t length = greeting_print(&greeting, text, sizeof(text));
    bool good = length > 0;
    for (size_t done = 0; done < length && good;) {
        ssize_t count = write(STDOUT_FILENO, text + done, length - done);
        good = count > 0;
        done += good ? (size_t)count : 0;
    }
    crypto_wipe(&greeting, sizeof(greeting));
    crypto_wipe(text, sizeof(text));
    return good;
}
