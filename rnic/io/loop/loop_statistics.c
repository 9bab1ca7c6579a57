#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rnic/device/device.h"
#include "rnic/io/loop/loop_private.h"
#include "rnic/io/system/complaints.h"

static void visit_udp(const struct udp *link, loop_statistics_visitor *visit, void *context)
{
    const struct udp_counters *udp = udp_counters(link);
    visit(context, "udp_packets_sent", udp->packets_sent);
    visit(context, "udp_packets_received", udp->packets_received);
    visit(context, "udp_send_calls", udp->send_calls);
    visit(context, "udp_receive_calls", udp->receive_calls);
    visit(context, "udp_segmented_sends", udp->segmented_sends);
    visit(context, "udp_lent_runs", udp->lent_runs);
    visit(context, "udp_unsegmented_runs", udp->unsegmented);
    visit(context, "udp_blocked", udp->blocked);
    visit(context, "udp_held", udp->held);
    visit(context, "udp_dropped_too_long", udp->dropped_too_long);
    visit(context, "udp_dropped_unreachable", udp->dropped_unreachable);
    visit(context, "udp_dropped_other", udp->dropped_other);
    visit(context, "udp_icmp_too_long", udp->icmp_too_long);
    visit(context, "udp_icmp_port_unreachable", udp->icmp_port_unreachable);
    visit(context, "udp_icmp_other", udp->icmp_other);
    visit(context, "udp_truncated", udp->truncated);
    visit(context, "udp_dropped_unread", udp_dropped_unread(link));
    visit(context, "udp_faults_injected", udp->faults);
}

/* Names of refusals are shared with the device's table; these say where they belong. */
static const char *refused_name(enum packet_refusal refusal)
{
    static char names[REFUSED_COUNT][40];
    if (names[refusal][0] == '\0') {
        snprintf(names[refusal], sizeof names[refusal], "refused_%s", packet_refusal_name(refusal));
    }
    return names[refusal];
}

static void visit_all(struct loop *loop, loop_statistics_visitor *visit, void *context)
{
    const struct counters *device = device_counters(loop->engine.device);
    for (enum counter counter = 0; counter < COUNTER_COUNT; counter++) {
        visit(context, counter_name(counter), device->values[counter]);
    }
    for (enum packet_refusal refusal = REFUSED_NOT + 1; refusal < REFUSED_COUNT; refusal++) {
        visit(context, refused_name(refusal), device->refused[refusal]);
    }
    visit_udp(loop->steering.udp, visit, context);
    const struct handoff_counters *handoff = handoff_counters(loop->handoff);
    visit(context, "udp_complaints_lost", udp_complaints(loop->steering.udp)->lost);
    visit(context, "udp_complaints_ignored", loop->complaints_ignored);
    struct same_host_counters same_host;
    same_host_count(loop->same_host, &same_host);
    visit(context, "same_host_packets_sent", same_host.packets_sent);
    visit(context, "same_host_bytes_sent", same_host.bytes_sent);
    visit(context, "same_host_packets_received", same_host.packets_received);
    visit(context, "same_host_peers", same_host.peers);
    visit(context, "same_host_unreachable", same_host.unreachable);
    visit(context, "same_host_elsewhere", same_host.elsewhere);
    visit(context, "same_host_wake_ups", same_host.wake_ups);
    visit(context, "same_host_full", same_host.full);
    visit(context, "same_host_dropped", same_host.dropped);
    visit(context, "same_host_refused", same_host.refused);
    visit(context, "same_host_long_records", same_host.long_records);
    visit(context, "same_host_readable", same_host.readable);
    visit(context, "same_host_opaque", same_host.opaque);
    visit(context, "same_host_withdrawn", same_host.withdrawn);
    visit(context, "same_host_lanes", same_host.lanes);
    visit(context, "same_host_reclaimed", same_host.reclaimed);
    visit(context, "same_host_address_reads", same_host.address_reads);
    visit(context, "same_host_common_regions", same_host.common_regions);
    visit(context, "same_host_common_made", same_host.common_made);
    visit(context, "registry_slot", registry_slot(loop->registry));
    visit(context, "registry_foreign_packets", loop->ingress.foreign);
    visit(context, "registry_copied_packets", loop->ingress.copies);
    visit(context, "registry_handed_on", handoff->packets_sent);
    visit(context, "registry_handed_to_us", handoff->packets_received);
    visit(context, "registry_relayed", handoff->relayed);
    visit(context, "registry_relayed_to_us", handoff->relayed_to_us);
    visit(context, "registry_complaints_handed_on", handoff->complaints_sent);
    visit(context, "registry_complaints_handed_to_us", handoff->complaints_received);
    visit(context, "registry_handoff_delayed", handoff->delayed);
    visit(context, "registry_handoff_dropped", handoff->dropped);
    visit(context, "registry_handoff_packets_dropped", handoff->packets_dropped);
    visit(context, "registry_handoff_refused", handoff->refused);
    visit(context, "registry_steering_corrections", loop->steering.corrections);
    visit(context, "registry_deaths_buried", loop->burial.deaths);
    visit(context, "registry_wills_executed", loop->burial.wills);
    visit(context, "loop_turns", atomic_load(&loop->counters.turns));
    visit(context, "loop_thread_wakeups", atomic_load(&loop->counters.thread_wakeups));
    visit(context, "loop_thread_moves", atomic_load(&loop->counters.thread_moves));
    visit(context, "loop_waits", atomic_load(&loop->counters.waits));
    visit(context, "loop_thread_signals", atomic_load(&loop->counters.thread_signals));
}

void loop_statistics(struct engine *engine, loop_statistics_visitor *visit, void *context)
{
    engine_lock(engine);
    visit_all(loop_of(engine), visit, context);
    engine_unlock(engine);
}

uint64_t loop_retransmissions(struct engine *engine)
{
    if (!loop_is_ours(engine)) {
        return 0;
    }
    engine_lock(engine);
    uint64_t count = device_counters(engine->device)->values[COUNTER_RETRANSMITTED_PACKETS];
    engine_unlock(engine);
    return count;
}

void loop_count_carried(struct engine *engine, uint64_t *ret_network, uint64_t *ret_memory)
{
    *ret_network = *ret_memory = 0;
    if (!loop_is_ours(engine)) {
        return;
    }
    struct loop *loop = loop_of(engine);
    struct same_host_counters same_host;
    engine_lock(engine);
    const uint64_t *device = device_counters(engine->device)->values;
    const struct udp_counters *udp = udp_counters(loop->steering.udp);
    same_host_count(loop->same_host, &same_host);
    *ret_network = udp->packets_sent + udp->packets_received;
    *ret_memory = same_host.packets_sent + same_host.packets_received +
                  device[COUNTER_DIRECT_WRITES] + device[COUNTER_DIRECT_READS];
    engine_unlock(engine);
}

/* Zeroes say nothing to a reader. */
static void print(void *context, const char *name, uint64_t value)
{
    if (value != 0) {
        fprintf(context, "%s %llu\n", name, (unsigned long long)value);
    }
}

static void say_untold(const char *path)
{
    dprintf(STDERR_FILENO, "weir: WEIR_STATISTICS: %s: %s\n", path, strerror(errno));
}

void loop_report(struct loop *loop)
{
    const char *path = secure_getenv("WEIR_STATISTICS");
    if (path == NULL || *path == '\0') {
        return;
    }
    int descriptor = strcmp(path, "-") == 0
                         ? dup(STDERR_FILENO)
                         : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "a") : NULL;
    if (file == NULL) {
        say_untold(path);
        return;
    }
    fprintf(file, "# weir statistics of process %ld (%s)\n", (long)getpid(),
            program_invocation_short_name);
    visit_all(loop, print, file);
    if (loop->complaint[0] != '\0') {
        fprintf(file, "# %s\n", loop->complaint);
    }
    if (udp_message(loop->steering.udp)[0] != '\0') {
        fprintf(file, "# %s\n", udp_message(loop->steering.udp));
    }
    if (fclose(file) != 0) { /* what it held is written now */
        say_untold(path);
    }
}
