/* What a server lets in, as what, and where it connects to for others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/remote/greeting.h"
#include "tools/serve_private.h"
#include "tools/transfer/wire/memory_link.h"

#define ROOT      5 /* descriptors that nobody uses */
#define ROOT_OF_A 6

static bool make_numbers(void *bytes, size_t length)
{
    memset(bytes, 0x5a, length);
    return true;
}

struct door {
    struct serve serve;
    struct served served;
    struct key keys[2];
    struct memory_pair *source; /* of the one that is to be fed here */
    struct relay *relay;
    char hop[HOP_NAME_LENGTH];
};

static int setup(void **state)
{
    struct door *door = calloc(1, sizeof(*door));
    struct serve *serve = &door->serve;
    struct hop_message ready;
    size_t length;
    door->keys[0] = (struct key){.name = "a", .read_only = true, .user = ROOT_OF_A};
    door->keys[1] = (struct key){.name = "b", .user = -1};
    serve->keys = (struct keys){.list = door->keys, .count = 2};
    serve->service.root = ROOT;
    serve->service.root_count = 1;
    serve->relays = (struct relay_host){.random = make_numbers, .guarded = true};
    door->served.serve = serve;
    door->source = memory_pair_create();
    door->relay = relay_create(&serve->relays, memory_pair_link(door->source, 1));
    const void *said = memory_pair_last_message(door->source, 1, &length);
    assert_true(hop_parse(said, length, &ready) && ready.type == HOP_READY);
    hop_name(ready.ready.id, door->hop);
    *state = door;
    return 0;
}

static int teardown(void **state)
{
    struct door *door = *state;
    relay_destroy(door->relay);
    memory_pair_destroy(door->source);
    free(door);
    return 0;
}

static void a_key_opens_what_is_the_keys(void **state)
{
    struct door *door = *state;
    struct session_service service;
    assert_ptr_equal(serve_find_secret(&door->served, "a"), &door->keys[0].secret);
    assert_null(serve_admit(&door->served, "a", &service));
    assert_true(service.read_only);
    assert_int_equal(service.root, ROOT_OF_A);
    assert_int_equal(service.root_count, 0);
    assert_string_equal(service.hop_name, "");
    assert_ptr_equal(serve_find_secret(&door->served, "b"), &door->keys[1].secret);
    assert_null(serve_admit(&door->served, "b", &service));
    assert_false(service.read_only);
    assert_int_equal(service.root, ROOT);
    assert_null(serve_find_secret(&door->served, "c"));
    assert_non_null(serve_admit(&door->served, "c", &service));
    assert_null(serve_find_secret(&door->served, GREETING_KEY_NAME));
}

static void a_key_that_is_gone_opens_nothing(void **state)
{
    struct door *door = *state;
    struct session_service service;
    assert_non_null(serve_find_secret(&door->served, "a"));
    door->serve.keys.count = 0;
    assert_string_equal(serve_admit(&door->served, "a", &service),
                        "its key does not count any more");
}

static void a_token_opens_the_feeding_alone(void **state)
{
    struct door *door = *state;
    struct session_service service;
    assert_ptr_equal(serve_find_secret(&door->served, door->hop),
                     relay_secret(&door->serve.relays, door->hop));
    assert_null(serve_admit(&door->served, door->hop, &service));
    assert_string_equal(service.hop_name, door->hop);
    assert_int_equal(door->served.proof, PROOF_HOP);
}

/* Who may only read has itself a token, and lets it go while it proves that it knows its secret. */
static void a_token_that_is_gone_opens_nothing(void **state)
{
    struct door *door = *state;
    struct session_service service;
    for (unsigned session = 0; session < 2; session++) {
        door->serve.options.session = session == 1;
        assert_non_null(serve_find_secret(&door->served, door->hop));
        relay_destroy(door->relay);
        door->relay = NULL;
        assert_string_equal(serve_admit(&door->served, door->hop, &service),
                            "it is not awaited any more");
        door->relay = relay_create(&door->serve.relays, memory_pair_link(door->source, 1));
    }
}

/* Nor does a key of the same name, if it was the token's secret that was proven. */
static void a_token_is_no_key(void **state)
{
    struct door *door = *state;
    struct session_service service;
    snprintf(door->keys[1].name, sizeof(door->keys[1].name), "%s", door->hop);
    assert_ptr_not_equal(serve_find_secret(&door->served, door->hop), &door->keys[1].secret);
    relay_destroy(door->relay);
    door->relay = NULL;
    assert_non_null(serve_admit(&door->served, door->hop, &service));
}

/* By a certificate, say: what it had offered before counts for nothing. */
static void a_name_that_is_offered_is_not_proven(void **state)
{
    struct door *door = *state;
    struct session_service service;
    static const char *const offered[] = {"a", NULL};
    for (unsigned i = 0; i < 2; i++) {
        serve_find_secret(&door->served, offered[i] != NULL ? offered[i] : door->hop);
        assert_null(serve_admit(&door->served, "CN=somebody else", &service));
        assert_int_equal(door->served.proof, PROOF_NONE);
        assert_string_equal(service.hop_name, "");
        assert_int_equal(service.root, ROOT);
    }
}

/* To look up a name would hold up all others: nothing is tried with one, not even the poller. */
static void nobody_is_dialled_by_name(void **state)
{
    static const char *const names[] = {"localhost:7471", "host.example:1", "*:7471", ":7471"};
    struct hop_dial dial = {.poller = NULL};
    const struct hop_dialer dialer = hop_dialer_of(&dial);
    struct hop_target target = {.address_count = 1};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char why[HOP_WHY_LENGTH] = "", expected[HOP_WHY_LENGTH];
        snprintf(target.addresses[0], HOP_ADDRESS_LENGTH, "%s", names[i]);
        snprintf(expected, sizeof(expected), "'%s' is no numeric address", names[i]);
        assert_null(dialer.dial(dialer.user, &target, 0, why));
        assert_string_equal(why, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(a_key_opens_what_is_the_keys),
        T(a_key_that_is_gone_opens_nothing),
        T(a_token_opens_the_feeding_alone),
        T(a_token_that_is_gone_opens_nothing),
        T(a_token_is_no_key),
        T(a_name_that_is_offered_is_not_proven),
        cmocka_unit_test(nobody_is_dialled_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
