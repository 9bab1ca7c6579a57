"""Several flows through one link of limited rate, from its one end to the other, all at once.

The link is the near end of test/namespaces.sh's veth behind a token bucket (tc, sch_tbf) with a queue that drops what does not
fit. What is told is the greatest of their figures over the least: 1 is fair. Not here: whose flows (cases.py); how queues of other depths behave
(docs/loss.md, the simulator)."""
import concurrent.futures
import subprocess

from stage import Missing

RATE, BURST = "400mbit", "16kb"
LEAST = 1e-6 # GB/s; who stands still would make it infinite
ALONE_S = 2 # who begins at once has the link for himself until the others measure, too: that is not counted
SECONDS, SECONDS_LEAST = 16, 5 # what each has swings for seconds


def shape(queue):
    done = subprocess.run(["tc", "qdisc", "add", "dev", "weir0", "root", "tbf", "rate", RATE, "burst", BURST, "limit", f"{queue}kb"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Missing(f"tc: {done.stdout.strip()}")


def unevenness(queue, flows):
    """`queue`: how many KiB wait before the link at most. `flows`: functions of a stage and of seconds that tell how fast they were."""
    def run(stage):
        seconds = str(max(SECONDS_LEAST, round(SECONDS * stage.scale)))
        shape(queue)
        with concurrent.futures.ThreadPoolExecutor(len(flows)) as pool:
            begun = [pool.submit(flow, stage, seconds) for flow in flows]
            figures = [flow.result() for flow in begun]
        return max(figures) / max(min(figures), LEAST)
    return run
