#!/usr/bin/env python3
"""Many processes on one address, killed one after the other: each is connected with the others and
with a peer elsewhere, and all connections move data without a pause. After each SIGKILL:

- every connection of the killed process is told to its other end, by a disconnect and not by a timeout;
- every other connection goes on: each ends another round, its digests equal;
- a new process takes the place, connects, and is connected to.

Now and then two die at once, and one whose neighbour is stopped. At the end every connection that did not
belong to a killed process has been ended in order, and none has been lost.

usage: many_test.py BUILD [--processes N] [--links N] [--kills N] [--pause MS] [--seed N]
                    [--here ADDRESS] [--peer ADDRESS:PORT]
Without --peer it makes two network namespaces (../namespaces.sh) and runs the peer in the other one, on the
same libraries. With --peer it runs where it is; there `many PORT peer 0 serve` listens, on whatever device."""
import argparse
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
PATIENCE_S = 120   # of the test, for a loaded machine
PROMPT_S = 15      # a disconnect may take; timeouts of the transport take longer
FIRST_PORT = 7800


class Failure(Exception):
    pass


class Process:
    """One `many`, and what it says."""

    def __init__(self, test, name, port, command):
        self.name, self.port = name, port
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      bufsize=1, env=test.environment)
        threading.Thread(target=self.listen, args=(test.words,), daemon=True).start()

    def listen(self, words):
        for line in self.child.stdout:
            words.put((self, line.split()))
        words.put((self, ["ended"]))

    def order(self, text):
        self.child.stdin.write(text + "\n")
        self.child.stdin.flush()


class Link:
    def __init__(self, maker, target):
        self.maker, self.target = maker, target     # names
        self.made, self.taken = False, False        # up, as either end says
        self.down = self.out = None                 # (seconds, reason)
        self.rounds = 0

    def ends(self):
        return {self.maker, self.target}


class Test:
    def __init__(self, arguments):
        self.arguments = arguments
        self.words = queue.Queue()
        self.living, self.dead, self.links = {}, set(), {}
        self.numbers, self.next_port = {}, FIRST_PORT
        self.random = random.Random(arguments.seed)
        self.passed, self.finished, self.listening = set(), set(), set()
        self.peer = self.stopped = None
        self.program = os.path.join(arguments.build, "test", "many")
        self.environment = dict(os.environ)
        self.environment["LD_LIBRARY_PATH"] = os.path.join(arguments.build, "dropin")

    # What the processes say

    def take(self, process, words):
        kind, name = words[0], process.name
        if kind in ("up", "down", "in", "out"):
            link = self.links.get(words[1])
            if link is None:
                raise Failure(f"{name} speaks of an unknown connection: {words}")
            if kind == "up":
                link.made = True
            elif kind == "in":
                link.taken = True
            elif kind == "down":
                link.rounds, link.down = int(words[2]), (int(words[3]) / 1e9, " ".join(words[4:]))
            else:
                link.out = (int(words[2]) / 1e9, " ".join(words[3:]))
        elif kind == "passed":
            self.passed.add(name)
        elif kind == "stopped":
            self.finished.add(name)
        elif kind == "listening":
            self.listening.add(name)
        elif kind == "ended" and name not in self.dead:
            raise Failure(f"{name} ended by itself with status {process.child.wait()}")

    def wait(self, what, condition, patience=PATIENCE_S):
        end = time.monotonic() + patience
        while not condition():
            try:
                self.take(*self.words.get(timeout=max(0.01, end - time.monotonic())))
            except queue.Empty:
                missing = self.missing()
                raise Failure(f"{what}: not within {patience} s; {len(missing)} connections of {len(self.links)} "
                              f"are not up: {', '.join(missing[:8])}") from None

    # Processes and connections

    def start(self):
        number = self.next_port - FIRST_PORT
        name, port = f"p{number}", self.next_port
        self.next_port += 1
        process = Process(self, name, port, [self.program, str(port), name, str(self.arguments.pause)])
        self.living[name] = process
        self.wait(f"{name} listens", lambda: name in self.listening)
        return process

    def connect(self, maker, target, count):
        if count == 0:
            return
        address, port = self.arguments.here, None
        if target == "peer":
            address, port = self.arguments.peer
        else:
            port = self.living[target].port
        for _ in range(count):
            number = self.numbers.get(maker, 0)
            self.numbers[maker] = number + 1
            self.links[f"{maker}-{number}"] = Link(maker, target)
        self.living[maker].order(f"connect {address} {port} {count}")

    def missing(self):
        """Connections that are not up yet, of processes that live."""
        return [f"{key} to {link.target}" for key, link in self.links.items()
                if not link.ends() & self.dead and not (link.made and (link.taken or not self.hears(link.target)))]

    def all_up(self):
        return not self.missing()

    def hears(self, name):
        """We read what it says: not of a peer that somebody else has started."""
        return name in self.living or (name == "peer" and self.peer is not None)

    # Steps

    def begin(self):
        count, links = self.arguments.processes, self.arguments.links
        names = [self.start().name for _ in range(count)]
        for i, name in enumerate(names):
            self.connect(name, "peer", links // 2)
            for j in range(links - links // 2):
                self.connect(name, names[(i + 1 + j % (count - 1)) % count], 1)
        self.wait("all connect", self.all_up)

    def choose(self, kill):
        names = sorted(self.living, key=lambda name: int(name[1:]))
        if kill % 5 == 4:
            return "two neighbours at once", names[1:3]
        if kill % 5 == 2:
            return "one, the process before it stopped", [self.stop_neighbour()]
        kinds = {0: "the oldest", 1: "the newest", 3: "any"}
        victim = {0: names[0], 1: names[-1], 3: self.random.choice(names)}[kill % 5]
        return kinds[kill % 5], [victim]

    def stop_neighbour(self):
        """A stopped process that would have been the one to act, and after it a new one, which is returned.
        It has no connections: they would be lost by its being stopped."""
        self.stopped = self.start().name
        new = self.start().name
        self.connect(new, "peer", self.arguments.links // 2)
        self.connect(sorted(self.living)[0], new, 1)
        self.wait("the new ones connect", self.all_up)
        os.kill(self.living[self.stopped].child.pid, signal.SIGSTOP)
        return new

    def untold(self, keys, among):
        """The living ends among those that have not been told."""
        links = [self.links[key] for key in keys]
        return ([f"{link.maker}, to {link.target}" for link in links if link.maker in among and link.down is None] +
                [f"{link.target}, from {link.maker}" for link in links
                 if link.target in among and link.taken and link.out is None])

    def kill(self, number):
        how, victims = self.choose(number)
        whole = {key for key, link in self.links.items() if not link.ends() & self.dead}
        lost = {key for key in whole if self.links[key].ends() & set(victims)}
        began = time.clock_gettime(time.CLOCK_MONOTONIC)
        for name in victims:
            self.dead.add(name)
            os.kill(self.living[name].child.pid, signal.SIGKILL)
        for name in victims:
            self.living.pop(name).child.wait()
        among = set(self.living) | ({"peer"} if self.peer else set())
        self.wait_told(number, lost, among)
        reports = [end for key in lost for end in (self.links[key].down, self.links[key].out)
                   if end is not None]
        self.go_on(whole - lost)
        self.report(number, how, victims, len(whole - lost), len(lost), began, reports)
        if self.stopped:
            os.kill(self.living[self.stopped].child.pid, signal.SIGCONT)
            self.stopped = None
        self.replace(victims, lost)

    def wait_told(self, number, lost, among):
        try:
            self.wait(f"kill {number + 1}: the other ends are told",
                      lambda: not self.untold(lost, among), PROMPT_S)
        except Failure as failure:
            raise Failure(f"{failure}: {'; '.join(self.untold(lost, among))}") from None

    def go_on(self, whole):
        self.passed.clear()
        running = set(self.living) - {self.stopped}
        for name in running:
            self.living[name].order("mark")
        self.wait("all others go on", lambda: self.passed >= running)
        for key in whole:
            link = self.links[key]
            if link.down is not None or link.out is not None:
                raise Failure(f"{key} to {link.target} was lost: {link.down or link.out}")

    def report(self, number, how, victims, whole, lost, began, ends):
        times = sorted(end[0] - began for end in ends)
        reasons = {}
        for _, reason in ends:
            reasons[reason] = reasons.get(reason, 0) + 1
        said = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        late = f"{times[0] * 1000:.0f}, {times[len(times) // 2] * 1000:.0f}, {times[-1] * 1000:.0f}" if times else "-"
        print(f"{number + 1:4}  {how + ' (' + ' '.join(victims) + ')':38} {lost:5} {whole:6}   {late:>16}   {said}",
              flush=True)
        if set(reasons) - {"disconnected"}:
            raise Failure(f"ends that were not told by a disconnect: {said}")

    def replace(self, victims, lost):
        for victim in victims:
            new = self.start().name
            self.connect(new, "peer", self.arguments.links // 2)
            for key in sorted(lost):
                link = self.links[key]
                if link.target == victim and link.maker in self.living:
                    self.connect(link.maker, new, 1)
                elif link.maker == victim and link.target in self.living:
                    self.connect(new, link.target, 1)
        self.wait("the new ones connect", self.all_up)

    def finish(self):
        for process in self.living.values():
            process.order("stop")
        self.wait("all end", lambda: self.finished >= set(self.living))
        kept = [link for link in self.links.values() if not link.ends() & self.dead]
        for link in kept:
            if link.down is None or link.down[1] != "done" or link.rounds == 0:
                raise Failure(f"{link.maker} to {link.target}: {link.down}, {link.rounds} rounds")
        for name, process in self.living.items():
            self.dead.add(name)
            process.child.stdin.close()
            if process.child.wait(PATIENCE_S) != 0:
                raise Failure(f"{name} ended with status {process.child.returncode}")
        rounds = sum(link.rounds for link in kept)
        print(f"{len(kept)} connections of {len(self.links)} belonged to nobody killed: all ended in order, "
              f"{rounds} digests equal ({rounds / 4:.0f} MiB)")

    def run(self):
        if self.peer_command:
            self.peer = Process(self, "peer", self.arguments.peer[1], self.peer_command)
            self.wait("the peer listens", lambda: "peer" in self.listening)
        self.begin()
        print(f"{self.arguments.processes} processes, {self.arguments.links} connections made by each, "
              f"{len(self.links)} in all\nkill  who{'':36} lost  whole   told after, ms    how", flush=True)
        for number in range(self.arguments.kills):
            self.kill(number)
        self.finish()

    def clean_up(self):
        self.dead |= set(self.living) | {"peer"}
        for process in list(self.living.values()) + ([self.peer] if self.peer else []):
            process.child.kill()
            process.child.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    for name, value in (("processes", 10), ("links", 20), ("kills", 10), ("pause", 0), ("seed", 1)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--here", default="10.78.0.1")
    parser.add_argument("--peer")
    arguments = parser.parse_args()
    arguments.build = os.path.realpath(arguments.build)
    inside = os.environ.get("MANY_TEST_INSIDE")
    if arguments.peer is None and not inside:
        os.environ["MANY_TEST_INSIDE"] = "1"
        script = os.path.join(HERE, "..", "namespaces.sh")
        os.execv(script, [script, sys.executable, os.path.realpath(__file__)] + sys.argv[1:])
    command = None
    if arguments.peer is None:
        arguments.peer = "10.78.0.2:7799"
    address, port = arguments.peer.rsplit(":", 1)
    arguments.peer = (address, int(port))
    test = Test(arguments)
    test.peer_command = ["far", test.program, port, "peer", "0", "serve"] if inside else None
    try:
        test.run()
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    finally:
        test.clean_up()
    return 0


if __name__ == "__main__":
    sys.exit(main())
