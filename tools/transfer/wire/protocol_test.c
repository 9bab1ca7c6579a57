#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/transfer/wire/protocol.h"

static struct span span_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

/* Packs, with the entry's data behind. */
static size_t pack(const struct message *message, uint8_t *ret_bytes)
{
    size_t length = protocol_pack(message, ret_bytes);
    struct span data = protocol_data(message);
    if (data.length > 0) {
        memcpy(ret_bytes + length, data.bytes, data.length);
        length += data.length;
    }
    return length;
}

#define SPAN(literal)                                                                              \
    {                                                                                              \
        literal, sizeof(literal) - 1                                                               \
    }

/* One good message of each type. */
static const struct message samples[] = {
    [MESSAGE_HELLO] = {.hello = {.version = PROTOCOL_VERSION,
                                 .direction = DIRECTION_PULL,
                                 .wishes = {WISH_EVERYTHING, PRESERVE_EVERYTHING, 2, 3, 5, 6,
                                            1ull << 40},
                                 .sources = 3,
                                 .rules = 4,
                                 .listed = 7,
                                 .copy = {1, 2, 3},
                                 .target = TARGET_NAME,
                                 .before = 5,
                                 .path = SPAN("/a/b"),
                                 .named = SPAN("b")}},
    [MESSAGE_SOURCE] = {.source = {.path = SPAN("/x y/\xff")}},
    [MESSAGE_LISTED] = {.listed = {.path = SPAN("a/b")}},
    [MESSAGE_WELCOME] = {.welcome = {.version = 1, .target = TARGET_MADE, .device = SPAN("weir0")}},
    [MESSAGE_REFUSED] = {.refused = {.code = PROBLEM_READ_ONLY, .text = SPAN("no")}},
    [MESSAGE_REGION] = {.region = {.chunk_length = 1 << 20,
                                   .chunk_count = 8,
                                   .remote = {0x1122334455667788, 8 << 20, 42}}},
    [MESSAGE_GRANT] = {.grant = {.chunk = 7}},
    [MESSAGE_ENTRY] = {.entry = {.id = 9,
                                 .kind = ENTRY_FILE,
                                 .content = CONTENT_EAGER,
                                 .source = 1,
                                 .mode = 0644,
                                 .mtime_s = -5,
                                 .mtime_ns = 999999999,
                                 .uid = 1000,
                                 .gid = ID_UNKNOWN,
                                 .names = 2,
                                 .size = 5,
                                 .name = SPAN("name"),
                                 .user = SPAN("user"),
                                 .group = SPAN("group"),
                                 .digest = {0xab, 0xcd},
                                 .data = SPAN("bytes")}},
    [MESSAGE_HOLE] = {.hole = {.length = 1ull << 40}},
    [MESSAGE_END] =
        {.end = {.code = PROBLEM_CHANGED, .again = true, .path = SPAN("p"), .text = SPAN("t")}},
    [MESSAGE_LEAVE] = {.type = MESSAGE_LEAVE},
    [MESSAGE_SKIPPED] = {.problem = {.code = PROBLEM_NO_SPACE,
                                     .path = SPAN("path"),
                                     .text = SPAN("full")}},
    [MESSAGE_TOTALS] = {.totals = {.files = 1, .bytes = 2}},
    [MESSAGE_FINISHED] = {.finished = {.entries = 3, .sources = 4}},
    [MESSAGE_FAILED] = {.problem = {.id = 3, .code = PROBLEM_EXISTS, .path = SPAN("path")}},
    [MESSAGE_SUMMARY] = {.summary = {.files = 1, .failed = 5, .held_back = 6}},
    [MESSAGE_ATTRIBUTE] = {.attribute = {.more = true, .name = SPAN("user.a"), .value = SPAN("v")}},
    [MESSAGE_RULE] = {.rule = {.bits = RULE_PERISHABLE, .pattern = SPAN("*.o")}},
    [MESSAGE_ASK] = {.ask = {.names = 1,
                             .questions =
                                 SPAN("\1\0\2\0\0\3d/e\0\1s"
                                      "\0\0\1f\1\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\6\0\0\0\7")}},
    [MESSAGE_ANSWERS] = {.answers = {.count = 3, .answers = SPAN("\0\3sixteen bytes...\1")}},
    [MESSAGE_ITEM] = {.item = {.kind = ENTRY_FILE,
                               .changes = CHANGE_SENT | CHANGE_TIME,
                               .size = 5,
                               .path = SPAN("d/f")}},
    [MESSAGE_ALIVE] = {.type = MESSAGE_ALIVE},
    [MESSAGE_WARNED] = {.problem = {.id = 3, .code = PROBLEM_WARNING, .text = SPAN("torn")}},
    [MESSAGE_PROVEN] = {.proven = {.id = 3, .offset = 4 << 20, .length = 5, .digest = {1, 2}}},
    [MESSAGE_PROVEN_ALL] = {.proven = {.id = 3}},
    [MESSAGE_KEEP] = {.keep = {.length = 4 << 20}},
    [MESSAGE_READ_BACK] = {.read_back = {.id = 3}},
    [MESSAGE_RETRANSMITTED] = {.retransmitted = {.count = 1ull << 40}},
};

static struct message sample(enum message_type type)
{
    struct message message = samples[type];
    message.type = type;
    return message;
}

static void every_message_survives_the_wire(void **state)
{
    for (int type = MESSAGE_HELLO; type <= MESSAGE_READ_BACK; type++) {
        const struct message message = sample(type);
        uint8_t bytes[2][MESSAGE_LENGTH_MAX];
        struct message parsed;
        size_t length = pack(&message, bytes[0]);
        assert_true(protocol_parse(bytes[0], length, &parsed));
        assert_int_equal(parsed.type, type);
        assert_int_equal(pack(&parsed, bytes[1]), length);
        assert_memory_equal(bytes[0], bytes[1], length);
    }
}

static void every_length_but_the_right_one_is_malformed(void **state)
{
    for (int type = MESSAGE_HELLO; type <= MESSAGE_READ_BACK; type++) {
        const struct message message = sample(type);
        uint8_t packed[MESSAGE_LENGTH_MAX] = {0};
        struct message parsed;
        size_t length = pack(&message, packed);
        for (size_t cut = 0; cut <= length + 1; cut++) {
            uint8_t *exact = malloc(cut + 1); /* so that a sanitizer sees a byte too far */
            memcpy(exact, packed, cut);
            assert_int_equal(protocol_parse(exact, cut, &parsed), cut == length);
            free(exact);
        }
    }
}

static void noise_is_refused_or_sound(void **state)
{
    srand(1);
    for (int i = 0; i < 200000; i++) {
        const struct message message = sample(1 + i % MESSAGE_READ_BACK);
        uint8_t bytes[MESSAGE_LENGTH_MAX];
        size_t length = pack(&message, bytes);
        bytes[(size_t)rand() % length] ^= 1 << rand() % 8;
        struct message parsed;
        if (protocol_parse(bytes, length, &parsed) && parsed.type == MESSAGE_ENTRY) {
            assert_true(parsed.entry.name.length == 0 ||
                        name_is_valid(parsed.entry.name.bytes, parsed.entry.name.length));
            assert_true(parsed.entry.content != CONTENT_EAGER ||
                        parsed.entry.data.length == parsed.entry.size);
        }
    }
}

static bool parses(const struct message *message)
{
    uint8_t bytes[MESSAGE_LENGTH_MAX + PATH_LENGTH_MAX];
    struct message parsed;
    return protocol_parse(bytes, pack(message, bytes), &parsed);
}

static void names_are_one_component(void **state)
{
    static const struct {
        const char *name;
        bool good;
    } cases[] = {{"a", true},   {"..", false}, {".", false},      {"a/b", false}, {"/", false},
                 {"...", true}, {"..a", true}, {" \n\xff", true}, {"../x", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct message message = sample(MESSAGE_ENTRY);
        message.entry.name = span_of(cases[i].name);
        assert_int_equal(parses(&message), cases[i].good);
    }
    struct message message = sample(MESSAGE_ENTRY);
    message.entry.name = (struct span){"a\0b", 3};
    assert_false(parses(&message));
    char longest[256];
    memset(longest, 'x', sizeof(longest));
    assert_true(name_is_valid(longest, 255));
    assert_false(name_is_valid(longest, 256));
    assert_false(name_is_valid("", 0));
}

static void rules_are_of_bits_that_go_together(void **state)
{
    struct message message = sample(MESSAGE_RULE);
    message.rule.bits = RULE_EVERYTHING + 1;
    assert_false(parses(&message));
    message.rule.bits = RULE_ABSOLUTE;
    assert_true(parses(&message));
    message.rule.bits = RULE_ZEROS;
    assert_false(parses(&message));
    message.rule.bits = RULE_ALONE;
    assert_false(parses(&message));
    message.rule.bits = RULE_MERGES | RULE_WORDS;
    assert_true(parses(&message));
    message.rule.bits = RULE_MERGES | RULE_INCLUDE;
    assert_false(parses(&message));
    message.rule.bits = RULE_MERGES | RULE_ALONE | RULE_PATTERNS | RULE_INCLUDE | RULE_HIDES;
    assert_true(parses(&message));
    message.rule.pattern = (struct span){"../x", 4};
    assert_false(parses(&message));
    message.rule.pattern = (struct span){"/..", 3};
    assert_false(parses(&message));
    message.rule.pattern = (struct span){"/x", 2};
    assert_true(parses(&message));
}

static void values_out_of_range_are_refused(void **state)
{
    struct message message = sample(MESSAGE_ENTRY);
    message.entry.mode = 010000;
    assert_false(parses(&message));
    message = sample(MESSAGE_ENTRY);
    message.entry.mtime_ns = 1000000000;
    assert_false(parses(&message));
    message = sample(MESSAGE_ENTRY);
    message.entry.size = 1ull << 63;
    assert_false(parses(&message));
    message = sample(MESSAGE_ENTRY);
    message.entry.size = 6; /* one more than there are */
    assert_false(parses(&message));
    message = sample(MESSAGE_ENTRY);
    message.entry.id = 0;
    assert_false(parses(&message));
    message = sample(MESSAGE_REGION);
    message.region.remote.length = (8 << 20) - 1;
    assert_false(parses(&message));
    message = sample(MESSAGE_REGION);
    message.region.chunk_length = CHUNK_LENGTH_MAX + 1;
    assert_false(parses(&message));
    message = sample(MESSAGE_HELLO);
    message.hello.sources = 0;
    assert_false(parses(&message));
    message = sample(MESSAGE_SOURCE);
    message.source.path = (struct span){"a\0b", 3};
    assert_false(parses(&message));
    message = sample(MESSAGE_FAILED);
    message.problem.code = PROBLEM_NONE;
    assert_false(parses(&message));
    message = sample(MESSAGE_HELLO);
    message.hello.wishes.bits = WISH_EVERYTHING + 1;
    assert_false(parses(&message));
    message = sample(MESSAGE_HELLO);
    message.hello.listed = LISTED_MAX + 1;
    assert_false(parses(&message));
    message = sample(MESSAGE_ENTRY);
    message.entry.content = CONTENT_COUNT;
    assert_false(parses(&message));
    message = sample(MESSAGE_ENTRY);
    message.entry.kind = ENTRY_FIFO;
    message.entry.content = CONTENT_NOT_SENT;
    message.entry.size = 0;
    assert_false(parses(&message));
    message = sample(MESSAGE_HELLO);
    message.hello.target = TARGET_IS_COUNT;
    assert_false(parses(&message));
    message = sample(MESSAGE_ITEM);
    message.item.changes = CHANGE_EVERYTHING + 1;
    assert_false(parses(&message));
}

/* A HELLO of any other version says its version and nothing that is looked at. */
static void other_versions_are_known_as_such(void **state)
{
    uint8_t bytes[] = {MESSAGE_HELLO, 0x57, 0x65, 0x69, 0x72, 0, 2, 'o', 't', 'h', 'e', 'r'};
    struct message parsed;
    assert_true(protocol_parse(bytes, sizeof(bytes), &parsed));
    assert_int_equal(parsed.hello.version, 2);
    bytes[6] = PROTOCOL_VERSION;
    assert_false(protocol_parse(bytes, sizeof(bytes), &parsed));
}

static struct message ask_of(unsigned names, const char *bytes, size_t length)
{
    struct message message = {.type = MESSAGE_ASK};
    message.ask.names = (uint16_t)names;
    message.ask.questions = (struct span){bytes, length};
    return message;
}

static void questions_and_answers_are_sound_and_bounded(void **state)
{
    static char many[2 * ASK_LENGTH_MAX];
    struct message message = sample(MESSAGE_ASK);
    const char *good = message.ask.questions.bytes;
    size_t directory = 12, length = message.ask.questions.length;
    message = ask_of(1, good + directory, length - directory); /* a name in no directory */
    assert_false(parses(&message));
    message = ask_of(0, good, directory); /* no name at all */
    assert_false(parses(&message));
    memcpy(many, good, length);
    many[length - 22] = '/'; /* no component */
    message = ask_of(1, many, length);
    assert_false(parses(&message));
    size_t at = directory;
    for (unsigned i = 0; i <= ASK_NAMES_MAX; i++, at += length - directory) {
        memcpy(many + at, good + directory, length - directory);
    }
    message = ask_of(ASK_NAMES_MAX, many, at - (length - directory));
    assert_true(parses(&message));
    message = ask_of(ASK_NAMES_MAX - 1, many, at - (length - directory)); /* miscounted */
    assert_false(parses(&message));
    message = ask_of(ASK_NAMES_MAX + 1, many, at);
    assert_false(parses(&message));
    message = sample(MESSAGE_ANSWERS);
    memset(many, ANSWER_SAME, sizeof(many));
    message.answers.answers = (struct span){many, ASK_NAMES_MAX};
    message.answers.count = ASK_NAMES_MAX;
    assert_true(parses(&message));
    message.answers.answers.length++;
    message.answers.count++;
    assert_false(parses(&message));
    many[1] = ANSWER_COUNT;
    message.answers.answers.length = 2;
    message.answers.count = 2;
    assert_false(parses(&message));
}

static void long_texts_are_cut(void **state)
{
    char text[2 * TEXT_LENGTH_MAX];
    memset(text, 'x', sizeof(text));
    struct message message = sample(MESSAGE_REFUSED), parsed;
    message.refused.text = (struct span){text, sizeof(text)};
    uint8_t bytes[MESSAGE_LENGTH_MAX];
    assert_true(protocol_parse(bytes, pack(&message, bytes), &parsed));
    assert_int_equal(parsed.refused.text.length, TEXT_LENGTH_MAX);
}

static void notices_carry_chunk_and_sequence(void **state)
{
    assert_int_equal(notice_chunk(notice_pack(255, 65535)), 255);
    assert_int_equal(notice_sequence(notice_pack(255, 65535)), 65535);
    assert_int_equal(notice_sequence(notice_pack(65535, 3)), 3);
}

static void codes_have_names(void **state)
{
    for (int code = 0; code < PROBLEM_CODE_COUNT; code++) {
        assert_non_null(problem_code_name(code));
    }
    assert_int_equal(problem_code_of_errno(ENOSPC), PROBLEM_NO_SPACE);
    assert_int_equal(problem_code_of_errno(EIO), PROBLEM_INPUT_OUTPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_survives_the_wire),
        cmocka_unit_test(every_length_but_the_right_one_is_malformed),
        cmocka_unit_test(noise_is_refused_or_sound),
        cmocka_unit_test(names_are_one_component),
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(rules_are_of_bits_that_go_together),
        cmocka_unit_test(other_versions_are_known_as_such),
        cmocka_unit_test(questions_and_answers_are_sound_and_bounded),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(notices_carry_chunk_and_sequence),
        cmocka_unit_test(codes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
