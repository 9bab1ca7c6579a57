#include "rnic/io/udp/port_holder.h"

#include <dirent.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_ROOM 32u

struct holder {
    uint32_t user;
    uint64_t inode; /* of the socket */
    long process;   /* 0: not to be seen */
    char program[NAME_ROOM];
};

/* A socket of the port, by preference of another user or of ours. */
static bool find_socket(const char *table, uint16_t port, bool ours, struct holder *ret_holder)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(table, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned local_port, user;
        uint64_t inode;
        /* number: local:port remote:port state queues timer retransmissions user timeout inode */
        if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*s %*s %*s %*s %*s %u %*s %" SCNu64, &local_port,
                   &user, &inode) == 3 &&
            local_port == port && (!found || (user == geteuid()) == ours)) {
            *ret_holder = (struct holder){.user = user, .inode = inode};
            found = true;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static bool is_ours(const char *table, uint16_t port)
{
    struct holder holder;
    return find_socket(table, port, true, &holder) && holder.user == geteuid();
}

bool port_holder_is_ours(uint16_t port)
{
    return is_ours("/proc/thread-self/net/udp", port) ||
           is_ours("/proc/thread-self/net/udp6", port);
}

/* One line of the table: what its socket is bound to. */
static bool read_line(FILE *table, char ret_bound[64], uint64_t *ret_inode)
{
    char line[512];
    while (fgets(line, sizeof line, table) != NULL) {
        if (sscanf(line, " %*u: %63s %*s %*s %*s %*s %*s %*u %*s %" SCNu64, ret_bound, ret_inode) ==
            2) {
            return true;
        }
    }
    return false;
}

uint32_t port_holder_count(int descriptor, enum udp_family family)
{
    char ours[64] = "", bound[64];
    struct stat facts;
    uint64_t inode;
    uint32_t count = 0;
    FILE *table = fopen(
        family == UDP_IPV4 ? "/proc/thread-self/net/udp" : "/proc/thread-self/net/udp6", "re");
    if (table == NULL) {
        return 0;
    }
    while (fstat(descriptor, &facts) == 0 && read_line(table, bound, &inode)) {
        if (inode == facts.st_ino) {
            memcpy(ours, bound, sizeof ours);
        }
    }
    rewind(table);
    while (read_line(table, bound, &inode)) {
        count += strcmp(bound, ours) == 0;
    }
    fclose(table);
    return count;
}

static bool has_socket(const char *process, uint64_t inode)
{
    char path[300], wanted[64], target[64];
    bool found = false;
    snprintf(wanted, sizeof wanted, "socket:[%" PRIu64 "]", inode);
    snprintf(path, sizeof path, "/proc/%s/fd", process);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder != NULL && !found && (entry = readdir(folder)) != NULL) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        found = strcmp(target, wanted) == 0;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return found;
}

static void read_program(const char *process, char ret_program[NAME_ROOM])
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/comm", process);
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(ret_program, NAME_ROOM, file) == NULL) {
        strcpy(ret_program, "?");
    }
    ret_program[strcspn(ret_program, "\n")] = '\0';
    if (file != NULL) {
        fclose(file);
    }
}

static void find_process(struct holder *holder)
{
    DIR *folder = opendir("/proc");
    const struct dirent *entry;
    while (folder != NULL && holder->process == 0 && (entry = readdir(folder)) != NULL) {
        long process = strtol(entry->d_name, NULL, 10);
        if (process > 0 && has_socket(entry->d_name, holder->inode)) {
            read_program(entry->d_name, holder->program);
            holder->process = process;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

static void print_user(uint32_t user, char *ret_text, size_t size)
{
    char bytes[1024];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(user, &entry, bytes, sizeof bytes, &found) == 0 && found != NULL) {
        snprintf(ret_text, size, "user %s (%u)", found->pw_name, user);
    } else {
        snprintf(ret_text, size, "user %u", user);
    }
}

void port_holder_describe(uint16_t port, char *ret_text, size_t size)
{
    struct holder holder = {.inode = 0};
    char user[64], process[96] = "";
    /* Rather one that a new one of ours could not join. */
    if (!find_socket("/proc/thread-self/net/udp", port, false, &holder) &&
        !find_socket("/proc/thread-self/net/udp6", port, false, &holder)) {
        snprintf(ret_text, size, "UDP port %u is taken, and /proc does not show by whom", port);
        return;
    }
    find_process(&holder);
    if (holder.process == 0 && holder.user == 0 && access("/sys/module/rdma_rxe", F_OK) == 0) {
        snprintf(ret_text, size,
                 "UDP port %u is held by the kernel's rxe, as it seems (rdma_rxe is loaded): use "
                 "its devices (WEIR_HOST_DEVICES=1), unload it (modprobe -r rdma_rxe), or run in "
                 "a network namespace",
                 port);
        return;
    }
    print_user(holder.user, user, sizeof user);
    if (holder.process != 0) {
        snprintf(process, sizeof process, ", process %ld (%s)", holder.process, holder.program);
    }
    snprintf(ret_text, size,
             "UDP port %u is held by %s%s: the processes of one user share it, those of two do "
             "not. Give each user addresses with WEIR_BIND, or a network namespace",
             port, user, process);
}
