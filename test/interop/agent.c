/* The first process of the guest once `init` is done: runs commands for the host, over a channel
 * that is not the network under test.
 *
 * Host to guest: "run ID LENGTH\n" and the command of that length, for /bin/sh; "kill ID\n".
 * Guest to host: "ready UPTIME\n"; "output ID LENGTH\n" and what it printed; "ended ID STATUS\n",
 * 128 + the signal for one that was killed.
 *
 * Invariants: a command leads a process group, which is gone when its end is told. Being process 1,
 * a failure of this one ends the guest, and the host sees it end. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMANDS_MAX 16
#define TEXT_MAX     (64 * 1024)

struct command {
    unsigned id;
    pid_t pid; /* 0: the place is free */
    int output;
};

static struct command commands[COMMANDS_MAX];
static int channel;

static void die(const char *what)
{
    fprintf(stderr, "agent: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void send_bytes(const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length > 0) {
        ssize_t done = write(channel, at, length);
        if (done < 0 && errno != EINTR)
            die("write to the host");
        if (done > 0) {
            at += done;
            length -= (size_t)done;
        }
    }
}

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    char line[128];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    send_bytes(line, (size_t)length);
}

static void receive_bytes(char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t done = read(channel, bytes, length);
        if (done == 0)
            exit(0);
        if (done < 0 && errno != EINTR)
            die("read from the host");
        if (done > 0) {
            bytes += done;
            length -= (size_t)done;
        }
    }
}

static void receive_line(char *line, size_t size)
{
    for (size_t i = 0; i + 1 < size; i++) {
        receive_bytes(line + i, 1);
        if (line[i] == '\n') {
            line[i] = '\0';
            return;
        }
    }
    line[size - 1] = '\0';
}

static void become(const char *text, int output)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(127);
}

static void run(unsigned id, const char *text)
{
    struct command *command = commands;
    while (command < commands + COMMANDS_MAX && command->pid != 0)
        command++;
    int pipe_ends[2];
    if (command == commands + COMMANDS_MAX || pipe2(pipe_ends, O_CLOEXEC) != 0) {
        tell("ended %u 126\n", id);
        return;
    }
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0)
        become(text, pipe_ends[1]);
    close(pipe_ends[1]);
    fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
    *command = (struct command){.id = id, .pid = pid, .output = pipe_ends[0]};
}

static void obey(void)
{
    static char text[TEXT_MAX + 1];
    char line[64];
    unsigned id;
    size_t length;
    receive_line(line, sizeof line);
    if (sscanf(line, "run %u %zu", &id, &length) == 2 && length <= TEXT_MAX) {
        receive_bytes(text, length);
        text[length] = '\0';
        run(id, text);
    } else if (sscanf(line, "kill %u", &id) == 1) {
        for (struct command *command = commands; command < commands + COMMANDS_MAX; command++)
            if (command->pid != 0 && command->id == id)
                kill(-command->pid, SIGKILL);
    } else {
        errno = EPROTO;
        die(line);
    }
}

/* Returns false once there is nothing to read. */
static bool pass_output(struct command *command)
{
    char text[4096];
    ssize_t length = read(command->output, text, sizeof text);
    if (length <= 0)
        return false;
    tell("output %u %zd\n", command->id, length);
    send_bytes(text, (size_t)length);
    return true;
}

static void bury(pid_t pid, int status)
{
    for (struct command *command = commands; command < commands + COMMANDS_MAX; command++) {
        if (command->pid != pid)
            continue;
        kill(-pid, SIGKILL);
        while (pass_output(command)) {
        }
        close(command->output);
        tell("ended %u %d\n", command->id,
             WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
        command->pid = 0;
    }
}

static void reap(int signals)
{
    struct signalfd_siginfo info;
    if (read(signals, &info, sizeof info) < 0)
        return;
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        bury(pid, status);
}

static void serve(int signals)
{
    struct pollfd polled[2 + COMMANDS_MAX] = {{.fd = channel, .events = POLLIN},
                                              {.fd = signals, .events = POLLIN}};
    for (int i = 0; i < COMMANDS_MAX; i++)
        polled[2 + i] =
            (struct pollfd){.fd = commands[i].pid != 0 ? commands[i].output : -1, .events = POLLIN};
    if (poll(polled, 2 + COMMANDS_MAX, -1) < 0)
        return;
    for (int i = 0; i < COMMANDS_MAX; i++) {
        if (polled[2 + i].revents == 0)
            continue;
        if (!pass_output(&commands[i]) && (polled[2 + i].revents & POLLHUP) != 0) {
            /* It closed its output and lives on: a pipe at its end would be polled for ever. */
            close(commands[i].output);
            commands[i].output = open("/dev/null", O_RDONLY | O_CLOEXEC);
        }
    }
    if (polled[1].revents != 0)
        reap(signals);
    if (polled[0].revents != 0)
        obey();
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: agent CHANNEL UPTIME\n");
        return 2;
    }
    channel = open(argv[1], O_RDWR | O_CLOEXEC);
    if (channel < 0)
        die(argv[1]);
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    int signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0)
        die("signalfd");
    tell("ready %s\n", argv[2]);
    while (true)
        serve(signals);
}
