#include "tools/bench/page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACE "@RESULTS@"

extern const char page_template[]; /* made of page.html */

/* Within JSON "<" stands in strings only, where it may be written otherwise. */
char *page_json(const json_t *document)
{
    char *plain = json_dumps(document, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));
    char *safe = plain != NULL ? malloc(6 * strlen(plain) + 1) : NULL;
    char *out = safe;
    for (const char *at = plain; safe != NULL && *at != '\0'; at++) {
        if (*at == '<' || *at == '>' || *at == '&') {
            out += sprintf(out, "\\u%04x", (unsigned)*at);
        } else {
            *out++ = *at;
        }
    }
    if (safe != NULL) {
        *out = '\0';
    }
    free(plain);
    return safe;
}

bool page_write(const char *path, const json_t *document)
{
    const char *place = strstr(page_template, PLACE);
    char *json = page_json(document);
    FILE *file = json != NULL ? fopen(path, "we") : NULL;
    if (file == NULL) {
        free(json);
        return false;
    }
    fwrite(page_template, 1, (size_t)(place - page_template), file);
    fputs(json, file);
    fputs(place + strlen(PLACE), file);
    free(json);
    bool failed = ferror(file) != 0;
    return fclose(file) == 0 && !failed;
}
