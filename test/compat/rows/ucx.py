"""UCX: each test of ucx_perftest on its verbs transports, by UCT (the transport alone) and UCP (all of
UCX, held to one transport by UCX_TLS)."""
from model import Row, above, absent, line, wire

GROUP = "UCX"
PACKAGES = ["ucx-utils", "libucx0"]
UCT = ["am_lat", "put_lat", "add_lat", "get -D bcopy", "fadd", "cswap", "am_bw", "put_bw", "add_mr"]
UCT_DATAGRAM = ["am_lat", "am_bw"]
UCP = ["tag_lat", "tag_bw", "tag_sync_lat", "tag_sync_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get",
       "ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap", "stream_bw", "stream_lat", "ucp_am_lat",
       "ucp_am_bw"]
QUICK = ["rc_verbs am_lat", "ud_verbs tag_lat", "rc_verbs ucp_get", "rc_verbs tag_bw"]


def final(count, size):
    return [above(r"^Final: +\d+ +([0-9.]+)", "the last row's time"), wire(count * size),
            absent("ERROR|WARN.*(timeout|unhandled)", text="no error")]


def row(name, transports, server, client, count, size):
    return Row(name, [server, client], final(count, size), environment={"UCX_TLS": transports, "UCX_NET_DEVICES": "weir0:1"},
               quick=name in QUICK, servers_end=True, timeout_s=40, paths=True)


def uct(transport, test, size=8, count=2000):
    client = f"ucx_perftest localhost -d weir0:1 -x {transport} -t {test} -s {size} -n {count} -w 100"
    return row(f"{transport} {test}", "all", f"ucx_perftest -d weir0:1 -x {transport}", client, count, size)


def ucp(transport, test, size=8, count=2000, suffix=""):
    transports = "rc_verbs,ud_verbs,self" if transport == "rc_verbs" else f"{transport},self"
    client = f"ucx_perftest localhost -t {test} -s {size} -n {count} -w 100"
    return row(f"{transport} {test}{suffix}", transports, "ucx_perftest", client, count, size)


ROWS = [
    Row("ucx_info -d", ["ucx_info -d"],
        [line("Transport: rc_verbs"), line("Transport: ud_verbs"), line("Device: weir0:1"),
         line("Component: ib")], quick=True, paths=True),
    *[uct("rc_verbs", test) for test in UCT],
    *[uct("rc_verbs", f"{test} -D {how}", 4096) for test in ("am_bw", "put_bw") for how in ("bcopy", "zcopy")],
    uct("rc_verbs", "get -D zcopy", 4096),
    uct("ud_verbs", "am_bw -D bcopy", 1024), uct("ud_verbs", "am_bw -D zcopy", 1024),
    *[uct("ud_verbs", test) for test in UCT_DATAGRAM],
    *[ucp(transport, test) for transport in ("rc_verbs", "ud_verbs") for test in UCP],
    ucp("rc_verbs", "tag_bw", 1 << 20, 100, ", 1 MiB"), ucp("ud_verbs", "tag_bw", 1 << 20, 50, ", 1 MiB"),
    ucp("rc_verbs", "stream_bw", 65536, 200, ", 64 KiB"),
]
