/* What an end says of itself. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tools/bench/ends.h"
#include "tools/printable.h"

/* The value of the first line of `path` that begins with `key`, or "". */
static void find_line(const char *path, const char *key, char *ret_value, size_t length)
{
    FILE *file = fopen(path, "re");
    char line[512];
    ret_value[0] = '\0';
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) == 0 && colon != NULL) {
            snprintf(ret_value, length, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

static json_t *describe_machine(void)
{
    struct utsname name;
    char processor[256], boot[64] = "", load[64] = "";
    uname(&name);
    find_line("/proc/cpuinfo", "model name", processor, sizeof(processor));
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL) {
        if (fgets(boot, sizeof(boot), file) != NULL) {
            boot[strcspn(boot, "\n")] = '\0';
        }
        fclose(file);
    }
    file = fopen("/proc/loadavg", "re");
    if (file != NULL) {
        if (fgets(load, sizeof(load), file) != NULL) {
            load[strcspn(load, " \n")] = '\0';
        }
        fclose(file);
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s}", "name", name.nodename, "system",
                     name.sysname, "kernel", name.release, "processor",
                     processor[0] != '\0' ? processor : name.machine, "processors",
                     (int)sysconf(_SC_NPROCESSORS_ONLN), "boot", boot, "load_at_start", load);
}

json_t *ends_describe(const struct weir_fabric *fabric)
{
    struct weir_fabric_facts facts;
    weir_fabric_facts(fabric, &facts);
    bool is_soft = weir_fabric_kind(fabric) == WEIR_FABRIC_SOFT;
    const char *library = weir_fabric_library(fabric);
    const char *why = weir_fabric_reason(fabric);
    char path[PATH_MAX], reason[1024];
    printable(library, strlen(library), path, sizeof(path));
    printable(why, strlen(why), reason, sizeof(reason));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:o}", "version", WEIR_VERSION, "device",
                     weir_fabric_device(fabric), "fabric", is_soft ? "soft" : "rdma", "reason",
                     reason, "library", path, "port", (int)facts.port, "mtu", (int)facts.mtu_length,
                     "machine", describe_machine());
}
