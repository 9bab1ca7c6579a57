#!/usr/bin/env python3
"""Many processes on one address, killed one after the other: each is connected with the others and
with a peer elsewhere, and all connections move data without a pause. After each SIGKILL:

- every connection of the killed process is told to its other end, by a disconnect and not by a timeout;
- every other connection goes on: each ends another round, its digests equal;
- a new process takes the place, connects, and is connected to.

Of the connections that each process has made for it, a quarter go to the peer, a quarter come from there.
Now and then two die at once, and one whose neighbour is stopped; or (--owner) it is always whoever owns the
port. At the end every connection that did not belong to a killed process has been ended in order, none has
been lost, and both ends have computed the same digest of all that it carried.

usage: many_test.py BUILD [--processes N] [--links N] [--kills N] [--pause MS] [--seed N] [--owner]
It makes two network namespaces (../namespaces.sh) and runs the peer in the other one, on the same libraries.
../interop/rows/many.py has a peer on a kernel's device."""
import argparse
import collections
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
PEER_PORT = 7799


class Failure(Exception):
    pass


class Process:
    """One `many`, and what it says."""

    def __init__(self, test, name, address, port, command):
        self.name, self.address, self.port = name, address, port
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

    def status(self):
        return self.child.wait()

    def end(self):
        """Nothing more will be ordered; returns its status."""
        self.child.stdin.close()
        return self.child.wait(PATIENCE_S)


class End:
    """What one end of a connection says when it is over."""

    def __init__(self, rounds, digest, time_ns, *reason):
        self.rounds, self.digest, self.time_s = int(rounds), digest, int(time_ns) / 1e9
        self.reason = " ".join(reason)

    def __str__(self):
        return f"{self.reason} after {self.rounds} rounds, digest {self.digest}"


class Link:
    def __init__(self, maker, target):
        self.maker, self.target = maker, target     # names
        self.made, self.taken = False, False        # up, as either end says
        self.down = self.out = None                 # End

    def ends(self):
        return {self.maker, self.target}


class Test:
    """`arguments`: what main() parses. The peer is to be set, and listens, before `run`."""

    def __init__(self, arguments, environment, say=lambda line: print(line, flush=True)):
        self.arguments, self.environment, self.say = arguments, environment, say
        self.words = queue.Queue()
        self.living, self.dead, self.links = {}, set(), {}
        self.numbers, self.next_port = {}, FIRST_PORT
        self.random = random.Random(arguments.seed)
        self.passed, self.finished, self.listening = set(), set(), set()
        self.peer = self.stopped = None
        self.port_group = []  # names, in the order of their sockets
        self.program = os.path.join(arguments.build, "test", "many")

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
                link.down = End(*words[2:])
            else:
                link.out = End(*words[2:])
        elif kind == "passed":
            self.passed.add(name)
        elif kind == "stopped":
            self.finished.add(name)
        elif kind == "listening":
            self.listening.add(name)
        elif kind == "ended" and name not in self.dead:
            raise Failure(f"{name} ended by itself with status {process.status()}")

    def wait(self, what, condition, patience=PATIENCE_S):
        patience *= self.arguments.slow
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
        process = Process(self, name, self.arguments.here, port, [self.program, str(port), name, str(self.arguments.pause)])
        self.living[name] = process
        self.wait(f"{name} listens", lambda: name in self.listening)
        self.port_group.append(name)
        return process

    def named(self, name):
        return self.peer if name == "peer" else self.living[name]

    def hearing(self):
        """Who lives and can be heard."""
        return set(self.living) | {"peer"}

    def connect(self, maker, target, count):
        if count == 0:
            return
        for _ in range(count):
            number = self.numbers.get(maker, 0)
            self.numbers[maker] = number + 1
            self.links[f"{maker}-{number}"] = Link(maker, target)
        self.named(maker).order(f"connect {self.named(target).address} {self.named(target).port} {count}")

    def connect_with_peer(self, name):
        self.connect(name, "peer", self.arguments.links // 4)
        self.connect("peer", name, self.arguments.links // 4)

    def missing(self):
        """Connections that are not up yet, of processes that live."""
        return [f"{key} to {link.target}" for key, link in self.links.items()
                if not link.ends() & self.dead and not (link.made and link.taken)]

    def all_up(self):
        return not self.missing()

    # Steps

    def begin(self):
        count, links = self.arguments.processes, self.arguments.links
        names = [self.start().name for _ in range(count)]
        for i, name in enumerate(names):
            self.connect_with_peer(name)
            for j in range(links - 2 * (links // 4)):
                self.connect(name, names[(i + 1 + j % (count - 1)) % count], 1)
        self.wait("all connect", self.all_up)

    def choose(self, kill):
        if self.arguments.owner:
            return "the port's owner", [self.port_group[0]]
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
        self.connect_with_peer(new)
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
            self.leave_port(name)
        self.wait_told(number, lost, self.hearing())
        reports = [end for key in lost for end in (self.links[key].down, self.links[key].out)
                   if end is not None]
        self.go_on(whole - lost)
        self.report(number, how, victims, len(whole - lost), len(lost), began, reports)
        if self.stopped:
            os.kill(self.living[self.stopped].child.pid, signal.SIGCONT)
            self.stopped = None
        self.replace(victims, lost)

    def leave_port(self, name):
        """As the kernel does it: the last socket takes the place. Whose is the first gets what names nobody."""
        place, last = self.port_group.index(name), self.port_group.pop()
        if last != name:
            self.port_group[place] = last

    def wait_told(self, number, lost, among):
        try:
            self.wait(f"kill {number + 1}: the other ends are told",
                      lambda: not self.untold(lost, among), PROMPT_S)
        except Failure as failure:
            raise Failure(f"{failure}: {'; '.join(self.untold(lost, among))}") from None

    def go_on(self, whole):
        self.passed.clear()
        running = self.hearing() - {self.stopped}
        for name in running:
            self.named(name).order("mark")
        self.wait("all others go on", lambda: self.passed >= running)
        for key in whole:
            link = self.links[key]
            if link.down is not None or link.out is not None:
                raise Failure(f"{key} to {link.target} was lost: {link.down} at its maker, {link.out} at the other end")

    def report(self, number, how, victims, whole, lost, began, ends):
        times = sorted(end.time_s - began for end in ends)
        reasons = collections.Counter(end.reason for end in ends)
        said = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        late = f"{times[0] * 1000:.0f}, {times[len(times) // 2] * 1000:.0f}, {times[-1] * 1000:.0f}" if times else "-"
        self.say(f"{number + 1:4}  {how + ' (' + ' '.join(victims) + ')':38} {lost:5} {whole:6}   {late:>16}   {said}")
        if set(reasons) - {"disconnected"}:
            raise Failure(f"ends that were not told by a disconnect: {said}")

    def replace(self, victims, lost):
        for victim in victims:
            new = self.start().name
            self.connect_with_peer(new)
            for key in sorted(lost):
                link = self.links[key]
                if link.target == victim and link.maker in self.living:
                    self.connect(link.maker, new, 1)
                elif link.maker == victim and link.target in self.living:
                    self.connect(new, link.target, 1)
        self.wait("the new ones connect", self.all_up)

    def finish(self):
        for name in self.hearing():
            self.named(name).order("stop")
        self.wait("all end", lambda: self.finished >= self.hearing())
        kept = {key: link for key, link in self.links.items() if not link.ends() & self.dead}
        self.wait("all hear it", lambda: all(link.out for link in kept.values()))
        for key, link in kept.items():
            self.compare(key, link)
        for name, process in self.living.items():
            self.dead.add(name)
            status = process.end()
            if status != 0:
                raise Failure(f"{name} ended with status {status}")
        rounds = sum(link.down.rounds for link in kept.values())
        with_peer = sum("peer" in link.ends() for link in kept.values())
        by_peer = sum(link.maker == "peer" for link in kept.values())
        self.say(f"{len(self.links)} connections: {len(self.links) - len(kept)} belonged to killed processes, "
                 f"{len(kept)} survived to the last ({with_peer} with the peer, {by_peer} of them made by it), their digests "
                 f"equal at both ends: {rounds} rounds, {rounds / 4:.0f} MiB")

    def compare(self, key, link):
        ends = link.down, link.out
        if {end.reason for end in ends} != {"done"} or link.down.rounds == 0 or \
                ends[0].rounds != ends[1].rounds or ends[0].digest != ends[1].digest:
            raise Failure(f"{key}: {link.maker}, which made it, says {link.down}; {link.target}, to which it was made: "
                          f"{link.out}")

    def run(self):
        self.wait("the peer listens", lambda: "peer" in self.listening)
        self.begin()
        self.say(f"{self.arguments.processes} processes, {self.arguments.links} connections made for each, "
                 f"{len(self.links)} in all\nkill  who{'':36} lost  whole   told after, ms    how")
        for number in range(self.arguments.kills):
            self.kill(number)
        self.finish()

    def clean_up(self):
        self.dead |= self.hearing()
        for process in self.living.values():
            process.child.kill()
            process.child.wait()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    for name, value in (("processes", 10), ("links", 20), ("kills", 10), ("pause", 0), ("seed", 1)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--owner", action="store_true", help="kill whoever owns the port")
    arguments = parser.parse_args()
    arguments.build = os.path.realpath(arguments.build)
    arguments.here, arguments.slow = "10.78.0.1", 1
    return arguments


def main():
    arguments = parse()
    if not os.environ.get("MANY_TEST_INSIDE"):
        os.environ["MANY_TEST_INSIDE"] = "1"
        script = os.path.join(HERE, "..", "namespaces.sh")
        os.execv(script, [script, sys.executable, os.path.realpath(__file__)] + sys.argv[1:])
    test = Test(arguments, dict(os.environ, LD_LIBRARY_PATH=os.path.join(arguments.build, "dropin")))
    test.peer = Process(test, "peer", "10.78.0.2", PEER_PORT,
                        ["far", test.program, str(PEER_PORT), "peer", str(arguments.pause), "serve"])
    try:
        test.run()
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    finally:
        test.clean_up()
        test.peer.child.kill()
        test.peer.child.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
