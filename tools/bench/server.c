/* The end that is led. It believes the client in nothing but what it asks for: a case has its
 * bounds (plan.h), a count another. */
#include <stdio.h>

#include "tools/bench/carrier.h"
#include "tools/bench/ends.h"

#define COUNT_MAX 50000000

/* In a run in which this end has nothing to do its client says nothing: 60 s at most, as it was
 * planned. */
#define RUN_SILENCES 3

struct service {
    struct control *control;
    struct weir_fabric *fabric;
    struct carrier *carrier; /* of the case under way */
    bool is_over;            /* ended, in order or by ret_error */
};

static void drop_carrier(struct service *service)
{
    if (service->carrier != NULL) {
        service->carrier->operations->destroy(service->carrier);
        service->carrier = NULL;
    }
}

static bool take_case(struct service *service, const json_t *question, struct weir_error *ret_error)
{
    struct plan_case item;
    drop_carrier(service);
    if (!plan_case_from_json(json_object_get(question, "case"), &item)) {
        return control_error(ret_error, WEIR_PROTOCOL, "not a case that this version knows");
    }
    service->carrier =
        plan_is_channel(item.operation)
            ? channel_carrier_create(service->fabric, service->control, &item, ret_error)
            : verbs_carrier_create(service->fabric, service->control, &item, ret_error);
    if (service->carrier == NULL) {
        return ret_error->status == WEIR_UNSUPPORTED &&
               control_send(service->control, json_pack("{s:s}", "unsupported", ret_error->message),
                            ret_error);
    }
    const struct carrier_operations *operations = service->carrier->operations;
    return operations->attach(service->carrier, json_object_get(question, "end"), ret_error) &&
           control_send(service->control,
                        json_pack("{s:o}", "end", operations->describe(service->carrier)),
                        ret_error);
}

static bool take_run(struct service *service, uint64_t count, struct weir_error *ret_error)
{
    struct carrier *carrier = service->carrier;
    if (!carrier->operations->ready(carrier, ret_error) ||
        !control_send(service->control, json_pack("{s:b}", "ready", true), ret_error)) {
        return false;
    }
    double cpu_s = carrier_cpu_s();
    uint64_t began_ns = clock_now_ns();
    if (!carrier->operations->run(carrier, count, NULL, ret_error)) {
        return false;
    }
    double seconds = (double)(clock_now_ns() - began_ns) * 1e-9;
    json_t *end =
        control_receive(service->control, RUN_SILENCES * service->control->silence_ms, ret_error);
    bool is_end = json_object_get(end, "end") != NULL;
    json_decref(end);
    if (!is_end) {
        return end == NULL ? false : control_error(ret_error, WEIR_PROTOCOL, "no end of the run");
    }
    return control_send(
        service->control,
        json_pack("{s:f, s:f}", "seconds", seconds, "cpu_s", carrier_cpu_s() - cpu_s), ret_error);
}

static bool take_question(struct service *service, const json_t *question,
                          struct weir_error *ret_error)
{
    const json_t *hello = json_object_get(question, "hello");
    json_int_t run = json_integer_value(json_object_get(question, "run"));
    json_int_t check = json_integer_value(json_object_get(question, "check"));
    if (hello != NULL) {
        if (json_integer_value(hello) != ENDS_PROTOCOL) {
            return control_error(ret_error, WEIR_PROTOCOL,
                                 "this end is another version of weir bench (%s)", WEIR_VERSION);
        }
        return control_send(service->control,
                            json_pack("{s:o}", "server", ends_describe(service->fabric)),
                            ret_error);
    }
    if (json_object_get(question, "case") != NULL) {
        return take_case(service, question, ret_error);
    }
    if (service->carrier != NULL && run > 0 && run <= COUNT_MAX) {
        return take_run(service, (uint64_t)run, ret_error);
    }
    if (service->carrier != NULL && check > 0) {
        return service->carrier->operations->check(service->carrier, (uint64_t)check, ret_error) &&
               control_send(service->control, json_pack("{s:b}", "checked", true), ret_error);
    }
    return control_error(ret_error, WEIR_PROTOCOL, "a question out of turn");
}

bool ends_serve(struct control *control, struct weir_fabric *fabric, struct weir_error *ret_error)
{
    struct service service = {.control = control, .fabric = fabric};
    bool is_good = true;
    while (is_good) {
        json_t *question = control_receive(control, control->silence_ms, ret_error);
        if (question == NULL && ret_error->status == WEIR_DISCONNECTED) {
            drop_carrier(&service);
            return true;
        }
        is_good = question != NULL && take_question(&service, question, ret_error);
        json_decref(question);
    }
    struct weir_error ignored;
    control_send(control, json_pack("{s:s}", "error", ret_error->message), &ignored);
    drop_carrier(&service);
    return false;
}
