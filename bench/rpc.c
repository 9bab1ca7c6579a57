/* What a call costs above the channel that carries it, within a host: both ends spin, this process
 * calls, its child serves. By turns, so that both meet the machine in the same state:
 *
 *     rpc [ROUNDS]     for each of so many rounds (5) one line for each of: a message and its
 * answer of 8 B over the bare channel; a call and its reply of 8 B; calls with 32 in flight; calls
 * that have 1 MiB pulled from them, and pushed into them
 *
 * The last lines are the medians. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <weir/rpc.h>

#define COUNT       200000u
#define BULK_COUNT  2000u
#define BULK_LENGTH ((size_t)1 << 20)
#define AT_ONCE     32u
#define ROUNDS_MAX  99

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static struct weir_poller *open_poller(void)
{
    struct weir_fabric *fabric;
    struct weir_poller *poller;
    struct weir_error error;
    if (weir_fabric_open(NULL, &fabric, &error) != WEIR_OK ||
        weir_poller_create(fabric, &poller, &error) != WEIR_OK) {
        fail("fabric", error.message);
    }
    return poller;
}

static struct weir_rpc *open_rpc(struct weir_poller *poller)
{
    struct weir_rpc *rpc;
    struct weir_error error;
    if (weir_rpc_create(poller, NULL, &rpc, &error) != WEIR_OK) {
        fail("rpc", error.message);
    }
    return rpc;
}

static struct weir_procedure *name(struct weir_rpc *rpc, const char *name,
                                   weir_procedure_handler *handler, void *user)
{
    struct weir_procedure *procedure;
    struct weir_error error;
    if (weir_rpc_register(rpc, name, handler, user, &procedure, &error) != WEIR_OK) {
        fail("procedure", error.message);
    }
    return procedure;
}

/* --- the child --- */

static void echo_message(struct weir_connection *connection, const void *bytes, size_t length,
                         void *user)
{
    weir_send(connection, bytes, length, NULL, NULL);
}

static bool accept_all(struct weir_connection *connection, void *listener_user,
                       struct weir_handler *ret_handler, void **ret_user)
{
    *ret_handler = (struct weir_handler){.received = echo_message};
    return true;
}

static void handle_echo(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct weir_piece piece = {bytes, length};
    weir_request_reply(request, &piece, 1);
}

static void moved(struct weir_request *request, enum weir_status status, void *argument)
{
    weir_request_reply(request, NULL, 0);
}

static void handle_pull(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct weir_bulk_part part = {.memory = user, .length = BULK_LENGTH};
    weir_request_pull(request, &part, moved, NULL);
}

static void handle_push(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct weir_bulk_part part = {.memory = user, .length = BULK_LENGTH};
    weir_request_push(request, &part, moved, NULL);
}

static void serve(int addresses)
{
    struct weir_poller *poller = open_poller();
    struct weir_rpc *rpc = open_rpc(poller);
    struct weir_listener *listener;
    struct weir_memory *memory;
    struct weir_error error;
    char line[256];
    if (weir_listen(poller, "127.0.0.1:0", NULL, accept_all, NULL, &listener, &error) != WEIR_OK ||
        weir_rpc_listen(rpc, "127.0.0.1:0", &error) != WEIR_OK ||
        weir_memory_allocate(weir_poller_fabric(poller), BULK_LENGTH, WEIR_LOCAL, &memory,
                             &error) != WEIR_OK) {
        fail("server", error.message);
    }
    memset(weir_memory_bytes(memory), 1, BULK_LENGTH);
    name(rpc, "echo", handle_echo, NULL);
    name(rpc, "pull", handle_pull, memory);
    name(rpc, "push", handle_push, memory);
    int length = snprintf(line, sizeof(line), "%s %s\n", weir_listener_address(listener),
                          weir_rpc_address(rpc));
    if (write(addresses, line, (size_t)length) != length) {
        exit(1);
    }
    for (;;) {
        weir_poll(poller, 0);
    }
}

/* --- the parent --- */

static struct weir_poller *poller;
static uint64_t answered;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void answer_came(struct weir_connection *connection, const void *bytes, size_t length,
                        void *user)
{
    answered++;
}

static void closed(struct weir_connection *connection, const struct weir_error *reason, void *user)
{
    fail("channel", reason->message);
}

static void replied(const struct weir_reply *reply, void *argument)
{
    if (reply->status != WEIR_OK) {
        fail("call", reply->words);
    }
    answered++;
}

static void wait_for(uint64_t count)
{
    while (answered < count) {
        weir_poll(poller, 0);
    }
}

/* Nanoseconds for each. */
static double time_channel(struct weir_connection *connection)
{
    double began = now_s();
    answered = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        weir_send(connection, &i, sizeof(i), NULL, NULL);
        wait_for(i + 1);
    }
    return (now_s() - began) * 1e9 / COUNT;
}

static double time_calls(struct weir_target *target, struct weir_procedure *procedure,
                         unsigned count, unsigned at_once, const struct weir_bulk *bulk)
{
    const struct weir_call_options options = {.bulk = bulk, .bulk_count = bulk != NULL};
    double began = now_s();
    answered = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct weir_piece piece = {&i, sizeof(i)};
        if (weir_rpc_call(target, procedure, &piece, 1, &options, replied, NULL, NULL) != WEIR_OK) {
            fail("call", "not taken");
        }
        if (i + 1 >= at_once) {
            wait_for(i + 2 - at_once);
        }
    }
    wait_for(count);
    return (now_s() - began) * 1e9 / count;
}

static int is_more(const void *left, const void *right)
{
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof(*values), is_more);
    return values[count / 2];
}

enum measured {
    CHANNEL,
    CALL,
    CALLS,
    PULL,
    PUSH,
    MEASURED,
};

static void measure(const char *channel, const char *address, unsigned rounds)
{
    static const char *const names[] = {"message and answer, 8 B", "call and reply, 8 B",
                                        "calls, 32 in flight", "call, 1 MiB pulled",
                                        "call, 1 MiB pushed"};
    static double found[MEASURED][ROUNDS_MAX];
    struct weir_rpc *rpc = open_rpc(poller);
    struct weir_procedure *echo = name(rpc, "echo", NULL, NULL);
    struct weir_procedure *pull = name(rpc, "pull", NULL, NULL);
    struct weir_procedure *push = name(rpc, "push", NULL, NULL);
    struct weir_handler handler = {.received = answer_came, .closed = closed};
    struct weir_connection *connection;
    struct weir_target *target;
    struct weir_error error;
    struct weir_bulk bulk = {aligned_alloc(4096, BULK_LENGTH), BULK_LENGTH,
                             WEIR_REMOTE_READ | WEIR_REMOTE_WRITE};
    if (weir_connect(poller, channel, NULL, &handler, NULL, &connection, &error) != WEIR_OK ||
        weir_target_create(rpc, address, &target, &error) != WEIR_OK) {
        fail("connecting", error.message);
    }
    memset(bulk.bytes, 2, BULK_LENGTH);
    for (unsigned round = 0; round <= rounds; round++) { /* the first warms up */
        double times[] = {time_channel(connection), time_calls(target, echo, COUNT, 1, NULL),
                          time_calls(target, echo, COUNT, AT_ONCE, NULL),
                          time_calls(target, pull, BULK_COUNT, 1, &bulk),
                          time_calls(target, push, BULK_COUNT, 1, &bulk)};
        for (unsigned i = 0; round > 0 && i < MEASURED; i++) {
            printf("%-24s %8.0f ns\n", names[i], times[i]);
            found[i][round - 1] = times[i];
        }
    }
    for (unsigned i = 0; i < MEASURED; i++) {
        double each_ns = median(found[i], rounds);
        printf("median: %-24s %8.0f ns", names[i], each_ns);
        if (i >= PULL) {
            printf(", %.1f GB/s", (double)BULK_LENGTH / each_ns);
        } else {
            printf(", %.2f M/s", 1e3 / each_ns);
        }
        printf("\n");
    }
    free(bulk.bytes);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    int ends[2];
    char channel[128], address[128];
    if (rounds < 1 || rounds > ROUNDS_MAX || pipe(ends) != 0) {
        fprintf(stderr, "usage: rpc [ROUNDS]\n");
        return 2;
    }
    pid_t child = fork();
    if (child == 0) {
        serve(ends[1]);
    }
    FILE *from = fdopen(ends[0], "r");
    if (from == NULL || fscanf(from, "%127s %127s", channel, address) != 2) {
        fail("server", "it did not start");
    }
    poller = open_poller();
    measure(channel, address, (unsigned)rounds);
    kill(child, SIGKILL);
    return 0;
}
