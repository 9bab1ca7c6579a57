#include "sim/program.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/memory/window.h"
#include "sim/illegal.h"

#define TERRITORY_LENGTH 16384u
#define TAG_SALT         0x5ea00000u
#define NO_CONSUMER      UINT32_MAX

uint32_t program_tag(const struct end *end, uint32_t index)
{
    return TAG_SALT ^ (end->number << 8 | index);
}

struct op *program_find(struct world *world, const struct end *end, uint32_t tag,
                        struct end **ret_sender)
{
    uint32_t number = (tag ^ TAG_SALT) >> 8;
    uint32_t index = (tag ^ TAG_SALT) & 0xff;
    if (number >= world->end_count || index >= world->ends[number]->op_count) {
        return NULL;
    }
    struct end *sender = world->ends[number];
    struct op *op = &sender->ops[index];
    const struct end *destination = sender->service == SERVICE_UD ? op->destination : sender->peer;
    if (destination != end) {
        return NULL;
    }
    *ret_sender = sender;
    return op;
}

bool program_take(struct world *world, struct space *space, unsigned access, bool foreign,
                  uint32_t length, uint32_t align, struct span *ret_span)
{
    for (uint32_t i = space->territory_count; i > 0; i--) {
        struct territory *territory = space->territories[i - 1];
        if (territory->alive && territory->access == access && territory->foreign == foreign &&
            model_take(territory, length, align, ret_span)) {
            return true;
        }
    }
    uint32_t size = length + 128 > TERRITORY_LENGTH ? length + 128 : TERRITORY_LENGTH;
    struct territory *territory =
        model_claim(&world->scratch, space, &world->plan, size, access, foreign);
    return territory != NULL && model_take(territory, length, align, ret_span);
}

/* Cuts `length` bytes into up to `most` spans. */
static bool scatter(struct world *world, struct space *space, uint32_t most, uint32_t length,
                    struct span *ret_spans, struct sge *ret_sges, uint32_t *ret_count)
{
    most = most < SGE_MAX ? most : SGE_MAX;
    uint32_t count = length == 0 ? dice_below(&world->plan, 2) : dice_range(&world->plan, 1, most);
    if (dice_percent(&world->plan, 50) && count > 1) {
        count = 1;
    }
    uint32_t left = length;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t part = i + 1 == count ? left : dice_below(&world->plan, left + 1);
        uint32_t align = dice_percent(&world->plan, 50) ? 8 : 1;
        if (!program_take(world, space, ACCESS_LOCAL_WRITE, false, part, align, &ret_spans[i])) {
            return false;
        }
        left -= part;
        ret_sges[i] = (struct sge){model_address(&ret_spans[i]), part, ret_spans[i].territory->key};
    }
    *ret_count = count;
    return true;
}

void program_intakes_init(struct world *world, struct intakes *intakes, struct end *owner,
                          uint32_t quota)
{
    *intakes = (struct intakes){
        .list = scratch_take(&world->scratch, RECEIVE_MAX * sizeof(struct intake)),
        .quota = quota,
        .owner = owner,
    };
}

bool program_add_intake(struct world *world, struct intakes *intakes, struct space *space,
                        uint32_t max_sge, uint32_t length)
{
    if (intakes->count == RECEIVE_MAX) {
        return false;
    }
    struct intake *intake = &intakes->list[intakes->count];
    *intake = (struct intake){.length = length, .may = MAY(COMPLETION_SUCCESS)};
    if (!scatter(world, space, max_sge, length, intake->spans, intake->sges, &intake->span_count)) {
        return false;
    }
    intakes->count++;
    return true;
}

static uint32_t choose_length(struct world *world, const struct end *end)
{
    uint32_t mtu = path_mtu_bytes(end->mtu);
    if (world->profile.talks && dice_percent(&world->plan, 75)) {
        return dice_below(&world->plan, 80);
    }
    if (world->profile.selective && dice_percent(&world->plan, 40)) {
        return dice_range(&world->plan, 2 * mtu, 16384 + 8 * mtu); /* holes need packets */
    }
    switch (dice_below(&world->plan, 10)) {
    case 0:
        return 0;
    case 1:
    case 2:
        return dice_range(&world->plan, 1, 16);
    case 3:
        return dice_range(&world->plan, 1, mtu);
    case 4: /* around a multiple of the MTU */
        return mtu * dice_range(&world->plan, 1, 4) + dice_below(&world->plan, 3) - 1;
    case 5:
        return mtu * dice_range(&world->plan, 1, 3);
    case 6:
        if (dice_percent(&world->plan, 4)) {
            return dice_range(&world->plan, 20000, 300000);
        }
        /* fallthrough */
    default:
        return dice_below(&world->plan, 4 * mtu);
    }
}

static enum work_kind choose_kind(struct world *world, const struct end *end)
{
    static const enum work_kind reliable[] = {
        WORK_SEND,  WORK_SEND,         WORK_SEND_IMMEDIATE,  WORK_WRITE,
        WORK_WRITE, WORK_WRITE,        WORK_WRITE_IMMEDIATE, WORK_READ,
        WORK_READ,  WORK_COMPARE_SWAP, WORK_FETCH_ADD,       WORK_ATOMIC_WRITE,
    };
    static const enum work_kind unreliable[] = {
        WORK_SEND,
        WORK_SEND_IMMEDIATE,
        WORK_WRITE,
        WORK_WRITE_IMMEDIATE,
    };
    if (service_is_reliable(end->service)) {
        if (world->profile.talks && dice_percent(&world->plan, 75)) {
            return dice_percent(&world->plan, 50) ? WORK_SEND : WORK_SEND_IMMEDIATE;
        }
        enum work_kind kind =
            reliable[dice_below(&world->plan, sizeof reliable / sizeof reliable[0])];
        return kind == WORK_ATOMIC_WRITE && end->service != SERVICE_RC ? WORK_FETCH_ADD : kind;
    }
    return unreliable[dice_below(&world->plan, end->service == SERVICE_UC ? 4 : 2)];
}

/* The message: what lies in the spans, with a tag in front where the service may lose it. */
static void fill_message(struct world *world, struct op *op, uint32_t tag)
{
    uint8_t *data = scratch_take(&world->scratch, op->length);
    model_gather(op->spans, op->span_count, data, op->length);
    if (tag != 0) {
        memcpy(data, &tag, sizeof tag);
        uint32_t at = 0;
        for (uint32_t i = 0; i < op->span_count; i++) {
            memcpy(model_bytes(&op->spans[i]), data + at, op->spans[i].length);
            at += op->spans[i].length;
        }
        model_apply(op->spans, op->span_count, 0, data, op->length);
    }
    op->data = data;
}

/* Part of the range in which WRITEs and READs of one queue meet. */
static bool choose_hot(struct world *world, struct end *end, struct op *op)
{
    if (op->kind == WORK_ATOMIC_WRITE || end->hot.length == 0 || !dice_percent(&world->plan, 40)) {
        return false;
    }
    if (op->length > end->hot.length) {
        return false;
    }
    uint32_t at = dice_below(&world->plan, end->hot.length - op->length + 1);
    op->target = (struct span){end->hot.territory, end->hot.offset + at, op->length};
    if (program_is_write(op->kind)) {
        op->fence |= end->hot_read_unfenced;
        memcpy(end->hot_image + at, op->data, op->length);
    } else {
        uint8_t *data = scratch_take(&world->scratch, op->length);
        memcpy(data, end->hot_image + at, op->length);
        op->data = data;
    }
    if (op->fence) {
        end->hot_read_unfenced = false;
    }
    if (op->kind == WORK_READ) {
        end->hot_read_unfenced = true;
    }
    return true;
}

/* Names the target by a window instead of its region. */
static void look_through_window(struct world *world, struct end *end, struct op *op)
{
    struct dice *dice = &world->plan;
    unsigned type = dice_range(dice, WINDOW_TYPE_1, WINDOW_TYPE_2);
    bool zero_based = type == WINDOW_TYPE_2 && dice_percent(dice, 50);
    unsigned access = (program_is_write(op->kind) ? ACCESS_REMOTE_WRITE : ACCESS_REMOTE_READ) |
                      (zero_based ? ACCESS_ZERO_BASED : 0);
    if (op->length > 0 && model_open(&op->target, end->peer->qpn, type, access, &op->remote_key)) {
        op->through_window = true;
        op->remote_address = zero_based ? 0 : op->remote_address;
    }
}

static bool plan_write_or_read(struct world *world, struct end *end, struct op *op)
{
    if (!choose_hot(world, end, op)) {
        bool write = program_is_write(op->kind);
        unsigned right = write ? ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE : ACCESS_REMOTE_READ;
        unsigned access = dice_percent(&world->plan, 50) ? right : PROGRAM_ACCESS_ALL;
        if (!program_take(world, end->peer->space, access, false, op->length,
                          op->kind == WORK_ATOMIC_WRITE ? 8 : 1, &op->target)) {
            return false;
        }
        if (!write) {
            uint8_t *data = scratch_take(&world->scratch, op->length);
            memcpy(data, model_bytes(&op->target), op->length);
            op->data = data;
        }
    }
    op->has_target = true;
    op->remote_address = model_address(&op->target);
    op->remote_key = op->target.territory->key;
    if (dice_percent(&world->plan, 20)) {
        look_through_window(world, end, op);
    }
    return true;
}

static bool plan_atomic(struct world *world, struct end *end, struct op *op)
{
    struct cell *choices[CELL_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < world->cell_count; i++) {
        if (world->cells[i].span.territory->space == end->peer->space) {
            choices[count++] = &world->cells[i];
        }
    }
    if (count == 0) {
        return false;
    }
    op->cell = choices[dice_below(&world->plan, count)];
    op->remote_address = model_address(&op->cell->span);
    op->remote_key = op->cell->span.territory->key;
    op->swap_or_add = dice_next(&world->plan) | 1;
    op->compare = dice_percent(&world->plan, 60) ? op->cell->initial : dice_next(&world->plan);
    if (!program_take(world, end->space, ACCESS_LOCAL_WRITE, false, 8, 1, &op->spans[0])) {
        return false;
    }
    op->span_count = 1;
    op->sges[0] = (struct sge){model_address(&op->spans[0]), 8, op->spans[0].territory->key};
    return true;
}

static uint32_t legal_length(struct world *world, struct end *end, const struct op *op)
{
    uint32_t length = choose_length(world, end);
    if (!service_is_reliable(end->service) && program_is_send(op->kind) &&
        length < MESSAGE_TAG_MIN && op->kind == WORK_SEND) {
        length = MESSAGE_TAG_MIN;
    }
    if (end->service == SERVICE_UD && length > 1024) {
        length = 1024;
    }
    bool shared = end->service != SERVICE_UD && end->peer->intakes->shared != NULL;
    if (program_is_send(op->kind) && shared && length > end->peer->intakes->list[0].length) {
        length = end->peer->intakes->list[0].length;
    }
    return length;
}

/* The message also shuts a window of the peer's. */
static void shut_window(struct world *world, struct end *end, struct op *op)
{
    struct span span;
    if (program_take(world, end->peer->space, PROGRAM_ACCESS_ALL, false, 8, 1, &span) &&
        model_open(&span, end->peer->qpn, WINDOW_TYPE_2, ACCESS_REMOTE_READ, &op->invalidate)) {
        op->kind = WORK_SEND_INVALIDATE;
    }
}

/* What no peer takes part in. */
static bool plan_local(struct world *world, struct end *end, struct op *op)
{
    struct dice *dice = &world->plan;
    if (end->bound.value != 0 && dice_percent(dice, 50)) {
        op->kind = WORK_LOCAL_INVALIDATE;
        op->invalidate = end->bound;
        end->bound.value = 0;
        return true;
    }
    struct span span;
    unsigned type = dice_range(dice, WINDOW_TYPE_1, WINDOW_TYPE_2);
    bool zero_based = type == WINDOW_TYPE_2 && dice_percent(dice, 50);
    unsigned access = ACCESS_REMOTE_WRITE | (zero_based ? ACCESS_ZERO_BASED : 0);
    uint32_t length = dice_range(dice, 1, 64);
    if (!program_take(world, end->space, PROGRAM_ACCESS_ALL, false, length, 1, &span) ||
        !model_prepare_bind(&span, type, access, &op->bind)) {
        return false;
    }
    op->kind = WORK_BIND_WINDOW;
    if (type == WINDOW_TYPE_2) {
        end->bound = op->bind.key;
    }
    return true;
}

static bool plan_op(struct world *world, struct end *end, struct op *op, uint32_t index)
{
    struct dice *dice = &world->plan;
    op->kind = choose_kind(world, end);
    op->signaled = dice_percent(dice, 60);
    op->solicited = dice_percent(dice, 40);
    op->fence = service_is_reliable(end->service) && dice_percent(dice, 5);
    op->consumer = NO_CONSUMER;
    op->may = MAY(COMPLETION_SUCCESS);
    if (end->service != SERVICE_UD && dice_percent(dice, end->bound.value != 0 ? 25 : 7) &&
        plan_local(world, end, op)) {
        return true;
    }
    op->immediate =
        service_is_reliable(end->service) ? (uint32_t)dice_next(dice) : program_tag(end, index);
    if (program_is_atomic(op->kind)) {
        op->length = 8;
        return plan_atomic(world, end, op);
    }
    op->length = op->kind == WORK_ATOMIC_WRITE ? 8 : legal_length(world, end, op);
    bool sends = program_is_send(op->kind) || program_is_write(op->kind);
    op->inline_data = sends && op->length <= end->limits.max_inline && dice_percent(dice, 50);
    if (!scatter(world, end->space, end->limits.max_sge, op->length, op->spans, op->sges,
                 &op->span_count)) {
        return false;
    }
    if (sends) {
        bool tagged = !service_is_reliable(end->service) && op->kind == WORK_SEND;
        fill_message(world, op, tagged ? program_tag(end, index) : 0);
    }
    if (op->kind == WORK_SEND && service_is_reliable(end->service) && dice_percent(dice, 10)) {
        shut_window(world, end, op);
    }
    return program_is_send(op->kind) || plan_write_or_read(world, end, op);
}

static void plan_ops(struct world *world, struct end *end, uint32_t count)
{
    end->ops = scratch_take(&world->scratch, OP_MAX * sizeof *end->ops);
    for (uint32_t i = 0; i < count; i++) {
        struct op *op = &end->ops[i];
        if (!plan_op(world, end, op, i)) {
            memset(op, 0, sizeof *op);
            break;
        }
        end->op_count++;
    }
    if (end->op_count > 0) {
        end->ops[end->op_count - 1].signaled = true;
    }
    if (end->op_count > 0 && dice_percent(&world->plan, world->profile.illegal_percent)) {
        /* What comes behind is flushed; its effects on the hot range never happen. */
        if (service_is_reliable(end->service) && dice_percent(&world->plan, 10)) {
            illegal_right(world, end);
        } else {
            illegal_op(world, end, dice_below(&world->plan, end->op_count));
        }
    }
    for (uint32_t i = 0; i < end->op_count; i++) {
        enum work_kind kind = end->ops[i].kind;
        if (program_is_send(kind) || kind == WORK_WRITE_IMMEDIATE) {
            end->ops[i].consumer = end->consumer_count;
            end->consumers[end->consumer_count++] = i;
        }
    }
}

/* Receives for what the peer will send. */
static void plan_intakes(struct world *world, struct end *end)
{
    struct dice *dice = &world->plan;
    struct end *peer = end->peer;
    uint32_t missing = 0;
    bool may_miss = peer->attributes.rnr_retry_count < 7 || end->service == SERVICE_UC;
    if (may_miss && dice_percent(dice, world->profile.late_percent / 4)) {
        missing = dice_range(dice, 1, 2);
    }
    uint32_t wanted = peer->consumer_count > missing ? peer->consumer_count - missing : 0;
    uint32_t spoiled = dice_percent(dice, world->profile.illegal_percent) && wanted > 0 &&
                               service_is_reliable(end->service)
                           ? dice_below(dice, wanted)
                           : UINT32_MAX;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < peer->consumer_count; i++) {
        uint32_t length = peer->ops[peer->consumers[i]].length;
        longest = length > longest ? length : longest;
    }
    for (uint32_t i = 0; i < wanted; i++) {
        struct op *op = &peer->ops[peer->consumers[i]];
        uint32_t length = op->kind == WORK_WRITE_IMMEDIATE ? dice_below(dice, 32)
                                                           : op->length + dice_below(dice, 20);
        if (end->service == SERVICE_UC) {
            length = longest; /* any message may be the one that comes */
        }
        if (!program_add_intake(world, end->intakes, end->space, end->limits.max_sge, length)) {
            break;
        }
        if (i == spoiled) {
            illegal_intake(world, end, &end->intakes->list[i], op);
        }
    }
    if (end->intakes->count < peer->consumer_count && peer->attributes.rnr_retry_count == 7) {
        peer->attributes.rnr_retry_count = 3; /* there was no room: it must not wait for ever */
    }
    if (end->intakes->count < peer->consumer_count || (may_miss && peer->consumer_count > 0)) {
        end->pair->causes |= CAUSE_RECEIVES; /* they may also come too late */
    }
    if (end->intakes->count == peer->consumer_count && dice_percent(dice, 40)) {
        uint32_t more = dice_below(dice, 3);
        while (more-- > 0) {
            (void)program_add_intake(world, end->intakes, end->space, end->limits.max_sge,
                                     end->service == SERVICE_UC ? longest : dice_below(dice, 64));
        }
    }
}

static void plan_hot(struct world *world, struct end *end)
{
    uint32_t length = dice_range(&world->plan, 64, 3 * path_mtu_bytes(end->mtu));
    if (service_is_reliable(end->service) &&
        program_take(world, end->peer->space, PROGRAM_ACCESS_ALL, false, length, 1, &end->hot)) {
        end->hot_image = scratch_take(&world->scratch, length);
        memcpy(end->hot_image, model_bytes(&end->hot), length);
    } else {
        end->hot.length = 0;
    }
}

void program_blame_key(struct end *end)
{
    end->pair->causes |= CAUSE_ILLEGAL;
    end->pair->illegal_count += 2;
    for (uint32_t i = 0; i < end->peer->op_count; i++) {
        end->peer->ops[i].may |= MAY(COMPLETION_REMOTE_OPERATION_ERROR);
    }
}

void program_plan_pair(struct world *world, struct pair *pair)
{
    for (unsigned side = 0; side < 2; side++) {
        struct end *end = &pair->ends[side];
        plan_hot(world, end);
        uint32_t most = world->profile.ops_max;
        uint32_t count = dice_percent(&world->plan, 15) ? 0 : dice_below(&world->plan, most);
        plan_ops(world, end, end->is_target ? 0 : count);
    }
    for (unsigned side = 0; side < 2; side++) {
        struct end *end = &pair->ends[side];
        if (end->intakes->shared != NULL) {
            pair->causes |= CAUSE_RECEIVES;
            if (end->intakes->lost_key) {
                program_blame_key(end);
            }
        } else if (end->service != SERVICE_XRC) {
            plan_intakes(world, end);
        }
    }
}

void program_plan_datagrams(struct world *world, struct end *end)
{
    struct dice *dice = &world->plan;
    plan_ops(world, end, dice_below(dice, world->profile.ops_max));
    for (uint32_t i = 0; i < end->op_count; i++) {
        end->ops[i].destination = world->singles[dice_below(dice, world->single_count)];
        end->ops[i].qkey = end->ops[i].destination->qkey;
        if (dice_percent(dice, 10)) {
            end->ops[i].qkey.value ^= 1;
        }
    }
    uint32_t receives = dice_below(dice, 16);
    while (receives-- > 0) {
        (void)program_add_intake(world, end->intakes, end->space, end->limits.max_sge,
                                 GRH_BYTES + 1024);
    }
}
