"""Several flows through one link of limited rate, from its one end to the other, all at once.

The link is the near end of test/namespaces.sh's veth behind a token bucket (tc, sch_tbf) with a queue that drops what does not
fit. The flows come from a host of their own one hop before it, as they come to a router's queue; or from the host that has the
queue, which is another case, for there the kernel's TCP keeps but little of its own in it ("small queues").
What is told is the greatest of their figures over the least: 1 is fair. Not here: whose flows (cases.py); how queues of other depths behave
(docs/loss.md, the simulator)."""
import concurrent.futures
import contextlib
import os
import subprocess
import time

from stage import Missing, Stage, wait_for_link

RATE, BURST = "400mbit", "16kb"
ROUTER, SENDERS, NETWORK = "10.79.0.1", "10.79.0.2", "10.79.0.0/24"
NEAR = "10.78.0.1" # of test/namespaces.sh
LEAST = 1e-6 # GB/s; who stands still would make it infinite
ALONE_S = 2 # who begins at once has the link for himself until the others measure, too: that is not counted
SECONDS, SECONDS_LEAST = 16, 5 # what each has swings for seconds


def must(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Missing(f"{command[0]}: {done.stdout.strip()}")


def shape(queue):
    must("tc", "qdisc", "add", "dev", "weir0", "root", "tbf", "rate", RATE, "burst", BURST, "limit", f"{queue}kb")


def wait_for_namespace(process):
    ours = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{process.pid}/ns/net") == ours:
        time.sleep(0.01)


@contextlib.contextmanager
def one_hop_before(stage):
    """The stage whose near end is a host that reaches the far one through ours."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    try:
        wait_for_namespace(holder)
        near = ["nsenter", "-t", str(holder.pid), "-n", "--"]
        must("ip", "link", "add", "hop0", "mtu", "1500", "type", "veth", "peer", "name", "weir0", "mtu", "1500", "netns", str(holder.pid))
        must("ip", "addr", "add", f"{ROUTER}/24", "dev", "hop0")
        must("ip", "link", "set", "hop0", "up")
        must(*near, "ip", "link", "set", "lo", "up")
        must(*near, "ip", "addr", "add", f"{SENDERS}/24", "dev", "weir0")
        must(*near, "ip", "link", "set", "weir0", "up")
        must(*near, "ip", "route", "add", "default", "via", ROUTER)
        must(*stage.far, "ip", "route", "add", NETWORK, "via", NEAR)
        with open("/proc/sys/net/ipv4/ip_forward", "w") as file:
            file.write("1")
        wait_for_link(near)
        yield Stage(stage.build, stage.scale, stage.far, stage.address, near)
    finally:
        holder.kill()
        holder.wait()


def turned(stage):
    """Its far end is the near one: who READs from there draws through the queue what others send."""
    return Stage(stage.build, stage.scale, stage.near, SENDERS if stage.near else NEAR, stage.far)


def unevenness(queue, flows, hop):
    """`queue`: how many KiB wait before the link at most. `flows`: functions of a stage and of seconds that tell how fast they were.
    `hop`: they come to the queue from another host."""
    def run(stage):
        seconds = str(max(SECONDS_LEAST, round(SECONDS * stage.scale)))
        shape(queue)
        with one_hop_before(stage) if hop else contextlib.nullcontext(stage) as senders:
            with concurrent.futures.ThreadPoolExecutor(len(flows)) as pool:
                begun = [pool.submit(flow, senders, seconds) for flow in flows]
                figures = [flow.result() for flow in begun]
        return max(figures) / max(min(figures), LEAST)
    return run
