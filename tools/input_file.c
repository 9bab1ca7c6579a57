#include "tools/input_file.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

FILE *input_file_open(const struct command *command, const char *path, int *ret_code)
{
    static bool is_taken;
    if (strcmp(path, "-") == 0) {
        if (is_taken) { /* the first has read it to its end */
            *ret_code = command_usage_error(command, "two options would read standard input: give "
                                                     "one of them a file");
            return NULL;
        }
        is_taken = true;
        return stdin;
    }
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        command_error(command, "%s: %s", path, strerror(errno));
        *ret_code = EXIT_SETUP;
    }
    return file;
}

void input_file_close(FILE *file)
{
    if (file != stdin) {
        fclose(file);
    }
}
