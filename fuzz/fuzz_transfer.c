/* What a hostile peer may say in a transfer: a client and a server each hear the input as messages
 * and notices. Nothing may be written outside the target, and nothing may be CHECKed or read out of
 * bounds.
 *
 * Input: an octet of role (bit 0: server; bit 1: push; bit 2: recursive;
 * bit 3: everything is to be kept; bit 4: what only root may, too; bit 5: interrupted copies are
 * resumed; bit 6: files are read back), two of further wishes in big-endian, then records: an octet
 * of kind (even: message; odd: notice), two of length in big-endian; a message's bytes follow. In a
 * greeting the version ffff is ours. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "fuzz/version.h"
#include "tools/transfer/copy/session.h"
#include "tools/transfer/wire/memory_link.h"
#include "tools/transfer/wire/pack.h"
#include "tools/transfer/wire/protocol.h"

static char scratch[64];

static void must(bool good)
{
    if (!good) {
        abort();
    }
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    if (kind == FTW_D || kind == FTW_DNR) {
        chmod(path, 0700);
    }
    return remove(path);
}

static void remove_scratch(void)
{
    nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The two directories of a run: what may be written, and one beside it that may not. */
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

static void check_nothing_beside(void)
{
    DIR *stream = opendir(scratch);
    int count = 0;
    must(stream != NULL);
    while (readdir(stream) != NULL) {
        count++;
    }
    closedir(stream);
    must(count == 3); /* ".", ".." and the target */
}

static void ignore_problem(void *user, const struct problem *problem)
{
}

static const struct report report = {.problem = ignore_problem};

static struct session *begin(struct memory_pair *pair, unsigned role, unsigned wishes,
                             struct target *target)
{
    static const char *const theirs[] = {"/x", "/", "/y/z"}, *const ours[] = {scratch};
    const struct session_request request = {
        .direction = (role & 2) != 0 ? DIRECTION_PUSH : DIRECTION_PULL,
        .wishes = {.bits = (wishes & WISH_EVERYTHING & ~WISH_RECURSIVE) |
                           ((role & 4) != 0 ? WISH_RECURSIVE : 0) |
                           ((role & 32) != 0 ? WISH_RESUME : 0) |
                           ((role & 64) != 0 ? WISH_VERIFY : 0),
                   .preserve = (role & 8) != 0 ? PRESERVE_EVERYTHING : 0},
        .sources = (role & 2) != 0 ? ours : theirs,
        .source_count = (role & 2) != 0 ? 1 : 3,
        .target_path = "/t",
        .target = target,
    };
    const struct session_service service = {
        .root = target->directory, .super = (role & 16) != 0, .device = "fuzz0"};
    memory_pair_link(pair, 1)->events = &link_unheard;
    return (role & 1) != 0 ? session_create_server(memory_pair_link(pair, 0), &service, &report)
                           : session_create_client(memory_pair_link(pair, 0), &request, &report);
}

/* One record; how many bytes it took. */
static size_t say(struct memory_pair *pair, const uint8_t *data, size_t size)
{
    size_t length = (size_t)data[1] << 8 | data[2];
    if ((data[0] & 1) != 0) {
        memory_pair_inject_notice(pair, 1, notice_pack(data[0] >> 4, data[0] >> 1 & 7),
                                  length << 4);
        return 3;
    }
    length = length < size - 3 ? length : size - 3;
    uint8_t *bytes = with_version(data + 3, length);
    memory_pair_inject(pair, 1, bytes, length);
    free(bytes);
    return 3 + length;
}

/* What parses is packed to the same bytes. */
static void check_round_trip(const uint8_t *data, size_t size)
{
    struct message message;
    if (!protocol_parse(data, size, &message)) {
        return;
    }
    if (message.type == MESSAGE_HELLO && message.hello.version != PROTOCOL_VERSION) {
        return; /* nothing else is known of it */
    }
    uint8_t head[MESSAGE_HEAD_MAX];
    size_t length = protocol_pack(&message, head);
    must(length <= size && memcmp(head, data, length) == 0);
    length += protocol_data(&message).length;
    must(length == size);
}

/* What a pack is taken apart into lies in it, in order. */
static void check_unpack(const uint8_t *data, size_t size)
{
    struct unpack unpack = unpack_start(data, size);
    const uint8_t *at = data;
    for (struct span message; unpack_next(&unpack, &message);) {
        const uint8_t *bytes = message.bytes;
        must(bytes >= at && bytes + message.length <= data + size);
        at = bytes + message.length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_round_trip(data, size);
    check_unpack(data, size);
    if (size < 3) {
        return 0;
    }
    struct target target = {.directory = make_target(), .into = true};
    struct memory_pair *pair = memory_pair_create();
    struct session *session = begin(pair, data[0], (unsigned)data[1] << 8 | data[2], &target);
    memory_pair_open(pair);
    for (size_t at = 3; at + 3 <= size && !session_is_closed(session);) {
        at += say(pair, data + at, size - at);
        for (unsigned i = 0; i < 100 && (session_pump(session) | memory_pair_step(pair)); i++) {
        }
    }
    memory_pair_cut(pair);
    while (memory_pair_step(pair)) {
    }
    must(session_is_closed(session));
    session_destroy(session);
    memory_pair_destroy(pair);
    target_close(&target);
    check_nothing_beside();
    return 0;
}
