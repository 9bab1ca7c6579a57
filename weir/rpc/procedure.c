/* Registration. */
#include "weir/rpc/procedure.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "weir/error_private.h"
#include "weir/rpc/rpc.h"

#define CAPACITY_LEAST 16

/* Where it is, or would be. */
static struct weir_procedure **place_of(const struct procedures *procedures, uint32_t low)
{
    size_t place = low & (procedures->capacity - 1);
    while (procedures->table[place] != NULL && (uint32_t)procedures->table[place]->number != low) {
        place = (place + 1) & (procedures->capacity - 1);
    }
    return &procedures->table[place];
}

struct weir_procedure *procedures_find(const struct procedures *procedures, uint32_t low)
{
    return procedures->capacity > 0 ? *place_of(procedures, low) : NULL;
}

static bool make_room(struct procedures *procedures)
{
    if (2 * (procedures->count + 1) <= procedures->capacity) {
        return true;
    }
    struct procedures larger = {
        .capacity = procedures->capacity > 0 ? 2 * procedures->capacity : CAPACITY_LEAST,
        .count = procedures->count,
    };
    larger.table = calloc(larger.capacity, sizeof(struct weir_procedure *));
    if (larger.table == NULL) {
        return false;
    }
    for (size_t i = 0; i < procedures->capacity; i++) {
        if (procedures->table[i] != NULL) {
            *place_of(&larger, (uint32_t)procedures->table[i]->number) = procedures->table[i];
        }
    }
    free(procedures->table);
    *procedures = larger;
    return true;
}

void procedures_fini(struct procedures *procedures)
{
    for (size_t i = 0; i < procedures->capacity; i++) {
        free(procedures->table[i]);
    }
    free(procedures->table);
    *procedures = (struct procedures){0};
}

static enum weir_status add(struct procedures *procedures, const char *name, uint64_t number,
                            struct weir_procedure **ret_procedure, struct weir_error *ret_error)
{
    struct weir_procedure *procedure = calloc(1, sizeof(*procedure));
    if (procedure == NULL || !make_room(procedures)) {
        free(procedure);
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    strcpy(procedure->name, name);
    procedure->number = number;
    procedure->index = procedures->count++;
    *place_of(procedures, (uint32_t)number) = procedure;
    *ret_procedure = procedure;
    return WEIR_OK;
}

enum weir_status weir_rpc_register(struct weir_rpc *rpc, const char *name,
                                   weir_procedure_handler *handler, void *user,
                                   struct weir_procedure **ret_procedure,
                                   struct weir_error *ret_error)
{
    size_t length = strlen(name);
    if (length == 0 || length > WEIR_PROCEDURE_NAME_MAX) {
        return error_set(ret_error, WEIR_INVALID, "\"%s\": a procedure's name has 1 to %d bytes",
                         name, WEIR_PROCEDURE_NAME_MAX);
    }
    uint64_t number = XXH3_64bits(name, length);
    struct weir_procedure *procedure = procedures_find(&rpc->procedures, (uint32_t)number);
    if (procedure != NULL && strcmp(procedure->name, name) != 0) {
        return error_set(ret_error, WEIR_INVALID, "\"%s\": its number is too like that of \"%s\"",
                         name, procedure->name);
    }
    if (procedure != NULL && procedure->handler != NULL && handler != NULL) {
        return error_set(ret_error, WEIR_INVALID, "\"%s\" is served here already", name);
    }
    enum weir_status status = WEIR_OK;
    if (procedure == NULL) {
        status = add(&rpc->procedures, name, number, &procedure, ret_error);
    }
    if (status == WEIR_OK && handler != NULL) {
        procedure->handler = handler;
        procedure->user = user;
    }
    if (status == WEIR_OK && ret_procedure != NULL) {
        *ret_procedure = procedure;
    }
    return status;
}

void weir_rpc_unregister(struct weir_procedure *procedure)
{
    procedure->handler = NULL;
}

const char *weir_procedure_name(const struct weir_procedure *procedure)
{
    return procedure->name;
}

void weir_procedure_statistics(const struct weir_procedure *procedure,
                               struct weir_procedure_statistics *ret_statistics)
{
    *ret_statistics = procedure->statistics;
    ret_statistics->calls = tally_told(&procedure->tally);
}
