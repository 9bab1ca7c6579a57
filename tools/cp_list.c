#include "tools/cp_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/input_file.h"
#include "tools/location.h"
#include "tools/transfer/choice/expand.h"

static bool is_listed(const struct cp_options *options)
{
    return (options->wishes.bits & WISH_LISTED) != 0;
}

/* Where the path begins in the text that names it, which may leave it out. */
static size_t path_start(const char *text)
{
    struct location where;
    location_parse(text, &where);
    size_t length = strlen(text), rest = strlen(where.path);
    bool there = rest <= length && strcmp(text + length - rest, where.path) == 0;
    return there ? length - rest : length;
}

/* "a/./b" begins behind the dot, "/a/b" at the root, "a/b" here. Returns the length of that. */
static size_t base_length(const char *text, const char **ret_base)
{
    size_t start = path_start(text);
    const char *dot = strstr(text + start, "/./");
    *ret_base = "";
    if (dot != NULL) {
        return (size_t)(dot + 1 - text);
    }
    return start + (text[start] == '/');
}

/* `open`: a slash at its end counts. */
static int add(const struct command *command, struct listing *listing, const char *path, bool open)
{
    const struct span span = {path, strlen(path)};
    if (!(open ? listing_add_open(listing, span) : listing_add(listing, span)) ||
        listing->count > LISTED_MAX) {
        return command_usage_error(command,
                                   "'%.200s' is too long, or there are more than %u paths, or 64 "
                                   "MiB of them, or it leads out of the source by \"..\"",
                                   path, LISTED_MAX);
    }
    return EXIT_DONE;
}

static int read_paths(const struct command *command, const struct cp_options *options,
                      struct listing *listing)
{
    const char *name = options->files_from;
    char *line = NULL;
    size_t capacity = 0;
    int code = EXIT_DONE, end = options->zeros ? 0 : '\n';
    FILE *file = input_file_open(command, name, &code);
    if (file == NULL) {
        return code;
    }
    for (ssize_t length;
         code == EXIT_DONE && (length = getdelim(&line, &capacity, end, file)) >= 0;) {
        while (length > 0 && (line[length - 1] == end || (end != 0 && line[length - 1] == '\r'))) {
            line[--length] = 0;
        }
        bool remark = end != 0 && (line[0] == '#' || line[0] == ';');
        if (length > 0 && !remark) {
            code = add(command, listing, line, !options->recursive);
        }
    }
    if (code == EXIT_DONE && ferror(file)) {
        command_error(command, "%s: %s", name, strerror(errno));
        code = EXIT_SETUP;
    }
    free(line);
    input_file_close(file);
    return code;
}

/* The paths of the sources themselves, which begin at one place. */
static int take_paths(const struct command *command, char **sources, unsigned count,
                      struct listing *listing)
{
    const char *base, *first;
    size_t length = base_length(sources[0], &first);
    int code = EXIT_DONE;
    for (unsigned i = 0; i < count && code == EXIT_DONE; i++) {
        if (base_length(sources[i], &base) != length ||
            strncmp(sources[i], sources[0], length) != 0) {
            return command_usage_error(command,
                                       "--relative takes sources whose paths begin at one place: "
                                       "all from / on, all from here, or all behind one /./");
        }
        code = add(command, listing, sources[i] + length, false);
    }
    return code;
}

int cp_list_take(const struct command *command, struct cp_options *options, char **sources,
                 unsigned *count, struct listing *listing)
{
    const char *unused;
    bool from_file = options->files_from != NULL;
    if (!is_listed(options)) {
        return EXIT_DONE;
    }
    if (from_file && *count != 1) {
        return command_usage_error(command, "--files-from takes one source, which is the directory "
                                            "where its paths begin");
    }
    int code = from_file ? read_paths(command, options, listing)
                         : take_paths(command, sources, *count, listing);
    if (code != EXIT_DONE) {
        listing_clear(listing);
        return code;
    }
    size_t length = from_file ? strlen(sources[0]) : base_length(sources[0], &unused);
    bool home = length == path_start(sources[0]) && !location_is_url(sources[0]);
    char *source = malloc(length + 4);
    if (source == NULL) {
        command_error(command, "not enough memory");
        listing_clear(listing);
        return EXIT_SETUP;
    }
    memcpy(source, sources[0], length);
    strcpy(source + length, home ? "./" : source[length - 1] != '/' ? "/" : "");
    sources[0] = source;
    *count = 1;
    listing_sort(listing);
    if (!listing_names_source(listing) ||
        (!from_file && (options->wishes.bits & WISH_RECURSIVE) == 0)) {
        options->wishes.bits |= WISH_KEEP_TARGET;
    }
    return EXIT_DONE;
}

void cp_list_free(const struct cp_options *options, char **sources, struct listing *listing)
{
    if (is_listed(options)) {
        free(sources[0]);
        listing_clear(listing);
    }
}

bool cp_is_pattern(const struct location *where)
{
    return where->kind == LOCATION_SHELL && expand_is_pattern(where->path);
}

bool cp_patterns_take(const struct location *where, struct cp_patterns *ret_patterns)
{
    const char *slash = strrchr(where->path, '/');
    const char *name = slash != NULL ? slash + 1 : where->path;
    *ret_patterns = (struct cp_patterns){.base = NULL};
    if (!cp_is_pattern(where)) {
        return false;
    }
    ret_patterns->base =
        slash != NULL ? strndup(where->path, (size_t)(name - where->path)) : strdup("./");
    if (ret_patterns->base != NULL &&
        listing_add(&ret_patterns->listing, (struct span){name, strlen(name)})) {
        return true;
    }
    cp_patterns_free(ret_patterns);
    return false;
}

void cp_patterns_free(struct cp_patterns *patterns)
{
    free(patterns->base);
    listing_clear(&patterns->listing);
}
