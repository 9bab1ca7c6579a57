#include "rnic/verbs/devices.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/io/udp/address.h"
#include "rnic/verbs/gid_table.h"
#include "rnic/verbs/objects.h"

/* Static, so that pointers stay comparable and valid after a list is freed. */
static struct soft_device devices[DEVICES_MAX];
static uint32_t count;
static bool infiniband;
static char *text; /* a copy of WEIR_DEVICES, cut into its parts; tables keep pointers into it */

/* NULL: there are too many. */
static struct soft_device *find_or_add(const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(devices[i].ibv.name, name) == 0) {
            return &devices[i];
        }
    }
    if (count == DEVICES_MAX) {
        return NULL;
    }
    struct soft_device *device = &devices[count];
    struct ibv_device *ibv = &device->ibv;
    ibv->node_type = IBV_NODE_CA;
    ibv->transport_type = IBV_TRANSPORT_IB;
    snprintf(ibv->name, sizeof ibv->name, "%s", name);
    snprintf(ibv->dev_name, sizeof ibv->dev_name, "uverbs%u", count);
    snprintf(ibv->dev_path, sizeof ibv->dev_path, "/sys/class/infiniband_verbs/uverbs%u", count);
    snprintf(ibv->ibdev_path, sizeof ibv->ibdev_path, "/sys/class/infiniband/%s", name);
    device->index = count++;
    return device;
}

static bool add_port(const char *name, uint32_t port, const char *places)
{
    struct soft_device *device = find_or_add(name);
    if (device == NULL || port != device->port_count + 1 || port > PORTS_MAX) {
        return false;
    }
    device->gids[device->port_count] = gid_table_create(places, infiniband);
    return device->gids[device->port_count++] != NULL;
}

static bool add_count(uint32_t wanted)
{
    char name[16];
    for (uint32_t i = 0; i < wanted; i++) {
        snprintf(name, sizeof name, "weir%u", i);
        if (!add_port(name, 1, NULL)) {
            return false;
        }
    }
    return wanted > 0;
}

static bool add_list(char *list)
{
    struct device_words words;
    while (list != NULL) {
        if (!devices_text_next(&list, &words) || !add_port(words.name, words.port, words.places)) {
            return false;
        }
    }
    return true;
}

static void read_environment(void)
{
    const char *link_layer = secure_getenv("WEIR_LINK_LAYER");
    infiniband = link_layer != NULL && strcmp(link_layer, "infiniband") == 0;
    if (link_layer != NULL && link_layer[0] != '\0' && !infiniband &&
        strcmp(link_layer, "ethernet") != 0) {
        fprintf(stderr,
                "weir: WEIR_LINK_LAYER is \"%s\", which is neither \"ethernet\" nor "
                "\"infiniband\": no devices\n",
                link_layer);
        return;
    }
    const char *wanted = secure_getenv("WEIR_DEVICES");
    if (wanted == NULL || wanted[0] == '\0') {
        wanted = "1";
    }
    bool is_number = isdigit((unsigned char)wanted[0]) != 0;
    text = is_number ? NULL : strdup(wanted);
    bool read = is_number ? add_count(devices_text_number(wanted, DEVICES_MAX))
                          : text != NULL && add_list(text);
    if (!read) {
        count = 0;
        free(text); /* whatever pointed into it is beyond the count */
        fprintf(stderr,
                "weir: WEIR_DEVICES is \"%s\", which is neither a number from 1 to %u nor a list "
                "like \"weir0=eth0,weir1=10.0.0.1\" or \"weir0:1=eth0,weir0:2=eth1\": no devices\n",
                wanted, DEVICES_MAX);
    }
}

uint32_t devices_count(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    return count;
}

struct soft_device *devices_get(uint32_t index)
{
    return &devices[index];
}

struct gid_table *devices_gids(struct ibv_device *ibv, uint32_t port)
{
    struct soft_device *device = (struct soft_device *)ibv;
    return port >= 1 && port <= device->port_count ? device->gids[port - 1] : NULL;
}

void devices_refresh(struct ibv_device *ibv)
{
    struct soft_device *device = (struct soft_device *)ibv;
    for (uint32_t port = 0; port < device->port_count; port++) {
        gid_table_refresh(device->gids[port]);
    }
}

bool devices_are_infiniband(void)
{
    return infiniband;
}

bool devices_find(const struct gid *gid, struct device_place *ret_place)
{
    uint32_t index;
    for (uint32_t i = 0; i < devices_count(); i++) {
        for (uint32_t port = 0; port < devices[i].port_count; port++) {
            if (gid_table_find(devices[i].gids[port], gid, &index)) {
                *ret_place = (struct device_place){i, (uint8_t)(port + 1), index};
                return true;
            }
        }
    }
    return false;
}
