#include "rnic/paths/redirect.h"

#include <string.h>

#define DEVICES "/dev/infiniband"
#define CLASS   "/sys/class/infiniband" /* and infiniband_verbs */
#define UP      "/../.."
#define DEVICE  "/device"

/* Where the part begins that lies within the tree for good: 0 if the path is not ours. */
static size_t prefix_length(const char *path)
{
    static const char *const classes[] = {CLASS, "/sys/class/misc/rdma_cm"};
    if (path[0] != '/' || (path[1] != 's' && path[1] != 'd')) {
        return 0;
    }
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        size_t length = strlen(classes[i]);
        if (strncmp(path, classes[i], length) == 0) {
            return length + strcspn(path + length, "/"); /* infiniband_verbs, too */
        }
    }
    size_t length = strlen(DEVICES);
    bool whole = strncmp(path, DEVICES, length) == 0 && (path[length] == '/' || path[length] == 0);
    return whole ? length : 0;
}

/* "/sys/class/infiniband/../net" leads elsewhere. */
static bool leaves(const char *rest)
{
    int depth = 0;
    while (*rest != 0) {
        rest += strspn(rest, "/");
        size_t length = strcspn(rest, "/");
        if (length == 2 && rest[0] == '.' && rest[1] == '.') {
            depth--;
        } else if (length != 0 && !(length == 1 && rest[0] == '.')) {
            depth++;
        }
        if (depth < 0) {
            return true;
        }
        rest += length;
    }
    return false;
}

/* In sysfs /sys/class/infiniband/NAME is a link to PARENT/infiniband/NAME, and programs go up it to
 * the adapter: NAME/../.. is PARENT, as NAME/device is. The length of the path to NAME; 0: it does
 * not go on so. */
static size_t climbs_from(const char *path, size_t prefix)
{
    if (strncmp(path, CLASS, strlen(CLASS)) != 0 || path[prefix] != '/') {
        return 0;
    }
    size_t name = strcspn(path + prefix + 1, "/"), end = prefix + 1 + name;
    bool up = strncmp(path + end, UP, strlen(UP)) == 0;
    char next = up ? path[end + strlen(UP)] : 'x';
    return name != 0 && path[prefix + 1] != '.' && (next == 0 || next == '/') ? end : 0;
}

const char *redirect(const char *root, const char *path, char ret_room[REDIRECT_ROOM])
{
    size_t prefix = path != NULL && root[0] != 0 ? prefix_length(path) : 0;
    if (prefix == 0) {
        return path;
    }
    size_t name = climbs_from(path, prefix), kept = name != 0 ? name : prefix;
    const char *device = name != 0 ? DEVICE : "",
               *rest = path + kept + (name != 0 ? strlen(UP) : 0);
    if (leaves(rest) || strlen(root) + kept + strlen(device) + strlen(rest) >= REDIRECT_ROOM) {
        return path;
    }
    char *end = stpcpy(ret_room, root);
    memcpy(end, path, kept);
    strcpy(stpcpy(end + kept, device), rest);
    return ret_room;
}

void redirect_undo(const char *root, char *path)
{
    size_t length = strlen(root);
    if (length != 0 && strncmp(path, root, length) == 0 && prefix_length(path + length) != 0) {
        memmove(path, path + length, strlen(path + length) + 1);
    }
}

bool redirect_is_device(const char *path)
{
    size_t length = strlen(DEVICES);
    return path != NULL && strncmp(path, DEVICES "/", length + 1) == 0 && path[length + 1] != 0;
}
