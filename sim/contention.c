/* Measures a crowd (crowd.h) in simulated time and prints what each flow got, one line per span.
 *
 *   sim_contention --flows 2 --tcp 1 --rate 1000 --delay 2500 --queue 2500000 --mtu 1024 --ms 10000
 *
 * Columns: time in ms, MB/s of each queue pair, of each TCP flow, frames queued at most. The last
 * line, "total", covers all after --warm. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/crowd.h"

struct options {
    struct crowd_config crowd;
    uint64_t ms, warm_ms, span_ms;
};

static enum path_mtu mtu_of(double bytes)
{
    return bytes == 1024 ? PATH_MTU_1024 : bytes == 256 ? PATH_MTU_256 : PATH_MTU_4096;
}

static bool take_link(struct link_config *link, int choice, double value)
{
    switch (choice) {
    case 'r':
        link->bits_per_second = (uint64_t)(value * 1e6);
        return true;
    case 'd':
        link->delay_ns = (uint64_t)(value * 1e3);
        return true;
    case 'q':
        link->queue_bytes = (uint32_t)value;
        return true;
    case 'F':
        link->queue_limit = (uint32_t)value;
        return true;
    case 'l':
        link->loss = (uint32_t)(value * 1e4);
        return true;
    case 'o':
        link->reorder = (uint32_t)(value * 1e4);
        return true;
    case 'O':
        link->reorder_ns = (uint64_t)(value * 1e3);
        return true;
    default:
        return false;
    }
}

static bool take(struct options *options, int choice, double value)
{
    struct crowd_config *crowd = &options->crowd;
    switch (choice) {
    case 'f':
        crowd->flows = (uint32_t)value;
        return true;
    case 't':
        crowd->tcp_flows = (uint32_t)value;
        return true;
    case 'u':
        crowd->mtu = mtu_of(value);
        return true;
    case 'm':
        crowd->message = (uint32_t)value;
        return true;
    case 'e':
        crowd->depth = (uint32_t)value;
        return true;
    case 's':
        crowd->seed = (uint64_t)value;
        return true;
    case 'R':
        crowd->reads = true;
        return true;
    case 'g':
        crowd->selective = false;
        return true;
    case 'T':
        options->ms = (uint64_t)value;
        return true;
    case 'W':
        options->warm_ms = (uint64_t)value;
        return true;
    case 'S':
        options->span_ms = (uint64_t)value;
        return true;
    default:
        return take_link(&crowd->link, choice, value);
    }
}

static bool parse(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {
        {"flows", required_argument, NULL, 'f'},
        {"tcp", required_argument, NULL, 't'},
        {"rate", required_argument, NULL, 'r'},
        {"delay", required_argument, NULL, 'd'},
        {"queue", required_argument, NULL, 'q'},
        {"frames", required_argument, NULL, 'F'},
        {"loss", required_argument, NULL, 'l'},
        {"reorder", required_argument, NULL, 'o'},
        {"late", required_argument, NULL, 'O'},
        {"mtu", required_argument, NULL, 'u'},
        {"message", required_argument, NULL, 'm'},
        {"depth", required_argument, NULL, 'e'},
        {"seed", required_argument, NULL, 's'},
        {"go-back", no_argument, NULL, 'g'},
        {"ms", required_argument, NULL, 'T'},
        {"warm", required_argument, NULL, 'W'},
        {"span", required_argument, NULL, 'S'},
        {"reads", no_argument, NULL, 'R'},
        {NULL, 0, NULL, 0},
    };
    int choice;
    while ((choice = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (!take(options, choice, optarg != NULL ? strtod(optarg, NULL) : 0)) {
            return false;
        }
    }
    return optind == argc;
}

static void print_rates(const struct crowd *crowd, const struct crowd_config *config, uint64_t ms)
{
    for (uint32_t flow = 0; flow < config->flows; flow++) {
        printf(" %.2f", (double)crowd_done(crowd, flow) / 1e3 / (double)ms);
    }
    for (uint32_t flow = 0; flow < config->tcp_flows; flow++) {
        printf(" %.2f", (double)crowd_tcp_done(crowd, flow) / 1e3 / (double)ms);
    }
    printf(" %u\n", crowd_queued_most(crowd));
}

static void run_spans(struct crowd *crowd, const struct options *options)
{
    for (uint64_t at = 0; at < options->ms; at += options->span_ms) {
        (void)crowd_run(crowd, options->span_ms);
        printf("%llu", (unsigned long long)at);
        print_rates(crowd, &options->crowd, options->span_ms);
    }
}

int main(int argc, char **argv)
{
    struct options options = {
        .crowd = {.flows = 1,
                  .message = 65536,
                  .depth = 64,
                  .mtu = PATH_MTU_4096,
                  .selective = true,
                  .link = {.bits_per_second = UINT64_C(10000000000),
                           .delay_ns = 10000,
                           .drop_tail = true},
                  .seed = 1},
        .ms = 100,
    };
    if (!parse(argc, argv, &options)) {
        fprintf(stderr, "usage: see the head of sim/contention.c\n");
        return 2;
    }
    struct crowd *crowd = crowd_make(&options.crowd);
    if (options.warm_ms > 0) {
        (void)crowd_run(crowd, options.warm_ms);
    }
    if (options.span_ms > 0) {
        run_spans(crowd, &options);
    } else {
        uint64_t rate = crowd_run(crowd, options.ms);
        printf("total %.2f", (double)rate / 1e3);
        print_rates(crowd, &options.crowd, options.ms);
    }
    unsigned asks = options.crowd.reads ? 1 : 0;
    fprintf(stderr, "repeated %llu, timeouts %llu, early %llu, duplicates %llu, answers %llu\n",
            (unsigned long long)crowd_counter(crowd, asks, COUNTER_RETRANSMITTED_PACKETS),
            (unsigned long long)crowd_counter(crowd, asks, COUNTER_TIMEOUTS),
            (unsigned long long)crowd_counter(crowd, 1, COUNTER_EARLY_PACKETS),
            (unsigned long long)crowd_counter(crowd, 1 - asks, COUNTER_DUPLICATE_REQUESTS),
            (unsigned long long)crowd_counter(crowd, 1 - asks, COUNTER_PACKETS_SENT));
    return crowd_end(crowd) ? 0 : 1;
}
