#include "rnic/paths/prune.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <ftw.h>

#include "rnic/paths/redirect.h"

#define TREES_MANY  16
#define TREES_MAX   1024
#define NEW_SECONDS 60 /* made, but its program not yet started */

static int remove_one(const char *path, const struct stat *facts, int type, struct FTW *position)
{
    return remove(path);
}

void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

struct trees {
    char path[TREES_MAX][REDIRECT_ROOM];
    bool used[TREES_MAX];
    size_t count;
};

static void list_trees(const char *home, struct trees *ret_trees)
{
    DIR *list = opendir(home);
    ret_trees->count = 0;
    for (struct dirent *entry;
         list != NULL && ret_trees->count < TREES_MAX && (entry = readdir(list)) != NULL;) {
        if (entry->d_name[0] != '.') {
            char *path = ret_trees->path[ret_trees->count];
            struct stat facts;
            snprintf(path, REDIRECT_ROOM, "%.200s/%s", home, entry->d_name);
            ret_trees->used[ret_trees->count++] =
                lstat(path, &facts) != 0 || time(NULL) - facts.st_ctime < NEW_SECONDS;
        }
    }
    if (list != NULL) {
        closedir(list);
    }
}

/* What `variable` of a process's environment, NAME=VALUE, says. */
static void mark(struct trees *trees, const char *variable)
{
    size_t length = strlen(REDIRECT_VARIABLE "=");
    if (strncmp(variable, REDIRECT_VARIABLE "=", length) != 0) {
        return;
    }
    for (size_t i = 0; i < trees->count; i++) {
        trees->used[i] = trees->used[i] || strcmp(trees->path[i], variable + length) == 0;
    }
}

static void mark_those_of(struct trees *trees, const char *process)
{
    char path[64], *variable = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "/proc/%.20s/environ", process);
    FILE *file = fopen(path, "re");
    while (file != NULL && getdelim(&variable, &room, 0, file) > 0) {
        mark(trees, variable);
    }
    free(variable);
    if (file != NULL) {
        fclose(file);
    }
}

void prune_trees(const char *home)
{
    struct trees *trees = malloc(sizeof *trees);
    DIR *processes = opendir("/proc");
    if (trees != NULL && processes != NULL) {
        list_trees(home, trees);
        for (struct dirent *entry;
             trees->count > TREES_MANY && (entry = readdir(processes)) != NULL;) {
            if (isdigit((unsigned char)entry->d_name[0])) {
                mark_those_of(trees, entry->d_name);
            }
        }
        for (size_t i = 0; trees->count > TREES_MANY && i < trees->count; i++) {
            if (!trees->used[i]) {
                remove_tree(trees->path[i]);
            }
        }
    }
    if (processes != NULL) {
        closedir(processes);
    }
    free(trees);
}
