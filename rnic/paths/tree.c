#include "rnic/paths/tree.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define PATH_ROOM   256
#define VALUE_ROOM  256
#define DEVICE_ROOM 96 /* CLASS and a name of 63 bytes */
#define CLASS       "sys/class/infiniband"
#define VERBS       "sys/class/infiniband_verbs"
#define NULL_MAJOR  1 /* the device behind ours is /dev/null */
#define NULL_MINOR  3
/* Versions of the kernel's interfaces that rdma-core speaks; nobody talks to a kernel through us.
 */
#define ABI_OF_VERBS  6
#define ABI_OF_DEVICE 1
#define ABI_OF_MAD    5
#define ABI_OF_CM     4

#define INTERFACES_MAX 128

/* libibverbs, for ibv_devinfo; no header declares them. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *ret_type);
int ibv_read_sysfs_file(const char *folder, const char *name, char *ret_text, size_t size);

void tree_begin(struct tree *tree, const char *root)
{
    memset(tree, 0, sizeof *tree);
    snprintf(tree->root, sizeof tree->root, "%s", root);
    tree->digest = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
}

static void digest(struct tree *tree, const char *text)
{
    size_t length = strlen(text) + 1; /* the end counts: "ab" "c" is not "a" "bc" */
    for (size_t i = 0; i < length; i++) {
        tree->digest = (tree->digest ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    }
}

static void fail(struct tree *tree, const char *culprit)
{
    if (tree->error == 0) {
        tree->error = errno != 0 ? errno : EIO;
        snprintf(tree->culprit, sizeof tree->culprit, "%.255s", culprit);
    }
}

/* The place of `path` on disk, its folders made. False: nothing is to be written. */
static bool prepare(struct tree *tree, const char *path, char ret_place[PATH_MAX + PATH_ROOM])
{
    digest(tree, path);
    if (tree->root[0] == 0 || tree->error != 0) {
        return false;
    }
    int length = snprintf(ret_place, PATH_MAX + PATH_ROOM, "%s/", tree->root);
    snprintf(ret_place + length, PATH_ROOM, "%s", path);
    for (char *slash = ret_place + length; (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = 0;
        if (mkdir(ret_place, 0755) != 0 && errno != EEXIST) {
            fail(tree, ret_place);
            return false;
        }
        *slash = '/';
    }
    return true;
}

static void put_text(struct tree *tree, const char *path, const char *text)
{
    char place[PATH_MAX + PATH_ROOM];
    bool wanted = prepare(tree, path, place);
    digest(tree, text);
    if (!wanted) {
        return;
    }
    int file = open(place, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    size_t length = strlen(text);
    bool written = file >= 0 && write(file, text, length) == (ssize_t)length;
    if (file >= 0 && close(file) != 0) {
        written = false;
    }
    if (!written) {
        fail(tree, place);
    }
}

/* A line, as sysfs has it: FOLDER/NAME holds the value and a newline. */
__attribute__((format(printf, 4, 5))) static void put(struct tree *tree, const char *folder,
                                                      const char *name, const char *format, ...)
{
    char path[PATH_ROOM], text[VALUE_ROOM + 1];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, VALUE_ROOM, format, arguments);
    va_end(arguments);
    strcat(text, "\n");
    put_text(tree, path, text);
}

static void put_link(struct tree *tree, const char *folder, const char *name, const char *target)
{
    char path[PATH_ROOM], place[PATH_MAX + PATH_ROOM];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    bool wanted = prepare(tree, path, place);
    digest(tree, target);
    if (wanted && symlink(target, place) != 0) {
        fail(tree, place);
    }
}

static void put_folder(struct tree *tree, const char *folder)
{
    char path[PATH_ROOM], place[PATH_MAX + PATH_ROOM];
    snprintf(path, sizeof path, "%.250s/", folder);
    prepare(tree, path, place);
}

/* A GUID or GID in groups of 16 bits; `size` in bytes. */
static const char *groups(const uint8_t *bytes, size_t size, char ret_text[40])
{
    char *end = ret_text;
    for (size_t i = 0; i < size; i += 2) {
        end += sprintf(end, "%s%02x%02x", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
    }
    return ret_text;
}

/* The speeds of InfiniBand by their number in the port's attributes [IBA 14.2.5.6]. */
static void put_rate(struct tree *tree, const char *folder, const struct ibv_port_attr *port)
{
    static const struct {
        unsigned speed, tenths_of_gbps;
        const char *name;
    } speeds[] = {{1, 25, "SDR"},   {2, 50, "DDR"},   {4, 100, "QDR"},  {8, 100, "FDR10"},
                  {16, 140, "FDR"}, {32, 250, "EDR"}, {64, 500, "HDR"}, {128, 1000, "NDR"}};
    static const struct {
        unsigned width, lanes;
    } widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
    unsigned lanes = 1, speed = 0;
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        lanes = widths[i].width == port->active_width ? widths[i].lanes : lanes;
    }
    for (size_t i = 0; i < sizeof speeds / sizeof speeds[0]; i++) {
        speed = speeds[i].speed == port->active_speed ? (unsigned)i : speed;
    }
    unsigned tenths = speeds[speed].tenths_of_gbps * lanes;
    put(tree, folder, "rate", tenths % 10 == 0 ? "%u Gb/sec (%uX %s)" : "%u.5 Gb/sec (%uX %s)",
        tenths / 10, lanes, speeds[speed].name);
}

static const char *state_name(enum ibv_port_state state)
{
    static const char *const names[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
    return (unsigned)state < sizeof names / sizeof names[0] ? names[state] : "<unknown>";
}

static const char *physical_name(unsigned state)
{
    static const char *const names[] = {"<unknown>",
                                        "Sleep",
                                        "Polling",
                                        "Disabled",
                                        "PortConfigurationTraining",
                                        "LinkUp",
                                        "LinkErrorRecovery",
                                        "Phy Test"};
    return state < sizeof names / sizeof names[0] ? names[state] : names[0];
}

static void put_port_state(struct tree *tree, const char *folder, const struct ibv_port_attr *port)
{
    put(tree, folder, "state", "%u: %s", port->state, state_name(port->state));
    put(tree, folder, "phys_state", "%u: %s", port->phys_state, physical_name(port->phys_state));
    put(tree, folder, "lid", "0x%x", port->lid);
    put(tree, folder, "lid_mask_count", "%u", port->lmc);
    put(tree, folder, "sm_lid", "0x%x", port->sm_lid);
    put(tree, folder, "sm_sl", "%u", port->sm_sl);
    put(tree, folder, "cap_mask", "0x%08x", port->port_cap_flags);
    put(tree, folder, "link_layer", "%s",
        port->link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
    put_rate(tree, folder, port);
}

/* The interfaces whose addresses are a device's GIDs. */
struct interfaces {
    unsigned index[INTERFACES_MAX];
    unsigned count;
};

static void remember(struct interfaces *interfaces, unsigned index)
{
    for (unsigned i = 0; i < interfaces->count; i++) {
        if (interfaces->index[i] == index) {
            return;
        }
    }
    if (index != 0 && interfaces->count < INTERFACES_MAX) {
        interfaces->index[interfaces->count++] = index;
    }
}

/* A place of the table that is empty has a GID of zeros and, as in the kernel's sysfs, neither type
 * nor interface that could be read. */
static void put_gid(struct tree *tree, const char *folder, struct ibv_context *context,
                    uint32_t port, uint32_t index, struct interfaces *interfaces)
{
    char name[64], text[40], interface[IF_NAMESIZE];
    union ibv_gid gid;
    struct ibv_gid_entry entry;
    int type;
    if (ibv_query_gid(context, (uint8_t)port, (int)index, &gid) != 0) {
        return;
    }
    snprintf(name, sizeof name, "gids/%u", index);
    put(tree, folder, name, "%s", groups(gid.raw, sizeof gid.raw, text));
    if (ibv_query_gid_ex(context, port, index, &entry, 0) != 0 ||
        ibv_query_gid_type(context, (uint8_t)port, index, &type) != 0) {
        return;
    }
    snprintf(name, sizeof name, "gid_attrs/types/%u", index);
    put(tree, folder, name, "%s", type != 0 ? "RoCE v2" : "IB/RoCE v1");
    if (if_indextoname(entry.ndev_ifindex, interface) != NULL) {
        remember(interfaces, entry.ndev_ifindex);
        snprintf(name, sizeof name, "gid_attrs/ndevs/%u", index);
        put(tree, folder, name, "%s", interface);
    }
}

static void put_port(struct tree *tree, const char *device, struct ibv_context *context,
                     uint32_t number, struct interfaces *interfaces)
{
    char folder[PATH_ROOM], name[64];
    struct ibv_port_attr port;
    errno = ibv_query_port(context, (uint8_t)number, &port);
    if (errno != 0) {
        fail(tree, device);
        return;
    }
    snprintf(folder, sizeof folder, "%s/ports/%u", device, number);
    put_port_state(tree, folder, &port);
    for (uint32_t i = 0; i < (uint32_t)port.gid_tbl_len; i++) {
        put_gid(tree, folder, context, number, i, interfaces);
    }
    for (int i = 0; i < port.pkey_tbl_len; i++) {
        __be16 key;
        if (ibv_query_pkey(context, (uint8_t)number, i, &key) == 0) {
            snprintf(name, sizeof name, "pkeys/%d", i);
            put(tree, folder, name, "0x%04x", be16toh(key));
        }
    }
}

static bool is_loopback(const char *interface)
{
    struct ifreq request = {.ifr_flags = 0};
    int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    bool loops = descriptor >= 0 && ioctl(descriptor, SIOCGIFFLAGS, &request) == 0 &&
                 (request.ifr_flags & IFF_LOOPBACK) != 0;
    if (descriptor >= 0) {
        close(descriptor);
    }
    return loops;
}

/* device/net: whose first entry programs take for the way to the device; so loopback is there only
 * when nothing else is. */
static void put_interfaces(struct tree *tree, const char *device,
                           const struct interfaces *interfaces)
{
    char folder[PATH_ROOM], name[IF_NAMESIZE], target[64];
    snprintf(folder, sizeof folder, "%s/device/net", device);
    put_folder(tree, folder);
    unsigned put_count = 0;
    for (int loopbacks = 0; loopbacks <= 1 && put_count == 0; loopbacks++) {
        for (unsigned i = 0; i < interfaces->count; i++) {
            if (if_indextoname(interfaces->index[i], name) != NULL &&
                is_loopback(name) == (loopbacks == 1)) {
                snprintf(target, sizeof target, "/sys/class/net/%s", name);
                put_link(tree, folder, name, target);
                put_count++;
            }
        }
    }
}

static void put_attributes(struct tree *tree, const char *folder, struct ibv_device *device,
                           const struct ibv_device_attr *attributes)
{
    char text[40], board[64] = "";
    put(tree, folder, "node_type", "%d: CA", device->node_type);
    put(tree, folder, "node_desc", "%s", device->name);
    put(tree, folder, "node_guid", "%s", groups((const uint8_t *)&attributes->node_guid, 8, text));
    put(tree, folder, "sys_image_guid", "%s",
        groups((const uint8_t *)&attributes->sys_image_guid, 8, text));
    put(tree, folder, "fw_ver", "%s", attributes->fw_ver);
    put(tree, folder, "hw_rev", "%x", attributes->hw_ver);
    if (ibv_read_sysfs_file(device->ibdev_path, "board_id", board, sizeof board) > 0) {
        put(tree, folder, "board_id", "%s", board);
        put(tree, folder, "hca_type", "%s", board);
    }
    put(tree, folder, "device/numa_node", "-1"); /* near none in particular */
    /* A link to nowhere, as its reader wants the last word of its text only. */
    put_link(tree, folder, "device/driver", "../../../../bus/weir/drivers/weir");
}

static void put_character_device(struct tree *tree, struct ibv_device *device)
{
    char folder[PATH_ROOM], target[PATH_ROOM];
    snprintf(folder, sizeof folder, VERBS "/%s", device->dev_name);
    put(tree, folder, "ibdev", "%s", device->name);
    put(tree, folder, "dev", "%d:%d", NULL_MAJOR, NULL_MINOR);
    put(tree, folder, "abi_version", "%d", ABI_OF_DEVICE);
    snprintf(target, sizeof target, "../../infiniband/%s/device", device->name);
    put_link(tree, folder, "device", target);
    put_link(tree, "dev/infiniband", device->dev_name, "/dev/null");
}

static void put_device(struct tree *tree, struct ibv_device *device)
{
    char folder[DEVICE_ROOM];
    struct interfaces interfaces = {.count = 0};
    struct ibv_device_attr attributes;
    errno = 0;
    struct ibv_context *context = ibv_open_device(device);
    if (context == NULL) {
        fail(tree, device->name);
        return;
    }
    snprintf(folder, sizeof folder, CLASS "/%s", device->name);
    errno = ibv_query_device(context, &attributes);
    if (errno != 0) {
        fail(tree, device->name);
    } else {
        put_attributes(tree, folder, device, &attributes);
        for (uint32_t port = 1; port <= attributes.phys_port_cnt; port++) {
            put_port(tree, folder, context, port, &interfaces);
        }
        put_interfaces(tree, folder, &interfaces);
        put_character_device(tree, device);
    }
    ibv_close_device(context);
}

bool tree_describe(struct tree *tree)
{
    errno = 0;
    struct ibv_device **devices = ibv_get_device_list(NULL);
    if (devices == NULL) {
        fail(tree, "the list of devices");
        return false;
    }
    put_folder(tree, CLASS);
    put(tree, VERBS, "abi_version", "%d", ABI_OF_VERBS);
    put(tree, "sys/class/infiniband_mad", "abi_version", "%d", ABI_OF_MAD);
    put(tree, "sys/class/misc/rdma_cm", "abi_version", "%d", ABI_OF_CM);
    put_link(tree, "dev/infiniband", "rdma_cm", "/dev/null");
    for (int i = 0; devices[i] != NULL; i++) {
        put_device(tree, devices[i]);
    }
    ibv_free_device_list(devices);
    return tree->error == 0;
}
