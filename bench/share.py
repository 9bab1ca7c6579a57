"""Two flows of ours and one of TCP (cubic) through one link of limited rate, from its one end to the other, all at once.

The link is the near end of test/namespaces.sh's veth behind a token bucket (tc, sch_tbf) with a queue that drops what does not
fit. What is told is the greatest of the three figures over the least: 1 is fair. Not here: how queues of other depths behave
(docs/loss.md, the simulator)."""
import concurrent.futures
import json
import re
import subprocess

from stage import Missing

RATE, BURST = "400mbit", "16kb"
SIZE = 256 << 10
PORTS, TCP_PORT = (18601, 18602), 18700
SECONDS_LEAST = 2


def shape(queue):
    done = subprocess.run(["tc", "qdisc", "add", "dev", "weir0", "root", "tbf", "rate", RATE, "burst", BURST, "limit", f"{queue}kb"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Missing(f"tc: {done.stdout.strip()}")


def ours(stage, port, seconds):
    """Gbit/s of writes from here to there."""
    command = [stage.weir, "run", "ib_write_bw", "-F", "-p", str(port), "-s", str(SIZE), "-D", seconds, "--report_gbits"]
    output = stage.pair(command, [*command, stage.address], port)
    rows = re.findall(rf"^ *{SIZE} +\d+ +[\d. \t]+$", output, re.M)
    if not rows:
        raise RuntimeError(output[-500:])
    return float(rows[-1].split()[3])


def tcp(stage, seconds):
    """Gbit/s that arrived there."""
    output = stage.pair(["iperf3", "-s", "-1", "-p", str(TCP_PORT)],
                        ["iperf3", "-c", stage.address, "-p", str(TCP_PORT), "-t", seconds, "-C", "cubic", "-J"], TCP_PORT)
    return json.loads(output)["end"]["sum_received"]["bits_per_second"] * 1e-9


def unevenness(queue):
    """`queue`: how many KiB wait before the link at most."""
    def run(stage):
        seconds = str(max(SECONDS_LEAST, round(8 * stage.scale)))
        shape(queue)
        with concurrent.futures.ThreadPoolExecutor(3) as flows:
            begun = [flows.submit(ours, stage, port, seconds) for port in PORTS] + [flows.submit(tcp, stage, seconds)]
            figures = [flow.result() for flow in begun]
        return max(figures) / min(figures)
    return run
