/* Who is let in, and who is not; and that sealed bytes open once, in order and unchanged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trust/guard.h"

#define PARAMETERS  "eager 32 KiB, token 7"
#define MESSAGE_MAX 40000

static struct secret good, other;

static const struct secret *find(void *user, const char *name)
{
    return strcmp(name, "alice") == 0 ? &good : NULL;
}

static int setup(void **state)
{
    assert_true(secret_make(&good) && secret_make(&other));
    return 0;
}

/* What one of two said; it stays. */
struct said {
    uint8_t bytes[16384];
    size_t length;
};

struct talk {
    struct guard *client, *server;
    struct said first, answer, last;
};

static void keep(struct said *said, const struct guard_message *message)
{
    assert_true(message->length <= sizeof(said->bytes));
    said->length = message->length;
    if (message->length > 0) {
        memcpy(said->bytes, message->bytes, message->length);
    }
}

static enum guard_state hear(struct guard *guard, const struct said *said, struct said *ret_reply)
{
    struct guard_message reply;
    enum guard_state state = guard_hear(guard, said->bytes, said->length, &reply);
    keep(ret_reply, &reply);
    assert_int_equal(state, guard_state(guard));
    return state;
}

static void begin_with(struct talk *talk, const char *name, const struct secret *secret,
                       const char *parameters, bool encrypt)
{
    struct guard_message message;
    *talk = (struct talk){.client = guard_create_client(name, secret, encrypt),
                          .server = guard_create_server(find, NULL, NULL, encrypt)};
    assert_true(talk->client != NULL && talk->server != NULL);
    assert_true(guard_begin(talk->server, PARAMETERS, strlen(PARAMETERS), &message));
    assert_int_equal(message.length, 0);
    assert_true(guard_begin(talk->client, parameters, strlen(parameters), &message));
    keep(&talk->first, &message);
}

static void begin(struct talk *talk)
{
    begin_with(talk, "alice", &good, PARAMETERS, false);
}

static void end(struct talk *talk)
{
    guard_destroy(talk->client);
    guard_destroy(talk->server);
}

static void both_prove_it(struct talk *talk, bool encrypt)
{
    struct said none;
    begin_with(talk, "alice", &good, PARAMETERS, encrypt);
    assert_int_equal(hear(talk->server, &talk->first, &talk->answer), GUARD_UNDER_WAY);
    assert_int_equal(hear(talk->client, &talk->answer, &talk->last), GUARD_PROVEN);
    assert_int_equal(hear(talk->server, &talk->last, &none), GUARD_PROVEN);
    assert_int_equal(none.length, 0);
}

static bool holds(const struct said *said, const void *bytes, size_t length)
{
    for (size_t i = 0; i + length <= said->length; i++) {
        if (memcmp(said->bytes + i, bytes, length) == 0) {
            return true;
        }
    }
    return false;
}

static void who_knows_the_secret_is_let_in(void **state)
{
    struct talk talk;
    both_prove_it(&talk, false);
    assert_string_equal(guard_name(talk.server), "alice");
    assert_false(guard_encrypts(talk.server));
    assert_true(holds(&talk.first, "alice", 5)); /* as the header says */
    assert_false(holds(&talk.first, good.bytes, 8));
    assert_false(holds(&talk.answer, good.bytes, 8));
    assert_false(holds(&talk.last, good.bytes, 8));
    end(&talk);
}

/* The server says the same of names that it has not, and nothing of its own before that. */
static void a_wrong_key_or_name_is_refused(void **state)
{
    static const struct {
        const char *name, *why;
    } cases[] = {{"alice", "wrong key 'alice'"}, {"mallory", "unknown key 'mallory'"}};
    for (size_t i = 0; i < 2; i++) {
        struct talk talk;
        begin_with(&talk, cases[i].name, &other, PARAMETERS, false);
        assert_int_equal(hear(talk.server, &talk.first, &talk.answer), GUARD_FAILED);
        assert_int_equal(talk.answer.length, 0);
        assert_string_equal(guard_why(talk.server), cases[i].why);
        assert_string_equal(guard_told(talk.server), "the other side does not know this key");
        assert_int_equal(hear(talk.server, &talk.first, &talk.answer), GUARD_FAILED);
        end(&talk);
    }
}

static void a_name_that_is_none_is_refused(void **state)
{
    struct talk talk;
    begin_with(&talk, "a/../b\n", &good, PARAMETERS, false);
    assert_int_equal(hear(talk.server, &talk.first, &talk.answer), GUARD_FAILED);
    assert_string_equal(guard_name(talk.server), ""); /* it would be in the log */
    end(&talk);
}

static const struct secret *find_other(void *user, const char *name)
{
    return &other;
}

/* One who answers for the server, without its secret. */
static void a_client_sees_a_false_server(void **state)
{
    struct talk talk, elsewhere;
    struct guard_message message;
    struct said reply;
    begin(&talk);
    struct guard *server = guard_create_server(find_other, NULL, NULL, false);
    assert_true(guard_begin(server, PARAMETERS, strlen(PARAMETERS), &message));
    assert_int_equal(hear(server, &talk.first, &talk.answer), GUARD_FAILED);
    guard_destroy(server);
    begin(&elsewhere); /* another session's answer */
    assert_int_equal(hear(elsewhere.server, &elsewhere.first, &elsewhere.answer), GUARD_UNDER_WAY);
    assert_int_equal(hear(talk.client, &elsewhere.answer, &reply), GUARD_FAILED);
    assert_int_equal(reply.length, 0);
    assert_non_null(strstr(guard_why(talk.client), "is not who it should be"));
    end(&talk);
    end(&elsewhere);
}

static void a_replay_proves_nothing(void **state)
{
    struct talk recorded, talk;
    struct said reply;
    both_prove_it(&recorded, false);
    begin(&talk); /* even where the connection's parameters are the same */
    assert_int_equal(hear(talk.server, &recorded.first, &reply), GUARD_UNDER_WAY);
    assert_int_equal(hear(talk.server, &recorded.last, &reply), GUARD_FAILED);
    assert_int_equal(hear(talk.client, &recorded.answer, &reply), GUARD_FAILED);
    end(&talk);
    end(&recorded);
}

static void what_is_thrown_back_proves_nothing(void **state)
{
    struct talk talk;
    struct said reply;
    begin(&talk);
    assert_int_equal(hear(talk.client, &talk.first, &reply), GUARD_FAILED);
    assert_int_equal(hear(talk.server, &talk.first, &talk.answer), GUARD_UNDER_WAY);
    assert_int_equal(hear(talk.server, &talk.answer, &reply), GUARD_FAILED);
    end(&talk);
}

static void a_proof_is_of_its_connection(void **state)
{
    struct talk talk;
    begin_with(&talk, "alice", &good, "eager 32 KiB, token 8", false);
    assert_int_equal(hear(talk.server, &talk.first, &talk.answer), GUARD_FAILED);
    end(&talk);
}

static void nothing_is_taken_before_the_proof(void **state)
{
    static const uint8_t hello[] = {1, 0, 3};
    struct talk talk;
    struct guard_message reply;
    uint8_t bytes[64];
    size_t length;
    begin(&talk);
    assert_false(guard_close(talk.client, hello, sizeof(hello), bytes, &length));
    assert_false(guard_open(talk.server, hello, sizeof(hello), bytes, sizeof(bytes), &length));
    assert_int_equal(guard_hear(talk.server, hello, sizeof(hello), &reply), GUARD_FAILED);
    assert_string_equal(guard_why(talk.server), "it has no key");
    end(&talk);
    begin(&talk); /* a message beside the last of the handshake */
    assert_int_equal(hear(talk.server, &talk.first, &talk.answer), GUARD_UNDER_WAY);
    assert_int_equal(hear(talk.client, &talk.answer, &talk.last), GUARD_PROVEN);
    assert_true(guard_close(talk.client, hello, sizeof(hello), bytes, &length));
    memcpy(talk.last.bytes + talk.last.length, bytes, length);
    talk.last.length += length;
    assert_int_equal(hear(talk.server, &talk.last, &talk.answer), GUARD_FAILED);
    end(&talk);
}

static void who_says_much_is_not_heard(void **state)
{
    static const struct said dummy = {{20, 3, 3, 0, 1, 1}, 6}; /* TLS passes over it */
    struct talk talk;
    struct said reply;
    unsigned count = 0;
    begin(&talk);
    assert_int_equal(hear(talk.server, &talk.first, &reply), GUARD_UNDER_WAY);
    while (hear(talk.server, &dummy, &reply) == GUARD_UNDER_WAY) {
        assert_true(++count < 10);
    }
    end(&talk);
}

/* Each octet of each message, and each length, counts; but for the version in a record's head,
 * which is to be ignored (RFC 8446, 5.1). */
static void whatever_is_changed_or_cut_fails(void **state)
{
    for (unsigned which = 0; which < 3; which++) {
        for (size_t i = 0;; i++) {
            struct talk talk;
            struct said reply;
            enum guard_state states[2] = {GUARD_UNDER_WAY, GUARD_UNDER_WAY};
            struct said *changed[] = {&talk.first, &talk.answer, &talk.last};
            begin(&talk);
            if (which > 0) {
                hear(talk.server, &talk.first, &talk.answer);
            }
            if (which > 1) {
                hear(talk.client, &talk.answer, &talk.last);
            }
            size_t whole = changed[which]->length;
            if (i >= 2 * whole) {
                end(&talk);
                break;
            } else if (i >= whole) {
                changed[which]->length = i - whole;
            } else if (i != 1 && i != 2) {
                changed[which]->bytes[i] ^= (uint8_t)(1 << rand() % 8);
            }
            bool same = i == 1 || i == 2;
            if (which == 0) {
                hear(talk.server, &talk.first, &talk.answer);
            }
            if (which < 2 && talk.answer.length > 0) {
                states[0] = hear(talk.client, &talk.answer, &talk.last);
            }
            if (talk.last.length > 0) {
                states[1] = hear(talk.server, &talk.last, &reply);
            }
            assert_true(same == (states[1] == GUARD_PROVEN));
            assert_true(which == 2 || same == (states[0] == GUARD_PROVEN));
            end(&talk);
        }
    }
}

/* A client of another make, by OpenSSL alone. */
struct stranger {
    SSL_CTX *context;
    SSL *ssl;
    struct said first;
};

static int use_good(SSL *ssl, const EVP_MD *digest, const unsigned char **ret_identity,
                    size_t *ret_length, SSL_SESSION **ret_session)
{
    static const unsigned char suite[] = {0x13, 0x02};
    SSL_SESSION *session = SSL_SESSION_new();
    *ret_identity = (const unsigned char *)"alice";
    *ret_length = 5;
    *ret_session = session;
    return SSL_SESSION_set1_master_key(session, good.bytes, SECRET_LENGTH) == 1 &&
           SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, suite)) == 1 &&
           SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
}

static void come_as_stranger(struct stranger *stranger, int version, bool with_key)
{
    stranger->context = SSL_CTX_new(TLS_client_method());
    assert_int_equal(SSL_CTX_set_max_proto_version(stranger->context, version), 1);
    if (with_key) {
        SSL_CTX_set_psk_use_session_callback(stranger->context, use_good);
    }
    stranger->ssl = SSL_new(stranger->context);
    BIO *from = BIO_new(BIO_s_mem()), *to = BIO_new(BIO_s_mem());
    SSL_set_bio(stranger->ssl, from, to);
    assert_int_equal(SSL_connect(stranger->ssl), -1);
    int length = BIO_read(to, stranger->first.bytes, sizeof(stranger->first.bytes));
    assert_true(length > 0);
    stranger->first.length = (size_t)length;
}

static void leave(struct stranger *stranger)
{
    SSL_free(stranger->ssl);
    SSL_CTX_free(stranger->context);
}

static void strangers_are_refused(void **state)
{
    static const struct {
        int version;
        bool with_key;
        const char *why;
    } cases[] = {
        {TLS1_2_VERSION, false, "it does not speak TLS 1.3"}, /* no way down */
        {TLS1_3_VERSION, false, "it offers no key"},
        {TLS1_3_VERSION, true, "its handshake is of no connection"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct talk talk;
        struct stranger stranger;
        begin(&talk);
        come_as_stranger(&stranger, cases[i].version, cases[i].with_key);
        enum guard_state got = hear(talk.server, &stranger.first, &talk.answer);
        if (cases[i].with_key) { /* it knows the secret, and does not show of which connection */
            assert_int_equal(got, GUARD_UNDER_WAY);
            BIO *bio = SSL_get_rbio(stranger.ssl);
            BIO_write(bio, talk.answer.bytes, (int)talk.answer.length);
            assert_int_equal(SSL_connect(stranger.ssl), 1);
            talk.last.length = (size_t)BIO_read(SSL_get_wbio(stranger.ssl), talk.last.bytes,
                                                sizeof(talk.last.bytes));
            got = hear(talk.server, &talk.last, &talk.answer);
        }
        assert_int_equal(got, GUARD_FAILED);
        assert_int_equal(talk.answer.length, 0);
        assert_string_equal(guard_why(talk.server), cases[i].why);
        leave(&stranger);
        end(&talk);
    }
}

/* Seals and opens; false: it does not open. */
static bool send(struct guard *from, struct guard *to, const uint8_t *bytes, size_t length)
{
    static uint8_t sealed[GUARD_SEALED_LENGTH(MESSAGE_MAX)], opened[MESSAGE_MAX];
    size_t sealed_length, opened_length;
    assert_true(guard_close(from, bytes, length, sealed, &sealed_length));
    assert_true(sealed_length > length && sealed_length <= GUARD_SEALED_LENGTH(length));
    return guard_open(to, sealed, sealed_length, opened, sizeof(opened), &opened_length) &&
           opened_length == length && memcmp(opened, bytes, length) == 0;
}

static void messages_of_any_length_cross_under_any_keys(void **state)
{
    static const size_t lengths[] = {1, 100, 16383, 16384, 16385, 32768, 33795, MESSAGE_MAX};
    static uint8_t bytes[MESSAGE_MAX];
    struct talk talk;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)rand();
    }
    both_prove_it(&talk, false);
    for (size_t i = 0; i < 3 * sizeof(lengths) / sizeof(lengths[0]); i++) {
        if (i % 3 == 1) {
            guard_renew(i % 2 == 0 ? talk.client : talk.server);
        }
        assert_true(send(talk.client, talk.server, bytes, lengths[i / 3]));
        assert_true(send(talk.server, talk.client, bytes, lengths[i / 3]));
    }
    guard_renew(talk.client);
    for (unsigned i = 0; i < 2; i++) { /* announced once */
        uint8_t sealed[GUARD_SEALED_LENGTH(100)];
        size_t length;
        assert_true(guard_close(talk.client, bytes, 100, sealed, &length));
        assert_int_equal(length, i == 0 ? 100 + 22 + 27 : 100 + 22);
    }
    end(&talk);
}

/* One that was changed, cut, joined, repeated, left out or thrown back ends it. */
static void a_message_opens_once_in_order_and_unchanged(void **state)
{
    enum {
        SAME,
        CHANGED,
        CUT,
        JOINED,
        REPEATED,
        LEFT_OUT,
        BACK,
        LONG,
        WAYS
    };
    static const uint8_t plain[] = "forty-two";
    for (int way = SAME; way < WAYS; way++) {
        struct talk talk;
        uint8_t one[64], two[2 * 64], opened[64];
        size_t one_length, two_length, length;
        both_prove_it(&talk, false);
        assert_true(guard_close(talk.client, plain, sizeof(plain), one, &one_length));
        assert_true(guard_close(talk.client, plain, sizeof(plain), two, &two_length));
        assert_memory_not_equal(one, two, one_length);
        one[one_length / 2] ^= way == CHANGED;
        memcpy(two + two_length, one, one_length);
        two_length += way == JOINED ? one_length - 1 : 0;
        if (way != LEFT_OUT) {
            bool opens = guard_open(way == BACK ? talk.client : talk.server, one,
                                    way == CUT ? one_length - 1 : one_length, opened,
                                    way == LONG ? sizeof(plain) - 1 : sizeof(opened), &length);
            assert_true(opens == (way == SAME || way == REPEATED || way == JOINED));
            assert_true(!opens || memcmp(opened, plain, sizeof(plain)) == 0);
        }
        assert_true((way == SAME) == guard_open(way == BACK ? talk.client : talk.server,
                                                way == REPEATED ? one : two, two_length, opened,
                                                sizeof(opened), &length));
        assert_true(way == SAME ||
                    guard_state(way == BACK ? talk.client : talk.server) == GUARD_FAILED);
        end(&talk);
    }
}

static void a_chunk_opens_once_in_order_and_unchanged(void **state)
{
    char plain[] = "forty-two", opened[sizeof(plain)], sealed[4][sizeof(plain)];
    uint8_t tags[4][TAG_LENGTH];
    struct talk talk;
    both_prove_it(&talk, true);
    assert_true(guard_encrypts(talk.client) && guard_encrypts(talk.server));
    for (unsigned i = 0; i < 4; i++) {
        struct guard *from = i < 3 ? talk.client : talk.server;
        assert_true(guard_close_chunk(from, plain, sizeof(plain), sealed[i], tags[i]));
        assert_memory_not_equal(sealed[i], plain, sizeof(plain));
    }
    assert_memory_not_equal(sealed[0], sealed[1], sizeof(plain)); /* a nonce each */
    assert_memory_not_equal(sealed[0], sealed[3], sizeof(plain)); /* a key for each direction */
    assert_true(guard_open_chunk(talk.server, sealed[0], sizeof(plain), opened, tags[0]));
    assert_memory_equal(opened, plain, sizeof(plain));
    assert_false(guard_open_chunk(talk.server, sealed[0], sizeof(plain), opened, tags[0]));
    sealed[2][2] ^= 1;
    assert_false(guard_open_chunk(talk.server, sealed[2], sizeof(plain), opened, tags[2]));
    assert_true(guard_open_chunk(talk.client, sealed[3], sizeof(plain), opened, tags[3]));
    end(&talk);
}

static void a_server_may_demand_encryption(void **state)
{
    struct talk talk;
    struct guard_message message;
    uint8_t tag[TAG_LENGTH];
    begin(&talk);
    struct guard *server = guard_create_server(find, NULL, NULL, true);
    assert_true(guard_begin(server, PARAMETERS, strlen(PARAMETERS), &message));
    hear(server, &talk.first, &talk.answer);
    assert_int_equal(hear(talk.client, &talk.answer, &talk.last), GUARD_PROVEN);
    assert_int_equal(hear(server, &talk.last, &talk.answer), GUARD_FAILED);
    assert_non_null(strstr(guard_told(server), "--encrypt"));
    assert_false(guard_close_chunk(talk.client, "", 0, tag, tag)); /* it has no key for it */
    guard_destroy(server);
    end(&talk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_knows_the_secret_is_let_in),
        cmocka_unit_test(a_wrong_key_or_name_is_refused),
        cmocka_unit_test(a_name_that_is_none_is_refused),
        cmocka_unit_test(a_client_sees_a_false_server),
        cmocka_unit_test(a_replay_proves_nothing),
        cmocka_unit_test(what_is_thrown_back_proves_nothing),
        cmocka_unit_test(a_proof_is_of_its_connection),
        cmocka_unit_test(nothing_is_taken_before_the_proof),
        cmocka_unit_test(who_says_much_is_not_heard),
        cmocka_unit_test(whatever_is_changed_or_cut_fails),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(messages_of_any_length_cross_under_any_keys),
        cmocka_unit_test(a_message_opens_once_in_order_and_unchanged),
        cmocka_unit_test(a_chunk_opens_once_in_order_and_unchanged),
        cmocka_unit_test(a_server_may_demand_encryption),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
