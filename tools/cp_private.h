/* What the files of weir cp share. */
#ifndef TOOLS_CP_PRIVATE_H
#define TOOLS_CP_PRIVATE_H

#include "tools/command.h"
#include "tools/cp_again.h"
#include "tools/cp_list.h"
#include "tools/cp_options.h"
#include "tools/location.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/remote/far_side.h"
#include "tools/transfer/copy/session.h"
#include "tools/trust/certificates.h"
#include "tools/trust/keys.h"

#define PEER_LENGTH (LOCATION_ADDRESS_LENGTH + 16)

/* That of the first transfer, started before our own device was opened, for both take their time.
 */
struct early_far_side {
    struct location where;
    struct far_side far;
    bool is_begun; /* and nobody has taken it yet */
    enum exit_code code;
};

/* One run of the command: every group of sources that share a server is one transfer of it. */
struct cp {
    const struct command *command;
    struct cp_options options;
    struct listing listing; /* with --relative and --files-from */
    struct weir_fabric *fabric;
    struct weir_poller *poller;
    struct output output;
    struct report report;
    char peer[PEER_LENGTH];           /* weir://HOST:PORT, or [USER@]HOST: */
    struct keys keys;                 /* the first is ours, with --key */
    struct certificates certificates; /* with --ca */
    struct far_side *far;             /* that we started; NULL: none */
    struct early_far_side early;
    struct again again;
    char address[LOCATION_ADDRESS_LENGTH]; /* that is tried, or carries the transfer */
    struct weir_fabric_carried carried;    /* before it */
    char tried[1024];                      /* of addresses that led nowhere: why */
    bool tty, is_push;
    struct progress progress;
    double drawn_s;
    struct tally last;  /* of the last connection */
    struct tally total; /* of the groups that are over */
    double seconds;
    char peer_device[TEXT_LENGTH_MAX + 1]; /* in its own words */
    char reason[TEXT_LENGTH_MAX * 4];      /* why the last one that failed did */
    unsigned targets_whole;                /* of several */
    uint64_t bytes_put;                    /* by us, to all of them together */
};

/* Takes the progress line off the terminal, before something else is printed. */
void cp_clear_line(const struct cp *cp);
/* The progress, if it is time. */
void cp_draw(struct cp *cp, const struct session *session);
/* Whoever has the address may answer, where there is no key. */
void cp_say_unproven(const struct cp *cp, const char *peer, const char *address);
/* What became of an entry; `peer` is named where there are several, else NULL. */
void cp_say_item(const struct cp *cp, const char *peer, const struct item *item);
/* What the options ask for. */
struct session_request cp_request(const struct cp *cp, enum direction direction);
/* "weir://HOST:PORT: ", or "" where cp->reason says it already. */
const char *cp_whose(const struct cp *cp);
/* "weir://HOST:PORT", or "[USER@]HOST:", of characters that can be shown. */
void cp_name_peer(const char *address, bool by_shell, char ret_name[PEER_LENGTH]);
struct guard;

/* By what a server is believed, and believes (cp_trust.c): what the options name. The exit status;
 * with EXIT_DONE, cp_free_trust frees it. */
int cp_take_trust(struct cp *cp, char **names, int count);
void cp_free_trust(struct cp *cp);
/* There is a key, or an authority. */
bool cp_has_trust(const struct cp *cp);
/* Of such a cp, for a connection to a server. NULL: no memory. */
struct guard *cp_create_guard(const struct cp *cp, const char *address);

/* Starts the far side of the transfer with that place that comes first, if it is one of a shell. */
void cp_begin_far_side(struct cp *cp, const char *name);
/* Ends what no transfer has taken. */
void cp_end_early_far_side(struct cp *cp);
/* One transfer with a place that is not here, to its end; what went wrong has been said. */
enum exit_code cp_transfer(struct cp *cp, const struct location *where,
                           const struct session_request *request);

#endif
