#include "tools/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/printable.h"

#define TEXT_CAPACITY (4 * PATH_LENGTH_MAX + 1)

void output_json(json_t *object)
{
    char *line = json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    if (line != NULL) {
        puts(line);
        fflush(stdout);
    }
    free(line);
    json_decref(object);
}

void output_json_bytes(json_t *object, const char *name, struct span span)
{
    char text[TEXT_CAPACITY], hex_name[32];
    bool same = printable(span.bytes, span.length, text, sizeof(text));
    json_object_set_new(object, name, json_string(text));
    if (!same) {
        const unsigned char *bytes = span.bytes;
        for (size_t i = 0; i < span.length && 2 * i + 2 < sizeof(text); i++) {
            snprintf(text + 2 * i, 3, "%02x", bytes[i]);
        }
        snprintf(hex_name, sizeof(hex_name), "%s_hex", name);
        json_object_set_new(object, hex_name, json_string(text));
    }
}

void output_json_text(json_t *object, const char *name, const char *text)
{
    json_t *string = json_string(text);
    if (string != NULL) {
        json_object_set_new(object, name, string);
        return;
    }
    char shown[4 * TEXT_LENGTH_MAX + 1];
    printable(text, strlen(text), shown, sizeof(shown));
    json_object_set_new(object, name, json_string(shown));
}

void output_json_peer_device(json_t *object, const char *text)
{
    static const char soft[] = ", software RNIC: ";
    char shown[4 * TEXT_LENGTH_MAX + 1];
    printable(text, strlen(text), shown, sizeof(shown));
    const char *reason = strstr(shown, soft);
    if (shown[0] == 0) {
        return;
    }
    size_t length = reason != NULL ? (size_t)(reason - shown) : strlen(shown);
    json_object_set_new(object, "peer_device", json_stringn(shown, length));
    json_object_set_new(object, "peer_fabric", json_string(reason != NULL ? "soft" : "rdma"));
    if (reason != NULL) {
        json_object_set_new(object, "peer_fabric_reason", json_string(reason + strlen(soft)));
    }
}

void output_json_path(json_t *object, struct span path)
{
    output_json_bytes(object, "path", path);
}

void output_json_tally(json_t *object, const struct tally *tally)
{
    json_object_set_new(object, "files", json_integer((json_int_t)tally->files));
    json_object_set_new(object, "directories", json_integer((json_int_t)tally->directories));
    json_object_set_new(object, "symlinks", json_integer((json_int_t)tally->symlinks));
    json_object_set_new(object, "bytes", json_integer((json_int_t)tally->bytes));
    json_object_set_new(object, "kept", json_integer((json_int_t)tally->kept));
    json_object_set_new(object, "same", json_integer((json_int_t)tally->same));
    json_object_set_new(object, "left", json_integer((json_int_t)tally->left));
    json_object_set_new(object, "deleted", json_integer((json_int_t)tally->deleted));
    json_object_set_new(object, "not_deleted", json_integer((json_int_t)tally->held_back));
    json_object_set_new(object, "failed", json_integer((json_int_t)tally->failed));
    json_object_set_new(object, "warnings", json_integer((json_int_t)tally->warnings));
    if (tally->retransmissions_known) {
        json_object_set_new(object, "retransmissions",
                            json_integer((json_int_t)tally->retransmissions));
    }
    if (tally->totals_known) {
        json_object_set_new(object, "total_files", json_integer((json_int_t)tally->total_files));
        json_object_set_new(object, "total_bytes", json_integer((json_int_t)tally->total_bytes));
    }
}

static void problem_as_json(const struct output *output, const struct problem *problem)
{
    char text[4 * TEXT_LENGTH_MAX + 1];
    json_t *object = json_object();
    printable(problem->text.bytes, problem->text.length, text, sizeof(text));
    json_object_set_new(object, "event",
                        json_string(problem->code == PROBLEM_WARNING ? "warning" : "problem"));
    json_object_set_new(object, "side", json_string(problem->at_source ? "source" : "target"));
    json_object_set_new(object, "where", json_string(problem->remote ? "remote" : "local"));
    json_object_set_new(object, "peer", json_string(output->peer));
    output_json_path(object, problem->path);
    json_object_set_new(object, "code", json_string(problem_code_name(problem->code)));
    json_object_set_new(object, "message", json_string(text));
    output_json(object);
}

void output_problem(const struct output *output, const struct problem *problem)
{
    if (output->json) {
        problem_as_json(output, problem);
        return;
    }
    char path[TEXT_CAPACITY], text[4 * TEXT_LENGTH_MAX + 1];
    printable(problem->path.bytes, problem->path.length, path, sizeof(path));
    printable(problem->text.bytes, problem->text.length, text, sizeof(text));
    const char *peer = problem->remote || output->name_peer ? output->peer : "";
    const char *colon = output->name_peer ? ": " : "";
    if (problem->code == PROBLEM_WARNING) {
        fprintf(stderr, "weir %s: warning: %s%s%s: %s\n", output->command->name, peer, colon, path,
                text);
        return;
    }
    fprintf(stderr, "weir %s: %s%s%s: %s: %s\n", output->command->name, peer, colon, path,
            problem->at_source ? "cannot read" : "cannot write", text);
}

const char *output_outcome_name(enum session_outcome outcome)
{
    switch (outcome) {
    case SESSION_RUNNING:
        return "running";
    case SESSION_COMPLETE:
        return "complete";
    case SESSION_REFUSED:
        return "refused";
    case SESSION_BROKEN:
        return "broken";
    case SESSION_UNREACHED:
        return "unreached";
    case SESSION_LOST:
        return "lost";
    }
    return "unknown";
}

enum exit_code output_exit_code(enum session_outcome outcome, const struct tally *tally)
{
    switch (outcome) {
    case SESSION_COMPLETE:
        return tally->failed + tally->held_back > 0 ? EXIT_SOME_FAILED : EXIT_DONE;
    case SESSION_REFUSED:
    case SESSION_BROKEN:
        return EXIT_REFUSED;
    case SESSION_UNREACHED:
        return EXIT_UNREACHED;
    case SESSION_RUNNING:
    case SESSION_LOST:
        return EXIT_LOST;
    }
    return EXIT_LOST;
}
