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
/* A string for JSON from bytes that may be anything; "path" and, if it had to be changed,
 * "path_hex". */
void output_json_path(json_t *object, struct span path);
/* files, directories, symlinks, bytes, same, left, deleted, not_deleted, failed, warnings and, if
 * known, the totals. */
void output_json_tally(json_t *object, const struct tally *tally);

const char *output_outcome_name(enum session_outcome outcome);
enum exit_code output_exit_code(enum session_outcome outcome, const struct tally *tally);

#endif
