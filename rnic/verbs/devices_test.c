/* WEIR_DEVICES and WEIR_LINK_LAYER as programs meet them. They are read once in a process, so each
 * case is a child. */
#include <stdio.h>
#include <sys/wait.h>

#include "rnic/verbs/world_test.h"

/* Runs `look` in a child with the two variables; what it prints to stderr goes to *ret_lines. */
static void in_child(const char *devices, const char *link_layer, void (*look)(void),
                     uint32_t *ret_lines)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        setenv("WEIR_DEVICES", devices, 1);
        setenv("WEIR_LINK_LAYER", link_layer, 1);
        look();
        _exit(0);
    }
    close(ends[1]);
    char bytes[4096];
    ssize_t length;
    uint32_t lines = 0;
    while ((length = read(ends[0], bytes, sizeof bytes)) > 0) {
        for (ssize_t i = 0; i < length; i++) {
            lines += bytes[i] == '\n';
        }
    }
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    *ret_lines = lines;
}

/* In the child cmocka's own would not end it. */
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                 \
            fflush(stdout);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void look_for_none(void)
{
    int count = 7;
    errno = 0;
    NEED(ibv_get_device_list(&count) == NULL && errno == EINVAL && count == 0);
    NEED(ibv_get_device_list(NULL) == NULL);
}

static void malformed(void **state)
{
    static const char *const texts[] = {
        "0",      "17",  "2x",  "weir0=", "=lo", "a,,b", "a,",      "a,a",
        "a:2=lo", "a:x", "a:5", "a=x++y", "a b", "-a",   "a:1,a:1",
    };
    uint32_t lines;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        in_child(texts[i], "", look_for_none, &lines);
        assert_int_equal(lines, 1);
    }
    in_child("", "token-ring", look_for_none, &lines);
    assert_int_equal(lines, 1);
}

static void look_for_two(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_device **again = ibv_get_device_list(NULL);
    NEED(count == 2 && list != NULL && list[2] == NULL);
    NEED(list[0] == again[0] && list[1] == again[1] && list[0] != list[1]);
    NEED(strcmp(ibv_get_device_name(list[0]), "weir0") == 0);
    NEED(strcmp(ibv_get_device_name(list[1]), "weir1") == 0);
    NEED(strcmp(list[1]->dev_name, "uverbs1") == 0);
    NEED(ibv_get_device_index(list[0]) == 0 && ibv_get_device_index(list[1]) == 1);
    NEED(ibv_get_device_guid(list[0]) != ibv_get_device_guid(list[1]));
    ibv_free_device_list(list);
    ibv_free_device_list(again);
}

static void two(void **state)
{
    uint32_t lines;
    in_child("2", "", look_for_two, &lines);
    assert_int_equal(lines, 0);
}

static bool has_gid(struct ibv_context *context, uint8_t port, uint8_t last)
{
    const uint8_t wanted[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = last};
    union ibv_gid gid;
    for (int i = 0; ibv_query_gid(context, port, i, &gid) == 0; i++) {
        if (memcmp(gid.raw, wanted, sizeof wanted) == 0) {
            return true;
        }
    }
    return false;
}

static void look_for_ports(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    NEED(list != NULL && list[0] != NULL && list[1] == NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    NEED(context != NULL && ibv_query_device(context, &device) == 0 && device.phys_port_cnt == 3);
    NEED(has_gid(context, 1, 1) && !has_gid(context, 1, 2));
    NEED(has_gid(context, 2, 2) && !has_gid(context, 2, 1));
    NEED(ibv_query_port(context, 2, &port) == 0 && port.lid == 2);
    NEED(ibv_query_port(context, 3, &port) == 0 && port.state == IBV_PORT_DOWN);
    NEED(ibv_query_port(context, 4, &port) == EINVAL);
    /* The source is that of the port which the vector names. */
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_ah_attr vector = {.port_num = 2, .dlid = 1};
    struct ibv_ah *ah = ibv_create_ah(pd, &vector);
    NEED(ah != NULL && ibv_destroy_ah(ah) == 0);
    vector.port_num = 3;
    NEED(ibv_create_ah(pd, &vector) == NULL && errno == EINVAL);
    vector.port_num = 4;
    NEED(ibv_create_ah(pd, &vector) == NULL && errno == EINVAL);
    vector = (struct ibv_ah_attr){.port_num = 1, .dlid = 0};
    NEED(ibv_create_ah(pd, &vector) == NULL && errno == EINVAL);
    NEED(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

static void ports(void **state)
{
    uint32_t lines;
    in_child("mine:1=127.0.0.1,mine:2=127.0.0.2,mine:3=nowhere0", "", look_for_ports, &lines);
    assert_int_equal(lines, 0);
}

static void look_for_infiniband(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    struct ibv_port_attr port;
    NEED(context != NULL && ibv_query_port(context, 1, &port) == 0);
    NEED(port.link_layer == IBV_LINK_LAYER_INFINIBAND && port.lid == 1 && port.sm_lid != 0);
    NEED((port.flags & IBV_QPF_GRH_REQUIRED) == 0);
    union ibv_gid gid;
    NEED(ibv_query_gid(context, 1, 0, &gid) == 0 && gid.raw[0] == 0xfe && gid.raw[1] == 0x80);
    NEED(has_gid(context, 1, 1));
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_ah_attr vector = {.port_num = 1, .is_global = 1, .grh = {.dgid = gid}};
    struct ibv_ah *ah = ibv_create_ah(pd, &vector);
    NEED(ah != NULL && ibv_destroy_ah(ah) == 0);
    NEED(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

static void link_layer(void **state)
{
    uint32_t lines;
    in_child("weir0=127.0.0.1", "infiniband", look_for_infiniband, &lines);
    assert_int_equal(lines, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed),
        cmocka_unit_test(two),
        cmocka_unit_test(ports),
        cmocka_unit_test(link_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
