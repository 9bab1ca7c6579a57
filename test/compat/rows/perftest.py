"""perftest: bandwidth and latency of every operation, over every transport."""
import re

from model import Row, above, line, wire

GROUP = "perftest"
PACKAGES = ["perftest"]
SIZES = 23  # -a: 2 to 2^23 bytes
HEADER = 12  # bytes of a packet at least: what its own TCP puts on the wire is less than all of these


def option(arguments, name, default):
    match = re.search(rf" {name} (\d+)", arguments)
    return int(match.group(1)) if match else default


def moved(program, arguments, size):
    """The bytes that its report claims, so that the wire can be asked whether they crossed it."""
    if " -D" in arguments:
        return 10000  # how often a second holds a round trip is the machine's matter
    if " -a" in arguments:
        return 1000000
    count = option(arguments, "-n", 1000) * option(arguments, "-q", 1)
    both = program.endswith("_lat") and "read" not in program and "atomic" not in program
    return count * (size + HEADER) * (2 if both or " -b" in arguments else 1)


def figures(program, size, times):
    """Columns: bytes, iterations, peak and average bandwidth, or minimum, maximum and typical time."""
    if program.endswith("_bw"):
        return above(rf"^ {size} +[0-9]+ +[0-9.]+ +([0-9.]+)\s+[0-9.]+", "average MB/s", times=times)
    return above(rf"^ {size} +[0-9]+ +[0-9.]+ +[0-9.]+ +([0-9.]+)\s", "typical latency", times=times)


def perf(arguments, size=None, quick=False, ready=None, timeout_s=60, address="localhost",
         checks=None, run_options=""):
    program = "ib_" + arguments.split()[0]
    if size is None:
        default = 8 if "atomic" in program else 65536 if program.endswith("_bw") else 2
        size = option(arguments, "-s", default)
    every = " -a" in arguments
    shown = r"\d+" if every else size
    command = f"ib_{arguments} -F"
    if checks is None:
        checks = [figures(program, shown, 1)]
    if every:  # of the smallest sizes the average is rounded to nothing
        checks = [line(r"^ \d+ +\d+ ", times=SIZES, text="a line for each size"),
                  figures(program, r"\d{4,}", 14)]
    checks = checks + [wire(moved(program, arguments, size))]
    if program not in ("ib_read_lat", "ib_atomic_lat"):
        checks.append(line(rf"^ {shown} +[0-9]+ ", where=0, text="a report by the server too"))
    by_cm = " -R" in arguments or " -z" in arguments
    return Row(arguments, [command, f"{command} {address}"], checks, quick=quick,
               ready=ready or ("cm" if by_cm else "tcp"), timeout_s=timeout_s, run_options=run_options)


def duration(arguments, **more):
    """-D: the latency programs then print their average only."""
    if "_lat" in arguments:
        more["checks"] = [above(r"^ \d+ +\d+ +([0-9.]+) ", "average latency")]
    return perf(arguments, timeout_s=30, **more)


def each_operation():
    for operation, transports in (("send", ("RC", "UC", "UD", "XRC")), ("write", ("RC", "UC", "XRC")),
                                  ("read", ("RC", "XRC")), ("atomic", ("RC", "XRC"))):
        for kind, count in (("bw", 300), ("lat", 300)):
            for transport in transports:
                words = f"{operation}_{kind} -n {count}"
                if transport != "RC":
                    words += f" -c {transport}"
                if transport == "UD":
                    words += " -s 1024"
                quick = transport == "RC" or (transport, operation) in (
                    ("UD", "send"), ("UC", "write"), ("XRC", "send"))
                yield perf(words, quick=quick)


ROWS = [
    *each_operation(),
    # events
    perf("send_bw -n 300 -e", quick=True), perf("send_lat -n 300 -e", quick=True),
    perf("send_bw -n 300 -e -c UD -s 1024"), perf("send_lat -n 300 -e -c UD"),
    perf("send_bw -n 300 -e -c XRC"), perf("read_bw -n 300 -e"),
    perf("atomic_bw -n 300 -e"), perf("read_lat -n 300 -e"), perf("atomic_lat -n 300 -e"),
    # inline
    perf("send_bw -n 300 -I 64 -s 64", quick=True), perf("send_lat -n 300 -I 64 -s 64"),
    perf("write_bw -n 300 -I 128 -s 128"), perf("write_lat -n 300 -I 220 -s 220", quick=True),
    perf("send_lat -n 300 -c UD -I 64 -s 64"), perf("write_lat -n 300 -c UC -I 64 -s 64"),
    # memory regions and queue pairs
    perf("write_bw -n 300 -q 8 --mr_per_qp", quick=True), perf("send_bw -n 100 -q 16 --mr_per_qp"),
    perf("read_bw -n 300 -q 8"), perf("send_bw -n 300 -q 8"), perf("write_bw -n 100 -q 64 -s 4096"),
    perf("atomic_bw -n 100 -q 4"), perf("send_bw -n 300 -c UD -q 4 -s 1024"),
    perf("write_bw -n 100 -c UC -q 4"), perf("send_bw -n 100 -c XRC -q 4"),
    perf("send_bw -n 300 --use-srq", quick=True), perf("send_bw -n 100 --use-srq -q 4"),
    perf("send_lat -n 300 --use-srq"), perf("send_bw -n 300 -r 64 -t 16"),
    # lists and moderation
    perf("write_bw -n 320 -l 8 -s 4096"), perf("send_bw -n 320 -l 8 --recv_post_list=8 -s 4096"),
    perf("send_bw -n 300 -Q 1"), perf("write_bw -n 300 -Q 50"),
    perf("write_bw -n 300 --use_old_post_send"), perf("send_bw -n 300 --use_old_post_send"),
    perf("send_bw -n 300 --odp", quick=True), perf("write_bw -n 300 --odp"),
    perf("atomic_bw -n 300 -A CMP_AND_SWAP"), perf("atomic_lat -n 300 -A CMP_AND_SWAP"),
    perf("read_bw -n 300 -o 1"), perf("atomic_bw -n 300 -o 1"),
    # rdma_cm
    perf("send_bw -n 300 -R", quick=True), perf("send_lat -n 300 -R"), perf("write_bw -n 300 -R"),
    perf("write_lat -n 300 -R", quick=True), perf("read_bw -n 300 -R -e"), perf("read_lat -n 300 -R"),
    perf("atomic_bw -n 300 -R -e"), perf("atomic_lat -n 300 -R"), perf("write_bw -n 100 -R -q 8"),
    perf("send_bw -n 300 -R -c UD -s 1024", quick=True), perf("send_lat -n 300 -R -c UD"),
    perf("send_bw -n 300 -R -T 96"), perf("send_bw -n 300 -R -b"), perf("write_bw -n 300 -z"),
    perf("send_bw -n 300 -R --use-srq"),
    # both ways
    perf("send_bw -n 300 -b", quick=True), perf("write_bw -n 300 -b"), perf("read_bw -n 300 -b"),
    perf("atomic_bw -n 300 -b"), perf("send_bw -n 300 -b -c UD -s 1024"),
    perf("send_bw -n 300 -b --report-both"), perf("write_bw -n 300 -b -c UC"), perf("send_bw -n 300 -b -e"),
    perf("write_bw -n 300 --reversed"),
    # addresses, packets
    perf("send_bw -n 300 --ipv6", quick=True),
    perf("write_lat -n 300 --ipv6"),
    perf("write_bw -n 300 -x 1"), perf("write_bw -n 300 -m 256"), perf("send_bw -n 300 -m 1024"),
    perf("write_bw -n 20 -s 8388608"), perf("read_bw -n 20 -s 8388608"),
    perf("write_bw -n 200", address="10.77.0.1"),
    # durations and sizes
    duration("send_bw -D 2"), duration("write_bw -D 2", quick=True), duration("read_lat -D 2"),
    duration("send_lat -D 2"), duration("write_bw -D 2 -b"),
    perf("send_bw -a -n 50"), perf("write_bw -a -n 20", quick=True), perf("read_bw -a -n 50"),
    perf("write_lat -a -n 20"), perf("send_lat -a -n 20"), perf("read_lat -a -n 50"),
    perf("write_bw -a -n 50 -c UC"), perf("send_bw -a -n 50 -b"), perf("send_bw -a -n 50 -R"),
    duration("send_bw -D 1 -c XRC"), duration("send_bw -D 1 -c UD -s 1024"), duration("write_bw -D 1 -R -b"),
    duration("send_bw -D 1 -R -b"), perf("write_bw -n 300 -R -b"), perf("read_bw -n 300 -R -b"),
    perf("send_bw -n 300 -s 32 --inline_recv 32"), perf("send_lat -n 300 -s 32 --inline_recv 32"),
    perf("send_bw -n 300 -d weir1", run_options="--devices 2"),
    perf("write_bw -n 300 -p 20000 -i 1"),
    # multicast
    perf("send_bw -n 300 -c UD -g -s 1024 --ipv6"), perf("send_lat -n 300 -c UD -g", quick=True),
]
