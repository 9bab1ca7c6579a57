#include "tools/cp_options.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cp_foreign.h"
#include "tools/cp_rules.h"
#include "tools/cp_values.h"

#define CP_TIMEOUT_S 30

enum {
    OPTION_FSYNC = 256,
    OPTION_JSON,
    OPTION_FABRIC,
    OPTION_DEVICES,
    OPTION_SPECIALS,
    OPTION_NUMERIC_IDS,
    OPTION_CHOWN,
    OPTION_SIZE_ONLY,
    OPTION_EXISTING,
    OPTION_IGNORE_EXISTING,
    OPTION_FORCE,
    OPTION_DELETE,
    OPTION_MAX_DELETE,
    OPTION_IGNORE_ERRORS,
    OPTION_INPLACE,
    OPTION_RESUME,
    OPTION_VERIFY,
    OPTION_BWLIMIT,
    OPTION_DELETE_EXCLUDED,
    OPTION_EXCLUDE,
    OPTION_INCLUDE,
    OPTION_EXCLUDE_FROM,
    OPTION_INCLUDE_FROM,
    OPTION_WEIR_PATH,
    OPTION_REQUIRE_RDMA,
    OPTION_KEY,
    OPTION_ENCRYPT,
    OPTION_TO,
    OPTION_HOSTS,
    OPTION_TIMEOUT,
    OPTION_CA,
    OPTION_CERTIFICATE,
    OPTION_CERTIFICATE_KEY,
    OPTION_HELP,
    OPTION_PROGRESS,
    OPTION_PARTIAL,
    OPTION_INFO,
    OPTION_STATS,
    OPTION_MAX_SIZE,
    OPTION_MIN_SIZE,
    OPTION_CHMOD,
    OPTION_FILES_FROM,
    OPTION_MKPATH,
    OPTION_TAKEN_BACK, /* and more: the last */
};

static const struct option long_options[] = {
    {"archive", no_argument, NULL, 'a'},
    {"links", no_argument, NULL, 'l'},
    {"perms", no_argument, NULL, 'p'},
    {"times", no_argument, NULL, 't'},
    {"group", no_argument, NULL, 'g'},
    {"owner", no_argument, NULL, 'o'},
    {"devices", no_argument, NULL, OPTION_DEVICES},
    {"specials", no_argument, NULL, OPTION_SPECIALS},
    {"hard-links", no_argument, NULL, 'H'},
    {"acls", no_argument, NULL, 'A'},
    {"xattrs", no_argument, NULL, 'X'},
    {"sparse", no_argument, NULL, 'S'},
    {"chown", required_argument, NULL, OPTION_CHOWN},
    {"numeric-ids", no_argument, NULL, OPTION_NUMERIC_IDS},
    {"recursive", no_argument, NULL, 'r'},
    {"checksum", no_argument, NULL, 'c'},
    {"update", no_argument, NULL, 'u'},
    {"ignore-times", no_argument, NULL, 'I'},
    {"size-only", no_argument, NULL, OPTION_SIZE_ONLY},
    {"modify-window", required_argument, NULL, '@'},
    {"existing", no_argument, NULL, OPTION_EXISTING},
    {"ignore-non-existing", no_argument, NULL, OPTION_EXISTING},
    {"ignore-existing", no_argument, NULL, OPTION_IGNORE_EXISTING},
    {"force", no_argument, NULL, OPTION_FORCE},
    {"inplace", no_argument, NULL, OPTION_INPLACE},
    {"resume", no_argument, NULL, OPTION_RESUME},
    {"verify", no_argument, NULL, OPTION_VERIFY},
    {"bwlimit", required_argument, NULL, OPTION_BWLIMIT},
    {"delete", no_argument, NULL, OPTION_DELETE},
    {"del", no_argument, NULL, OPTION_DELETE},
    {"delete-before", no_argument, NULL, OPTION_DELETE},
    {"delete-during", no_argument, NULL, OPTION_DELETE},
    {"delete-delay", no_argument, NULL, OPTION_DELETE},
    {"delete-after", no_argument, NULL, OPTION_DELETE},
    {"delete-excluded", no_argument, NULL, OPTION_DELETE_EXCLUDED},
    {"max-delete", required_argument, NULL, OPTION_MAX_DELETE},
    {"ignore-errors", no_argument, NULL, OPTION_IGNORE_ERRORS},
    {"filter", required_argument, NULL, 'f'},
    {"dry-run", no_argument, NULL, 'n'},
    {"itemize-changes", no_argument, NULL, 'i'},
    {"exclude", required_argument, NULL, OPTION_EXCLUDE},
    {"include", required_argument, NULL, OPTION_INCLUDE},
    {"exclude-from", required_argument, NULL, OPTION_EXCLUDE_FROM},
    {"include-from", required_argument, NULL, OPTION_INCLUDE_FROM},
    {"fsync", no_argument, NULL, OPTION_FSYNC},
    {"quiet", no_argument, NULL, 'q'},
    {"verbose", no_argument, NULL, 'v'},
    {"json", no_argument, NULL, OPTION_JSON},
    {"fabric", required_argument, NULL, OPTION_FABRIC},
    {"rsh", required_argument, NULL, 'e'},
    {"weir-path", required_argument, NULL, OPTION_WEIR_PATH},
    {"require-rdma", no_argument, NULL, OPTION_REQUIRE_RDMA},
    {"key", required_argument, NULL, OPTION_KEY},
    {"encrypt", no_argument, NULL, OPTION_ENCRYPT},
    {"to", required_argument, NULL, OPTION_TO},
    {"hosts", required_argument, NULL, OPTION_HOSTS},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"ca", required_argument, NULL, OPTION_CA},
    {"certificate", required_argument, NULL, OPTION_CERTIFICATE},
    {"certificate-key", required_argument, NULL, OPTION_CERTIFICATE_KEY},
    {"progress", no_argument, NULL, OPTION_PROGRESS},
    {"partial", no_argument, NULL, OPTION_PARTIAL},
    {"partial-dir", required_argument, NULL, OPTION_PARTIAL},
    {"info", required_argument, NULL, OPTION_INFO},
    {"stats", no_argument, NULL, OPTION_STATS},
    {"max-size", required_argument, NULL, OPTION_MAX_SIZE},
    {"min-size", required_argument, NULL, OPTION_MIN_SIZE},
    {"one-file-system", no_argument, NULL, 'x'},
    {"chmod", required_argument, NULL, OPTION_CHMOD},
    {"relative", no_argument, NULL, 'R'},
    {"files-from", required_argument, NULL, OPTION_FILES_FROM},
    {"from0", no_argument, NULL, '0'},
    {"cvs-exclude", no_argument, NULL, 'C'},
    {"mkpath", no_argument, NULL, OPTION_MKPATH},
    {"help", no_argument, NULL, OPTION_HELP},
};

/* What takes an option back, or what -a brings of it. */
static const struct {
    const char *name;
    int option;
} taken_back[] = {
    {"no-recursive", 'r'},
    {"no-r", 'r'},
    {"no-owner", 'o'},
    {"no-o", 'o'},
    {"no-group", 'g'},
    {"no-g", 'g'},
    {"no-devices", OPTION_DEVICES},
    {"no-specials", OPTION_SPECIALS},
    {"no-D", 'D'},
    {"no-hard-links", 'H'},
    {"no-H", 'H'},
    {"no-acls", 'A'},
    {"no-A", 'A'},
    {"no-xattrs", 'X'},
    {"no-X", 'X'},
    {"no-sparse", 'S'},
    {"no-S", 'S'},
    {"no-numeric-ids", OPTION_NUMERIC_IDS},
    {"no-checksum", 'c'},
    {"no-c", 'c'},
    {"no-update", 'u'},
    {"no-u", 'u'},
    {"no-ignore-times", 'I'},
    {"no-I", 'I'},
    {"no-size-only", OPTION_SIZE_ONLY},
    {"no-inplace", OPTION_INPLACE},
    {"no-force", OPTION_FORCE},
    {"no-dry-run", 'n'},
    {"no-n", 'n'},
    {"no-one-file-system", 'x'},
    {"no-x", 'x'},
    {"no-fsync", OPTION_FSYNC},
    {"no-progress", OPTION_PROGRESS},
    {"no-partial", OPTION_PARTIAL},
    {"no-relative", 'R'},
    {"no-R", 'R'},
    {"no-itemize-changes", 'i'},
    {"no-i", 'i'},
    {"no-from0", '0'},
    {"no-verbose", 'v'},
    {"no-v", 'v'},
    {"no-mkpath", OPTION_MKPATH},
    {"no-ignore-errors", OPTION_IGNORE_ERRORS},
    {"no-timeout", OPTION_TIMEOUT},
    {"no-bwlimit", OPTION_BWLIMIT},
};

#define LONG_OPTIONS_MAX 320

#define PRESERVE_D (PRESERVE_DEVICES | PRESERVE_SPECIALS)

/* What an option says is to be kept, and then what comes with it: as in rsync, -A takes the whole
 * mode with it. */
static const struct {
    int option;
    unsigned preserve;
} preserve_of[] = {
    {'a', PRESERVE_SET_IDS | PRESERVE_GROUP | PRESERVE_OWNER | PRESERVE_D},
    {'l', 0},
    {'p', PRESERVE_SET_IDS},
    {'t', 0},
    {'g', PRESERVE_GROUP},
    {'o', PRESERVE_OWNER},
    {'D', PRESERVE_D},
    {OPTION_DEVICES, PRESERVE_DEVICES},
    {OPTION_SPECIALS, PRESERVE_SPECIALS},
    {'H', PRESERVE_HARD_LINKS},
    {'A', PRESERVE_ACLS},
    {'A', PRESERVE_SET_IDS},
    {'X', PRESERVE_XATTRS},
    {'S', PRESERVE_SPARSE},
    {OPTION_NUMERIC_IDS, PRESERVE_NUMBERS},
};

/* What an option says is wished. */
static const struct {
    int option;
    uint32_t wishes;
} wishes_of[] = {
    {'a', WISH_RECURSIVE | WISH_PERMS},
    {'p', WISH_PERMS},
    {'t', WISH_PERMS},
    {'A', WISH_PERMS},
    {'r', WISH_RECURSIVE},
    {'c', WISH_CHECKSUM},
    {'u', WISH_UPDATE},
    {'I', WISH_IGNORE_TIMES},
    {'n', WISH_DRY_RUN},
    {'x', WISH_ONE_FILE_SYSTEM},
    {OPTION_MKPATH, WISH_MAKE_PATH},
    {OPTION_SIZE_ONLY, WISH_SIZE_ONLY},
    {OPTION_EXISTING, WISH_EXISTING},
    {OPTION_IGNORE_EXISTING, WISH_IGNORE_EXISTING},
    {OPTION_FORCE, WISH_FORCE},
    {OPTION_INPLACE, WISH_INPLACE},
    {OPTION_DELETE, WISH_DELETE},
    {OPTION_DELETE_EXCLUDED, WISH_DELETE | WISH_DELETE_EXCLUDED},
    {OPTION_IGNORE_ERRORS, WISH_IGNORE_ERRORS},
    {OPTION_FSYNC, WISH_FSYNC},
    {OPTION_RESUME, WISH_RESUME},
    {OPTION_VERIFY, WISH_VERIFY},
};

/* True: there is nothing more to the option than that. */
static bool take_bits(struct cp_options *options, int option)
{
    bool taken = false;
    for (size_t i = 0; i < sizeof(preserve_of) / sizeof(preserve_of[0]); i++) {
        if (preserve_of[i].option == option) {
            options->wishes.preserve |= (uint16_t)preserve_of[i].preserve;
            taken = true;
        }
    }
    for (size_t i = 0; i < sizeof(wishes_of) / sizeof(wishes_of[0]); i++) {
        if (wishes_of[i].option == option) {
            options->wishes.bits |= wishes_of[i].wishes;
            taken = true;
        }
    }
    return taken;
}

/* Options that say yes, and no more. */
static const struct {
    int option;
    size_t flag;
} flags_of[] = {
    {'q', offsetof(struct cp_options, quiet)},
    {'i', offsetof(struct cp_options, itemize)},
    {'P', offsetof(struct cp_options, partial)},
    {'P', offsetof(struct cp_options, progress)},
    {'R', offsetof(struct cp_options, relative)},
    {'0', offsetof(struct cp_options, zeros)},
    {'C', offsetof(struct cp_options, as_cvs)},
    {OPTION_JSON, offsetof(struct cp_options, json)},
    {OPTION_STATS, offsetof(struct cp_options, stats)},
    {OPTION_PARTIAL, offsetof(struct cp_options, partial)},
    {OPTION_PROGRESS, offsetof(struct cp_options, progress)},
};

static bool set_flags(struct cp_options *options, int option, bool value)
{
    bool taken = false;
    for (size_t i = 0; i < sizeof(flags_of) / sizeof(flags_of[0]); i++) {
        if (flags_of[i].option == option) {
            *(bool *)((char *)options + flags_of[i].flag) = value;
            taken = true;
        }
    }
    return taken;
}

/* What is kept because of -A stays kept. */
static void take_back(struct cp_options *options, int option)
{
    size_t preserves = sizeof(preserve_of) / sizeof(preserve_of[0]);
    for (size_t i = 0; i < preserves; i++) {
        if (preserve_of[i].option == option) {
            options->wishes.preserve &= (uint16_t)~preserve_of[i].preserve;
            break;
        }
    }
    for (size_t i = 0; i < sizeof(wishes_of) / sizeof(wishes_of[0]); i++) {
        if (wishes_of[i].option == option && option != 'A') {
            options->wishes.bits &= ~wishes_of[i].wishes;
        }
    }
    set_flags(options, option, false);
    if (option == 'v') {
        options->verbose = 0;
    } else if (option == OPTION_PROGRESS) {
        options->no_progress = true;
    } else if (option == OPTION_TIMEOUT) {
        options->timeout_s = CP_TIMEOUT_S;
    } else if (option == OPTION_BWLIMIT) {
        options->wishes.rate = 0;
    }
}

/* Of how the other side is reached, and what is copied. True: it was one of these. */
static bool take_way(struct cp_options *options, int option)
{
    switch (option) {
    case 'e':
        options->rsh = optarg;
        return true;
    case OPTION_WEIR_PATH:
        options->weir_path = optarg;
        return true;
    case OPTION_REQUIRE_RDMA:
        options->fabric.kind = WEIR_FABRIC_RDMA;
        return true;
    case OPTION_KEY:
        options->key = optarg;
        return true;
    case OPTION_FILES_FROM:
        options->files_from = optarg;
        return true;
    case OPTION_ENCRYPT:
        options->encrypt = true;
        return true;
    case OPTION_CA:
        options->certificates.authorities = optarg;
        return true;
    case OPTION_CERTIFICATE:
        options->certificates.certificate = optarg;
        return true;
    case OPTION_CERTIFICATE_KEY:
        options->certificates.key = optarg;
        return true;
    default:
        return false;
    }
}

/* -F, the first time and the second. */
static int take_directory_rules(const struct command *command, struct cp_options *options)
{
    static const char *const rules[] = {"dir-merge /.rsync-filter", "exclude .rsync-filter"};
    unsigned before = options->directory_rules++;
    return before < 2 ? cp_take_rule(command, &options->filter, false, rules[before]) : -1;
}

static bool take_plain(struct cp_options *options, int option)
{
    return take_bits(options, option) || take_way(options, option) ||
           set_flags(options, option, true);
}

static int refuse_second_x(const struct command *command)
{
    return command_usage_error(command,
                               "there is no -xx: with -x a directory that something is mounted on "
                               "is copied empty; --exclude leaves it out");
}

/* -1: go on. */
static int take_option(const struct command *command, struct cp_options *options, int option)
{
    if (option == 'x' && (options->wishes.bits & WISH_ONE_FILE_SYSTEM) != 0) {
        return refuse_second_x(command);
    }
    if (take_plain(options, option)) {
        return -1;
    }
    switch (option) {
    case 'v':
        options->verbose++;
        return -1;
    case '@':
        return cp_take_window(command, options);
    case OPTION_BWLIMIT:
        return cp_take_rate(command, options);
    case OPTION_TIMEOUT:
        return cp_take_seconds(&options->timeout_s)
                   ? -1
                   : command_usage_error(command, "--timeout takes whole seconds, not '%s'",
                                         optarg);
    case OPTION_CHOWN:
        return cp_take_chown(command, options);
    case OPTION_EXCLUDE:
    case OPTION_INCLUDE:
        return cp_take_pattern(command, &options->filter,
                               option == OPTION_INCLUDE ? RULE_INCLUDE : 0, optarg);
    case OPTION_EXCLUDE_FROM:
    case OPTION_INCLUDE_FROM:
        return cp_take_patterns(command, &options->filter,
                                option == OPTION_INCLUDE_FROM ? RULE_INCLUDE : 0, options->zeros,
                                optarg);
    case 'f':
        return cp_take_rule(command, &options->filter, options->zeros, optarg);
    case 'F':
        return take_directory_rules(command, options);
    case OPTION_MAX_DELETE:
        return cp_take_deletions(command, options);
    case OPTION_TO:
        return cp_targets_add(command, &options->targets, optarg);
    case OPTION_HOSTS:
        return cp_targets_read(command, &options->targets, optarg);
    case OPTION_FABRIC:
        return fabric_kind_take(command, optarg, &options->fabric.kind) ? -1 : EXIT_USAGE;
    case 'h': /* sizes are for humans anyway */
        return -1;
    case OPTION_INFO:
        return cp_take_info(command, options);
    case OPTION_MAX_SIZE:
    case OPTION_MIN_SIZE:
        return cp_take_size(command, options, option == OPTION_MAX_SIZE);
    case OPTION_CHMOD:
        return cp_take_modes(command, options);
    case OPTION_HELP:
        fputs(cp_usage, stdout);
        return EXIT_DONE;
    default:
        return command_usage_hint(command);
    }
}

/* All long names, with those of rsync that are none of ours. */
static void list_long_options(struct option ret_options[LONG_OPTIONS_MAX])
{
    unsigned count = sizeof(long_options) / sizeof(long_options[0]);
    memcpy(ret_options, long_options, sizeof(long_options));
    for (size_t i = 0; i < sizeof(taken_back) / sizeof(taken_back[0]); i++) {
        ret_options[count++] = (struct option){
            .name = taken_back[i].name, .has_arg = no_argument, .val = OPTION_TAKEN_BACK + (int)i};
    }
    count += cp_foreign_options(ret_options + count, LONG_OPTIONS_MAX - 1 - count);
    ret_options[count] = (struct option){0};
}

/* -C, which stands behind all rules. */
static int leave_out_as_cvs(const struct command *command, struct cp_options *options)
{
    int code = cp_take_rule(command, &options->filter, false, ":C");
    return code >= 0 ? code : cp_take_rule(command, &options->filter, false, "-C");
}

/* What they say together. */
static int settle(const struct command *command, struct cp_options *options)
{
    if (options->as_cvs) {
        int code = leave_out_as_cvs(command, options);
        if (code >= 0) {
            return code;
        }
    }
    if (options->zeros && options->filter != NULL) {
        filter_end_with_zeros(options->filter);
    }
    if (options->files_from != NULL && !options->recursive) { /* as for rsync: -a is not enough */
        options->wishes.bits &= ~(uint32_t)WISH_RECURSIVE;
    }
    if (options->files_from != NULL || options->relative) {
        options->wishes.bits |= WISH_LISTED;
    }
    if (options->files_from == NULL && options->relative) {
        options->wishes.bits |= WISH_NO_FOLDERS;
    }
    const uint32_t both = WISH_RESUME | WISH_INPLACE;
    if ((options->wishes.bits & both) == both) {
        return command_usage_error(command, "--inplace keeps nothing that --resume could go on "
                                            "with; give one of them");
    }
    if (options->partial && (options->wishes.bits & WISH_INPLACE) == 0) {
        options->wishes.bits |= WISH_RESUME;
    }
    if ((options->wishes.bits & WISH_IGNORE_EXISTING) != 0) { /* there is nothing to write to */
        options->wishes.bits &= ~(uint32_t)WISH_INPLACE;
    }
    return -1;
}

int cp_take_options(const struct command *command, int argc, char **argv,
                    struct cp_options *ret_options)
{
    struct option names[LONG_OPTIONS_MAX];
    list_long_options(names);
    *ret_options = (struct cp_options){.timeout_s = CP_TIMEOUT_S};
    if (argc == 2 && strcmp(argv[1], "-h") == 0) { /* as for rsync: alone it is --help */
        fputs(cp_usage, stdout);
        return EXIT_DONE;
    }
    for (int option; (option = command_option(command, argc, argv,
                                              "arlptgoDHAXScuInx@:e:f:FiqvhPR0C" CP_FOREIGN_LETTERS,
                                              names)) != -1;) {
        int code = -1;
        if (cp_is_foreign(option)) {
            const char *note;
            code = cp_take_foreign(command, option, &note);
            ret_options->note = note != NULL ? note : ret_options->note;
        } else if (option >= OPTION_TAKEN_BACK) {
            take_back(ret_options, taken_back[option - OPTION_TAKEN_BACK].option);
        } else {
            code = take_option(command, ret_options, option);
            ret_options->recursive |= option == 'r';
        }
        if (code >= 0) {
            return code;
        }
    }
    return settle(command, ret_options);
}
