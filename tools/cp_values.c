#include "tools/cp_values.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "tools/units.h"

/* Implies -o and -g, each where it is given. */
int cp_take_chown(const struct command *command, struct cp_options *options)
{
    if (!owners_parse(optarg, options->owners)) {
        return command_usage_error(command, "--chown takes USER, USER:GROUP or :GROUP, not '%s'",
                                   optarg);
    }
    options->wishes.preserve |= options->owners[OWNER_USER].set ? PRESERVE_OWNER : 0;
    options->wishes.preserve |= options->owners[OWNER_GROUP].set ? PRESERVE_GROUP : 0;
    return -1;
}

bool cp_take_seconds(unsigned *ret_seconds)
{
    size_t digits = strspn(optarg, "0123456789");
    bool good = digits > 0 && digits <= 9 && optarg[digits] == 0;
    *ret_seconds = good ? (unsigned)strtoul(optarg, NULL, 10) : 0;
    return good;
}

int cp_take_window(const struct command *command, struct cp_options *options)
{
    unsigned seconds;
    if (!cp_take_seconds(&seconds)) {
        return command_usage_error(
            command, "--modify-window takes whole seconds from 0 on, not '%s'", optarg);
    }
    options->wishes.bits |= WISH_WINDOW;
    options->wishes.window_s = seconds;
    return -1;
}

/* As for rsync, KiB where there is no letter. */
int cp_take_rate(const struct command *command, struct cp_options *options)
{
    double rate;
    if (!units_parse(optarg, 'K', &rate) || (rate > 0 && rate < 512) || rate > 1e18) {
        return command_usage_error(command,
                                   "--bwlimit takes KiB a second, or a number with K, M, G, KB, "
                                   "MB, GB or B, from 512 B on, or 0 for no limit; not '%s'",
                                   optarg);
    }
    options->wishes.rate = (uint64_t)rate;
    return -1;
}

/* "+1" or "-1" may be at the end, for sizes that are not to be met themselves. */
int cp_take_size(const struct command *command, struct cp_options *options, bool is_max)
{
    char text[64];
    double size;
    size_t length = strlen(optarg);
    bool beside = length > 2 && (strcmp(optarg + length - 2, "+1") == 0 ||
                                 strcmp(optarg + length - 2, "-1") == 0);
    int by = !beside ? 0 : optarg[length - 2] == '+' ? 1 : -1;
    snprintf(text, sizeof(text), "%.*s", (int)(length - (beside ? 2 : 0)), optarg);
    if (length >= sizeof(text) || !units_parse(text, 'B', &size) || size > 9e18 ||
        (by < 0 && size < 1)) {
        return command_usage_error(command,
                                   "--%s-size takes bytes, or a number with K, M, G, KB, MB or GB, "
                                   "not '%s'",
                                   is_max ? "max" : "min", optarg);
    }
    uint64_t bytes = (uint64_t)size + (uint64_t)by;
    if (is_max) {
        options->wishes.bits |= WISH_MAX_SIZE;
        options->wishes.size_max = bytes;
    } else {
        options->wishes.size_min = bytes;
    }
    return -1;
}

int cp_take_modes(const struct command *command, struct cp_options *options)
{
    mode_t mask = umask(0);
    umask(mask);
    if (!modes_parse(optarg, mask, &options->modes)) {
        return command_usage_error(command,
                                   "--chmod takes modes as chmod does, with D or F before those of "
                                   "directories or files alone ('D755,F644', 'go-w'), not '%s'",
                                   optarg);
    }
    return -1;
}

/* rsync's --info: what of it there is has options of its own. */
int cp_take_info(const struct command *command, struct cp_options *options)
{
    for (const char *at = optarg; *at != 0; at += strspn(at, ",")) {
        size_t length = strcspn(at, ",");
        size_t word = strcspn(at, ",0123456789");
        bool off = length > word && at[word] == '0';
        if (word == 8 && strncasecmp(at, "progress", word) == 0) {
            options->progress = !off;
            options->no_progress = off;
        } else if (word == 5 && strncasecmp(at, "stats", word) == 0) {
            options->stats = !off;
        } else if (word == 4 && strncasecmp(at, "name", word) == 0) {
            options->verbose = off ? 0 : at[word] == '2' ? 2 : 1;
        } else {
            return command_usage_error(command,
                                       "--info takes progress, stats and name, not '%.*s': -v, -i "
                                       "and --json say all there is to say",
                                       (int)length, at);
        }
        at += length;
    }
    return -1;
}

int cp_take_deletions(const struct command *command, struct cp_options *options)
{
    size_t digits = strspn(optarg, "0123456789");
    if (digits == 0 || digits > 9 || optarg[digits] != 0) {
        return command_usage_error(command, "--max-delete takes a number from 0 on, not '%s'",
                                   optarg);
    }
    options->wishes.bits |= WISH_MAX_DELETE;
    options->wishes.deletions_max = (uint32_t)strtoul(optarg, NULL, 10);
    return -1;
}
