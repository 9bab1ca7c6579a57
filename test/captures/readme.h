/* What README.md says is what a test found. */
#ifndef WEIR_TEST_CAPTURES_README_H
#define WEIR_TEST_CAPTURES_README_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Prints the line, and whether it is missing. */
static inline bool readme_says(const char *folder, const char *line)
{
    static char readme[1 << 16];
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/README.md", folder);
    FILE *file = fopen(path, "r");
    size_t length = file == NULL ? 0 : fread(readme, 1, sizeof readme - 1, file);
    if (file != NULL) {
        (void)fclose(file);
    }
    readme[length] = '\0';
    bool says = strstr(readme, line) != NULL;
    printf("%s\n%s", line, says ? "" : "    is not in README.md\n");
    return says;
}

#endif
