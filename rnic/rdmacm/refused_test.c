/* The table of refusals in docs/rdma_cm.md, walked: each row has a case here that draws its error,
 * and each case has a row. Usage: refused_test RDMA_CM.md */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *table_path;

static int error_of(int result)
{
    return result == 0 ? 0 : errno;
}

static struct sockaddr_in ip(const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7471)};
    assert_int_equal(inet_pton(AF_INET, text, &address.sin_addr), 1);
    return address;
}

static int create(struct rdma_cm_id *id)
{
    struct rdma_cm_id *strange;
    return error_of(rdma_create_id(id->channel, &strange, NULL, (enum rdma_port_space)0x999));
}

static int bind_native(struct rdma_cm_id *id)
{
    struct sockaddr_ib address = {.sib_family = AF_IB};
    return error_of(rdma_bind_addr(id, (struct sockaddr *)&address));
}

static int bind_elsewhere(struct rdma_cm_id *id)
{
    struct sockaddr_in address = ip("198.51.100.1");
    return error_of(rdma_bind_addr(id, (struct sockaddr *)&address));
}

static int resolve_native(struct rdma_cm_id *id)
{
    struct sockaddr_ib address = {.sib_family = AF_IB};
    return error_of(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 100));
}

static int name_native(struct rdma_cm_id *id)
{
    struct rdma_addrinfo hints = {.ai_family = AF_IB, .ai_flags = RAI_FAMILY | RAI_NUMERICHOST};
    struct rdma_addrinfo *found;
    return rdma_getaddrinfo("fe80::1", "7471", &hints, &found);
}

static int set(struct rdma_cm_id *id, int level, int name, size_t length)
{
    uint8_t value[8] = {0};
    return error_of(rdma_set_option(id, level, name, value, length));
}

static int set_path(struct rdma_cm_id *id)
{
    return set(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, 8);
}

static int set_other_of_ib(struct rdma_cm_id *id)
{
    return set(id, RDMA_OPTION_IB, 99, 8);
}

static int set_unknown(struct rdma_cm_id *id)
{
    return set(id, RDMA_OPTION_ID, 99, 1);
}

static int set_level(struct rdma_cm_id *id)
{
    return set(id, 7, 0, 1);
}

static int set_length(struct rdma_cm_id *id)
{
    return set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 2);
}

static int set_ece(struct rdma_cm_id *id)
{
    return error_of(rdma_set_local_ece(id, &(struct ibv_ece){.vendor_id = 0}));
}

static void resolve(struct rdma_cm_id *id)
{
    struct sockaddr_in address = ip("127.0.0.1");
    struct rdma_cm_event *event;
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000), 0);
    assert_int_equal(rdma_get_cm_event(id->channel, &event), 0);
    assert_int_equal(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
    rdma_ack_cm_event(event);
}

static int connect_long(struct rdma_cm_id *id)
{
    uint8_t text[57] = {0};
    struct rdma_conn_param parameters = {.private_data = text, .private_data_len = sizeof text};
    struct rdma_cm_event *event;
    resolve(id);
    assert_int_equal(rdma_resolve_route(id, 2000), 0);
    assert_int_equal(rdma_get_cm_event(id->channel, &event), 0);
    rdma_ack_cm_event(event);
    return error_of(rdma_connect(id, &parameters));
}

static int listen_resolving(struct rdma_cm_id *id)
{
    resolve(id);
    return error_of(rdma_listen(id, 1));
}

static const struct {
    const char *call;
    int (*draw)(struct rdma_cm_id *id);
} cases[] = {
    {"rdma_create_id: an unknown port space", create},
    {"rdma_bind_addr: AF_IB", bind_native},
    {"rdma_bind_addr: an address of another host", bind_elsewhere},
    {"rdma_resolve_addr: AF_IB", resolve_native},
    {"rdma_getaddrinfo: AF_IB with RAI_NUMERICHOST and RAI_FAMILY", name_native},
    {"rdma_set_option: RDMA_OPTION_IB_PATH", set_path},
    {"rdma_set_option: another option of RDMA_OPTION_IB", set_other_of_ib},
    {"rdma_set_option: an unknown option of an id", set_unknown},
    {"rdma_set_option: an unknown level", set_level},
    {"rdma_set_option: a value of another length", set_length},
    {"rdma_set_local_ece: vendor 0", set_ece},
    {"rdma_connect: more than 56 bytes of private data", connect_long},
    {"rdma_listen: an id that resolves", listen_resolving},
};

#define CASE_COUNT (sizeof cases / sizeof *cases)

static const struct {
    const char *name;
    int error;
} errors[] = {
    {"EINVAL", EINVAL},         {"ENODEV", ENODEV}, {"EAI_FAMILY", EAI_FAMILY},
    {"EOPNOTSUPP", EOPNOTSUPP}, {"ENOSYS", ENOSYS},
};

static int error_of_name(const char *name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (strcmp(errors[i].name, name) == 0) {
            return errors[i].error;
        }
    }
    fail_msg("unknown error: %s", name);
    return 0;
}

/* Each on an id of its own. */
static int draw(size_t which)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    assert_non_null(channel);
    assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    errno = 0;
    int error = cases[which].draw(id);
    assert_int_equal(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
    return error;
}

static void test_every_row(void **state)
{
    char line[512], call[128], name[32];
    bool walked[CASE_COUNT] = {false};
    FILE *table = fopen(table_path, "re");
    assert_non_null(table);
    while (fgets(line, sizeof line, table) != NULL) {
        size_t i = 0;
        if (sscanf(line, "| `%127[^`]` | %31[A-Z_] |", call, name) != 2) {
            continue;
        }
        while (i < CASE_COUNT && strcmp(cases[i].call, call) != 0) {
            i++;
        }
        if (i == CASE_COUNT) {
            fail_msg("row without a case: %s", call);
        }
        int error = draw(i);
        if (error != error_of_name(name)) {
            fail_msg("%s: %d, not %s", call, error, name);
        }
        walked[i] = true;
    }
    fclose(table);
    for (size_t i = 0; i < CASE_COUNT; i++) {
        if (!walked[i]) {
            fail_msg("case without a row: %s", cases[i].call);
        }
    }
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_row)};
    if (count != 2) {
        return 2;
    }
    table_path = arguments[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
