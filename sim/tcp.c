#include "sim/tcp.h"

#include <math.h>
#include <string.h>

#include "rnic/base/check.h"

#define C          0.4
#define BETA       0.7
#define OVERHEAD   90u /* Ethernet to TCP, with options */
#define START      10.0
#define OVERTAKEN  3u
#define TIMEOUT_NS UINT64_C(200000000)

static double seconds(const struct tcp *tcp)
{
    return (double)tcp->network->simulator->now.ns / 1e9;
}

static void arrive(void *context, uint64_t number);

static void transmit(struct tcp *tcp)
{
    while (!tcp->stopped && tcp->in_flight < (uint32_t)tcp->window &&
           tcp->next - tcp->first < TCP_FLIGHT_MAX) {
        uint64_t number = tcp->next++;
        tcp->acknowledged[number % TCP_FLIGHT_MAX] = 0;
        tcp->sent_ns[number % TCP_FLIGHT_MAX] = tcp->network->simulator->now.ns;
        tcp->in_flight++;
        if (tcp->owed > 0) {
            tcp->owed--;
            tcp->repeated++;
        }
        network_pass(tcp->network, tcp->from, tcp->to, tcp->segment + OVERHEAD, arrive, tcp,
                     number);
    }
}

static void shrink(struct tcp *tcp)
{
    tcp->peak = tcp->window < tcp->peak ? tcp->window * (1 + BETA) / 2 : tcp->window;
    tcp->window = fmax(tcp->window * BETA, 2);
    tcp->threshold = tcp->friendly = tcp->window;
    tcp->in_epoch = false;
    tcp->recover = tcp->next;
}

static void grow(struct tcp *tcp)
{
    if (tcp->window < tcp->threshold) {
        tcp->window += 1;
        return;
    }
    double now = seconds(tcp);
    if (!tcp->in_epoch) {
        tcp->in_epoch = true;
        tcp->epoch_s = now;
        tcp->climb_s = cbrt(fmax(tcp->peak - tcp->window, 0) / C);
    }
    double t = now - tcp->epoch_s + tcp->round_trip_s - tcp->climb_s;
    tcp->friendly += 3 * (1 - BETA) / (1 + BETA) / tcp->window;
    double target = fmin(fmax(C * t * t * t + tcp->peak, tcp->friendly), 1.5 * tcp->window);
    tcp->window += target > tcp->window ? (target - tcp->window) / tcp->window : 0;
}

/* What three later transmissions have overtaken is lost: nothing here reorders TCP. */
static void find_lost(struct tcp *tcp, uint64_t newest)
{
    while (tcp->first + OVERTAKEN <= newest) {
        uint8_t *state = &tcp->acknowledged[tcp->first % TCP_FLIGHT_MAX];
        if (*state == 0) {
            tcp->in_flight--;
            tcp->owed++;
            if (tcp->first >= tcp->recover) {
                shrink(tcp);
            }
        }
        tcp->first++;
    }
}

static void acknowledge(void *context, uint64_t number)
{
    struct tcp *tcp = context;
    struct instant now = tcp->network->simulator->now;
    tcp->heard_ns = now.ns;
    if (number < tcp->first) {
        return;
    }
    tcp->acknowledged[number % TCP_FLIGHT_MAX] = 1;
    tcp->in_flight--;
    tcp->round_trip_s = (double)(now.ns - tcp->sent_ns[number % TCP_FLIGHT_MAX]) / 1e9;
    find_lost(tcp, number);
    if (tcp->first >= tcp->recover) {
        grow(tcp);
    }
    transmit(tcp);
}

static void arrive(void *context, uint64_t number)
{
    struct tcp *tcp = context;
    tcp->arrived += tcp->segment;
    simulator_after(tcp->network->simulator,
                    tcp->network->links[tcp->to][tcp->from].config.delay_ns, acknowledge, tcp,
                    number);
}

static void look(void *context, uint64_t unused)
{
    struct tcp *tcp = context;
    uint64_t now_ns = tcp->network->simulator->now.ns;
    if (tcp->stopped) {
        return;
    }
    if (now_ns - tcp->heard_ns >= TIMEOUT_NS) {
        shrink(tcp);
        tcp->window = 1;
        tcp->owed += tcp->in_flight;
        tcp->in_flight = 0;
        tcp->first = tcp->next;
        tcp->heard_ns = now_ns;
        transmit(tcp);
    }
    simulator_after(tcp->network->simulator, TIMEOUT_NS / 4, look, tcp, unused);
}

void tcp_start(struct tcp *tcp, struct network *network, unsigned from, unsigned to,
               uint32_t segment)
{
    memset(tcp, 0, sizeof *tcp);
    tcp->network = network;
    tcp->from = from;
    tcp->to = to;
    tcp->segment = segment;
    tcp->window = START;
    tcp->threshold = tcp->peak = 1e9;
    tcp->heard_ns = network->simulator->now.ns;
    look(tcp, 0);
    transmit(tcp);
}

void tcp_stop(struct tcp *tcp)
{
    tcp->stopped = true;
}
