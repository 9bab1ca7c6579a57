#include "sim/inquiry.h"

#include <string.h>

#include "sim/workload.h"

#define SERVICE_BASE UINT64_C(0x1110000)

static void wrong(struct inquiry *inquiry, const struct host *host, const char *what)
{
    simulator_violate(&inquiry->world->simulator, "sidr", "%c service %llx: %s", host->name,
                      (unsigned long long)inquiry->service_id, what);
}

static bool asker_lives(const struct inquiry *inquiry)
{
    return host_is_alive(inquiry->asker) && inquiry->asker->life == inquiry->asker_life;
}

static bool answerer_lives(const struct inquiry *inquiry)
{
    return host_is_alive(inquiry->answerer) && inquiry->answerer->life == inquiry->answerer_life;
}

static void release(struct inquiry *inquiry, struct host *host, struct cm_connection **connection)
{
    if (*connection != NULL) {
        cm_release(*connection, inquiry->world->simulator.now);
        host_wake(host, 0);
    }
    *connection = NULL;
}

static void decide(void *context, uint64_t unused)
{
    (void)unused;
    struct inquiry *inquiry = context;
    struct world *world = inquiry->world;
    if (!answerer_lives(inquiry) || inquiry->asked == NULL) {
        return;
    }
    enum status status;
    inquiry->has_decided = true;
    if (inquiry->decision == CM_SIDR_SUCCESS) {
        struct cm_parameters parameters = {
            .qpn = inquiry->qpn, .qkey = inquiry->qkey, .private_length = INQUIRY_DATA};
        memcpy(parameters.private_data, inquiry->answer, INQUIRY_DATA);
        status = cm_service_accept(inquiry->asked, world->simulator.now, &parameters);
    } else {
        status = cm_service_reject(inquiry->asked, world->simulator.now, inquiry->decision,
                                   inquiry->answer, INQUIRY_DATA);
    }
    if (status != STATUS_OK) {
        wrong(inquiry, inquiry->answerer, "a question could not be answered");
    }
    host_wake(inquiry->answerer, 0);
    if (dice_percent(&world->play, 50)) {
        release(inquiry, inquiry->answerer, &inquiry->asked);
    }
}

static void request_came(struct inquiry *inquiry, const struct cm_event *event)
{
    struct world *world = inquiry->world;
    if (inquiry->shown++ > 0 || !inquiry->has_asked) {
        wrong(inquiry, inquiry->answerer, "a question that was not put, or was shown before");
        return;
    }
    if (event->service_id != inquiry->service_id ||
        memcmp(event->parameters.private_data, inquiry->question, INQUIRY_DATA) != 0) {
        wrong(inquiry, inquiry->answerer, "the question is not what was asked");
    }
    inquiry->asked = event->connection;
    cm_set_context(event->connection, inquiry);
    simulator_after(&world->simulator, dice_below(&world->play, 30000000), decide, inquiry, 0);
}

/* Who was asked again after a death that took the answer with it listens no more. */
static bool has_forgotten(const struct inquiry *inquiry, enum cm_sidr_status told)
{
    return told == CM_SIDR_UNSUPPORTED && !answerer_lives(inquiry);
}

static void reply_came(struct inquiry *inquiry, const struct cm_event *event)
{
    enum cm_sidr_status told = (enum cm_sidr_status)event->sidr_status;
    if (inquiry->has_decided && has_forgotten(inquiry, told)) {
        return;
    }
    if (!inquiry->has_decided) {
        bool late = !inquiry->listens || !inquiry->world->profile.strict;
        if (told != CM_SIDR_UNSUPPORTED || !late) {
            wrong(inquiry, inquiry->asker, "an answer that nobody gave");
        }
    } else if (told != inquiry->decision) {
        wrong(inquiry, inquiry->asker, "another answer than was given");
    } else if (memcmp(event->parameters.private_data, inquiry->answer, INQUIRY_DATA) != 0) {
        wrong(inquiry, inquiry->asker, "the answer's data is not what was given");
    } else if (told == CM_SIDR_SUCCESS && (!qpn_equal(event->parameters.qpn, inquiry->qpn) ||
                                           event->parameters.qkey.value != inquiry->qkey.value)) {
        wrong(inquiry, inquiry->asker, "another queue pair than was given");
    }
}

bool inquiry_event(struct world *world, struct host *host, const struct cm_event *event)
{
    struct inquiry *inquiry = NULL;
    for (uint32_t i = 0; i < world->inquiry_count; i++) {
        inquiry = world->inquiries[i] == event->context ? world->inquiries[i] : inquiry;
    }
    if (inquiry == NULL) {
        return false;
    }
    simulator_note(&world->simulator, "%c sidr event %u for service %llx", host->name, event->kind,
                   (unsigned long long)inquiry->service_id);
    if (event->kind == CM_EVENT_SERVICE_REQUEST && host == inquiry->answerer) {
        request_came(inquiry, event);
        return true;
    }
    if (host != inquiry->asker || inquiry->asking != event->connection || inquiry->has_heard) {
        wrong(inquiry, host, "an event of what is over or was released");
        return true;
    }
    inquiry->has_heard = true;
    if (event->kind == CM_EVENT_SERVICE_REPLY) {
        reply_came(inquiry, event);
    } else if (event->kind != CM_EVENT_UNREACHABLE || world->profile.strict) {
        wrong(inquiry, host, "no answer came");
    }
    release(inquiry, inquiry->asker, &inquiry->asking);
    return true;
}

static void listen_event(void *context, uint64_t unused)
{
    (void)unused;
    struct inquiry *inquiry = context;
    if (answerer_lives(inquiry)) {
        inquiry->listens = !inquiry->has_asked;
        if (cm_listen(inquiry->answerer->cm, inquiry->service_id, NULL, 0, inquiry,
                      &inquiry->listener) != STATUS_OK) {
            wrong(inquiry, inquiry->answerer, "could not listen");
        }
    }
}

static void ask_event(void *context, uint64_t unused)
{
    (void)unused;
    struct inquiry *inquiry = context;
    struct world *world = inquiry->world;
    if (!asker_lives(inquiry)) {
        return;
    }
    struct cm_connect_request request = {
        .path = world->pairs[inquiry->service_id - SERVICE_BASE]->ends[0].attributes.path,
        .service_id = inquiry->service_id,
        .parameters = {.private_length = INQUIRY_DATA},
        .context = inquiry,
        .response_timeout = (uint8_t)dice_range(&world->play, 10, 14),
        .max_retries = (uint8_t)dice_range(&world->play, 9, 15),
    };
    memcpy(request.parameters.private_data, inquiry->question, INQUIRY_DATA);
    inquiry->has_asked = true;
    if (cm_resolve(inquiry->asker->cm, world->simulator.now, &request, &inquiry->asking) !=
        STATUS_OK) {
        wrong(inquiry, inquiry->asker, "could not ask");
    }
    host_wake(inquiry->asker, 0);
}

void inquiry_start(struct world *world, struct pair *pair)
{
    struct inquiry *inquiry = scratch_take(&world->scratch, sizeof *inquiry);
    uint32_t number = 0;
    while (world->pairs[number] != pair) {
        number++;
    }
    *inquiry = (struct inquiry){
        .world = world,
        .asker = pair->ends[0].host,
        .answerer = pair->ends[1].host,
        .asker_life = pair->ends[0].host->life,
        .answerer_life = pair->ends[1].host->life,
        .service_id = SERVICE_BASE + number,
        .qpn = {(uint32_t)dice_below(&world->play, 1u << 24)},
        .qkey = {(uint32_t)dice_below(&world->play, UINT32_MAX)},
        .decision = dice_percent(&world->play, 25) ? CM_SIDR_REJECTED : CM_SIDR_SUCCESS,
    };
    dice_fill(&world->play, inquiry->question, INQUIRY_DATA);
    dice_fill(&world->play, inquiry->answer, INQUIRY_DATA);
    world->inquiries[world->inquiry_count++] = inquiry;
    simulator_after(&world->simulator, dice_below(&world->play, 4000), listen_event, inquiry, 0);
    simulator_after(&world->simulator,
                    dice_percent(&world->play, 85) ? 5000 + dice_below(&world->play, 100000)
                                                   : dice_below(&world->play, 4000),
                    ask_event, inquiry, 0);
}

void inquiry_host_died(struct world *world, struct host *host)
{
    for (uint32_t i = 0; i < world->inquiry_count; i++) {
        struct inquiry *inquiry = world->inquiries[i];
        if (inquiry->asker == host) {
            inquiry->asking = NULL;
        }
        if (inquiry->answerer == host) {
            inquiry->asked = NULL;
            inquiry->listener = NULL;
        }
    }
}

void inquiry_check(struct world *world)
{
    for (uint32_t i = 0; i < world->inquiry_count; i++) {
        struct inquiry *inquiry = world->inquiries[i];
        if (inquiry->asking != NULL && asker_lives(inquiry)) {
            wrong(inquiry, inquiry->asker, "nothing moves, and it still waits");
        }
        if (inquiry->shown > 0 && !inquiry->has_decided && answerer_lives(inquiry)) {
            wrong(inquiry, inquiry->answerer, "nothing moves, and it has not answered");
        }
    }
}

void inquiry_release_all(struct world *world)
{
    for (uint32_t i = 0; i < world->inquiry_count; i++) {
        struct inquiry *inquiry = world->inquiries[i];
        release(inquiry, inquiry->asker, &inquiry->asking);
        release(inquiry, inquiry->answerer, &inquiry->asked);
        if (inquiry->listener != NULL) {
            cm_unlisten(inquiry->listener);
        }
        inquiry->listener = NULL;
    }
}
