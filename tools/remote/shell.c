#include "tools/remote/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* One that asks for a password has the terminal without echo, and gives it back when it is asked to
 * end; it gets so long for that. */
#define GIVE_BACK_S 0.5

extern char **environ;

/* Copies a word up to its end. NULL: a quote without its end. */
static const char *take_word(const char *at, char **to)
{
    char quote = 0;
    for (; *at != 0 && (quote != 0 || *at != ' '); at++) {
        if (quote == 0 && (*at == '\'' || *at == '"')) {
            quote = *at;
        } else if (*at == quote) {
            quote = 0;
        } else {
            *(*to)++ = *at;
        }
    }
    *(*to)++ = 0;
    return quote == 0 ? at : NULL;
}

int shell_split(const char *command, char *buffer, size_t capacity,
                char *ret_words[SHELL_WORDS_MAX])
{
    int count = 0;
    if (strlen(command) >= capacity) {
        return -1;
    }
    for (const char *at = command + strspn(command, " "); *at != 0; at += strspn(at, " ")) {
        if (count == SHELL_WORDS_MAX) {
            return -1;
        }
        ret_words[count++] = buffer;
        at = take_word(at, &buffer);
        if (at == NULL) {
            return -1;
        }
    }
    return count;
}

static int spawn(char *const words[], const int input[2], const int output[2], pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t ignored; /* by us (stop.h), which it would inherit */
    sigemptyset(&ignored);
    sigaddset(&ignored, SIGPIPE);
    sigaddset(&ignored, SIGXFSZ);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigdefault(&attributes, &ignored);
    int error = posix_spawnp(ret_pid, words[0], &actions, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

int shell_start(char *const words[], struct shell *ret_shell)
{
    int input[2], output[2];
    *ret_shell = (struct shell){.input = -1, .output = -1};
    if (pipe2(input, O_CLOEXEC) != 0) {
        return errno;
    }
    if (pipe2(output, O_CLOEXEC) != 0) {
        int error = errno;
        close(input[0]);
        close(input[1]);
        return error;
    }
    int error = spawn(words, input, output, &ret_shell->pid);
    close(input[0]);
    close(output[1]);
    if (error != 0) {
        close(input[1]);
        close(output[0]);
        ret_shell->pid = 0;
        return error;
    }
    ret_shell->input = input[1];
    ret_shell->output = output[0];
    return 0;
}

bool shell_has_ended(const struct shell *shell)
{
    char bytes[256];
    struct pollfd look = {.fd = shell->output, .events = POLLIN};
    for (int reads = 0; reads < 64 && shell->output >= 0 && poll(&look, 1, 0) > 0; reads++) {
        ssize_t count = read(shell->output, bytes, sizeof(bytes));
        if (count == 0 || (count < 0 && errno != EINTR)) {
            return true;
        }
    }
    return false;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int shell_end(struct shell *shell, unsigned patience_ms)
{
    static const int signals[] = {SIGTERM, SIGKILL};
    int status = 0;
    unsigned sent = 0;
    double end_s = now_s() + patience_ms / 1e3;
    if (shell->pid == 0) {
        return -1;
    }
    close(shell->input);
    while (waitpid(shell->pid, &status, WNOHANG) == 0) {
        if (sent < 2 && now_s() > end_s) {
            kill(shell->pid, signals[sent++]);
            end_s = now_s() + GIVE_BACK_S;
        }
        struct pollfd look = {.fd = shell->output, .events = POLLIN};
        if (!shell_has_ended(shell)) {
            poll(&look, 1, 10);
        } else {
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        }
    }
    close(shell->output);
    *shell = (struct shell){.input = -1, .output = -1};
    if (sent > 0) {
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
