/* What cp and serve print: problems and events, for people or as JSON, one object a line. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>

#include "tools/command.h"
#include "tools/transfer/copy/session.h"
#include "tools/transfer/ends/report.h"

/* "weir cp: PEER/path: cannot be written there: No space left on device" to standard error, or a
 * problem object to standard output. `peer` is "weir://HOST:PORT" for a client, the client's
 * address for a server. */
struct output {
    const struct command *command;
    bool json;
    const char *peer;
    bool name_peer; /* also before what is ours: for one who has many peers */
};

void output_problem(const struct output *output, const struct problem *problem);
/* Prints the object as one line and gives up the reference. */
void output_json(json_t *object);
/* A string for JSON from bytes that may be anything: `name` and, if it had to be changed, the bytes
 * themselves under that name with "_hex". */
void output_json_bytes(json_t *object, const char *name, struct span span);
/* A string that has been made printable, or has a user's own words in it. */
void output_json_text(json_t *object, const char *name, const char *text);
/* Of the other side's device, in its own words (fabric_describe), what this side says of its own:
 * peer_device, peer_fabric and, of the software RNIC, peer_fabric_reason. "": it is not known. */
void output_json_peer_device(json_t *object, const char *text);
/* The bytes of a path, under "path". */
void output_json_path(json_t *object, struct span path);
/* files, directories, symlinks, bytes, same, left, deleted, not_deleted, failed, warnings and, if
 * known, the totals. */
void output_json_tally(json_t *object, const struct tally *tally);

const char *output_outcome_name(enum session_outcome outcome);
enum exit_code output_exit_code(enum session_outcome outcome, const struct tally *tally);

#endif
