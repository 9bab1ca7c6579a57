/* What goodput is left of a link that loses packets, how one link is shared, and what sixteen
 * writers make of one receiver: in simulated time, so the same figures come each time. docs/loss.md
 * has more of them, which sim/loss_figures.py makes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "sim/crowd.h"

/* 10 Gbit/s, 10 us each way. */
static struct crowd_config lan(bool selective)
{
    return (struct crowd_config){
        .flows = 1,
        .message = 65536,
        .depth = 64,
        .mtu = PATH_MTU_4096,
        .selective = selective,
        .link = {.bits_per_second = UINT64_C(10000000000), .delay_ns = 10000, .drop_tail = true},
        .seed = 1,
    };
}

static uint64_t goodput(bool selective, uint32_t loss, uint64_t delay_ns)
{
    struct crowd_config config = lan(selective);
    config.link.loss = loss;
    config.link.delay_ns = delay_ns;
    config.depth = 512;
    struct crowd *crowd = crowd_make(&config);
    (void)crowd_run(crowd, delay_ns >= 1000000 ? 300 : 10);
    uint64_t rate = crowd_run(crowd, 60);
    assert_true(crowd_end(crowd));
    return rate;
}

static void goodput_under_random_loss(void **state)
{
    (void)state;
    static const struct {
        uint32_t loss;     /* per million */
        uint32_t at_least; /* percent of the lossless figure */
    } marks[] = {{100, 98}, {1000, 95}, {10000, 80}, {50000, 40}};
    uint64_t whole = goodput(true, 0, 10000);
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t selective = goodput(true, marks[i].loss, 10000) * 100 / whole;
        uint64_t go_back = goodput(false, marks[i].loss, 10000) * 100 / whole;
        printf("loss of %u per million: %llu%% of the lossless goodput, go-back-N %llu%%\n",
               marks[i].loss, (unsigned long long)selective, (unsigned long long)go_back);
        assert_true(selective >= marks[i].at_least);
        assert_true(selective >= go_back);
    }
}

/* What is lost of a response holds up what has come behind it, and with that the window. */
static void goodput_of_reads_under_random_loss(void **state)
{
    (void)state;
    static const struct {
        uint32_t loss;
        uint32_t at_least;
    } marks[] = {{10000, 88}, {50000, 74}, {100000, 55}};
    struct crowd_config config = lan(true);
    config.reads = true;
    uint64_t whole = 0;
    for (uint32_t i = 0; i < 4; i++) {
        config.link.loss = i > 0 ? marks[i - 1].loss : 0;
        struct crowd *crowd = crowd_make(&config);
        (void)crowd_run(crowd, 10);
        uint64_t rate = crowd_run(crowd, 60);
        assert_true(crowd_end(crowd));
        whole = i > 0 ? whole : rate;
        printf("READs, loss of %u per million: %llu%% of the lossless goodput\n", config.link.loss,
               (unsigned long long)(rate * 100 / whole));
        assert_true(i == 0 || rate * 100 >= whole * marks[i - 1].at_least);
    }
}

/* Patience that has grown while a queue did is lost again, or each gap is waited for longer than it
 * takes to probe for it, and two thousand small packets have a hundred. */
static void reads_of_small_packets_do_not_crawl(void **state)
{
    (void)state;
    struct crowd_config config = lan(true);
    config.reads = true;
    config.message = 1u << 20;
    config.mtu = PATH_MTU_256;
    config.link.loss = 50000;
    struct crowd *crowd = crowd_make(&config);
    (void)crowd_run(crowd, 100);
    uint64_t rate = crowd_run(crowd, 100);
    printf("READs, path MTU 256, loss of 5%%: %llu MB/s\n", (unsigned long long)rate / 1000);
    assert_true(rate > 600000);
    assert_true(crowd_end(crowd));
}

/* A foreign peer's window is two packets after each timeout; the READs that begin then are not to
 * be demanded in as little, for as long as they last. */
static void reads_of_who_repairs_nothing(void **state)
{
    (void)state;
    struct crowd_config config = lan(false);
    config.reads = true;
    config.link.loss = 50000;
    struct crowd *crowd = crowd_make(&config);
    (void)crowd_run(crowd, 100);
    uint64_t rate = crowd_run(crowd, 200);
    printf("READs, go-back-N, loss of 5%%: %llu MB/s\n", (unsigned long long)rate / 1000);
    assert_true(rate > 370000);
    assert_true(crowd_end(crowd));
}

/* Go-back-N repeats its window for a packet that is only late: that it came in vain is told of
 * sixty times at once, and says no more than one. */
static void a_bad_beginning_is_forgotten(void **state)
{
    (void)state;
    struct crowd_config config = lan(true);
    config.message = 4096;
    config.mtu = PATH_MTU_1024;
    config.link.loss = 10000;
    config.link.reorder = 50000;
    config.link.reorder_ns = 30000;
    struct crowd *crowd = crowd_make(&config);
    (void)crowd_run(crowd, 10);
    uint64_t rate = crowd_run(crowd, 40);
    printf("messages of 4096 bytes, 1%% lost and 5%% late: %llu MB/s\n",
           (unsigned long long)rate / 1000);
    assert_true(rate > 800000);
    assert_true(crowd_end(crowd));
}

/* One message at a time: nothing follows a lost last packet that would show the loss. */
static uint64_t one_at_a_time(uint32_t message, uint32_t loss)
{
    struct crowd_config config = lan(true);
    config.message = message;
    config.depth = 1;
    config.link.loss = loss;
    struct crowd *crowd = crowd_make(&config);
    (void)crowd_run(crowd, 100);
    uint64_t rate = crowd_run(crowd, 200);
    assert_true(crowd_end(crowd));
    return rate;
}

static void the_tail_of_a_message_is_not_waited_for(void **state)
{
    (void)state;
    static const uint32_t messages[] = {4096, 65536};
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t whole = one_at_a_time(messages[i], 0);
        uint64_t rate = one_at_a_time(messages[i], 10000);
        printf("messages of %u bytes, one at a time, loss of 1%%: %llu%%\n", messages[i],
               (unsigned long long)(rate * 100 / whole));
        assert_true(rate * 100 >= whole * 80);
    }
}

/* A peer that answered at once begins to take a millisecond for each request: what it has is not
 * sent again each time. */
static void work_for_a_millisecond(bool reads)
{
    struct crowd_config config = lan(true);
    config.reads = reads;
    config.message = 64;
    config.depth = 1;
    config.link.loss = 50000; /* makes them agree */
    struct crowd *crowd = crowd_make(&config);
    (void)crowd_run(crowd, 100);
    crowd_link(crowd)->loss = 0;
    (void)crowd_run(crowd, 10);
    crowd_link(crowd)->delay_ns = 1000000;
    uint64_t before = crowd_counter(crowd, reads, COUNTER_RETRANSMITTED_PACKETS);
    (void)crowd_run(crowd, 1000);
    uint64_t requests = crowd_done(crowd, 0) / config.message;
    uint64_t repeated = crowd_counter(crowd, reads, COUNTER_RETRANSMITTED_PACKETS) - before;
    printf("answers after 1 ms: %llu packets repeated of %llu\n", (unsigned long long)repeated,
           (unsigned long long)requests);
    assert_true(requests > 900);
    assert_true(repeated < 20);
    assert_true(crowd_end(crowd));
}

static void a_peer_that_works_is_not_pressed(void **state)
{
    (void)state;
    work_for_a_millisecond(false);
    work_for_a_millisecond(true);
}

/* Four megabytes must be under way to fill it, and nothing is ever lost. */
static void a_long_way_is_filled(void **state)
{
    (void)state;
    uint64_t selective = goodput(true, 0, 1000000);
    uint64_t go_back = goodput(false, 0, 1000000);
    printf("round trip of 2 ms: %llu MB/s, go-back-N %llu\n", (unsigned long long)selective / 1000,
           (unsigned long long)go_back / 1000);
    assert_true(selective > 1150000);
}

/* Packets are late by up to a round trip: none counts as lost, once that is known. */
static void reordering_is_not_loss(void **state)
{
    (void)state;
    struct crowd_config config = lan(true);
    config.link.reorder = 10000;
    config.link.reorder_ns = 20000;
    struct crowd *crowd = crowd_make(&config);
    (void)crowd_run(crowd, 20);
    uint64_t before = crowd_counter(crowd, 0, COUNTER_RETRANSMITTED_PACKETS);
    uint64_t rate = crowd_run(crowd, 60);
    uint64_t repeated = crowd_counter(crowd, 0, COUNTER_RETRANSMITTED_PACKETS) - before;
    uint64_t sent = rate * 60 / 4096;
    printf("1%% late: %llu MB/s, %llu of %llu packets repeated\n", (unsigned long long)rate / 1000,
           (unsigned long long)repeated, (unsigned long long)sent);
    assert_true(repeated < sent / 1000);
    assert_true(rate > 1150000);
    assert_true(crowd_end(crowd));
}

/* Two of ours and one of TCP: nobody has more than twice what another has. */
static void share_with_tcp(enum path_mtu mtu, uint32_t queue_bytes)
{
    struct crowd_config config = lan(true);
    config.flows = 2;
    config.tcp_flows = 1;
    config.mtu = mtu;
    config.link.bits_per_second = UINT64_C(200000000);
    config.link.delay_ns = 5000000;
    config.link.queue_bytes = queue_bytes;
    struct crowd *crowd = crowd_make(&config);
    (void)crowd_run(crowd, 4000);
    (void)crowd_run(crowd, 20000);
    uint64_t got[3] = {crowd_done(crowd, 0), crowd_done(crowd, 1), crowd_tcp_done(crowd, 0)};
    uint64_t least = got[0], most = got[0];
    for (uint32_t i = 1; i < 3; i++) {
        least = got[i] < least ? got[i] : least;
        most = got[i] > most ? got[i] : most;
    }
    printf("MTU %u, queue of %u bytes: %.1f and %.1f MB/s, TCP %.1f\n", path_mtu_bytes(mtu),
           queue_bytes, (double)got[0] / 20e6, (double)got[1] / 20e6, (double)got[2] / 20e6);
    assert_true(most < 2 * least);
    assert_true(got[0] + got[1] + got[2] > UINT64_C(20000) * 20000); /* 80% of the line */
    assert_true(crowd_end(crowd));
}

/* Two that READ, and one of TCP, on a short way: what a READ draws fills no queue by itself. */
static void readers_share_a_link_with_tcp(void **state)
{
    (void)state;
    struct crowd_config config = lan(true);
    config.flows = 2;
    config.tcp_flows = 1;
    config.reads = true;
    config.mtu = PATH_MTU_1024;
    config.message = 1u << 20;
    config.link.bits_per_second = UINT64_C(400000000);
    config.link.delay_ns = 50000;
    config.link.queue_bytes = 131072;
    struct crowd *crowd = crowd_make(&config);
    (void)crowd_run(crowd, 2000);
    (void)crowd_run(crowd, 5000);
    double got[3] = {(double)crowd_done(crowd, 0), (double)crowd_done(crowd, 1),
                     (double)crowd_tcp_done(crowd, 0)};
    printf("READs: %.1f and %.1f MB/s, TCP %.1f\n", got[0] / 5e6, got[1] / 5e6, got[2] / 5e6);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(got[i] > 8e6 * 5); /* of 47, shared by three */
    }
    assert_true(crowd_end(crowd));
}

/* 2.5 MB must be under way, of READs that may be sixteen at once. */
static void readers_fill_a_long_way(void **state)
{
    (void)state;
    struct crowd_config config = lan(true);
    config.reads = true;
    config.message = 1u << 20;
    config.link.delay_ns = 1000000;
    struct crowd *crowd = crowd_make(&config);
    (void)crowd_run(crowd, 200);
    uint64_t rate = crowd_run(crowd, 100);
    printf("READs, round trip of 2 ms: %llu MB/s\n", (unsigned long long)rate / 1000);
    assert_true(rate > 1150000);
    assert_true(crowd_end(crowd));
}

static void a_link_is_shared_with_tcp(void **state)
{
    (void)state;
    share_with_tcp(PATH_MTU_1024, 250000); /* as much as is under way on the empty link */
    share_with_tcp(PATH_MTU_4096, 250000);
}

static void sixteen_writers_share_one_receiver(void **state)
{
    (void)state;
    struct crowd_config config = lan(true);
    config.flows = 16;
    config.mtu = PATH_MTU_1024;
    config.link.delay_ns = 5000;
    config.link.queue_bytes = 512000;
    struct crowd *crowd = crowd_make(&config);
    (void)crowd_run(crowd, 200);
    uint64_t rate = crowd_run(crowd, 100);
    printf("16 to 1: %llu MB/s, fairness %llu%%\n", (unsigned long long)rate / 1000,
           (unsigned long long)crowd_fairness(crowd));
    assert_true(rate > 1150000);
    assert_true(crowd_fairness(crowd) >= 90);
    assert_true(crowd_end(crowd));
}

/* Their windows hold some packets each and keep the queue full, so that nobody sees it empty: that
 * is no long way which loses by itself, where nobody would shrink. */
static void a_queue_that_never_empties_is_no_lossy_way(void **state)
{
    (void)state;
    struct crowd_config config = lan(true);
    config.flows = CROWD_FLOWS_MAX;
    config.tcp_flows = 1;
    config.depth = 16;
    config.mtu = PATH_MTU_1024;
    config.link.bits_per_second = UINT64_C(1000000000);
    config.link.delay_ns = 20000;
    config.link.queue_bytes = 250000;
    struct crowd *crowd = crowd_make(&config);
    (void)crowd_run(crowd, 2000);
    uint64_t rate = crowd_run(crowd, 2000);
    uint64_t tcp = crowd_tcp_done(crowd, 0);
    printf("32 to 1 and TCP: %llu MB/s, fairness %llu%%, TCP %.1f MB/s\n",
           (unsigned long long)rate / 1000, (unsigned long long)crowd_fairness(crowd),
           (double)tcp / 2e6);
    assert_true(crowd_fairness(crowd) >= 90);
    assert_true(tcp * CROWD_FLOWS_MAX * 2 > rate * 2000);
    assert_true(crowd_end(crowd));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goodput_under_random_loss),
        cmocka_unit_test(goodput_of_reads_under_random_loss),
        cmocka_unit_test(reads_of_small_packets_do_not_crawl),
        cmocka_unit_test(reads_of_who_repairs_nothing),
        cmocka_unit_test(a_bad_beginning_is_forgotten),
        cmocka_unit_test(the_tail_of_a_message_is_not_waited_for),
        cmocka_unit_test(a_peer_that_works_is_not_pressed),
        cmocka_unit_test(a_long_way_is_filled),
        cmocka_unit_test(reordering_is_not_loss),
        cmocka_unit_test(a_link_is_shared_with_tcp),
        cmocka_unit_test(readers_share_a_link_with_tcp),
        cmocka_unit_test(readers_fill_a_long_way),
        cmocka_unit_test(sixteen_writers_share_one_receiver),
        cmocka_unit_test(a_queue_that_never_empties_is_no_lossy_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
