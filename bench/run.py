#!/usr/bin/env python3
"""Measures Weir beside its peers, interleaved, and prints medians as ratios.

Usage: bench/run.py BUILD_DIR [--rounds N] [--only WORD] [--size-mib N] [--json FILE]

Each round runs every case once; a case's figure is the median over the rounds, its spread the smallest
and the largest. Files live in memory (/dev/shm), which is filled once before anything is timed: the
first touch of a page costs several times as much as the next. Nothing else should run meanwhile."""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PORT = 18515


class Bench:
    def __init__(self, build, size):
        self.weir = os.path.join(build, "weir")
        self.size = size
        self.dir = tempfile.mkdtemp(prefix="weir-bench.", dir="/dev/shm")
        self.source = os.path.join(self.dir, "source")
        self.target = os.path.join(self.dir, "target")
        self.server_root = os.path.join(self.dir, "root")
        os.mkdir(self.server_root)
        self.server = None

    def prepare(self):
        with open(self.source, "wb") as file, open("/dev/urandom", "rb") as random:
            block = random.read(64 << 20)
            for _ in range(self.size // len(block)):
                file.write(block)
        shutil.copyfile(self.source, self.target)  # the machine's memory is touched once
        os.unlink(self.target)
        self.server = subprocess.Popen([self.weir, "serve", "--listen", "127.0.0.1:7479", "--root",
                                        self.server_root, "--fabric", "soft"],
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_for_port_text(self.server)

    def close(self):
        if self.server:
            self.server.send_signal(signal.SIGTERM)
            self.server.wait(10)
        shutil.rmtree(self.dir, ignore_errors=True)

    # Files: GB/s for one file of self.size.

    def timed_copy(self, run, target):
        if os.path.exists(target):
            os.unlink(target)
        begin = time.monotonic()
        run()
        seconds = time.monotonic() - begin
        if os.path.getsize(target) != self.size:
            raise RuntimeError(f"{target} has the wrong size")
        os.unlink(target)
        return self.size / seconds / 1e9

    def file_weir_push(self):
        target = os.path.join(self.server_root, "pushed")
        return self.timed_copy(lambda: check([self.weir, "cp", "-q", "--fabric", "soft", self.source,
                                              "weir://127.0.0.1:7479/pushed"]), target)

    def file_weir_pull(self):
        served = os.path.join(self.server_root, "served")
        if not os.path.exists(served):
            os.link(self.source, served)
        return self.timed_copy(lambda: check([self.weir, "cp", "-q", "--fabric", "soft",
                                              "weir://127.0.0.1:7479/served", self.target]),
                               self.target)

    def file_cp(self):
        return self.timed_copy(lambda: check(["cp", self.source, self.target]), self.target)

    def file_rsync(self):
        return self.timed_copy(lambda: check(["rsync", "--whole-file", self.source, self.target]),
                               self.target)

    def file_nc(self):
        def run():
            with open(self.target, "wb") as out, open(self.source, "rb") as source:
                server = subprocess.Popen(["nc", "-l", "127.0.0.1", "18600"], stdout=out,
                                          stdin=subprocess.DEVNULL)
                wait_for_listener(18600)
                check(["nc", "-N", "127.0.0.1", "18600"], stdin=source)
                server.wait(60)
        return self.timed_copy(run, self.target)

    # perftest through our libraries: two processes on loopback.

    def perftest(self, program, *arguments):
        global PORT
        PORT += 1
        command = [self.weir, "run", program, "-p", str(PORT), "-F", *arguments]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            wait_for_listener(PORT)
            output = subprocess.run(command + ["127.0.0.1"], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, timeout=60, check=True).stdout
            server.wait(20)
        finally:
            if server.poll() is None:
                server.kill()
        rows = re.findall(rb"^ *\d+ +\d+ +[\d. \t]+$", output, re.M)
        if not rows:
            raise RuntimeError(output.decode())
        return [float(word) for word in rows[-1].split()]

    def verbs_write_bw(self, size):
        return self.perftest("ib_write_bw", "-s", str(size), "-n", "2000" if size > 65536 else "20000",
                             "--report_gbits")[3] / 8

    def verbs_write_lat(self, size):
        return self.perftest("ib_write_lat", "-s", str(size), "-n", "20000")[4]

    def verbs_send_lat(self, size):
        return self.perftest("ib_send_lat", "-s", str(size), "-n", "20000")[4]


def check(command, **kwargs):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **kwargs)


def wait_for_listener(port):
    """Until a TCP socket listens on the port, without connecting to it."""
    wanted = f":{port:04X}"
    for _ in range(1000):
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in open(table).read().splitlines()[1:]:
                words = line.split()
                if words[1].endswith(wanted) and words[3] == "0A":
                    return
        time.sleep(0.01)
    raise RuntimeError(f"nobody listens on {port}")


def wait_for_port_text(server):
    line = b""
    while b"7479" not in line:
        line = server.stdout.readline()
        if not line:
            raise RuntimeError("weir serve did not start")


CASES = [  # name, unit, method, arguments, peer that the ratio is taken against
    ("weir cp, push", "GB/s", "file_weir_push", (), "cp"),
    ("weir cp, pull", "GB/s", "file_weir_pull", (), "cp"),
    ("cp", "GB/s", "file_cp", (), None),
    ("rsync", "GB/s", "file_rsync", (), "cp"),
    ("nc", "GB/s", "file_nc", (), "cp"),
    ("ib_write_bw 4 KiB", "GB/s", "verbs_write_bw", (4096,), None),
    ("ib_write_bw 64 KiB", "GB/s", "verbs_write_bw", (65536,), None),
    ("ib_write_bw 1 MiB", "GB/s", "verbs_write_bw", (1 << 20,), None),
    ("ib_write_lat 8 B", "us", "verbs_write_lat", (8,), None),
    ("ib_write_lat 4 KiB", "us", "verbs_write_lat", (4096,), None),
    ("ib_send_lat 8 B", "us", "verbs_send_lat", (8,), None),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--size-mib", type=int, default=4096)
    parser.add_argument("--json")
    options = parser.parse_args()
    bench = Bench(os.path.realpath(options.build), options.size_mib << 20)
    cases = [case for case in CASES if options.only in case[0]]
    results = {case[0]: [] for case in cases}
    try:
        bench.prepare()
        for number in range(options.rounds):
            for name, unit, method, arguments, _ in cases:
                try:
                    results[name].append(getattr(bench, method)(*arguments))
                except (RuntimeError, subprocess.SubprocessError) as error:
                    print(f"{name}: failed in round {number + 1}: {error}", file=sys.stderr)
            print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
    finally:
        bench.close()
    medians = {name: statistics.median(values) for name, values in results.items() if values}
    print(f"| case | unit | min | median | max | runs | ratio |\n|---|---|---|---|---|---|---|")
    for name, unit, _, _, peer in cases:
        values = results[name]
        if not values:
            print(f"| {name} | {unit} | | failed | | 0 | |")
            continue
        ratio = f"{medians[name] / medians[peer]:.2f} x {peer}" if peer in medians else ""
        print(f"| {name} | {unit} | {min(values):.3g} | {medians[name]:.3g} | {max(values):.3g} | "
              f"{len(values)} | {ratio} |")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
