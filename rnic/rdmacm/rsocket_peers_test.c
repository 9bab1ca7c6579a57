#include "rnic/rdmacm/rsocket_peers.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sockaddr_storage address_of(uint32_t number, bool v6)
{
    struct sockaddr_storage storage = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&storage;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&storage;
    if (v6) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(7);
        memcpy(six->sin6_addr.s6_addr + 4, &number, sizeof number);
    } else {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)number);
        four->sin_addr.s_addr = htonl(0x0a000000 | number >> 16);
    }
    return storage;
}

static struct peer_entry *add(struct peer_table *table, uint32_t number, bool v6,
                              const struct peer_entry *kept)
{
    struct peer_entry *entry = calloc(1, sizeof *entry);
    assert_non_null(entry);
    entry->address = address_of(number, v6);
    free(peer_table_add(table, entry, kept));
    return entry;
}

static struct peer_entry *find(struct peer_table *table, uint32_t number, bool v6)
{
    struct sockaddr_storage address = address_of(number, v6);
    return peer_table_find(table, (struct sockaddr *)&address);
}

static void end(struct peer_table *table)
{
    struct peer_entry *entry;
    while ((entry = peer_table_pop(table)) != NULL) {
        free(entry);
    }
    peer_table_fini(table);
}

static void peers_are_found_by_address_and_port(void **state)
{
    struct peer_table table = {0};
    assert_int_equal(peer_table_init(&table), 0);
    struct peer_entry *a = add(&table, 1, false, NULL), *b = add(&table, 2, false, NULL);
    struct peer_entry *c = add(&table, 1, true, NULL);
    assert_ptr_equal(find(&table, 1, false), a);
    assert_ptr_equal(find(&table, 2, false), b);
    assert_ptr_equal(find(&table, 1, true), c);
    assert_null(find(&table, 3, false));
    assert_null(find(&table, 1 << 16 | 1, false));
    end(&table);
    struct peer_table never = {0};
    assert_null(peer_table_pop(&never));
    peer_table_fini(&never);
}

static void a_flood_of_strangers_is_bounded(void **state)
{
    struct peer_table table = {0};
    assert_int_equal(peer_table_init(&table), 0);
    struct peer_entry *kept = add(&table, 1, false, NULL), *used = add(&table, 2, false, NULL);
    for (uint32_t i = 100; i < 100 + 5 * PEERS_MAX; i++) {
        add(&table, i, i % 2 == 0, kept);
        assert_true(table.count <= PEERS_MAX);
        if (i % 1000 == 0) {
            assert_ptr_equal(find(&table, 2, false), used); /* who is in use stays */
        }
    }
    assert_ptr_equal(find(&table, 1, false), kept); /* who must not go, though unused */
    assert_null(find(&table, 100, true));
    assert_int_equal(table.count, PEERS_MAX);
    uint32_t longest = 0;
    for (uint32_t i = 0; i < PEERS_MAX; i++) { /* no chain grows long */
        uint32_t length = 0;
        LIST_FOR_EACH(node, &table.buckets[i])
        {
            length++;
        }
        longest = length > longest ? length : longest;
    }
    assert_in_range(longest, 1, 20); /* of 4096 in 4096; by chance 2^-60 */
    end(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_are_found_by_address_and_port),
        cmocka_unit_test(a_flood_of_strangers_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
