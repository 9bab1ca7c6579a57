/* A group of processes, one call to all of them, and what becomes of it when some die.
 *
 *     group member             prints the address it listens on; reads a line from its input, with
 *                              its rank and the addresses of all members in the order of ranks; is
 *                              a member until its input ends, and then leaves
 *     group call ADDRESS...    a client: has all members add up their ranks, says who did not */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <weir/group.h>

#include "examples/common.h"

#define MEMBERS_MAX 64
#define LINE_MAX    8192
#define PERIOD_MS   500
#define LOOK_MS     50
#define TIMEOUT_MS  2000

struct state {
    struct example example;
    struct weir_rpc *rpc;
    struct weir_group *group;
    struct weir_group_procedure *add_up;
    uint32_t rank;
    bool is_over;
    bool is_well;
};

/* A member's part: its rank. */
static void handle(struct weir_group_request *request, const void *bytes, size_t length, void *user)
{
    struct state *state = user;
    uint64_t rank = state->rank;
    weir_group_request_reply(request, &rank, sizeof(rank));
}

/* What two sets of members have replied, in one. */
static bool combine(void *into, size_t *into_length, size_t length_max, const void *bytes,
                    size_t length, void *user)
{
    uint64_t sum = 0, more;
    if (length != sizeof(more)) {
        return false;
    }
    memcpy(&sum, into, *into_length); /* nothing, the first time */
    memcpy(&more, bytes, sizeof(more));
    sum += more;
    memcpy(into, &sum, sizeof(sum));
    *into_length = sizeof(sum);
    return true;
}

static void open_group(struct state *state, const char *const *addresses, uint32_t size)
{
    struct weir_group_options options = {.period_ms = PERIOD_MS};
    struct weir_error error;
    bool is_member = state->rank != WEIR_RANK_NONE;
    if (weir_group_create(state->rpc, &options, addresses, size, state->rank, &state->group,
                          &error) != WEIR_OK ||
        weir_group_register(state->group, "add up", is_member ? handle : NULL, combine, state,
                            &state->add_up, &error) != WEIR_OK) {
        example_fail("group", error.message);
    }
}

/* --- a member --- */

static void left(enum weir_status status, void *argument)
{
    struct state *state = argument;
    state->is_over = true;
    state->is_well = status == WEIR_OK;
}

static bool has_input_ended(void)
{
    char byte;
    return read(STDIN_FILENO, &byte, 1) == 0;
}

static void be_member(struct state *state)
{
    char line[LINE_MAX];
    const char *words[MEMBERS_MAX + 1];
    uint32_t count = 0;
    struct weir_error error;
    if (weir_rpc_listen(state->rpc, "127.0.0.1:0", &error) != WEIR_OK) {
        example_fail("listen", error.message);
    }
    printf("%s\n", weir_rpc_address(state->rpc));
    fflush(stdout);
    if (fgets(line, sizeof(line), stdin) == NULL) {
        example_fail("input", "no line with a rank and addresses");
    }
    for (char *word = strtok(line, " \n"); word != NULL; word = strtok(NULL, " \n")) {
        if (count == MEMBERS_MAX + 1) {
            example_fail("input", "too many members");
        }
        words[count++] = word;
    }
    if (count < 2) {
        example_fail("input", "no line with a rank and addresses");
    }
    state->rank = (uint32_t)strtoul(words[0], NULL, 10);
    open_group(state, words + 1, count - 1);
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    bool is_leaving = false;
    while (!state->is_over) {
        weir_poll(state->example.poller, LOOK_MS);
        if (!is_leaving && has_input_ended()) {
            is_leaving = weir_group_leave(state->group, left, state) == WEIR_OK;
        }
    }
}

/* --- a client --- */

static void replied(const struct weir_group_reply *reply, void *argument)
{
    struct state *state = argument;
    uint64_t sum = 0;
    if (reply->length == sizeof(sum)) {
        memcpy(&sum, reply->bytes, sizeof(sum));
    }
    printf("%u of %u replied, and their ranks add up to %llu\n", reply->replied, reply->asked,
           (unsigned long long)sum);
    for (size_t i = 0; i < reply->failure_count; i++) {
        const struct weir_group_failure *failure = &reply->failures[i];
        printf("%u from rank %u: %s\n", failure->count, failure->first,
               weir_status_name(failure->status));
    }
    state->is_over = true;
    state->is_well = reply->replied > 0;
}

static void call(struct state *state, char **addresses, int count)
{
    struct weir_group_call_options options = {.timeout_ms = TIMEOUT_MS};
    state->rank = WEIR_RANK_NONE;
    open_group(state, (const char *const *)addresses, (uint32_t)count);
    if (weir_group_call(state->group, state->add_up, NULL, 0, &options, replied, state) !=
        WEIR_OK) {
        example_fail("call", "it was not taken");
    }
    while (!state->is_over) {
        weir_poll(state->example.poller, -1);
    }
}

int main(int argc, char **argv)
{
    struct state state = {0};
    struct weir_error error;
    bool is_member = argc == 2 && strcmp(argv[1], "member") == 0;
    if (!is_member && (argc < 3 || strcmp(argv[1], "call") != 0)) {
        fprintf(stderr, "usage: group member | group call ADDRESS...\n");
        return 2;
    }
    example_open(&state.example);
    if (weir_rpc_create(state.example.poller, NULL, &state.rpc, &error) != WEIR_OK) {
        example_fail("rpc", error.message);
    }
    if (is_member) {
        be_member(&state);
    } else {
        call(&state, argv + 2, argc - 2);
    }
    weir_group_destroy(state.group);
    weir_rpc_destroy(state.rpc);
    weir_poller_destroy(state.example.poller);
    weir_fabric_close(state.example.fabric);
    return state.is_well ? 0 : 1;
}
