#include "tools/cp_names.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cp_list.h"
#include "tools/location.h"
#include "tools/printable.h"
#include "tools/transfer/choice/walk.h"

static int compare_names(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* What a source is called in the target directory; "" for one that goes into it without a name of
 * its own, or cannot be copied anyway. The caller frees it. */
static char *name_of_source(const char *source)
{
    char name[256] = "";
    struct location where;
    location_parse(source, &where);
    if (where.path != NULL && !cp_is_pattern(&where)) {
        walk_base_name(where.path, name);
    }
    return strdup(name);
}

int cp_check_names(const struct command *command, char **sources, unsigned count)
{
    char **names = calloc(count, sizeof(*names));
    bool whole = names != NULL;
    int code = EXIT_DONE;
    for (unsigned i = 0; i < count && whole; i++) {
        names[i] = name_of_source(sources[i]);
        whole = names[i] != NULL;
    }
    if (whole) {
        qsort(names, count, sizeof(*names), compare_names);
    } else {
        command_error(command, "not enough memory");
        code = EXIT_SETUP;
    }
    for (unsigned i = 1; i < count && code == EXIT_DONE; i++) {
        if (names[i][0] != 0 && strcmp(names[i - 1], names[i]) == 0) {
            char text[1024];
            printable(names[i], strlen(names[i]), text, sizeof(text));
            code = command_usage_error(
                command, "two sources are called '%s'; copy them to different directories", text);
        }
    }
    for (unsigned i = 0; i < count && names != NULL; i++) {
        free(names[i]);
    }
    free(names);
    return code;
}
