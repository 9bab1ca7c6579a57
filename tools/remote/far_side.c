#include "tools/remote/far_side.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/printable.h"
#include "tools/progress.h"
#include "tools/remote/here.h"
#include "tools/stop.h"
#include "tools/transfer/wire/protocol.h"
#include "tools/trust/crypto.h"

#define WORDS_LENGTH    4096
#define NOISE_MAX       (64u << 10)
#define SSH_FAILED      255
#define END_PATIENCE_MS 3000

/* What is wrong with how it ended, or with what it said. */
static enum exit_code say(const struct command *command, struct far_side *far, enum exit_code code,
                          const char *text)
{
    snprintf(far->why, sizeof(far->why), "%s", text);
    command_error(command, "%s: %s", far->host, text);
    return code;
}

static enum exit_code say_status(const struct command *command, struct far_side *far, int status,
                                 const char *weir_path)
{
    char text[FAR_WHY_LENGTH], noise[512];
    printable(far->greeting.noise, strlen(far->greeting.noise), noise, sizeof(noise));
    switch (status) {
    case SSH_FAILED:
        return say(command, far, EXIT_UNREACHED, "the remote shell failed, as it says above");
    case EXIT_NO_PROGRAM:
        snprintf(text, sizeof(text),
                 "there is no '%s': install weir there, or say where it is with --weir-path",
                 weir_path);
        return say(command, far, EXIT_UNREACHED, text);
    case EXIT_USAGE:
        return say(command, far, EXIT_REFUSED,
                   "its weir does not know sessions: install the same release there");
    case EXIT_SETUP:
        return say(command, far, EXIT_UNREACHED, "weir could not begin there, as it says above");
    case -1: /* stopped by us */
        return say(command, far, EXIT_UNREACHED,
                   "no session was started there: the remote shell closed its output and went on");
    default:
        snprintf(text, sizeof(text), "no session was started there (exit status %d)%s%s%s", status,
                 noise[0] != 0 ? "; it said '" : "", noise, noise[0] != 0 ? "'" : "");
        return say(command, far, EXIT_UNREACHED, text);
    }
}

/* Both ends must be of one mind of the transfer. */
static bool versions_agree(const struct greeting *greeting)
{
    return greeting->version == GREETING_VERSION && greeting->transfer_version == PROTOCOL_VERSION;
}

/* Reads what there is, in lines. -1: go on; else an exit code. */
static int read_lines(const struct command *command, struct far_side *far, char *line, size_t *used,
                      size_t *total)
{
    char bytes[1024];
    ssize_t count = read(far->shell.output, bytes, sizeof(bytes));
    if (count <= 0) {
        return count < 0 && errno == EINTR ? -1 : EXIT_UNREACHED;
    }
    *total += (size_t)count;
    const char *wrong = *total > NOISE_MAX ? "it goes on and on" : NULL;
    for (ssize_t i = 0; i < count && wrong == NULL; i++) {
        if (bytes[i] != '\n') {
            line[*used] = bytes[i];
            *used += *used < GREETING_LINE_LENGTH_MAX - 1;
            continue;
        }
        line[*used - (*used > 0 && line[*used - 1] == '\r')] = 0;
        *used = 0;
        wrong = greeting_take(&far->greeting, line);
        bool disagrees = far->greeting.begun && !versions_agree(&far->greeting);
        if (wrong == NULL && (far->greeting.ready || disagrees)) {
            return EXIT_DONE;
        }
    }
    if (wrong != NULL) {
        char text[FAR_WHY_LENGTH];
        snprintf(text, sizeof(text), "what its weir says is not understood: %s", wrong);
        return say(command, far, EXIT_REFUSED, text);
    }
    return -1;
}

static enum exit_code hear(const struct command *command, struct far_side *far,
                           const struct far_options *options)
{
    const char *weir_path = options->weir_path != NULL ? options->weir_path : "weir";
    double end_s = progress_now_s() + (options->patience_s > 0 ? options->patience_s : 1e9);
    char line[GREETING_LINE_LENGTH_MAX];
    size_t used = 0, total = 0;
    int code = -1;
    while (code < 0 && !stop_asked()) {
        struct pollfd look = {.fd = far->shell.output, .events = POLLIN};
        bool speaks = poll(&look, 1, 200) > 0;
        code = speaks ? read_lines(command, far, line, &used, &total) : code;
        if (code < 0 && progress_now_s() > end_s + (speaks ? 1 : 0)) {
            shell_end(&far->shell, 0);
            return say(command, far, EXIT_UNREACHED, "the remote shell says nothing");
        }
    }
    if (stop_asked()) {
        strcpy(far->why, "interrupted");
        command_error(command, "interrupted");
        code = EXIT_INTERRUPTED;
    } else if (code == EXIT_UNREACHED) {
        return say_status(command, far, shell_end(&far->shell, END_PATIENCE_MS), weir_path);
    }
    return (enum exit_code)code;
}

static enum exit_code check_versions(const struct command *command, struct far_side *far)
{
    const struct greeting *greeting = &far->greeting;
    if (versions_agree(greeting)) {
        return EXIT_DONE;
    }
    char release[4 * sizeof(greeting->release)], text[FAR_WHY_LENGTH];
    printable(greeting->release, strlen(greeting->release), release, sizeof(release));
    snprintf(text, sizeof(text),
             "weir %s there speaks version %u.%u of the transfer, and weir %s here %u.%u: install "
             "the same release on both",
             release, greeting->version, greeting->transfer_version, WEIR_VERSION, GREETING_VERSION,
             PROTOCOL_VERSION);
    return say(command, far, EXIT_REFUSED, text);
}

/* Somebody who could be asked for a password may be there. */
static bool has_terminal(void)
{
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0 && isatty(STDERR_FILENO);
}

static bool is_ssh(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strcmp(slash != NULL ? slash + 1 : program, "ssh") == 0;
}

static int make_words(const struct command *command, const struct far_options *options,
                      const char *host, char *buffer, char *words[SHELL_WORDS_MAX + 10])
{
    static char serve[] = "serve", session[] = "--session", fabric[] = "--fabric";
    static char option[] = "-o", batch_mode[] = "BatchMode=yes";
    static char kinds[][5] = {
        [WEIR_FABRIC_AUTO] = "auto", [WEIR_FABRIC_RDMA] = "rdma", [WEIR_FABRIC_SOFT] = "soft"};
    const char *set = getenv("WEIR_RSH");
    const char *rsh = options->rsh != NULL         ? options->rsh
                      : set != NULL && set[0] != 0 ? set
                                                   : "ssh";
    int count = shell_split(rsh, buffer, WORDS_LENGTH, words);
    if (count <= 0) {
        return command_usage_error(command, "%s '%s': not a command",
                                   options->rsh != NULL ? "--rsh" : "WEIR_RSH", rsh);
    }
    if (options->again && !has_terminal() && is_ssh(words[0])) {
        words[count++] = option;
        words[count++] = batch_mode;
    }
    words[count++] = (char *)host;
    words[count++] = (char *)(options->weir_path != NULL ? options->weir_path : "weir");
    words[count++] = serve;
    words[count++] = session;
    if (options->fabric != WEIR_FABRIC_AUTO) {
        words[count++] = fabric;
        words[count++] = kinds[options->fabric];
    }
    words[count] = NULL;
    return EXIT_DONE;
}

enum exit_code far_side_begin(const struct command *command, const struct far_options *options,
                              const char *host, struct far_side *ret_far)
{
    char buffer[WORDS_LENGTH], *words[SHELL_WORDS_MAX + 10];
    *ret_far = (struct far_side){.host = host, .shell = {.input = -1, .output = -1}};
    int code = make_words(command, options, host, buffer, words);
    if (code != EXIT_DONE) {
        strcpy(ret_far->why, "the remote shell is not a command");
        return (enum exit_code)code;
    }
    int error = shell_start(words, &ret_far->shell);
    if (error != 0) {
        snprintf(ret_far->why, sizeof(ret_far->why), "the remote shell '%.200s': %s", words[0],
                 strerror(error));
        command_error(command, "%s", ret_far->why);
        return EXIT_SETUP;
    }
    return EXIT_DONE;
}

enum exit_code far_side_hear(const struct command *command, const struct far_options *options,
                             struct far_side *far)
{
    char here[128];
    enum exit_code code = hear(command, far, options);
    if (code == EXIT_DONE) {
        code = check_versions(command, far);
    }
    if (code != EXIT_DONE) {
        shell_end(&far->shell, END_PATIENCE_MS);
        return code;
    }
    here_host(here);
    far->is_here = strcmp(here, far->greeting.host) == 0 && strcmp(here, "?") != 0;
    greeting_sort(&far->greeting, far->is_here);
    return EXIT_DONE;
}

enum exit_code far_side_start(const struct command *command, const struct far_options *options,
                              const char *host, struct far_side *ret_far)
{
    enum exit_code code = far_side_begin(command, options, host, ret_far);
    return code == EXIT_DONE ? far_side_hear(command, options, ret_far) : code;
}

void far_side_end(const struct command *command, struct far_side *far, bool failed)
{
    int status = shell_end(&far->shell, END_PATIENCE_MS);
    if (!failed && status != EXIT_DONE) {
        command_error(command, "%s: the other side ended with status %d", far->host, status);
    }
    crypto_wipe(&far->greeting.secret, sizeof(far->greeting.secret));
}
