#include "tools/dropin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool holds_libraries(const char *folder, char ret_folder[PATH_MAX])
{
    static const char *const names[] = {"libibverbs.so.1", "librdmacm.so.1"};
    char path[PATH_MAX + 32];
    for (int i = 0; i < 2; i++) {
        int length = snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        if (length >= (int)sizeof(path) || access(path, R_OK) != 0) {
            return false;
        }
    }
    return realpath(folder, ret_folder) != NULL;
}

/* The folder of this executable; false where the system does not tell. The working directory does
 * not stand in for it: anybody may have put a library there. */
static bool own_folder(char ret_folder[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", ret_folder, PATH_MAX - 1);
    ret_folder[length > 0 ? length : 0] = 0;
    char *slash = strrchr(ret_folder, '/');
    if (ret_folder[0] != '/' || slash == NULL) {
        return false;
    }
    *slash = 0;
    return true;
}

bool dropin_find(char ret_folder[PATH_MAX], char ret_reason[DROPIN_REASON])
{
    char own[PATH_MAX], places[3][PATH_MAX + 64];
    const char *variable = getenv("WEIR_LIBRARY_DIR");
    if (variable != NULL && variable[0] != 0) { /* said is said: no falling back */
        if (holds_libraries(variable, ret_folder)) {
            return true;
        }
        snprintf(ret_reason, DROPIN_REASON,
                 "WEIR_LIBRARY_DIR is %s, and libibverbs.so.1 and librdmacm.so.1 are not there",
                 variable);
        return false;
    }
    if (!own_folder(own)) {
        snprintf(ret_reason, DROPIN_REASON,
                 "/proc does not tell where this command is; WEIR_LIBRARY_DIR can name the folder "
                 "of libibverbs.so.1 and librdmacm.so.1, as %s",
                 WEIR_DROPIN_INSTALLED);
        return holds_libraries(WEIR_DROPIN_INSTALLED, ret_folder);
    }
    snprintf(places[0], sizeof(places[0]), "%s/dropin", own);
    snprintf(places[1], sizeof(places[1]), "%s/../%s/weir", own, WEIR_LIBDIR);
    snprintf(places[2], sizeof(places[2]), "%s", WEIR_DROPIN_INSTALLED);
    for (int i = 0; i < 3; i++) {
        if (holds_libraries(places[i], ret_folder)) {
            return true;
        }
    }
    snprintf(ret_reason, DROPIN_REASON,
             "libibverbs.so.1 and librdmacm.so.1 of the software RNIC are neither in %s nor in %s "
             "nor in %s; WEIR_LIBRARY_DIR can name their folder",
             places[0], places[1], places[2]);
    return false;
}

/* One line into ret_line; false where there is none. */
static bool read_line(int descriptor, char *ret_line, size_t room)
{
    size_t length = 0;
    for (ssize_t got; length < room - 1; length += (size_t)got) {
        got = read(descriptor, ret_line + length, room - 1 - length);
        if (got < 0 && errno == EINTR) {
            got = 0;
            continue;
        }
        if (got <= 0) {
            break;
        }
    }
    ret_line[length] = 0;
    ret_line[strcspn(ret_line, "\n")] = 0;
    return ret_line[0] != 0;
}

bool dropin_tree(const char *folder, char ret_tree[PATH_MAX])
{
    char program[PATH_MAX + 32];
    int ends[2], status = -1;
    snprintf(program, sizeof(program), "%s/weir-tree", folder);
    if (pipe(ends) != 0) {
        perror("weir run: pipe");
        return false;
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        unsetenv("WEIR_STATISTICS");          /* what it counts is not the program's */
        setenv("LD_LIBRARY_PATH", folder, 1); /* without /proc the loader does not know $ORIGIN */
        execl(program, "weir-tree", (char *)NULL);
        perror(program);
        _exit(EXIT_FAILURE);
    }
    close(ends[1]);
    bool good = child > 0 && read_line(ends[0], ret_tree, PATH_MAX);
    close(ends[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return good && status == 0;
}
