/* What an administrator says in /etc/rdma/rsocket: a file with a number for each default. */
#include <stdio.h>

#include "rnic/io/system/clock.h"
#include "rnic/rdmacm/rsocket.h"

#define FOLDER           "/etc/rdma/rsocket/"
#define RECEIVE_MIN      4096u
#define BUFFER_MAX       (1u << 28)
#define POLLING_TIME_MAX 1000000u

static struct rsocket_config config = {
    .sizes =
        {
            .receive_buffer = 1u << 17,
            .send_buffer = 1u << 17,
            .receive_queue = 384,
            .send_queue = 384,
            .inline_data = 64,
        },
    .polling_time_us = 10,
    .wake_up_interval_ms = 500,
};

/* `fallback` where there is no such file or no number in it. */
static uint32_t number(const char *path, uint32_t least, uint32_t most, uint32_t fallback)
{
    unsigned long value;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return fallback;
    }
    bool found = fscanf(file, "%lu", &value) == 1;
    fclose(file);
    if (!found) {
        return fallback;
    }
    return value < least ? least : value > most ? most : (uint32_t)value;
}

static void read_files(void)
{
    struct rsocket_sizes *sizes = &config.sizes;
    config.polling_time_us =
        number(FOLDER "polling_time", 0, POLLING_TIME_MAX, config.polling_time_us);
    config.wake_up_interval_ms =
        (int)number(FOLDER "wake_up_interval", 1, INT32_MAX, (uint32_t)config.wake_up_interval_ms);
    sizes->receive_buffer =
        number(FOLDER "mem_default", RECEIVE_MIN, BUFFER_MAX, sizes->receive_buffer);
    sizes->send_buffer =
        number(FOLDER "wmem_default", 2 * LOW_WATER, BUFFER_MAX, sizes->send_buffer);
    sizes->send_queue =
        (uint16_t)number(FOLDER "sqsize_default", 1, QUEUE_LENGTH_MAX, sizes->send_queue);
    sizes->receive_queue =
        (uint16_t)number(FOLDER "rqsize_default", 1, QUEUE_LENGTH_MAX, sizes->receive_queue);
    sizes->inline_data =
        (uint16_t)number(FOLDER "inline_default", 0, QUEUE_LENGTH_MAX, sizes->inline_data);
    sizes->mappings =
        rsocket_round_mappings(number(FOLDER "iomap_size", 0, MAPPINGS_MAX, sizes->mappings));
}

const struct rsocket_config *rsocket_config(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_files);
    return &config;
}

uint64_t rsocket_now_us(void)
{
    return clock_now().ns / 1000;
}
