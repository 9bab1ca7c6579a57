#include "weir/sysfs.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>

/* What drivers call it. Those of one driver are occasions that exclude each other; what only leads
 * to one of them, as a NAK that came, is not counted again. */
static const char *const names[] = {
    "retrans_pkts",                                                        /* efa */
    "packet_seq_err",      "local_ack_timeout_err", "implied_nak_seq_err", /* mlx4, mlx5 */
    "completer_retry_err",                                                 /* rxe */
    "to_retransmits",      "seq_err_naks_rcvd",                            /* bnxt_re */
    "tcpRetransSegs",                                                      /* irdma */
    "ip4RetransSegs",      "ip6RetransSegs",                               /* iw_cxgb4 */
};

static bool read_number(const char *path, uint64_t *ret_number)
{
    unsigned long long number;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool is_there = fscanf(file, "%llu", &number) == 1;
    fclose(file);
    *ret_number = is_there ? number : 0;
    return is_there;
}

bool sysfs_retransmissions(const char *devices, const char *device, unsigned port,
                           uint64_t *ret_count)
{
    bool any = false;
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[PATH_MAX];
        uint64_t number;
        snprintf(path, sizeof(path), "%s/%s/ports/%u/hw_counters/%s", devices, device, port,
                 names[i]);
        if (read_number(path, &number)) {
            any = true;
            sum += number;
        }
    }
    *ret_count = sum;
    return any;
}
