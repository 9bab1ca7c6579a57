"""What is measured: ours, the peers', and the machine's limits. Each case is a name, the link it runs on, a unit, and a
function of a stage that returns one number.

Invariant: a case and what it is held against run on the same link, with sizes and depths as alike as the programs
allow. Not here: what is demanded (marks.py)."""
import json
import os
import re
import shutil
import statistics
import tempfile

import lines
import share
from stage import Missing

PORT = 18515
UCX_LATENCY, UCX_RATE = 1, 7  # columns of ucx_perftest -v
UCX_ITERATIONS = 100000

# link -> (MTU, offloads); None: this host
LINKS = {"host": None, "veth9000": (9000, True), "veth1500": (1500, True), "veth9000-plain": (9000, False),
         "veth1500-plain": (1500, False)}


def perftest_prints(stage, program, *words, environment=None, wrap=(), port=PORT, client=()):
    """`client`: its own words, for what the server prints is not read until it ends."""
    command = [*wrap, stage.weir, "run", program, "-p", str(port), "-F", *words]
    address = [] if stage.address is None else [stage.address]
    return stage.pair(command, [*command, *client, *address], port, environment)


def lines_like(pattern, output):
    found = re.findall(pattern, output, re.M)
    if not found:
        raise RuntimeError(output[-500:])
    return found


def perftest(stage, program, *words, column, **how):
    rows = lines_like(r"^ *\d+ +\d+ +[\d. \t]+$", perftest_prints(stage, program, *words, **how))
    return float(rows[-1].split()[column])


def verbs_latency(program, size, *words):
    """us: the median of as many iterations as UCX's has. Of the iterations, for the table tells it in hundredths:
    too coarse for 0.13 us."""
    def run(stage):
        output = perftest_prints(stage, program, "-s", str(size), "-n", stage.count(UCX_ITERATIONS), *words, client=["-H"])
        return statistics.median(map(float, lines_like(r"^\d+, ([\d.]+)$", output)))
    return run


def verbs_bandwidth(program, size, environment=None, refuse=False, mtu=None, full=None):
    """GB/s. `full`: iterations."""
    def run(stage):
        words = ["-s", str(size), "-n", stage.count(full or (2000 if size > 65536 else 20000)), "--report_gbits"]
        words += ["-m", str(mtu)] if mtu else []
        wrap = [stage.limits, "refuse-pvm"] if refuse else []
        return perftest(stage, program, *words, column=3, environment=environment, wrap=wrap) / 8
    return run


def verbs_pages(program):
    """GB/s of messages of 4 KiB: as many as UCX's test sends, which warms up before it measures, as perftest does not."""
    return verbs_bandwidth(program, 4096, full=100000)


def verbs_rate(program, size):
    """Millions of messages in a second."""
    return lambda stage: perftest(stage, program, "-s", str(size), "-n", stage.count(200000), column=4)


def ours_in_full(operation, measure, size, *words):
    """What weir bench's JSON says of it."""
    def run(stage):
        output = stage.client([stage.weir, "bench", "--fabric", "soft", "--op", operation, "--measure", measure, "--size",
                               str(size), "--runs", "3", "--seconds", str(max(0.01, 0.2 * stage.scale)), "--json", *words])
        return json.loads(output)["results"][0]
    return run


def ours(operation, measure, size, key, scale, *words):
    """A figure of weir bench's JSON."""
    def run(stage):
        figure = ours_in_full(operation, measure, size, *words)(stage)
        for word in key:
            figure = figure[word]
        return figure * scale
    return run


def ucx(test, size, column, scale, transports, *words):
    def run(stage):
        environment = {"UCX_TLS": transports, "UCX_WARN_UNUSED_ENV_VARS": "n"}
        common = ["ucx_perftest", "-t", test, "-s", str(size), "-n", stage.count(UCX_ITERATIONS if size < 65536 else 5000), "-w",
                  stage.count(1000), "-p", str(PORT + 1), "-f", "-v", *words]
        output = stage.pair(common, [common[0], stage.address, *common[1:]], PORT + 1, environment)
        return float(lines_like(r"^ *\d+,.*$", output)[-1].split(",")[column]) * scale
    return run


def fi_pingpong(provider, endpoint, size):
    """us: half of a round trip."""
    def run(stage):
        words = ["fi_pingpong", "-p", provider, "-e", endpoint, "-S", str(size), "-I", stage.count(20000)]
        output = stage.pair(words + ["-B", str(PORT + 2)], words + ["-P", str(PORT + 2), stage.address], PORT + 2)
        return float(output.split("\n")[1].split()[-2])
    return run


def qperf(test, unit):
    def run(stage):
        port = ["-lp", str(PORT + 3)]
        output = stage.pair(["qperf", *port], ["qperf", *port, "-t", "1", "-u", stage.address, test], PORT + 3)
        found = re.search(r"= +([\d.]+) (\S+)", output)
        scales = {"ns": 1e-3, "us": 1, "ms": 1e3, "sec": 1e6, "bytes/sec": 1e-9, "KB/sec": 1e-6, "MB/sec": 1e-3, "GB/sec": 1}
        return float(found.group(1)) * scales[found.group(2)]
    return run


def iperf3(stage, seconds=None, *words):
    """GB/s, one TCP stream."""
    seconds = seconds or ("3" if stage.scale >= 1 else "1")
    output = stage.pair(["iperf3", "-s", "-1", "-p", str(PORT + 4)],
                        ["iperf3", "-c", stage.address, "-p", str(PORT + 4), "-t", seconds, "-J", *words], PORT + 4)
    return json.loads(output)["end"]["sum_received"]["bits_per_second"] / 8e9


def limit(*words):
    return lambda stage: float(stage.client([stage.limits, *words]))


def udp_limit(stage):
    output = stage.pair([stage.limits, "udp-serve", stage.address], [stage.limits, "udp", stage.address], "ready")
    return float(output)


def udp_work_limit(*words):
    """Of who seals, checks, copies and acknowledges."""
    def run(stage):
        output = stage.pair([stage.limits_udp, "serve", stage.address], [stage.limits_udp, words[0], stage.address, *words[1:]], "ready")
        return float(output)
    return run


_left = {}  # figures of the last run of queue_pairs that no case has taken yet


def queue_pairs(count, key, *how):
    """One run gives all figures of that many queue pairs, connected by rdma_cm or as `how` says: the first case of a round pays for it."""
    def run(stage):
        if (count, how, key) not in _left:
            program = os.path.join(stage.build, "bench", "queue_pairs")
            output, state = lines.watched(stage.limits, lambda: stage.client([stage.weir, "run", program, stage.address, str(count), *how]))
            _left.update({(count, how, name): lines.Figure(value, state) for name, value in map(str.split, output.splitlines())})
        return _left.pop((count, how, key))
    return run


def begin_round():
    """What an earlier round has left is not of this one."""
    _left.clear()


def mercury(program, size, full, column, scale):
    """Mercury's own programs over na+sm, one request in flight, both ends spinning. They write their address to a file."""
    def run(stage):
        if not shutil.which("hg_perf_server"):
            raise Missing("hg_perf_server and " + program + " are not on PATH (no Debian package: build Mercury 2.4 with BUILD_TESTING_PERF)")
        with tempfile.TemporaryDirectory() as folder:
            common = ["-c", "na", "-p", "sm", "-b", "-M", "-f", os.path.join(folder, "address"), "-y", str(size), "-z", str(size)]
            output = stage.pair(["hg_perf_server", *common], [program, *common, "-x", "1", "-l", stage.count(full)], common[6])
        return float(output.strip().splitlines()[-1].split()[column]) * scale
    return run


def loss(percent, selective):
    """Both ends lose so much of what they send, before it joins a run. Go-back-N may be slow: then less is moved."""
    environment = {"WEIR_FAULT": f"loss={percent / 100:g},seed=7", "WEIR_SELECTIVE": str(int(selective))}
    return verbs_bandwidth("ib_write_bw", 1 << 20, environment, mtu=4096, full=200 if percent >= 1 and not selective else None)


PAIRS = 4  # even: as often one first as the other
TRIES = 4  # of a pair, until the machine is in one state for both


def side_by_side(one, other, pairs=PAIRS, cores=False):
    """The first's figure over the second's, each right beside the other and first by turns: the median of so many pairs that met the machine in
    one state (lines.py), with whole cores if `cores`. Where it is not met often enough: of those whose state was one at least, or of all."""
    def run(stage):
        clean, alike, every = [], [], []
        for turn in range(pairs * TRIES):
            order = (other, one) if turn % 2 == 0 else (one, other)
            found = {case: lines.watched(stage.limits, lambda case=case: case(stage), cores) for case in order}
            ratio, states = found[one][0] / found[other][0], [state for _, state in found.values()]
            every.append(ratio)
            alike += [ratio] * lines.alike(states)
            clean += [ratio] * lines.clean(states)
            if len(clean) == pairs:
                break
        return statistics.median(clean or alike or every)
    return run


def loss_ratio(percent):
    """Goodput under loss over that without. Runs differ by an eighth, far more than few losses cost, so those take many pairs."""
    return side_by_side(loss(percent, True), verbs_bandwidth("ib_write_bw", MIB, mtu=4096), PAIRS if percent >= 1 else 3 * PAIRS)


def requests_and_replies(stage):
    """Of libweir's channel, millions in a second: all of them, as Mercury's program counts, and not what one takes as a rule."""
    runs = ours_in_full("message", "latency", 8)(stage)["runs"]
    return statistics.median(1e-6 * run["count"] / run["seconds"] for run in runs)


# Two that mostly wait for lines are held against each other in pairs (lines.py says why).
mercury_requests = mercury("hg_rate", 8, 200000, 1, 1e-6)
ucx_latency = ucx("ucp_am_lat", 8, UCX_LATENCY, 1, "posix,self")
ucx_pages = ucx("ucp_am_bw", 4096, UCX_RATE, 4096e-9, "posix,self")
MIB = 1 << 20
CASES = [  # name, link, unit, function
    ("ib_send_lat 8 B", "host", "us", verbs_latency("ib_send_lat", 8)),
    ("ib_send_lat 8 B, events", "host", "us", verbs_latency("ib_send_lat", 8, "-e")),
    ("ib_write_lat 8 B", "host", "us", verbs_latency("ib_write_lat", 8)),
    ("ib_read_lat 8 B", "host", "us", verbs_latency("ib_read_lat", 8)),
    ("ib_write_bw 4 KiB", "host", "GB/s", verbs_pages("ib_write_bw")),
    ("ib_read_bw 4 KiB", "host", "GB/s", verbs_pages("ib_read_bw")),
    ("ib_write_bw 1 MiB", "host", "GB/s", verbs_bandwidth("ib_write_bw", MIB)),
    ("ib_read_bw 1 MiB", "host", "GB/s", verbs_bandwidth("ib_read_bw", MIB)),
    ("ib_write_bw 1 MiB, pvm refused", "host", "GB/s", verbs_bandwidth("ib_write_bw", MIB, refuse=True)),
    ("ib_send_bw 8 B", "host", "M/s", verbs_rate("ib_send_bw", 8)),
    ("weir bench write 1 MiB, huge", "host", "GB/s", ours("write", "bandwidth", MIB, ("bytes_per_s", "median"), 1e-9, "--huge")),
    ("weir bench message 8 B", "host", "us", ours("message", "latency", 8, ("latency_us", "p50", "median"), 1)),
    ("weir bench request and reply 8 B", "host", "M/s", requests_and_replies),
    ("weir bench put 1 MiB", "host", "GB/s", ours("put", "bandwidth", MIB, ("bytes_per_s", "median"), 1e-9)),
    ("UCX am_lat 8 B, posix", "host", "us", ucx_latency),
    ("UCX am_bw 4 KiB, posix", "host", "GB/s", ucx_pages),
    ("UCX am_bw 8 B, posix", "host", "M/s", ucx("ucp_am_bw", 8, UCX_RATE, 1e-6, "posix,self")),
    ("UCX put_bw 1 MiB, cma", "host", "GB/s", ucx("put_bw", MIB, UCX_RATE, MIB * 1e-9, "all", "-x", "cma", "-d", "memory", "-D", "zcopy")),
    ("UCX am_lat 8 B, tcp", "host", "us", ucx("ucp_am_lat", 8, UCX_LATENCY, 1, "tcp,self")),
    ("fi_pingpong shm 8 B", "host", "us", fi_pingpong("shm", "rdm", 8)),
    ("fi_pingpong tcp 8 B", "host", "us", fi_pingpong("tcp", "msg", 8)),
    ("qperf tcp_lat 1 B", "host", "us", qperf("tcp_lat", "us")),
    ("qperf tcp_bw 64 KiB", "host", "GB/s", qperf("tcp_bw", "GB/s")),
    ("Mercury na+sm rate", "host", "M/s", mercury_requests),
    ("request and reply 8 B over Mercury's, side by side", "host", "x", side_by_side(requests_and_replies, mercury_requests, 2 * PAIRS, cores=True)),
    *[(f"{tool} 8 B over UCX's am_lat, side by side", "host", "x", side_by_side(verbs_latency(tool, 8), ucx_latency, cores=True)) for tool in ("ib_send_lat", "ib_write_lat")],
    *[(f"{tool} 4 KiB over UCX's am_bw, side by side", "host", "x", side_by_side(verbs_pages(tool), ucx_pages)) for tool in ("ib_write_bw", "ib_read_bw")],
    ("Mercury na+sm bulk 1 MiB", "host", "GB/s", mercury("hg_bw_write", 1 << 20, 200, 1, 1e-3)),
    ("limit: cache line", "host", "ns", limit("spin")),
    ("limit: process_vm_readv 1 MiB, 4k pages", "host", "GB/s", limit("pvm", str(MIB), "4k")),
    ("limit: process_vm_readv 1 MiB, huge pages", "host", "GB/s", limit("pvm", str(MIB), "huge")),
    ("limit: two-copy ring", "host", "GB/s", limit("ring")),
    ("limit: UDP 8 B", "host", "us", udp_limit),
    ("veth: limit: UDP 8 B", "veth9000", "us", udp_limit),
    ("veth: limit: UDP 8 B, acknowledged, ICRC", "veth9000", "us", udp_work_limit("message")),
    ("veth: limit: UDP 8 B, acknowledged in one datagram, ICRC", "veth9000", "us", udp_work_limit("carried")),
    ("veth: ib_send_lat 8 B", "veth9000", "us", verbs_latency("ib_send_lat", 8)),
    ("veth: fi_pingpong tcp 8 B", "veth9000", "us", fi_pingpong("tcp", "msg", 8)),
]
CASES += [
    ("1 queue pair: latency 8 B", "host", "us", queue_pairs(1, "latency_us")),
    ("1 queue pair: rate 8 B", "host", "M/s", queue_pairs(1, "rate_mps")),
    ("1 queue pair: SENDs 8 B", "host", "M/s", queue_pairs(1, "sends_mps")),
    ("10,000 queue pairs: latency 8 B, one at work", "host", "us", queue_pairs(10000, "latency_same_us")),
    ("10,000 queue pairs: latency 8 B, another each time", "host", "us", queue_pairs(10000, "latency_us")),
    ("10,000 queue pairs: rate 8 B, one at work", "host", "M/s", queue_pairs(10000, "rate_same_mps")),
    ("10,000 queue pairs: rate 8 B, another each time", "host", "M/s", queue_pairs(10000, "rate_mps")),
    ("10,000 queue pairs: SENDs 8 B, one at work", "host", "M/s", queue_pairs(10000, "sends_same_mps")),
    ("10,000 queue pairs: SENDs 8 B, another each time", "host", "M/s", queue_pairs(10000, "sends_mps")),
    *[(f"10,000 queue pairs: {what} 8 B, another each time over one at work, by turns", "host", "x", queue_pairs(10000, f"{key}_ratio"))
      for what, key in (("latency", "latency"), ("rate", "rate"), ("SENDs", "sends"))],
    ("10,000 queue pairs: connect", "host", "s", queue_pairs(10000, "connect_s")),
    ("10,000 queue pairs: idle state of each", "host", "B", queue_pairs(10000, "idle_bytes", "verbs")),
    ("10,000 queue pairs: idle state of each with its rdma_cm id", "host", "B", queue_pairs(10000, "idle_bytes")),
    ("10,000 queue pairs: idle, of a core", "host", "%", queue_pairs(10000, "idle_cpu_percent")),
]
for link, mtu in (("veth9000", 4096), ("veth1500", 1024), ("veth9000-plain", 4096), ("veth1500-plain", 1024)):
    CASES += [(f"{link}: ib_write_bw 1 MiB", link, "GB/s", verbs_bandwidth("ib_write_bw", MIB, mtu=mtu)),
              (f"{link}: limit: UDP, copies, acknowledged, ICRC", link, "GB/s", udp_work_limit("stream", str(mtu))),
              (f"{link}: iperf3", link, "GB/s", iperf3)]
for percent in (0.01, 0.1, 1, 5):
    CASES += [(f"loss {percent:g} %: ib_write_bw 1 MiB", "veth9000", "GB/s", loss(percent, True)),
              (f"loss {percent:g} %, go-back-N: ib_write_bw 1 MiB", "veth9000", "GB/s", loss(percent, False)),
              (f"loss {percent:g} %: goodput over that without, side by side", "veth9000", "x", loss_ratio(percent))]


def sharing(program, turn=lambda stage: stage):
    """Two of ours and the kernel's cubic, GB/s."""
    def flow(port):
        words = ["-s", "262144", "--report_gbits", "-D"]
        return lambda stage, seconds: perftest(turn(stage), program, *words, seconds, column=3, port=port) / 8
    return [flow(PORT), flow(PORT + 5),
            lambda stage, seconds: iperf3(stage, str(int(seconds) - share.ALONE_S), "-C", "cubic", "-O", str(share.ALONE_S))]


for queue in (32, 128, 512):
    for kind, where, flows, hop in [("flows", "", sharing("ib_write_bw"), True), ("flows", " in the senders' host", sharing("ib_write_bw"), False),
                                    ("readers", "", sharing("ib_read_bw", share.turned), True)]:
        CASES += [(f"shared link, queue of {queue} KiB{where}: greatest of two {kind} and TCP over the least", "veth1500", "x",
                   share.unevenness(queue, flows, hop))]
