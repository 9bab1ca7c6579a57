/* weir info: which device a transfer would use, and why. */
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tools/command.h"
#include "tools/output.h"
#include "tools/printable.h"
#include "tools/progress.h"

const char info_usage[] =
    "usage: weir info [OPTION...]\n"
    "\n"
    "Says which RDMA device 'weir cp' and 'weir serve' would use, why, and what it is\n"
    "like.\n"
    "\n"
    "      --json         the same as one JSON object\n"
    "      --fabric KIND  auto: the machine's RDMA device, else the software RNIC\n"
    "                     (default); rdma: a device or nothing; soft: the software\n"
    "                     RNIC\n"
    "  -h, --help         print this text\n"
    "\n"
    "Exit status: 0, 2 usage, 6 there is no such device (it says why).\n";

/* -1: no limit. */
static long long memlock_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY
               ? -1
               : (long long)limit.rlim_cur;
}

static void print_json(const struct weir_fabric *fabric, const struct weir_fabric_facts *facts)
{
    bool soft = weir_fabric_kind(fabric) == WEIR_FABRIC_SOFT;
    long long memlock = memlock_limit();
    json_t *gids = json_array();
    for (unsigned i = 0; i < facts->gid_count; i++) {
        char gid[WEIR_GID_LENGTH];
        if (weir_fabric_gid(fabric, i, gid)) {
            json_array_append_new(gids, json_pack("{s:i, s:s}", "index", (int)i, "gid", gid));
        }
    }
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:o}", "version", WEIR_VERSION, "device",
                  weir_fabric_device(fabric), "fabric", soft ? "soft" : "rdma", "reason",
                  fabric_reason(fabric), "port", (int)facts->port, "mtu", (int)facts->mtu_length,
                  "mtu_max", (int)facts->mtu_length_max, "gids", gids);
    const char *library = weir_fabric_library(fabric);
    output_json_bytes(object, "library", (struct span){library, strlen(library)});
    const char *same_host = weir_fabric_same_host(fabric);
    if (same_host != NULL) {
        json_object_set_new(object, "same_host", json_string(same_host));
    }
    json_object_set_new(object, "memlock_bytes",
                        memlock >= 0 ? json_integer(memlock) : json_null());
    output_json(object);
}

static void print_text(const struct weir_fabric *fabric, const struct weir_fabric_facts *facts)
{
    bool soft = weir_fabric_kind(fabric) == WEIR_FABRIC_SOFT;
    char size[PROGRESS_TEXT] = "no limit", path[4 * PATH_MAX];
    const char *library = weir_fabric_library(fabric);
    long long memlock = memlock_limit();
    printf("device    %s (%s)\n", weir_fabric_device(fabric),
           soft ? "Weir's software RNIC" : "RDMA device of this machine");
    printf("reason    %s\n", fabric_reason(fabric));
    printable(library, strlen(library), path, sizeof(path));
    printf("library   %s\n", path);
    if (weir_fabric_same_host(fabric) != NULL) {
        printf("same host %s\n", weir_fabric_same_host(fabric));
    }
    printf("port      %u, MTU %u (at most %u)\n", facts->port, facts->mtu_length,
           facts->mtu_length_max);
    for (unsigned i = 0; i < facts->gid_count; i++) {
        char gid[WEIR_GID_LENGTH];
        if (weir_fabric_gid(fabric, i, gid)) {
            printf("GID %-5u %s\n", i, gid);
        }
    }
    if (memlock >= 0) {
        progress_size((uint64_t)memlock, size);
    }
    printf("memlock   %s%s\n", size,
           soft ? " (the software RNIC pins nothing)"
           : memlock >= 0 && memlock < 64 << 20
               ? " (small: raise it with 'ulimit -l' or limits.conf if memory cannot be registered)"
               : "");
    printf("version   weir %s\n", WEIR_VERSION);
}

int command_info(const struct command *command, int argc, char **argv)
{
    enum {
        OPTION_JSON = 256,
        OPTION_FABRIC
    };
    static const struct option long_options[] = {
        {"json", no_argument, NULL, OPTION_JSON},
        {"fabric", required_argument, NULL, OPTION_FABRIC},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct weir_fabric_options options = {.kind = WEIR_FABRIC_AUTO};
    bool json = false;
    for (int option; (option = command_option(command, argc, argv, "h", long_options)) != -1;) {
        if (option == 'h') {
            fputs(info_usage, stdout);
            return EXIT_DONE;
        }
        if (option == OPTION_JSON) {
            json = true;
        } else if (option == OPTION_FABRIC && !fabric_kind_take(command, optarg, &options.kind)) {
            return EXIT_USAGE;
        } else if (option != OPTION_FABRIC) {
            return command_usage_hint(command);
        }
    }
    if (optind < argc) {
        return command_usage_error(command, "'%s' is one argument too many", argv[optind]);
    }
    struct weir_fabric *fabric;
    struct weir_error error;
    struct weir_fabric_facts facts;
    if (fabric_open(&options, &fabric, &error) != WEIR_OK) {
        command_error(command, "%s", error.message);
        return EXIT_SETUP;
    }
    weir_fabric_facts(fabric, &facts);
    if (json) {
        print_json(fabric, &facts);
    } else {
        print_text(fabric, &facts);
    }
    weir_fabric_close(fabric);
    return EXIT_DONE;
}
