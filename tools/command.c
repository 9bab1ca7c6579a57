#include "tools/command.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/dropin.h"
#include "tools/printable.h"

/* A name of the command line may hold anything. What was made fit before has backslashes, and some
 * messages have more lines than one. */
static void put_fit(const char *text, char *room, size_t capacity)
{
    for (;;) {
        size_t length = strcspn(text, "\\\n");
        printable(text, length, room, capacity);
        fputs(room, stderr);
        text += length;
        if (*text == 0) {
            return;
        }
        fputc(*text++, stderr);
    }
}

static void say(const struct command *command, const char *format, va_list arguments)
{
    char *text = NULL;
    int length = vasprintf(&text, format, arguments);
    size_t capacity = length >= 0 ? 4 * (size_t)length + 1 : 0;
    char *room = length >= 0 ? malloc(capacity) : NULL;
    fprintf(stderr, "weir %s: ", command->name);
    if (room != NULL) {
        put_fit(text, room, capacity);
    }
    fputc('\n', stderr);
    free(room);
    if (length >= 0) {
        free(text);
    }
}

int command_usage_error(const struct command *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(command, format, arguments);
    va_end(arguments);
    return command_usage_hint(command);
}

int command_option(const struct command *command, int argc, char **argv, const char *letters,
                   const struct option *options)
{
    char *text = NULL;
    size_t length = 0;
    FILE *terminal = stderr, *memory = open_memstream(&text, &length);
    stderr = memory != NULL ? memory : terminal;
    int option = getopt_long(argc, argv, letters, options, NULL);
    stderr = terminal;
    if (memory != NULL && fclose(memory) == 0 && length > 0) {
        char *room = malloc(4 * length + 1);
        if (room != NULL) {
            printable(text, length - 1, room, 4 * length + 1); /* but its end of the line */
            fprintf(stderr, "%s\n", room);
        }
        free(room);
    }
    free(text);
    return option;
}

int command_usage_hint(const struct command *command)
{
    fprintf(stderr, "Try 'weir %s --help'.\n", command->name);
    return EXIT_USAGE;
}

void command_error(const struct command *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(command, format, arguments);
    va_end(arguments);
}

enum weir_status fabric_open(const struct weir_fabric_options *options,
                             struct weir_fabric **ret_fabric, struct weir_error *ret_error)
{
    struct weir_fabric_options found = *options;
    char folder[PATH_MAX], reason[DROPIN_REASON];
    if (found.soft_dir == NULL && dropin_find(folder, reason)) {
        found.soft_dir = folder;
    }
    return weir_fabric_open(&found, ret_fabric, ret_error);
}

bool fabric_kind_take(const struct command *command, const char *text,
                      enum weir_fabric_kind *ret_kind)
{
    static const struct {
        const char *name;
        enum weir_fabric_kind kind;
    } kinds[] = {
        {"auto", WEIR_FABRIC_AUTO}, {"rdma", WEIR_FABRIC_RDMA}, {"soft", WEIR_FABRIC_SOFT}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(text, kinds[i].name) == 0) {
            *ret_kind = kinds[i].kind;
            return true;
        }
    }
    command_usage_error(command, "--fabric takes auto, rdma or soft, not '%s'", text);
    return false;
}

/* The name of a file may be in it, and cut. */
const char *fabric_reason(const struct weir_fabric *fabric)
{
    static char text[1024];
    const char *reason = weir_fabric_reason(fabric);
    printable(reason, strlen(reason), text, sizeof(text));
    return text;
}

void fabric_describe(const struct weir_fabric *fabric, char *ret_text, size_t length)
{
    if (weir_fabric_kind(fabric) == WEIR_FABRIC_SOFT) {
        snprintf(ret_text, length, "%s, software RNIC: %s", weir_fabric_device(fabric),
                 fabric_reason(fabric));
    } else {
        snprintf(ret_text, length, "%s", weir_fabric_device(fabric));
    }
}
