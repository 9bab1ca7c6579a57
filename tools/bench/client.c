/* The end that leads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/bench/carrier.h"
#include "tools/bench/ends.h"

#define ANSWER_MS    (2 * PATIENCE_S * 1000)
#define FIRST_COUNT  8
#define COUNT_MAX    50000000u
#define WARM_SECONDS 0.02 /* a run of so long tells how long an operation takes */
/* A first run that was planned for this many times as long tells that the warm-up was disturbed. */
#define TOO_SHORT      4
#define SHORT_RUNS_MAX 3
/* No operation takes less, and no run more; of what lies between figures can be made. */
#define OPERATION_LEAST_S 1e-10
#define RUN_MOST_S        1e9

json_t *ends_greet(struct control *control, const struct weir_fabric *fabric,
                   struct weir_error *ret_error)
{
    json_t *answer = control_ask(
        control, json_pack("{s:i, s:o}", "hello", ENDS_PROTOCOL, "client", ends_describe(fabric)),
        ANSWER_MS, ret_error);
    json_t *server = json_object_get(answer, "server");
    if (answer != NULL && !json_is_object(server)) {
        control_error(ret_error, WEIR_PROTOCOL, "the other end does not speak this protocol");
    }
    server = json_is_object(server) ? json_incref(server) : NULL;
    json_decref(answer);
    return server;
}

static bool run_once(struct carrier *carrier, uint64_t count, struct histogram *samples,
                     struct result_run *ret_run, struct weir_error *ret_error)
{
    struct control *control = carrier->control;
    if (!control_send(control, json_pack("{s:I}", "run", (json_int_t)count), ret_error)) {
        return false;
    }
    /* Channels are opened by both ends at once. */
    control->is_answer_due = true;
    bool is_ready = carrier->operations->ready(carrier, ret_error);
    control->is_answer_due = false;
    json_t *answer = is_ready ? control_receive(control, ANSWER_MS, ret_error) : NULL;
    if (answer == NULL) {
        return false;
    }
    json_decref(answer);
    histogram_clear(samples);
    double cpu_s = carrier_cpu_s();
    uint64_t began_ns = clock_now_ns();
    if (!carrier->operations->run(carrier, count, samples, ret_error)) {
        return false;
    }
    *ret_run = (struct result_run){.count = count,
                                   .seconds = (double)(clock_now_ns() - began_ns) * 1e-9,
                                   .client_cpu_s = carrier_cpu_s() - cpu_s};
    answer = control_ask(control, json_pack("{s:b}", "end", true), ANSWER_MS, ret_error);
    if (answer == NULL) {
        return false;
    }
    bool is_good = json_unpack(answer, "{s:F, s:F}", "seconds", &ret_run->server_seconds, "cpu_s",
                               &ret_run->server_cpu_s) == 0;
    json_decref(answer);
    return is_good || control_error(ret_error, WEIR_PROTOCOL, "the other end's times are missing");
}

/* The other end's times are its word: whatever they are, rates and shares are to be numbers. */
static bool times_can_be(const struct plan_case *item, const struct result_run *run,
                         struct weir_error *ret_error)
{
    double least_s = item->both_ways ? (double)run->count * OPERATION_LEAST_S : 0;
    return (run->server_seconds >= least_s && run->server_seconds <= RUN_MOST_S &&
            run->server_cpu_s >= 0 && run->server_cpu_s <= RUN_MOST_S) ||
           control_error(ret_error, WEIR_PROTOCOL,
                         "the other end's times cannot be: %g s, and %g s of CPU, for %llu of %s",
                         run->server_seconds, run->server_cpu_s, (unsigned long long)run->count,
                         plan_operation_name(item->operation));
}

/* Both ends compare what the first run moved. */
static bool check(struct carrier *carrier, uint64_t count, struct weir_error *ret_error)
{
    json_t *answer = control_ask(carrier->control, json_pack("{s:I}", "check", (json_int_t)count),
                                 ANSWER_MS, ret_error);
    bool is_good = answer != NULL;
    json_decref(answer);
    return is_good && carrier->operations->check(carrier, count, ret_error);
}

/* How many operations take `seconds`, if each takes as long as those of `run`. */
static uint64_t count_of(const struct result_run *run, double seconds)
{
    double wanted = seconds / (run->seconds / (double)run->count);
    return wanted < 1 ? 1 : wanted > COUNT_MAX ? COUNT_MAX : (uint64_t)wanted;
}

/* Runs until two after another are long enough; then how many operations take `seconds`. 0: it
 * failed. Only the second counts: at first both ends may spin on one processor, until the scheduler
 * parts them, and a few operations take long enough. */
static uint64_t warm_up(struct carrier *carrier, double seconds, struct histogram *samples,
                        struct weir_error *ret_error)
{
    double enough_s = seconds / 4 < WARM_SECONDS ? seconds / 4 : WARM_SECONDS;
    struct result_run run = {0};
    bool was_long = false;
    for (uint64_t count = FIRST_COUNT;; count *= was_long ? 1 : 4) {
        if (!run_once(carrier, count, samples, &run, ret_error) ||
            (count == FIRST_COUNT && !was_long && !check(carrier, count, ret_error))) {
            return 0;
        }
        bool is_long = run.seconds >= enough_s || count >= COUNT_MAX / 4;
        if (is_long && was_long) {
            break;
        }
        was_long = is_long;
    }
    return count_of(&run, seconds);
}

/* By what the packets of the runs went: of each operation there is one at least. */
static const char *link_of(const struct weir_fabric *fabric,
                           const struct weir_fabric_carried *before, const struct result *result)
{
    struct weir_fabric_carried after;
    uint64_t operations = 0;
    if (!weir_fabric_carried(fabric, &after)) {
        return weir_fabric_kind(fabric) == WEIR_FABRIC_RDMA ? "RDMA" : NULL;
    }
    for (unsigned i = 0; i < result->run_count; i++) {
        operations += result->runs[i].count;
    }
    uint64_t network = after.network - before->network, memory = after.memory - before->memory;
    return 2 * network >= operations && network > memory ? "UDP" : "memory";
}

/* The planned runs, into `ret_result`. Where both runs of the warm-up fell into a pause of either
 * end, the first of these is too short: it is none, and tells what the warm-up should have. */
static bool measure_runs(struct carrier *carrier, const struct plan *plan,
                         const struct weir_fabric *fabric, struct histogram *samples,
                         struct result *ret_result, struct weir_error *ret_error)
{
    uint64_t count = warm_up(carrier, plan->seconds, samples, ret_error);
    struct weir_fabric_carried before;
    weir_fabric_carried(fabric, &before);
    unsigned short_runs = 0;
    while (count > 0 && ret_result->run_count < plan->runs) {
        struct result_run run;
        if (!run_once(carrier, count, samples, &run, ret_error) ||
            !times_can_be(&ret_result->item, &run, ret_error)) {
            return false;
        }
        uint64_t wanted = count_of(&run, plan->seconds);
        if (ret_result->run_count == 0 && wanted / TOO_SHORT > count &&
            short_runs++ < SHORT_RUNS_MAX) {
            count = wanted;
        } else {
            result_add(ret_result, &run, samples);
        }
    }
    ret_result->link = count > 0 ? link_of(fabric, &before, ret_result) : NULL;
    return count > 0;
}

/* The carrier here, told of the one there; NULL with `ret_result->unsupported`: one end has no
 * such operation. */
static struct carrier *join(struct control *control, struct weir_fabric *fabric,
                            struct result *result, struct weir_error *ret_error)
{
    const struct plan_case *item = &result->item;
    struct carrier *carrier = plan_is_channel(item->operation)
                                  ? channel_carrier_create(fabric, control, item, ret_error)
                                  : verbs_carrier_create(fabric, control, item, ret_error);
    if (carrier == NULL) {
        if (ret_error->status == WEIR_UNSUPPORTED) {
            snprintf(result->unsupported, sizeof(result->unsupported), "%.190s",
                     ret_error->message);
        }
        return NULL;
    }
    json_t *answer = control_ask(control,
                                 json_pack("{s:o, s:o}", "case", plan_case_to_json(item), "end",
                                           carrier->operations->describe(carrier)),
                                 ANSWER_MS, ret_error);
    const char *unsupported = json_string_value(json_object_get(answer, "unsupported"));
    bool is_joined = false;
    if (unsupported != NULL) {
        snprintf(result->unsupported, sizeof(result->unsupported), "the other end: %.170s",
                 unsupported);
    } else if (answer != NULL) {
        is_joined = carrier->operations->attach(carrier, json_object_get(answer, "end"), ret_error);
    }
    json_decref(answer);
    if (!is_joined) {
        carrier->operations->destroy(carrier);
        return NULL;
    }
    return carrier;
}

bool ends_measure(struct control *control, struct weir_fabric *fabric, const struct plan_case *item,
                  const struct plan *plan, struct result *ret_result, struct weir_error *ret_error)
{
    ret_result->item = *item;
    ret_result->run_count = 0;
    ret_result->unsupported[0] = '\0';
    ret_result->link = NULL;
    histogram_clear(&ret_result->latency);
    struct carrier *carrier = join(control, fabric, ret_result, ret_error);
    if (carrier == NULL) {
        return ret_result->unsupported[0] != '\0';
    }
    struct histogram *samples = malloc(sizeof(*samples));
    bool is_good =
        samples != NULL && measure_runs(carrier, plan, fabric, samples, ret_result, ret_error);
    free(samples);
    carrier->operations->destroy(carrier);
    return is_good;
}
