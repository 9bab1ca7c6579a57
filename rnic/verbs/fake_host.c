/* A library that has every call of HOST_CALLS: what host_test loads as the host's own. Each call
 * returns a number of its own, and writes it behind the first word of its object. */
#include <stddef.h>

#include "rnic/verbs/host_calls.h"

#define VISIBLE      __attribute__((visibility("default")))
#define NUMBER(name) number_of_##name,
enum number {
    NUMBER_NONE,
    HOST_CALLS(NUMBER)
};

#define DEFINE(name)                                                                               \
    VISIBLE __attribute__((weak)) long name(void **object);                                        \
    long name(void **object)                                                                       \
    {                                                                                              \
        object[1] = (void *)(size_t)number_of_##name;                                              \
        return number_of_##name;                                                                   \
    }
#define ibv_get_device_list  generic_get_device_list
#define ibv_free_device_list generic_free_device_list
#define ibv_import_device    generic_import_device
#define ibv_fork_init        generic_fork_init
enum {
    number_of_generic_fork_init,
    number_of_generic_get_device_list,
    number_of_generic_free_device_list,
    number_of_generic_import_device
};
HOST_CALLS(DEFINE)
#undef ibv_get_device_list
#undef ibv_free_device_list
#undef ibv_import_device
#undef ibv_fork_init

static struct {
    void *words[3];
    char name[600];
} fake_device = {.name = "fake0"};

static void *the_list[] = {&fake_device, NULL};

VISIBLE void **ibv_get_device_list(int *ret_count);
void **ibv_get_device_list(int *ret_count)
{
    *ret_count = 1;
    return the_list;
}

VISIBLE void ibv_free_device_list(void **list);
void ibv_free_device_list(void **list)
{
    fake_device.words[2] = list == the_list ? &fake_device : NULL;
}

VISIBLE long ibv_fork_init(void);
long ibv_fork_init(void)
{
    return number_of_ibv_fork_init;
}

VISIBLE long ibv_import_device(int descriptor);
long ibv_import_device(int descriptor)
{
    return number_of_ibv_import_device + descriptor;
}
