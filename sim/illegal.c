#include "sim/illegal.h"

#include "rnic/base/check.h"
#include "rnic/memory/window.h"
#include "sim/program.h"

static void note_illegal(struct pair *pair, const struct op *op)
{
    if (pair == NULL) {
        return; /* UD */
    }
    pair->causes |= CAUSE_ILLEGAL;
    pair->illegal_count++;
    pair->illegal_op = op;
}

/* A window that is not for this queue pair, too narrow by a byte, or shut again. */
static bool wrong_window(struct world *world, struct end *end, struct op *op, uint32_t which)
{
    struct span span = op->target;
    struct qpn qpn = end->peer->qpn;
    unsigned access = program_is_write(op->kind) ? ACCESS_REMOTE_WRITE : ACCESS_REMOTE_READ;
    qpn.value += which == 0;
    span.length -= which == 1;
    if (span.territory == NULL || span.length == 0 ||
        !model_open(&span, qpn, WINDOW_TYPE_2, access, &op->remote_key)) {
        return false;
    }
    if (which == 2) {
        CHECK(window_invalidate(device_memory(end->peer->host->device), end->peer->space->domain,
                                qpn, op->remote_key) == STATUS_OK);
    }
    op->remote_address = model_address(&span);
    return true;
}

/* One byte too far, or too early. */
static void out_of_bounds(struct world *world, struct op *op)
{
    const struct territory *territory = op->target.territory;
    bool too_far = dice_percent(&world->plan, 50);
    if (op->through_window) {
        op->remote_address += too_far ? 1 : UINT64_MAX;
    } else {
        op->remote_address = too_far ? territory->address + territory->length - op->length + 1
                                     : territory->address - 1;
    }
}

static void wrong_remote(struct world *world, struct end *end, struct op *op, uint32_t which)
{
    struct span other;
    op->may = MAY(COMPLETION_REMOTE_ACCESS_ERROR);
    op->has_target = false;
    op->cell = NULL;
    switch (which) {
    case 0:
        op->remote_key.value ^= 1u << dice_below(&world->plan, 8); /* an old variant */
        return;
    case 1:
        op->remote_key.value = (uint32_t)dice_next(&world->plan);
        return;
    case 2:
        out_of_bounds(world, op);
        return;
    case 3: /* no right, or of another domain */
        if (program_take(world, end->peer->space,
                         program_is_write(op->kind) ? ACCESS_REMOTE_READ : ACCESS_LOCAL_WRITE,
                         false, op->length, 8, &other)) {
            op->remote_address = model_address(&other);
            op->remote_key = other.territory->key;
            return;
        }
        break;
    case 4:
        if (program_take(world, end->peer->space, PROGRAM_ACCESS_ALL, true, op->length, 8,
                         &other)) {
            op->remote_address = model_address(&other);
            op->remote_key = other.territory->key;
            return;
        }
        break;
    case 5:
    case 6:
    case 7:
        if (wrong_window(world, end, op, which - 5)) {
            return;
        }
        break;
    default: { /* stale: it was registered once */
        struct territory *territory = model_claim(&world->scratch, end->peer->space, &world->plan,
                                                  op->length + 128, PROGRAM_ACCESS_ALL, false);
        if (territory != NULL) {
            op->remote_address = territory->address + 8;
            op->remote_key = territory->key;
            model_deregister(&world->scratch, territory);
            return;
        }
    }
    }
    op->remote_key.value ^= 1;
}

/* At as many bytes of a region with such access, of the end's own domain or another. False: there
 * are none. */
static bool aim_at_other(struct world *world, struct space *space, unsigned access, bool foreign,
                         struct sge *sge)
{
    struct span other;
    if (!program_take(world, space, access, foreign, sge->length, 1, &other)) {
        return false;
    }
    sge->address = model_address(&other);
    sge->key = other.territory->key;
    return true;
}

/* Makes an op fail at home: a key that is wrong for what it does with it. */
static void wrong_local(struct world *world, struct space *space, struct op *op, uint32_t which)
{
    struct sge *sge = &op->sges[dice_below(&world->plan, op->span_count)];
    while (sge->length == 0) {
        sge = sge + 1 == op->sges + op->span_count ? op->sges : sge + 1;
    }
    op->may = MAY(COMPLETION_LOCAL_PROTECTION_ERROR);
    if (which == 0) {
        if (!dice_percent(&world->plan, 30) ||
            !aim_at_other(world, space, PROGRAM_ACCESS_ALL, true, sge)) {
            sge->key.value ^= 1u << dice_below(&world->plan, 8); /* another might be in use */
        }
    } else {
        const struct territory *territory = op->spans[sge - op->sges].territory;
        sge->address = territory->address + territory->length - sge->length + 1;
    }
    op->inline_data = false;
}

/* A request that the service knows and that finds nothing to invalidate. */
static void wrong_invalidate(struct world *world, struct op *op)
{
    op->invalidate.value = (uint32_t)dice_next(&world->plan);
    op->inline_data = false;
    if (program_is_send(op->kind)) {
        op->kind = WORK_SEND_INVALIDATE;
        op->may = MAY(COMPLETION_REMOTE_ACCESS_ERROR);
        return;
    }
    op->kind = WORK_LOCAL_INVALIDATE;
    op->may = MAY(COMPLETION_WINDOW_BIND_ERROR);
    op->span_count = 0;
    op->length = 0;
    op->has_target = false;
    op->cell = NULL;
}

/* What the READ or atomic brings may not be written where it is to go. */
static bool wrong_place(struct world *world, struct end *end, struct op *op)
{
    struct span other;
    if (!program_take(world, end->space, ACCESS_REMOTE_READ, false, op->length, 8, &other)) {
        return false;
    }
    op->sges[0] = (struct sge){model_address(&other), op->length, other.territory->key};
    op->span_count = 1;
    op->spans[0] = other;
    op->may = MAY(COMPLETION_LOCAL_PROTECTION_ERROR);
    return true;
}

static void spoil_remote(struct world *world, struct end *end, struct op *op)
{
    bool aligned = program_is_atomic(op->kind) || op->kind == WORK_ATOMIC_WRITE;
    if (aligned && dice_percent(&world->plan, 30)) {
        op->remote_address += dice_range(&world->plan, 1, 7);
        op->may = MAY(COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
        op->cell = NULL;
        op->has_target = false;
        return;
    }
    uint32_t which = dice_below(&world->plan, 9);
    bool needs_target = which == 2 || (which >= 5 && which <= 7);
    wrong_remote(world, end, op, aligned && needs_target ? 0 : which);
}

/* No such queue, or one of another XRC domain. */
static void wrong_queue(struct world *world, const struct end *end, struct op *op)
{
    const struct intakes *intakes = end->peer->intakes;
    op->xrc_srq =
        dice_percent(&world->plan, 50) ? intakes->elsewhere.number : intakes->xrc.number ^ 0x800000;
    op->may = MAY(COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    op->has_target = false;
    op->cell = NULL;
}

void illegal_op(struct world *world, struct end *end, uint32_t index)
{
    struct op *op = &end->ops[index];
    if (op->length == 0) {
        return; /* no byte, no key */
    }
    bool brings = op->kind == WORK_READ || program_is_atomic(op->kind);
    if (!service_is_reliable(end->service)) {
        wrong_local(world, end->space, op,
                    dice_below(&world->plan, 2)); /* nobody answers for the rest */
    } else if (end->service == SERVICE_XRC && dice_percent(&world->plan, 30)) {
        wrong_queue(world, end, op);
    } else if (dice_percent(&world->plan, 8)) {
        wrong_invalidate(world, op);
    } else if (!program_is_send(op->kind) && dice_percent(&world->plan, 70)) {
        spoil_remote(world, end, op);
    } else if (brings && dice_percent(&world->plan, 50)) {
        if (!wrong_place(world, end, op)) {
            return;
        }
    } else {
        /* What a READ brings must not fall into what belongs to others. */
        wrong_local(world, end->space, op, brings ? 0 : dice_below(&world->plan, 2));
    }
    note_illegal(end->pair, op);
}

static unsigned right_of(enum work_kind kind)
{
    if (program_is_write(kind)) {
        return ACCESS_REMOTE_WRITE;
    }
    if (program_is_atomic(kind)) {
        return ACCESS_REMOTE_ATOMIC;
    }
    return kind == WORK_READ ? ACCESS_REMOTE_READ : 0;
}

void illegal_right(struct world *world, struct end *end)
{
    uint32_t first = 0;
    while (first < end->op_count && right_of(end->ops[first].kind) == 0) {
        first++;
    }
    if (first == end->op_count) {
        return;
    }
    unsigned denied = right_of(end->ops[first].kind);
    end->peer->attributes.access &= ~denied;
    for (uint32_t i = first; i < end->op_count; i++) {
        struct op *op = &end->ops[i];
        if (right_of(op->kind) == denied) {
            op->may = MAY(COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
            op->has_target = false;
            op->cell = NULL;
        }
    }
    note_illegal(end->pair, &end->ops[first]);
}

void illegal_former_window(struct pair *pair, struct end *end)
{
    const struct span *window = &end->peer->former_window;
    for (uint32_t i = 0; i < end->op_count && pair->illegal_count == 0; i++) {
        struct op *op = &end->ops[i];
        if ((op->kind == WORK_WRITE || op->kind == WORK_READ) && op->length > 0 &&
            op->length <= window->length) {
            op->remote_address = model_address(window);
            op->remote_key = end->peer->former_window_key;
            op->has_target = false;
            op->may = service_is_reliable(end->service) ? MAY(COMPLETION_REMOTE_ACCESS_ERROR)
                                                        : MAY(COMPLETION_SUCCESS);
            note_illegal(pair, op);
        }
    }
}

/* None, or one of another domain, or of what may be read only. */
static void wrong_key(struct world *world, struct space *space, struct sge *sge)
{
    bool foreign = dice_percent(&world->plan, 50);
    unsigned access = foreign ? PROGRAM_ACCESS_ALL : ACCESS_REMOTE_READ;
    if (!dice_percent(&world->plan, 60) || !aim_at_other(world, space, access, foreign, sge)) {
        sge->key.value ^= 0x55;
    }
}

void illegal_intake(struct world *world, struct end *end, struct intake *intake, struct op *op)
{
    if (!program_is_send(op->kind) || op->length == 0 || op->may != MAY(COMPLETION_SUCCESS)) {
        return;
    }
    if (dice_percent(&world->plan, 50) && intake->sges[0].length > 0) {
        wrong_key(world, end->space, &intake->sges[0]);
        intake->may = MAY(COMPLETION_LOCAL_PROTECTION_ERROR);
        op->may = MAY(COMPLETION_REMOTE_OPERATION_ERROR);
    } else {
        uint32_t last = intake->span_count - 1;
        while (intake->sges[last].length == 0) {
            last--;
        }
        uint32_t shorter = dice_range(&world->plan, 1, intake->sges[last].length);
        uint32_t slack = intake->length - op->length;
        if (shorter <= slack) {
            return;
        }
        intake->sges[last].length -= shorter;
        intake->length -= shorter;
        intake->may = MAY(COMPLETION_LOCAL_LENGTH_ERROR);
        op->may = MAY(COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    }
    note_illegal(end->pair, op);
}
