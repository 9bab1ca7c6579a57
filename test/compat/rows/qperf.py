"""qperf: all RDMA tests; the ver_ ones compare the data that they move. Debian builds it without its xrc_
tests ("bad test", although its help lists them)."""
from model import Row, above, line, proof

GROUP = "qperf"
PACKAGES = ["qperf"]
BANDWIDTH = ["rc_bi_bw", "rc_bw", "uc_bi_bw", "uc_bw", "ud_bi_bw", "ud_bw", "rc_rdma_read_bw",
             "rc_rdma_write_bw", "uc_rdma_write_bw"]
LATENCY = ["rc_lat", "uc_lat", "ud_lat", "rc_rdma_read_lat", "rc_rdma_write_lat",
           "rc_rdma_write_poll_lat", "uc_rdma_write_lat", "uc_rdma_write_poll_lat"]
RATE = ["rc_compare_swap_mr", "rc_fetch_add_mr"]
VERIFY = ["ver_rc_compare_swap", "ver_rc_fetch_add"]
QUICK = ["rc_bw", "ud_lat", "rc_rdma_write_poll_lat", "ver_rc_fetch_add"]


def row(test, options="", quick=None):
    if test in BANDWIDTH:
        figure = above(r"(?:bw|recv_bw) += +([0-9.,]+) ", "bandwidth")
    elif test in LATENCY:
        figure = above(r"latency += +([0-9.,]+) ", "latency")
    else:
        figure = above(r"msg_rate += +([0-9.,]+) ", "message rate")
    checks = [line(rf"^{test}:"), figure]
    if test in VERIFY:
        checks.append(proof("the program verifies each result"))
    words = f"{test} {options}".strip()
    return Row(words, ["qperf", f"qperf localhost -t 1 {options}".rstrip() + f" {test}"], checks,
               servers_end=False, quick=test in QUICK if quick is None else quick, timeout_s=30)


ROWS = [
    *[row(test) for test in BANDWIDTH + LATENCY + RATE + VERIFY],
    row("rc_bw", "-m 1M", False), row("rc_lat", "-m 4K -cp1", False), row("rc_bi_bw", "-cp1", False),
    row("ud_lat", "-m 1024 -cp1", False), row("rc_bw", "-cm1", False), row("rc_rdma_write_bw", "-cm1", False),
    row("rc_rdma_read_bw", "-n 100 -m 4M", False),
]
