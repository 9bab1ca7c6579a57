/* What hostile members of a fan-out may say: a receiver hears the input from its source, from whom
 * feeds it and from whom it feeds; a source from two receivers and from whom it feeds. Nothing may
 * be read or written out of bounds, and the other end always comes to an end.
 *
 * Input: an octet (bit 0: the source is tried, else a receiver), then records: an octet (bits 0 and
 * 1: which line, counted from the last; bits 2 and 3: 0, 1: a message, 2: a notice, 3: a chunk with
 * its digest), two of length in big-endian; a message's or chunk's bytes follow. */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "fuzz/version.h"
#include "tools/transfer/copy/fanout.h"
#include "tools/transfer/wire/digest.h"
#include "tools/transfer/wire/memory_link.h"

#define LINES_MAX 64

/* Our end of each is side 0, the input's is side 1. */
struct line {
    struct memory_pair *pair;
    struct session *session; /* a server's, that the input has come to; else NULL */
    unsigned chunks;         /* that the input has put */
};

static struct line lines[LINES_MAX];
static unsigned line_count;
static char scratch[64];

static void must(bool good)
{
    if (!good) {
        abort();
    }
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    chmod(path, 0700);
    return remove(path);
}

static void remove_scratch(void)
{
    nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int make_target(void)
{
    char path[96];
    if (scratch[0] == 0) {
        snprintf(scratch, sizeof(scratch), "%s/weir-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        must(mkdtemp(scratch) != NULL);
        atexit(remove_scratch);
    }
    snprintf(path, sizeof(path), "%s/target", scratch);
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    must(mkdir(path, 0700) == 0);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void ignore_problem(void *user, const struct problem *problem)
{
}

static const struct report report = {.problem = ignore_problem};

static struct link *add_line(void)
{
    if (line_count == LINES_MAX) {
        return NULL;
    }
    struct line *line = &lines[line_count++];
    *line = (struct line){.pair = memory_pair_create()};
    memory_pair_link(line->pair, 0)->events = &link_unheard;
    memory_pair_link(line->pair, 1)->events = &link_unheard;
    return memory_pair_link(line->pair, 0);
}

static struct link *dial(void *user, const struct hop_target *target, unsigned address,
                         char ret_why[HOP_WHY_LENGTH])
{
    struct link *link = add_line();
    snprintf(ret_why, HOP_WHY_LENGTH, "no more lines");
    return link;
}

static void drop(void *user, struct link *link)
{
    link->events = &link_unheard;
    link->operations->abort(link, "dropped");
}

static struct link *connect_to(void *user, unsigned member, char ret_why[HOP_WHY_LENGTH])
{
    return dial(user, NULL, 0, ret_why);
}

static void locate(void *user, unsigned member, struct hop_target *target)
{
    target->address_count = 1;
    strcpy(target->addresses[0], "x");
}

/* Always the same, so that the input can know them. */
static bool make_numbers(void *bytes, size_t length)
{
    memset(bytes, 7, length);
    return true;
}

/* One record; how many bytes it took. */
static size_t say(const uint8_t *data, size_t size)
{
    struct line *line = &lines[line_count - 1 - (data[0] & 3) % line_count];
    size_t length = (size_t)data[1] << 8 | data[2];
    unsigned kind = data[0] >> 2 & 3;
    if (kind == 2) {
        memory_pair_inject_notice(line->pair, 1, notice_pack(data[0] >> 4, data[0] >> 4),
                                  length << 4);
        return 3;
    }
    length = length < size - 3 ? length : size - 3;
    uint8_t *memory = memory_pair_memory(line->pair, 0);
    if (kind == 3 && memory != NULL && line->session != NULL) {
        unsigned slot = line->chunks % HOP_CHUNK_COUNT;
        struct hop_message message = {.type = HOP_CHUNK, .chunk = {.length = (uint32_t)length}};
        uint8_t bytes[HOP_LENGTH_MAX];
        memcpy(memory + (size_t)slot * HOP_CHUNK_LENGTH, data + 3, length);
        digest_of(data + 3, length, message.chunk.digest);
        memory_pair_inject(line->pair, 1, bytes, hop_pack(&message, bytes));
        memory_pair_inject_notice(line->pair, 1,
                                  notice_pack((uint16_t)slot, (uint16_t)line->chunks++), length);
    } else {
        uint8_t *bytes = with_version(data + 3, length);
        memory_pair_inject(line->pair, 1, bytes, length);
        free(bytes);
    }
    return 3 + length;
}

static bool step_lines(void)
{
    bool more = false;
    for (unsigned i = 0; i < line_count; i++) {
        if (lines[i].session != NULL && !session_is_closed(lines[i].session)) {
            more |= session_pump(lines[i].session);
        }
        more |= memory_pair_step(lines[i].pair);
    }
    return more;
}

static void end_lines(void)
{
    for (unsigned i = 0; i < line_count; i++) {
        session_destroy(lines[i].session);
    }
    for (unsigned i = 0; i < line_count; i++) {
        memory_pair_destroy(lines[i].pair);
    }
    line_count = 0;
}

static void add_server(const struct session_service *service)
{
    struct link *link = add_line();
    lines[line_count - 1].session = session_create_server(link, service, &report);
    memory_pair_open(lines[line_count - 1].pair);
}

static void try_receiver(const uint8_t *data, size_t size)
{
    struct relay_host host = {
        .dialer = {.dial = dial, .drop = drop}, .random = make_numbers, .guarded = true};
    int root = make_target();
    struct session_service service = {.root = root, .device = "fuzz0", .relays = &host};
    uint8_t join[HOP_LENGTH_MAX];
    size_t length = hop_pack(&(struct hop_message){.type = HOP_JOIN, .version = HOP_VERSION}, join);
    add_server(&service);
    memory_pair_inject(lines[0].pair, 1, join, length);
    while (step_lines()) {
    }
    hop_name((const uint8_t[HOP_ID_LENGTH]){7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7},
             service.hop_name);
    add_server(&service);
    for (size_t at = 0; at + 3 <= size;) {
        at += say(data + at, size - at);
        for (unsigned i = 0; i < 100 && step_lines(); i++) {
        }
    }
    for (unsigned i = 0; i < line_count; i++) {
        memory_pair_cut(lines[i].pair);
    }
    while (step_lines()) {
    }
    must(session_is_closed(lines[0].session) && session_is_closed(lines[1].session));
    end_lines();
    must(host.relays == NULL);
    close(root);
}

static time_t now_s;

/* Goes on with each thing that is said, so that whoever is waited for is given up, too. */
static time_t clock_s(void *user)
{
    (void)user;
    return now_s;
}

static void try_source(const uint8_t *data, size_t size)
{
    static const char *const sources[] = {"/proc/self/status", "/proc/self/fd/0"};
    const struct fanout_member members[2] = {{"a", "/", &report}, {"b", "/", &report}};
    const struct session_request request = {.direction = DIRECTION_PUSH,
                                            .wishes = {.bits = WISH_DELETE | WISH_RECURSIVE},
                                            .sources = sources,
                                            .source_count = 2,
                                            .target_path = "/"};
    const struct fanout_options options = {.members = members,
                                           .count = 2,
                                           .connect = connect_to,
                                           .locate = locate,
                                           .clock_s = clock_s,
                                           .dialer = {.dial = dial, .drop = drop}};
    struct fanout *fanout = fanout_create(&options);
    struct session *session = session_create_client(fanout_link(fanout), &request, &report);
    fanout_pump(fanout);
    for (unsigned i = 0; i < line_count; i++) {
        memory_pair_open(lines[i].pair);
    }
    for (size_t at = 0; at + 3 <= size && !session_is_closed(session);) {
        unsigned opened = line_count;
        now_s++;
        at += say(data + at, size - at);
        for (unsigned i = 0; i < 20 && !session_is_closed(session); i++) {
            fanout_pump(fanout);
            session_pump(session);
            while (opened < line_count) {
                memory_pair_open(lines[opened++].pair);
            }
            step_lines();
        }
    }
    for (unsigned i = 0; i < 100 && !session_is_closed(session); i++) {
        for (unsigned j = 0; j < line_count; j++) {
            memory_pair_cut(lines[j].pair);
        }
        while (step_lines()) {
        }
        fanout_pump(fanout);
    }
    must(session_is_closed(session));
    session_destroy(session);
    fanout_destroy(fanout);
    end_lines();
}

/* What parses is packed to the same bytes. */
static void check_round_trip(const uint8_t *data, size_t size)
{
    struct hop_message message;
    uint8_t bytes[HOP_LENGTH_MAX];
    must(!hop_parse(data, size, &message) ||
         (hop_pack(&message, bytes) == size && memcmp(bytes, data, size) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_round_trip(data, size);
    if (size > 0 && (data[0] & 1) != 0) {
        try_source(data + 1, size - 1);
    } else if (size > 0) {
        try_receiver(data + 1, size - 1);
    }
    return 0;
}
