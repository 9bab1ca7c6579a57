#include "rnic/strict/pitfall.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rnic/io/system/cancel.h"

#define WARNINGS_MAX 8u /* of one pitfall */
#define TEXT_MAX     8192u

static const struct {
    const char *name;
    const char *advice;
} pitfalls[PITFALL_COUNT] = {
    [PITFALL_LATE_RECEIVE] = {"late-receive",
                              "Post receives before the peer can know the queue pair, and keep "
                              "enough of them posted: an adapter answers RNR NAK, and the sender "
                              "fails when its rnr_retry runs out; UC and UD lose the message."},
    [PITFALL_SHORT_RECEIVE] = {"short-receive",
                               "Post receives for the longest message that may come, and for "
                               "datagrams 40 bytes more, where the GRH goes: what is too long ends "
                               "a reliable connection, and UC and UD lose it without a word."},
    [PITFALL_CQ_OVERRUN] = {"cq-overrun",
                            "Create the completion queue with room for every request that can be "
                            "outstanding on its queue pairs, or poll before posting more."},
    [PITFALL_UNPOLLED] = {"unpolled", "Poll the completion queue: that work failed is said nowhere "
                                      "else, and a slot of the send queue is free "
                                      "again only when a completion that covers it was polled."},
    [PITFALL_DEAD_KEY] = {"dead-key",
                          "Deregister memory after the last completion of work that names it, and "
                          "after the peers that know its key are done."},
    [PITFALL_WRONG_ACCESS] = {"wrong-access", "Give the right when registering the memory (or in "
                                              "qp_access_flags): adapters refuse, too."},
    [PITFALL_OUT_OF_REGION] = {"out-of-region",
                               "Register all of the range, or correct the address or the length."},
    [PITFALL_UNKNOWN_KEY] = {"unknown-key",
                             "Use the lkey for local buffers and send the peer the rkey of a "
                             "region of the same protection domain."},
    [PITFALL_UNSIGNALED_FULL] = {"unsignaled-full",
                                 "Ask for a completion (IBV_SEND_SIGNALED) at least once in every "
                                 "max_send_wr requests and poll it: unsignaled work gives its slot "
                                 "back only with a later completion."},
    [PITFALL_BUFFER_REUSE] = {"buffer-reuse",
                              "Leave a buffer alone until the completion of the work was polled, "
                              "or post it inline (IBV_SEND_INLINE): an adapter reads it when it "
                              "likes, and again when it must repeat a packet."},
    [PITFALL_UNACKED_EVENT] = {"unacked-event",
                               "Acknowledge every event that was got (ibv_ack_cq_events, "
                               "ibv_ack_async_event, rdma_ack_cm_event) before destroying its "
                               "object: rdma-core's destroy waits for that for ever."},
    [PITFALL_WRITE_ORDER] = {"write-order",
                             "Bytes of an RDMA WRITE become visible in any order. Wait for a "
                             "completion (of a WRITE with immediate, or of a SEND that follows), "
                             "or for a message from a peer that has seen its own."},
    [PITFALL_MEMLOCK] = {"memlock", "Raise the limit (ulimit -l, LimitMEMLOCK=, --ulimit "
                                    "memlock=-1) or register less at a time."},
    [PITFALL_PATH_MTU] = {"path-mtu", "Give the queue pair a smaller path_mtu (IBV_MTU_1024 does "
                                      "for Ethernet's 1500), or raise the MTU of every interface "
                                      "and switch on the way to 4200: an adapter's packets vanish "
                                      "there without a word."},
    [PITFALL_UNANSWERED] = {"unanswered",
                            "Check the GID and the queue pair number that the peer has sent, that "
                            "it is in RTR before anything is sent to it and still lives, and that "
                            "UDP port 4791 is open both ways."},
    [PITFALL_WRONG_CALL] = {"wrong-call", "Correct the arguments: nothing was done."},
    [PITFALL_LIMIT] = {"limit", "Ask ibv_query_device for the limits of the adapter."},
};

static struct {
    pthread_mutex_t lock;
    bool off[PITFALL_COUNT];
    uint64_t count[PITFALL_COUNT];
    uint32_t said[PITFALL_COUNT];
    uint64_t places[PITFALL_COUNT][WARNINGS_MAX]; /* what was warned of */
} warned = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Where warnings go; no path: standard error. */
static struct {
    pthread_mutex_t lock;
    char path[PATH_MAX]; /* absolute, for programs change their folder */
    int descriptor;
    struct stat file; /* what was opened */
} journal = {.lock = PTHREAD_MUTEX_INITIALIZER, .descriptor = -1};

/* In a child: a thread that held it is gone, and what its parent did is its parent's. */
static void after_fork(void)
{
    pthread_mutex_init(&warned.lock, NULL);
    memset(warned.count, 0, sizeof warned.count);
    memset(warned.said, 0, sizeof warned.said);
    pthread_mutex_init(&journal.lock, NULL);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

const char *pitfall_name(enum pitfall pitfall)
{
    return pitfalls[pitfall].name;
}

bool pitfall_disable(const char *name)
{
    for (unsigned i = 0; name != NULL && i < PITFALL_COUNT; i++) {
        if (strcmp(name, pitfalls[i].name) == 0) {
            warned.off[i] = true;
            return true;
        }
    }
    return false;
}

void pitfall_enable_all(void)
{
    memset(warned.off, 0, sizeof warned.off);
}

uint64_t pitfall_count(enum pitfall pitfall)
{
    pthread_mutex_lock(&warned.lock);
    uint64_t count = warned.count[pitfall];
    pthread_mutex_unlock(&warned.lock);
    return count;
}

/* FNV-1a over the addresses; what no place of the program brings about is known by its words. */
static uint64_t place_of(const struct trace *where, const char *message)
{
    uint64_t place = 0xcbf29ce484222325;
    for (int i = 0; i < where->count; i++) {
        place = (place ^ (uintptr_t)where->frames[i]) * 0x100000001b3;
    }
    for (; where->count == 0 && *message != 0; message++) {
        place = (place ^ (unsigned char)*message) * 0x100000001b3;
    }
    return place;
}

/* True if this place has not been warned of and may be. */
static bool is_new(enum pitfall pitfall, uint64_t place)
{
    bool fresh = false;
    pthread_mutex_lock(&warned.lock);
    warned.count[pitfall]++;
    uint32_t said = warned.said[pitfall];
    if (!warned.off[pitfall] && said < WARNINGS_MAX) {
        fresh = true;
        for (uint32_t i = 0; i < said; i++) {
            fresh = fresh && warned.places[pitfall][i] != place;
        }
        if (fresh) {
            warned.places[pitfall][warned.said[pitfall]++] = place;
        }
    }
    pthread_mutex_unlock(&warned.lock);
    return fresh;
}

struct text {
    size_t length;
    char bytes[TEXT_MAX];
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->bytes + text->length, TEXT_MAX - text->length, format, arguments);
    va_end(arguments);
    if (length > 0) {
        size_t left = TEXT_MAX - 1 - text->length;
        text->length += (size_t)length < left ? (size_t)length : left;
    }
}

/* One line per frame: function where it has a name, else the place that addr2line takes. */
static void add_frames(struct text *text, const struct trace *where)
{
    for (int i = 0; i < where->count; i++) {
        Dl_info info;
        const char *frame = where->frames[i];
        if (dladdr(frame, &info) == 0 || info.dli_fname == NULL) {
            add(text, "        #%d %p\n", i, (const void *)frame);
        } else if (info.dli_sname != NULL) {
            add(text, "        #%d %s+0x%zx (%s+0x%zx)\n", i, info.dli_sname,
                (size_t)(frame - (const char *)info.dli_saddr), info.dli_fname,
                (size_t)(frame - (const char *)info.dli_fbase));
        } else {
            add(text, "        #%d %s+0x%zx\n", i, info.dli_fname,
                (size_t)(frame - (const char *)info.dli_fbase));
        }
    }
}

/* None that the program may take for a standard stream. */
static bool open_journal(int flags)
{
    int opened = open(journal.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
    journal.descriptor = opened < 0 ? -1 : fcntl(opened, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (opened >= 0) {
        close(opened);
    }
    return journal.descriptor >= 0 && fstat(journal.descriptor, &journal.file) == 0;
}

bool pitfall_log_to(const char *path)
{
    char folder[PATH_MAX] = "";
    if (path[0] != '/' && getcwd(folder, sizeof folder) == NULL) {
        return false;
    }
    int length = snprintf(journal.path, sizeof journal.path, "%s/%s", folder, path);
    if (length >= (int)sizeof journal.path) {
        errno = ENAMETOOLONG;
    }
    if (length >= (int)sizeof journal.path || !open_journal(0)) {
        journal.path[0] = 0;
        return false;
    }
    return true;
}

/* Programs close what descriptors they find, and what has the number then is theirs. */
static int way_out(void)
{
    struct stat file;
    pthread_mutex_lock(&journal.lock);
    bool is_ours = fstat(journal.descriptor, &file) == 0 && file.st_dev == journal.file.st_dev &&
                   file.st_ino == journal.file.st_ino;
    bool is_open = journal.path[0] != 0 && (is_ours || open_journal(O_NONBLOCK));
    int descriptor = is_open ? journal.descriptor : STDERR_FILENO;
    pthread_mutex_unlock(&journal.lock);
    return descriptor;
}

/* No buffer of ours that a fork or an abort could double or lose. False and errno. */
static bool write_all(const struct text *text)
{
    int descriptor = way_out();
    for (size_t done = 0; done < text->length;) {
        ssize_t wrote = write(descriptor, text->bytes + done, text->length - done);
        if (wrote > 0) {
            done += (size_t)wrote;
        } else if (wrote == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* Where nobody reads any more, or a limit leaves a file no room, nothing is said; a program that
 * never writes there is not to die of our warning. */
static void say(const struct text *text)
{
    sigset_t deadly, before, pending;
    int cancel = cancel_hold();
    sigemptyset(&deadly);
    sigaddset(&deadly, SIGPIPE);
    sigaddset(&deadly, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &deadly, &before);
    sigpending(&pending);
    int error = write_all(text) ? 0 : errno;
    int raised = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
    if (raised != 0 && sigismember(&pending, raised) == 0) {
        const struct timespec now = {0};
        sigemptyset(&deadly);
        sigaddset(&deadly, raised);
        (void)sigtimedwait(&deadly, NULL, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    cancel_restore(cancel);
}

void pitfall_warn(enum pitfall pitfall, const struct trace *where, const char *label,
                  const char *format, ...)
{
    struct trace here;
    if (where == NULL || where->count == 0) {
        trace_take(&here);
        where = &here;
    }
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (!is_new(pitfall, place_of(where, message))) {
        return;
    }
    struct text text = {0};
    add(&text, "weir strict: %s: %s (%s[%d])\n    %s\n", pitfalls[pitfall].name, message,
        program_invocation_short_name, (int)getpid(), pitfalls[pitfall].advice);
    add(&text, "    %s:%s\n", label, where->count == 0 ? " no place of the program" : "");
    add_frames(&text, where);
    say(&text);
}

__attribute__((destructor)) static void sum_up(void)
{
    struct text text = {0};
    pthread_mutex_lock(&warned.lock); /* threads may go on */
    for (unsigned i = 0; i < PITFALL_COUNT; i++) {
        if (!warned.off[i] && warned.count[i] > warned.said[i]) {
            add(&text, "weir strict: %s: %llu times in all\n", pitfalls[i].name,
                (unsigned long long)warned.count[i]);
        }
    }
    pthread_mutex_unlock(&warned.lock);
    say(&text);
}
