#include "tools/cp_foreign.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum fate {
    IS_SO,     /* anyway */
    NEEDS_NOT, /* what it is for: taken, with a note */
    IS_NOT,    /* to be had */
};

#define NO_COMPRESSION "nothing is compressed: the data goes as it is, at the network's speed"
#define NO_DELTA       "a file that differs is sent whole; --resume goes on in the middle of one"
#define NO_FOLLOWING                                                                               \
    "links below a source are copied as links; a source that is one is followed without -r"
#define NO_LIST   "weir cp -n -v says the names that a copy would send"
#define NO_TRUST  "the names that come are held against those asked for in any case"
#define NO_BATCH  "--to sends to several targets at once"
#define NO_DAEMON "a server of ours is weir serve, and weir://HOST[:PORT]/PATH its name"
#define NO_CLOCK  "timeout 10m weir cp --resume ... ends in time, and the same command goes on"
#define NO_TIMES  "only times of modification are kept"
#define NO_LOG    "-i says what changes of each name, and --json says it to programs"
#define NO_CHOICE "files are always proven by XXH3, 128 bits"
#define NO_MAPS   "--chown says whose all copies are, --numeric-ids keeps numbers"
#define NO_SHELL  "names go to the other side as they are, and no shell sees them"
#define SHARED                                                                                     \
    "for files are replaced and not written into; but one whose contents stay is the same file "   \
    "in both, and gets the source's attributes in both"
#define NO_OLD                                                                                     \
    "nothing is kept of what is replaced; 'cp -al DIR COPY' at the target before keeps its "       \
    "contents, " SHARED
#define NO_SNAPSHOT                                                                                \
    "'cp -al OLD NEW' at the target and then weir cp -a --delete to NEW keeps the contents of "    \
    "OLD, " SHARED

static const struct foreign {
    const char *name; /* NULL: the letter alone */
    char letter;      /* or 0 */
    bool has_value;
    enum fate fate;
    const char *text; /* of one that is not so */
} foreigns[] = {
    {"whole-file", 'W', false, IS_SO, NULL},
    {"inc-recursive", 0, false, IS_SO, NULL},
    {"i-r", 0, false, IS_SO, NULL},
    {"no-inc-recursive", 0, false, IS_SO, NULL},
    {"no-i-r", 0, false, IS_SO, NULL},
    {"no-motd", 0, false, IS_SO, NULL},
    {"secluded-args", 's', false, IS_SO, NULL},
    {"protect-args", 0, false, IS_SO, NULL},
    {"blocking-io", 0, false, IS_SO, NULL},
    {"outbuf", 0, true, IS_SO, NULL},
    {"human-readable", 0, false, IS_SO, NULL},
    {"no-human-readable", 0, false, IS_SO, NULL},
    {"no-h", 0, false, IS_SO, NULL},
    {"8-bit-output", '8', false, IS_SO, NULL},
    {"no-compress", 0, false, IS_SO, NULL},
    {"no-z", 0, false, IS_SO, NULL},
    {"qsort", 0, false, IS_SO, NULL},
    {"no-append", 0, false, IS_SO, NULL},
    {"no-atimes", 0, false, IS_SO, NULL},
    {"no-U", 0, false, IS_SO, NULL},
    {"no-backup", 0, false, IS_SO, NULL},
    {"no-blocking-io", 0, false, IS_SO, NULL},
    {"no-contimeout", 0, false, IS_SO, NULL},
    {"no-crtimes", 0, false, IS_SO, NULL},
    {"no-N", 0, false, IS_SO, NULL},
    {"no-delay-updates", 0, false, IS_SO, NULL},
    {"no-dirs", 0, false, IS_SO, NULL},
    {"no-d", 0, false, IS_SO, NULL},
    {"no-fuzzy", 0, false, IS_SO, NULL},
    {"no-y", 0, false, IS_SO, NULL},
    {"no-iconv", 0, false, IS_SO, NULL},
    {"no-insecure-links", 0, false, IS_SO, NULL},
    {"no-munge-links", 0, false, IS_SO, NULL},
    {"no-old-args", 0, false, IS_SO, NULL},
    {"no-omit-dir-times", 0, false, IS_SO, NULL},
    {"no-O", 0, false, IS_SO, NULL},
    {"no-omit-link-times", 0, false, IS_SO, NULL},
    {"no-J", 0, false, IS_SO, NULL},
    {"no-open-noatime", 0, false, IS_SO, NULL},
    {"no-prune-empty-dirs", 0, false, IS_SO, NULL},
    {"no-m", 0, false, IS_SO, NULL},
    {"no-super", 0, false, IS_SO, NULL},
    {"no-write-devices", 0, false, IS_SO, NULL},
    {"no-8-bit-output", 0, false, IS_SO, NULL},
    {"no-8", 0, false, IS_SO, NULL},
    {"drop-D", 0, false, IS_NOT, "--no-D has no devices and special files sent"},
    {"compress", 'z', false, NEEDS_NOT, NO_COMPRESSION},
    {"compress-choice", 0, true, NEEDS_NOT, NO_COMPRESSION},
    {"zc", 0, true, NEEDS_NOT, NO_COMPRESSION},
    {"compress-level", 0, true, NEEDS_NOT, NO_COMPRESSION},
    {"zl", 0, true, NEEDS_NOT, NO_COMPRESSION},
    {"compress-threads", 0, true, NEEDS_NOT, NO_COMPRESSION},
    {"zt", 0, true, NEEDS_NOT, NO_COMPRESSION},
    {"skip-compress", 0, true, NEEDS_NOT, NO_COMPRESSION},
    {"no-whole-file", 0, false, NEEDS_NOT, NO_DELTA},
    {"no-W", 0, false, NEEDS_NOT, NO_DELTA},
    {"fuzzy", 'y', false, NEEDS_NOT, NO_DELTA},
    {"block-size", 'B', true, NEEDS_NOT, NO_DELTA},
    {"trust-sender", 0, false, NEEDS_NOT, NO_TRUST},
    {"append", 0, false, IS_NOT, "--resume goes on with what an interrupted copy left, proven"},
    {"append-verify", 0, false, IS_NOT,
     "--resume goes on with what an interrupted copy left, proven"},
    {"copy-links", 'L', false, IS_NOT, NO_FOLLOWING},
    {"copy-dirlinks", 'k', false, IS_NOT, NO_FOLLOWING},
    {"keep-dirlinks", 'K', false, IS_NOT,
     "a link at the target is replaced by the directory that comes"},
    {"copy-unsafe-links", 0, false, IS_NOT, NO_FOLLOWING},
    {"safe-links", 0, false, IS_NOT,
     "links are copied as links, wherever they lead; --exclude leaves them out"},
    {"munge-links", 0, false, IS_NOT, "links are copied as they are"},
    {"insecure-links", 0, false, IS_NOT,
     "links are copied as links, and never followed below a source"},
    {"confine-root", 0, true, IS_NOT, "weir serve --root confines who copies"},
    {"atimes", 'U', false, IS_NOT, NO_TIMES},
    {"crtimes", 'N', false, IS_NOT, NO_TIMES},
    {"open-noatime", 0, false, IS_NOT, "mount with noatime where access times matter"},
    {"omit-dir-times", 'O', false, IS_NOT, "the times of directories are always kept"},
    {"omit-link-times", 'J', false, IS_NOT, "the times of links are always kept"},
    {"no-times", 0, false, IS_NOT,
     "times are always kept, for by them the next copy knows what is the same"},
    {"no-t", 0, false, IS_NOT,
     "times are always kept, for by them the next copy knows what is the same"},
    {"no-links", 0, false, IS_NOT, "links are always copied as links; --exclude leaves them out"},
    {"no-l", 0, false, IS_NOT, "links are always copied as links; --exclude leaves them out"},
    {"no-perms", 0, false, IS_NOT,
     "permissions are always kept; --chmod changes them, as --chmod=D755,F644"},
    {"no-p", 0, false, IS_NOT,
     "permissions are always kept; --chmod changes them, as --chmod=D755,F644"},
    {"executability", 'E', false, IS_SO, NULL},
    {"super", 0, false, IS_NOT,
     "the other side may what its user may: copy to root@HOST, or weir serve --super"},
    {"fake-super", 0, false, IS_NOT, "owners are kept as owners, where the receiving side is root"},
    {"copy-as", 0, true, IS_NOT, "the other side is what its user is: USER@HOST:PATH"},
    {"copy-devices", 0, false, IS_NOT, "-D copies devices as devices"},
    {"write-devices", 0, false, IS_NOT, "-D copies devices as devices; none is written to"},
    {"preallocate", 0, false, IS_NOT, "a file takes room as it comes"},
    {"max-alloc", 0, true, IS_NOT, "memory is bounded, whatever is copied"},
    {"dirs", 'd', false, IS_NOT, "-r --exclude '/*/*' copies directories without what is in them"},
    {"old-dirs", 0, false, IS_NOT,
     "-r --exclude '/*/*' copies directories without what is in them"},
    {"old-d", 0, false, IS_NOT, "-r --exclude '/*/*' copies directories without what is in them"},
    {"no-secluded-args", 0, false, IS_NOT, NO_SHELL},
    {"no-protect-args", 0, false, IS_NOT, NO_SHELL},
    {"no-s", 0, false, IS_NOT, NO_SHELL},
    {"no-implied-dirs", 0, false, IS_NOT,
     "with --relative the directories on the way are copied, too"},
    {"prune-empty-dirs", 'm', false, IS_NOT,
     "empty directories are copied; --exclude leaves them out"},
    {"backup", 'b', false, IS_NOT, NO_OLD},
    {"backup-dir", 0, true, IS_NOT, NO_OLD},
    {"suffix", 0, true, IS_NOT, NO_OLD},
    {"compare-dest", 0, true, IS_NOT, NO_SNAPSHOT},
    {"copy-dest", 0, true, IS_NOT, NO_SNAPSHOT},
    {"link-dest", 0, true, IS_NOT, NO_SNAPSHOT},
    {"remove-source-files", 0, false, IS_NOT,
     "nothing is removed at the source; when weir cp -c --verify has ended with 0, what was copied "
     "can be (without -c, what had the same size and time was not read)"},
    {"delay-updates", 0, false, IS_NOT, "each file takes its place when it is whole"},
    {"temp-dir", 'T', true, IS_NOT,
     "a file has no name until it is whole, and is in its directory from the beginning"},
    {"ignore-missing-args", 0, false, IS_NOT,
     "a source that is not there is said, and the others are copied"},
    {"delete-missing-args", 0, false, IS_NOT,
     "--delete deletes in directories that are copied, and nowhere else"},
    {"usermap", 0, true, IS_NOT, NO_MAPS},
    {"groupmap", 0, true, IS_NOT, NO_MAPS},
    {"contimeout", 0, true, IS_NOT, "--timeout is how long a connection is tried"},
    {"rsync-path", 0, true, IS_NOT,
     "--weir-path says where weir is there, as --weir-path 'sudo weir'"},
    {"remote-option", 'M', true, IS_NOT, "the other side has no options of its own"},
    {"old-args", 0, false, IS_NOT, NO_SHELL},
    {"address", 0, true, IS_NOT,
     "the system chooses the address; --fabric and WEIR_BIND choose the device's"},
    {"port", 0, true, IS_NOT,
     "it is part of the name: weir://HOST:PORT/PATH; of ssh it is -e 'ssh -p PORT'"},
    {"sockopts", 0, true, IS_NOT, "the data goes through no socket of TCP"},
    {"password-file", 0, true, IS_NOT, "--key FILE proves who one is; weir key makes one"},
    {"early-input", 0, true, IS_NOT, NO_DAEMON},
    {"daemon", 0, false, IS_NOT, NO_DAEMON},
    {"config", 0, true, IS_NOT, NO_DAEMON},
    {"server", 0, false, IS_NOT, NO_DAEMON},
    {"ipv4", '4', false, IS_NOT, "an address in the place of HOST says its family, or -e 'ssh -4'"},
    {"ipv6", '6', false, IS_NOT, "an address in the place of HOST says its family, or -e 'ssh -6'"},
    {"out-format", 0, true, IS_NOT, NO_LOG},
    {"log-format", 0, true, IS_NOT, NO_LOG},
    {"log-file", 0, true, IS_NOT, NO_LOG},
    {"log-file-format", 0, true, IS_NOT, NO_LOG},
    {"debug", 0, true, IS_NOT, "-vv says of each name what became of it and why"},
    {"stderr", 0, true, IS_NOT,
     "errors are on standard error, all else that is asked for on standard output"},
    {"list-only", 0, false, IS_NOT, NO_LIST},
    {"stop-after", 0, true, IS_NOT, NO_CLOCK},
    {"time-limit", 0, true, IS_NOT, NO_CLOCK},
    {"stop-at", 0, true, IS_NOT, NO_CLOCK},
    {"write-batch", 0, true, IS_NOT, NO_BATCH},
    {"only-write-batch", 0, true, IS_NOT, NO_BATCH},
    {"read-batch", 0, true, IS_NOT, NO_BATCH},
    {"protocol", 0, true, IS_NOT, "both ends are of one version"},
    {"iconv", 0, true, IS_NOT, "names are kept byte for byte"},
    {"checksum-choice", 0, true, IS_NOT, NO_CHOICE},
    {"cc", 0, true, IS_NOT, NO_CHOICE},
    {"checksum-seed", 0, true, IS_NOT, NO_CHOICE},
    {"version", 'V', false, IS_NOT, "it is weir --version that says it"},
};

#define FOREIGN_COUNT (sizeof(foreigns) / sizeof(foreigns[0]))

unsigned cp_foreign_options(struct option *ret_options, unsigned room)
{
    unsigned count = 0;
    for (size_t i = 0; i < FOREIGN_COUNT && count < room; i++) {
        ret_options[count++] = (struct option){
            .name = foreigns[i].name,
            .has_arg = foreigns[i].has_value ? required_argument : no_argument,
            .val = CP_FOREIGN_FIRST + (int)i,
        };
    }
    return count;
}

static const struct foreign *find(int option)
{
    if (option >= CP_FOREIGN_FIRST && option < CP_FOREIGN_FIRST + (int)FOREIGN_COUNT) {
        return &foreigns[option - CP_FOREIGN_FIRST];
    }
    for (size_t i = 0; i < FOREIGN_COUNT; i++) {
        if (foreigns[i].letter != 0 && foreigns[i].letter == option) {
            return &foreigns[i];
        }
    }
    return NULL;
}

bool cp_is_foreign(int option)
{
    return find(option) != NULL;
}

int cp_take_foreign(const struct command *command, int option, const char **ret_note)
{
    const struct foreign *foreign = find(option);
    char letter[8] = "";
    if (foreign->letter != 0) {
        snprintf(letter, sizeof(letter), "-%c, ", foreign->letter);
    }
    *ret_note = NULL;
    if (foreign->fate == IS_NOT) {
        return command_usage_error(command, "there is no %s--%s: %s", letter, foreign->name,
                                   foreign->text);
    }
    if (foreign->fate == NEEDS_NOT) {
        *ret_note = foreign->text;
    }
    return -1;
}
