/* Who is let in, and who is not; and that sealed bytes open once, in order and unchanged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trust/guard.h"

#define PARAMETERS "eager 32 KiB, token 7"

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

/* What the two have said. */
struct talk {
    struct handshake client, server;
    struct handshake_message prove, answer, proof;
};

static void begin(struct talk *talk, const char *name, const struct secret *secret,
                  const char *parameters)
{
    assert_true(handshake_begin_client(&talk->client, name, secret, false, parameters,
                                       strlen(parameters), &talk->prove));
    handshake_begin_server(&talk->server, find, NULL, PARAMETERS, strlen(PARAMETERS));
}

static enum handshake_state hear(struct handshake *handshake,
                                 const struct handshake_message *message,
                                 struct handshake_message *ret_reply)
{
    return handshake_hear(handshake, message->bytes, message->length, ret_reply);
}

static void both_prove_it(struct talk *talk)
{
    struct handshake_message none;
    begin(talk, "alice", &good, PARAMETERS);
    assert_int_equal(hear(&talk->server, &talk->prove, &talk->answer), HANDSHAKE_UNDER_WAY);
    assert_int_equal(hear(&talk->client, &talk->answer, &talk->proof), HANDSHAKE_PROVEN);
    assert_int_equal(hear(&talk->server, &talk->proof, &none), HANDSHAKE_PROVEN);
    assert_int_equal(none.length, 0);
}

static void who_knows_the_secret_is_let_in(void **state)
{
    struct talk talk, again;
    uint8_t keys[4][KEY_LENGTH];
    both_prove_it(&talk);
    both_prove_it(&again);
    assert_string_equal(talk.server.name, "alice");
    assert_true(handshake_derive(&talk.client, "x", keys[0]));
    assert_true(handshake_derive(&talk.server, "x", keys[1]));
    assert_true(handshake_derive(&talk.server, "y", keys[2]));
    assert_true(handshake_derive(&again.server, "x", keys[3]));
    assert_memory_equal(keys[0], keys[1], KEY_LENGTH);
    assert_memory_not_equal(keys[0], keys[2], KEY_LENGTH); /* by purpose */
    assert_memory_not_equal(keys[0], keys[3], KEY_LENGTH); /* and by session */
    for (size_t i = 0; i + SECRET_LENGTH <= talk.prove.length; i++) {
        assert_memory_not_equal(talk.prove.bytes + i, good.bytes, SECRET_LENGTH);
    }
}

/* Nobody proves anything to a wrong key, and the server says the same of names that it has not. */
static void a_wrong_key_or_name_is_refused_by_both(void **state)
{
    static const struct {
        const char *name, *why;
    } cases[] = {{"alice", "wrong key 'alice'"}, {"mallory", "unknown key 'mallory'"}};
    for (size_t i = 0; i < 2; i++) {
        struct talk talk;
        struct handshake_message none;
        begin(&talk, cases[i].name, &other, PARAMETERS);
        assert_int_equal(hear(&talk.server, &talk.prove, &talk.answer), HANDSHAKE_UNDER_WAY);
        assert_int_equal(talk.answer.length, 66);
        assert_int_equal(hear(&talk.client, &talk.answer, &talk.proof), HANDSHAKE_FAILED);
        assert_int_equal(talk.proof.length, 0);
        talk.proof.bytes[0] = HANDSHAKE_PROOF; /* whatever it tries */
        talk.proof.length = 1 + MAC_LENGTH;
        assert_int_equal(hear(&talk.server, &talk.proof, &none), HANDSHAKE_FAILED);
        assert_string_equal(talk.server.why, cases[i].why);
        assert_string_equal(talk.server.told, "this side does not know that key");
        assert_int_equal(hear(&talk.server, &talk.proof, &none), HANDSHAKE_FAILED);
    }
}

/* Even the secret that stands in for an unknown name's lets nobody in. */
static void a_name_that_is_not_known_cannot_be_proven(void **state)
{
    struct talk talk;
    struct handshake_message none;
    begin(&talk, "mallory", &other, PARAMETERS);
    hear(&talk.server, &talk.prove, &talk.answer);
    talk.client.secret = talk.server.secret;
    assert_int_equal(hear(&talk.client, &talk.answer, &talk.proof), HANDSHAKE_PROVEN);
    assert_int_equal(hear(&talk.server, &talk.proof, &none), HANDSHAKE_FAILED);
}

static void a_replay_proves_nothing(void **state)
{
    struct talk recorded;
    struct handshake server, client;
    struct handshake_message reply, prove;
    both_prove_it(&recorded);
    handshake_begin_server(&server, find, NULL, PARAMETERS, strlen(PARAMETERS));
    assert_int_equal(hear(&server, &recorded.prove, &reply), HANDSHAKE_UNDER_WAY);
    assert_int_equal(hear(&server, &recorded.proof, &reply), HANDSHAKE_FAILED);
    assert_string_equal(server.why, "wrong key 'alice'");
    assert_true(handshake_begin_client(&client, "alice", &good, false, PARAMETERS,
                                       strlen(PARAMETERS), &prove));
    assert_int_equal(hear(&client, &recorded.answer, &reply), HANDSHAKE_FAILED);
}

/* What one end said is no proof when it is thrown back. */
static void a_reflection_proves_nothing(void **state)
{
    struct talk talk;
    struct handshake_message reply, thrown = {.length = 1 + MAC_LENGTH};
    begin(&talk, "alice", &good, PARAMETERS);
    hear(&talk.server, &talk.prove, &talk.answer);
    thrown.bytes[0] = HANDSHAKE_PROOF;
    memcpy(thrown.bytes + 1, talk.answer.bytes + talk.answer.length - MAC_LENGTH, MAC_LENGTH);
    assert_int_equal(hear(&talk.server, &thrown, &reply), HANDSHAKE_FAILED);
    begin(&talk, "alice", &good, PARAMETERS);
    assert_int_equal(hear(&talk.client, &talk.prove, &reply), HANDSHAKE_FAILED);
}

static void a_proof_is_of_its_connection(void **state)
{
    struct talk talk;
    struct handshake_message reply;
    begin(&talk, "alice", &good, "eager 32 KiB, token 8");
    hear(&talk.server, &talk.prove, &talk.answer);
    assert_int_equal(hear(&talk.client, &talk.answer, &reply), HANDSHAKE_FAILED);
}

/* Each bit of each message, and each length, counts. */
static void whatever_is_changed_or_cut_fails(void **state)
{
    struct talk whole;
    both_prove_it(&whole);
    for (unsigned which = 0; which < 3; which++) {
        for (size_t bit = 0;; bit++) {
            struct talk talk;
            struct handshake_message reply;
            enum handshake_state states[2] = {0};
            begin(&talk, "alice", &good, PARAMETERS);
            struct handshake_message *messages[] = {&talk.prove, &talk.answer, &talk.proof};
            struct handshake_message *message = messages[which];
            if (which > 0) {
                hear(&talk.server, &talk.prove, &talk.answer);
            }
            if (which > 1) {
                hear(&talk.client, &talk.answer, &talk.proof);
            }
            if (bit >= 9 * message->length) {
                break;
            } else if (bit >= 8 * message->length) {
                message->length = bit - 8 * message->length;
            } else {
                message->bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            }
            if (which == 0) {
                hear(&talk.server, &talk.prove, &talk.answer);
            }
            if (which < 2) {
                states[0] = hear(&talk.client, &talk.answer, &talk.proof);
            }
            states[1] = hear(&talk.server, &talk.proof, &reply);
            assert_int_not_equal(states[1], HANDSHAKE_PROVEN);
            assert_true(which == 2 || states[0] != HANDSHAKE_PROVEN);
        }
    }
}

static void guards_open(struct guard **client, struct guard **server, bool wish, bool demand)
{
    struct handshake_message one, two;
    *client = guard_create_client("alice", &good, wish);
    *server = guard_create_server(find, NULL, demand);
    assert_true(guard_begin(*client, PARAMETERS, strlen(PARAMETERS), &one));
    assert_true(guard_begin(*server, PARAMETERS, strlen(PARAMETERS), &two));
    guard_hear(*server, one.bytes, one.length, &two);
    guard_hear(*client, two.bytes, two.length, &one);
    guard_hear(*server, one.bytes, one.length, &two);
}

static void sealed_bytes_open_once_in_order_and_unchanged(void **state)
{
    struct guard *client, *server;
    char plain[] = "forty-two", opened[sizeof(plain)], sealed[4][sizeof(plain)];
    uint8_t tags[4][TAG_LENGTH];
    guards_open(&client, &server, true, true);
    assert_int_equal(guard_state(server), HANDSHAKE_PROVEN);
    assert_true(guard_encrypts(client) && guard_encrypts(server));
    for (unsigned i = 0; i < 4; i++) {
        assert_true(guard_close(client, i / 2, plain, sizeof(plain), sealed[i], tags[i]));
        assert_memory_not_equal(sealed[i], plain, sizeof(plain));
    }
    assert_memory_not_equal(sealed[0], sealed[1], sizeof(plain)); /* a nonce each */
    assert_memory_not_equal(sealed[0], sealed[2], sizeof(plain)); /* a key for each purpose */
    assert_false(guard_open(client, GUARDED_MESSAGE, sealed[0], sizeof(plain), opened, tags[0]));
    assert_true(guard_open(server, GUARDED_MESSAGE, sealed[0], sizeof(plain), opened, tags[0]));
    assert_memory_equal(opened, plain, sizeof(plain));
    assert_false(guard_open(server, GUARDED_MESSAGE, sealed[0], sizeof(plain), opened, tags[0]));
    assert_false(guard_open(server, GUARDED_CHUNK, sealed[3], sizeof(plain), opened, tags[3]));
    sealed[3][2] ^= 1;
    assert_false(guard_open(server, GUARDED_CHUNK, sealed[3], sizeof(plain), opened, tags[3]));
    guard_destroy(client);
    guard_destroy(server);
}

static void a_server_may_demand_encryption(void **state)
{
    struct guard *client, *server;
    uint8_t tag[TAG_LENGTH];
    guards_open(&client, &server, false, true);
    assert_int_equal(guard_state(server), HANDSHAKE_FAILED);
    assert_non_null(strstr(guard_told(server), "--encrypt"));
    assert_false(guard_close(client, GUARDED_CHUNK, "", 0, tag, tag)); /* it has no key for it */
    guard_destroy(client);
    guard_destroy(server);
}

/* RFC 5869, A.3, cut to 32 octets; RFC 4231, 4.2 with its key filled up by zeros, as HMAC does. */
static void the_library_computes_what_the_standards_say(void **state)
{
    static const uint8_t key[KEY_LENGTH] = {0x0b, 0x0b, 0x0b, 0x0b, 0x0b, 0x0b, 0x0b,
                                            0x0b, 0x0b, 0x0b, 0x0b, 0x0b, 0x0b, 0x0b,
                                            0x0b, 0x0b, 0x0b, 0x0b, 0x0b, 0x0b};
    static const uint8_t mac[MAC_LENGTH] = {0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53,
                                            0x5c, 0xa8, 0xaf, 0xce, 0xaf, 0x0b, 0xf1, 0x2b,
                                            0x88, 0x1d, 0xc2, 0x00, 0xc9, 0x83, 0x3d, 0xa7,
                                            0x26, 0xe9, 0x37, 0x6c, 0x2e, 0x32, 0xcf, 0xf7};
    const struct piece pieces[] = {{"Hi ", 3}, {"There", 5}};
    uint8_t got[MAC_LENGTH];
    assert_true(crypto_mac(key, pieces, 2, got));
    assert_memory_equal(got, mac, MAC_LENGTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_knows_the_secret_is_let_in),
        cmocka_unit_test(a_wrong_key_or_name_is_refused_by_both),
        cmocka_unit_test(a_name_that_is_not_known_cannot_be_proven),
        cmocka_unit_test(a_replay_proves_nothing),
        cmocka_unit_test(a_reflection_proves_nothing),
        cmocka_unit_test(a_proof_is_of_its_connection),
        cmocka_unit_test(whatever_is_changed_or_cut_fails),
        cmocka_unit_test(sealed_bytes_open_once_in_order_and_unchanged),
        cmocka_unit_test(a_server_may_demand_encryption),
        cmocka_unit_test(the_library_computes_what_the_standards_say),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
