#include "tools/bench/page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Room for all of it, before what is there is written over; as well as the file system can tell. */
static bool reserve(int fd, const struct stat *before, size_t length)
{
    int error = S_ISREG(before->st_mode) ? posix_fallocate(fd, 0, (off_t)length) : 0;
    bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    if (is_full && ftruncate(fd, before->st_size) == 0) {
        errno = error;
    }
    return !is_full;
}

static bool write_over(FILE *file, const char *json)
{
    const char *place = strstr(page_template, PLACE);
    size_t length = strlen(page_template) - strlen(PLACE) + strlen(json);
    struct stat before;
    if (fstat(fileno(file), &before) != 0 || !reserve(fileno(file), &before, length)) {
        return false;
    }
    fwrite(page_template, 1, (size_t)(place - page_template), file);
    fputs(json, file);
    fputs(place + strlen(PLACE), file);
    return fflush(file) == 0 && ferror(file) == 0 &&
           (!S_ISREG(before.st_mode) || ftruncate(fileno(file), (off_t)length) == 0);
}

bool page_write(const char *path, const json_t *document)
{
    char *json = page_json(document);
    int fd = json != NULL ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL; /* which cuts nothing off */
    bool is_good = file != NULL && write_over(file, json);
    int error = errno;
    if (file != NULL && fclose(file) != 0 && is_good) {
        is_good = false;
        error = errno;
    }
    free(json);
    errno = error;
    return is_good;
}
