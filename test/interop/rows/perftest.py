"""perftest: every operation in quantity. It does not look at the data (verbs.py does); it counts completions, and we
count what crosses the link."""
from model import above, line
from row import Row

GROUP = "perftest"


def perf(arguments, size=None, server_reports=True, **more):
    """Columns: bytes, iterations, peak and average bandwidth, or minimum, maximum and typical time. Connected over TCP,
    with the path MTU asked for, unless -R has rdma_cm do it: over two connections, one after the other. The second is
    refused where the client was faster than the server; then the client ends (by a fault of its own), and the server
    would take the next one's first connection for its second."""
    program = f"ib_{arguments.split()[0]}"
    by_cm = " -R" in arguments
    size = size or (8 if "atomic" in program else 4096)
    count = 20 if "_lat" in program else 60
    common = f"ib_{arguments} -F -n {count}"
    if " -s " not in arguments and "atomic" not in program:
        common += f" -s {size}"
    common += "" if by_cm else " -x {gid} -m {mtu}"
    figure = r"([0-9.]+)\s+[0-9.]+" if program.endswith("_bw") else r"[0-9.]+ +([0-9.]+)\s"
    checks = [above(rf"^ {size} +[0-9]+ +[0-9.]+ +{figure}", "average or typical value", least=-1)]
    if server_reports and program not in ("ib_read_lat", "ib_atomic_lat"):
        checks.append(line(rf"^ {size} +[0-9]+ ", where=0))
    return Row(arguments, common, f"{common} {{address}}" if by_cm else f"{common} {{control}}", checks,
               ready="device" if by_cm else "tcp", wire=count * size, **more)


ONCE = {"mtus": (1024,), "short": 0}  # what differs little from its neighbour

ROWS = [
    perf("send_bw"), perf("send_lat", **ONCE), perf("send_bw -b", **ONCE),
    perf("write_bw -s 65537", size=65537),
    perf("write_bw"), perf("write_lat", **ONCE), perf("write_bw -b"), perf("write_bw -q 8", **ONCE),
    perf("read_bw"), perf("read_lat", **ONCE), perf("read_bw -b", **ONCE),
    perf("atomic_bw -A FETCH_AND_ADD"), perf("atomic_bw -A CMP_AND_SWAP"), perf("atomic_lat", **ONCE),
    perf("send_bw -c UC", **ONCE), perf("write_bw -c UC"), perf("send_bw -c UD", size=200),
    perf("send_lat -c UD", size=200, **ONCE),
    *[perf(f"{what}_bw -R", families=(4,), short=1 if what == "send" else 0) for what in ("send", "write", "read", "atomic")],
    *[perf(f"{what}_bw", impairment="everything", mtus=(1024,), timeout_s=60, short=0)
      for what in ("send", "write", "read", "atomic")],
]
