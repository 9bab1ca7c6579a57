#include "tools/run_report.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define LINE 256

/* The first line of FOLDER/NAME; "" where it cannot be read. */
static void read_value(const char *folder, const char *name, char ret_line[LINE])
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(ret_line, LINE, file) == NULL) {
        ret_line[0] = 0;
    }
    ret_line[strcspn(ret_line, "\n")] = 0;
    if (file != NULL) {
        fclose(file);
    }
}

static int is_name(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Numbers by their value. */
static int by_number(const struct dirent **left, const struct dirent **right)
{
    return atoi((*left)->d_name) - atoi((*right)->d_name);
}

void run_report_hidden(FILE *stream)
{
    struct dirent **entries;
    int count = scandir("/sys/class/infiniband", &entries, is_name, alphasort);
    for (int i = 0; i < count; i++) {
        fprintf(stream, "weir run: hidden: %s, an RDMA device of this machine\n",
                entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
}

/* "::ffff:10.0.0.1" as the address that it is. False: an empty place. */
static bool address_text(const char *gid, char ret_text[INET6_ADDRSTRLEN])
{
    static const struct in6_addr none;
    struct in6_addr address;
    if (inet_pton(AF_INET6, gid, &address) != 1 || memcmp(&address, &none, sizeof(none)) == 0) {
        return false;
    }
    if (IN6_IS_ADDR_V4MAPPED(&address)) {
        return inet_ntop(AF_INET, &address.s6_addr[12], ret_text, INET6_ADDRSTRLEN) != NULL;
    }
    return inet_ntop(AF_INET6, &address, ret_text, INET6_ADDRSTRLEN) != NULL;
}

static void report_addresses(FILE *stream, const char *port)
{
    char folder[PATH_MAX + 8], name[300], gid[LINE], interface[LINE], text[INET6_ADDRSTRLEN];
    struct dirent **entries;
    snprintf(folder, sizeof(folder), "%s/gids", port);
    int count = scandir(folder, &entries, is_name, by_number);
    for (int i = 0; i < count; i++) {
        read_value(folder, entries[i]->d_name, gid);
        snprintf(name, sizeof(name), "gid_attrs/ndevs/%s", entries[i]->d_name);
        read_value(port, name, interface);
        if (address_text(gid, text)) {
            fprintf(stream, "weir run:   GID %s is %s, on %s\n", entries[i]->d_name, text,
                    interface[0] != 0 ? interface : "no interface");
        }
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
}

static void report_device(FILE *stream, const char *folder, const char *name)
{
    char ports[PATH_MAX], port[PATH_MAX], layer[LINE], state[LINE], rate[LINE];
    struct dirent **entries;
    if (snprintf(ports, sizeof(ports), "%s/%s/ports", folder, name) >= (int)sizeof(ports)) {
        return;
    }
    int count = scandir(ports, &entries, is_name, by_number);
    for (int i = 0; i < count; i++) {
        if (snprintf(port, sizeof(port), "%s/%s", ports, entries[i]->d_name) < (int)sizeof(port)) {
            read_value(port, "link_layer", layer);
            read_value(port, "state", state);
            read_value(port, "rate", rate);
            fprintf(stream, "weir run: device: %s port %s, %s, %s, nominally %s\n", name,
                    entries[i]->d_name, layer, state, rate);
            report_addresses(stream, port);
        }
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
}

static void report_devices(FILE *stream, const char *tree)
{
    char folder[PATH_MAX];
    struct dirent **entries;
    snprintf(folder, sizeof(folder), "%.*s/sys/class/infiniband", PATH_MAX - 64, tree);
    int count = scandir(folder, &entries, is_name, versionsort);
    for (int i = 0; i < count; i++) {
        report_device(stream, folder, entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
}

void run_report(FILE *stream, const char *folder, const char *tree, bool in_namespace)
{
    fprintf(stream, "weir run: libraries: %s, %s\n", folder,
            getenv("WEIR_LIBRARY_DIR") != NULL ? "named by WEIR_LIBRARY_DIR"
                                               : "found from the command's own place");
    fprintf(stream, "weir run: LD_PRELOAD=%s\n", getenv("LD_PRELOAD"));
    if (tree[0] == 0) {
        fprintf(stream, "weir run: /sys and /dev: not touched (--no-paths)\n");
        return;
    }
    fprintf(stream, "weir run: /sys/class/infiniband..., /dev/infiniband: from %s, %s\n", tree,
            in_namespace ? "mounted for this program alone" : "by libweir-paths.so");
    report_devices(stream, tree);
}
