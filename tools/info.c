/* weir info: which device a transfer would use, and why. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tools/command.h"
#include "tools/output.h"
#include "tools/progress.h"

#define GIDS_MAX 16

const char info_usage[] =
    "usage: weir info [OPTION...]\n"
    "\n"
    "Says which RDMA device 'weir cp' and 'weir serve' would use, why, and what it is like.\n"
    "\n"
    "      --json         the same as one JSON object\n"
    "      --fabric KIND  auto: the machine's RDMA device, else the software RNIC (default);\n"
    "                     rdma: a device or nothing; soft: the software RNIC\n"
    "  -h, --help         print this text\n"
    "\n"
    "Exit status: 0, 2 usage, 6 there is no such device (it says why).\n";

/* What the verbs library says of the device. */
struct port_facts {
    bool known;
    struct ibv_port_attr port;
    unsigned gid_count;
    char gids[GIDS_MAX][INET6_ADDRSTRLEN];
    unsigned gid_indexes[GIDS_MAX];
};

/* The library is asked for by name: it was chosen at run time, so nothing is linked against. */
struct verbs {
    struct ibv_device **(*get_device_list)(int *);
    void (*free_device_list)(struct ibv_device **);
    const char *(*get_device_name)(struct ibv_device *);
    struct ibv_context *(*open_device)(struct ibv_device *);
    int (*close_device)(struct ibv_context *);
    int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
    int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
};

static bool load_verbs(const char *library, struct verbs *ret_verbs)
{
    struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"ibv_get_device_list", &ret_verbs->get_device_list},
        {"ibv_free_device_list", &ret_verbs->free_device_list},
        {"ibv_get_device_name", &ret_verbs->get_device_name},
        {"ibv_open_device", &ret_verbs->open_device},
        {"ibv_close_device", &ret_verbs->close_device},
        {"ibv_query_port", &ret_verbs->query_port},
        {"ibv_query_gid", &ret_verbs->query_gid},
    };
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; handle != NULL && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(handle, symbols[i].name);
        if (symbol == NULL) {
            return false;
        }
        memcpy(symbols[i].to, &symbol, sizeof(symbol));
    }
    return handle != NULL;
}

/* An IPv4-mapped GID is shown as the address it holds. */
static void gid_text(const union ibv_gid *gid, char ret_text[INET6_ADDRSTRLEN])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (memcmp(gid->raw, mapped, sizeof(mapped)) == 0) {
        inet_ntop(AF_INET, gid->raw + 12, ret_text, INET6_ADDRSTRLEN);
    } else {
        inet_ntop(AF_INET6, gid->raw, ret_text, INET6_ADDRSTRLEN);
    }
}

static void ask_port(const struct verbs *verbs, struct ibv_context *context,
                     struct port_facts *ret_facts)
{
    static const union ibv_gid none;
    if (verbs->query_port(context, 1, &ret_facts->port) != 0) {
        return;
    }
    ret_facts->known = true;
    for (int i = 0; i < ret_facts->port.gid_tbl_len && ret_facts->gid_count < GIDS_MAX; i++) {
        union ibv_gid gid;
        if (verbs->query_gid(context, 1, i, &gid) == 0 && memcmp(&gid, &none, sizeof(gid)) != 0) {
            ret_facts->gid_indexes[ret_facts->gid_count] = (unsigned)i;
            gid_text(&gid, ret_facts->gids[ret_facts->gid_count++]);
        }
    }
}

static void ask_device(const struct weir_fabric *fabric, struct port_facts *ret_facts)
{
    struct verbs verbs;
    int count = 0;
    if (!load_verbs(weir_fabric_library(fabric), &verbs)) {
        return;
    }
    struct ibv_device **list = verbs.get_device_list(&count);
    for (int i = 0; list != NULL && i < count; i++) {
        if (strcmp(verbs.get_device_name(list[i]), weir_fabric_device(fabric)) != 0) {
            continue;
        }
        struct ibv_context *context = verbs.open_device(list[i]);
        if (context != NULL) {
            ask_port(&verbs, context, ret_facts);
            verbs.close_device(context);
        }
        break;
    }
    if (list != NULL) {
        verbs.free_device_list(list);
    }
}

static unsigned mtu_bytes(enum ibv_mtu mtu)
{
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

static const char *state_name(enum ibv_port_state state)
{
    static const char *const names[] = {"no change", "down",   "initializing",
                                        "armed",     "active", "active, deferred"};
    return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

/* -1: no limit. */
static long long memlock_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY
               ? -1
               : (long long)limit.rlim_cur;
}

static void print_json(const struct weir_fabric *fabric, const struct port_facts *facts)
{
    bool soft = weir_fabric_kind(fabric) == WEIR_FABRIC_SOFT;
    long long memlock = memlock_limit();
    json_t *gids = json_array();
    for (unsigned i = 0; i < facts->gid_count; i++) {
        json_array_append_new(gids, json_pack("{s:i, s:s}", "index", (int)facts->gid_indexes[i],
                                              "gid", facts->gids[i]));
    }
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "version", WEIR_VERSION, "device",
                  weir_fabric_device(fabric), "fabric", soft ? "soft" : "rdma", "reason",
                  weir_fabric_reason(fabric), "library", weir_fabric_library(fabric));
    if (facts->known) {
        json_object_set_new(object, "port_state", json_string(state_name(facts->port.state)));
        json_object_set_new(object, "mtu", json_integer(mtu_bytes(facts->port.active_mtu)));
        json_object_set_new(object, "mtu_max", json_integer(mtu_bytes(facts->port.max_mtu)));
    }
    json_object_set_new(object, "gids", gids);
    json_object_set_new(object, "memlock_bytes",
                        memlock >= 0 ? json_integer(memlock) : json_null());
    output_json(object);
}

static void print_text(const struct weir_fabric *fabric, const struct port_facts *facts)
{
    bool soft = weir_fabric_kind(fabric) == WEIR_FABRIC_SOFT;
    char size[PROGRESS_TEXT] = "no limit";
    long long memlock = memlock_limit();
    printf("device    %s (%s)\n", weir_fabric_device(fabric),
           soft ? "Weir's software RNIC" : "RDMA device of this machine");
    printf("reason    %s\n", weir_fabric_reason(fabric));
    printf("library   %s\n", weir_fabric_library(fabric));
    if (facts->known) {
        printf("port      %s, MTU %u (at most %u)\n", state_name(facts->port.state),
               mtu_bytes(facts->port.active_mtu), mtu_bytes(facts->port.max_mtu));
    } else {
        printf("port      the library does not tell\n");
    }
    for (unsigned i = 0; i < facts->gid_count; i++) {
        printf("GID %-5u %s\n", facts->gid_indexes[i], facts->gids[i]);
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
    for (int option; (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        if (option == 'h') {
            fputs(info_usage, stdout);
            return EXIT_DONE;
        }
        if (option == OPTION_JSON) {
            json = true;
        } else if (option == OPTION_FABRIC && !fabric_kind_parse(optarg, &options.kind)) {
            return command_usage_error(command, "--fabric takes auto, rdma or soft, not '%s'",
                                       optarg);
        } else if (option != OPTION_FABRIC) {
            return command_usage_hint(command);
        }
    }
    if (optind < argc) {
        return command_usage_error(command, "'%s' is one argument too many", argv[optind]);
    }
    struct weir_fabric *fabric;
    struct weir_error error;
    struct port_facts facts = {0};
    if (weir_fabric_open(&options, &fabric, &error) != WEIR_OK) {
        command_error(command, "%s", error.message);
        return EXIT_SETUP;
    }
    ask_device(fabric, &facts);
    if (json) {
        print_json(fabric, &facts);
    } else {
        print_text(fabric, &facts);
    }
    weir_fabric_close(fabric);
    return EXIT_DONE;
}
