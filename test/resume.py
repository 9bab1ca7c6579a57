#!/usr/bin/env python3
"""Copies that are killed again and again, and go on with --resume until they are through.

Usage: resume.py BUILD [--kills N] [--seed N] [--case N] [--directory DIR]

For each case: a random tree of large, sparse and small files is pushed or pulled; in the middle of it, and of
what goes on with it, either side is killed with SIGKILL at a random moment, or the client is interrupted.
Then the last one is let through: the copy must be the tree, to the last byte, time and mode, and nothing may
be left beside it. Before that, now and then, a bit is flipped in what was left of a file, or in its journal:
that must be said. In a third of the cases the server is killed only, and started again: there the same copy
connects again and goes on by itself. Cases go on until there were N kills. A case that fails is made again by --seed and --case;
when within a copy the kill comes is then as random as before."""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

from fidelity import differences, remove, survey

HEAD, RECORD = 128, 64
RATE = 60 << 20  # bytes a second: so that there is time to kill within
PATIENCE_S = 60  # of the test, for a loaded machine


def make_tree(top, rng):
    os.makedirs(top + b"/deep/er")
    for number in range(rng.randrange(2, 5)):
        size = rng.randrange(3 << 20, 22 << 20)
        if rng.random() < 0.15:  # so large that its memory is made ahead of what is written
            size += 66 << 20
        path = top + rng.choice([b"/", b"/deep/", b"/deep/er/"]) + b"big%d" % number
        with open(path, "wb") as file:
            file.write(rng.randbytes(1 << 16) * (size >> 16) + rng.randbytes(size & 0xffff))
            for _ in range(40):  # so that no two pieces are the same
                file.seek(rng.randrange(size))
                file.write(rng.randbytes(64))
            if rng.random() < 0.4:
                file.truncate(size + rng.randrange(64 << 20))
                file.seek(size + (4 << 20))
                file.write(b"behind a hole")
    for number in range(rng.randrange(20, 120)):
        with open(top + b"/deep/er/small %d" % number, "wb") as file:
            file.write(rng.randbytes(rng.randrange(40000)))
    os.symlink(b"nowhere", top + b"/link")
    for directory, names, files in os.walk(top, topdown=False):
        for name in names + files:
            ns = rng.randrange(10**18, 15 * 10**17)
            os.utime(os.path.join(directory, name), ns=(ns, ns), follow_symlinks=False)


def left_over(top):
    return [os.path.join(directory, name) for directory, _, files in os.walk(top) for name in files
            if name.startswith(b".weir-")]


class Server:
    """A weir serve, and how many clients it has, as far as it knows."""

    def __init__(self, weir, root, errors, port="0"):
        self.process = subprocess.Popen([weir, "serve", "--json", "--insecure", "--listen", "127.0.0.1:" + port, "--root", root],
                                        stdout=subprocess.PIPE, stderr=errors, text=True)
        first = self.process.stdout.readline()
        if not first.startswith("{"):
            sys.exit("the server does not start: " + first)
        self.url = "weir://" + json.loads(first)["address"]
        self.port = self.url.split(":")[-1]
        self.under_way, self.news, self.completed = 0, threading.Condition(), False
        threading.Thread(target=self.listen, args=(errors,), daemon=True).start()

    def listen(self, log):
        for line in self.process.stdout:
            log.write(line)
            log.flush()
            event = json.loads(line)["event"]
            with self.news:
                self.under_way += {"connected": 1, "transfer": -1}.get(event, 0)
                self.completed |= '"outcome":"complete"' in line
                self.news.notify_all()

    def settle(self):
        """Until it has noticed of all clients that they are gone. False: it has not."""
        with self.news:
            return self.news.wait_for(lambda: self.under_way == 0, PATIENCE_S)

    def stop(self):
        self.process.terminate()
        return self.process.wait()


class Case:
    def __init__(self, weir, work, seed, number):
        self.weir, self.work, self.rng = weir, work, random.Random(f"{seed}/{number}")
        self.push = self.rng.random() < 0.5
        self.slash = self.rng.choice(["", "/"])  # "tree" becomes "copy", and not "copy/tree" when it goes on
        self.source, self.root, self.here = work + b"/tree", work + b"/root", work + b"/here"
        os.mkdir(self.root)
        os.mkdir(self.here)
        make_tree(self.source, self.rng)
        if not self.push:
            os.rename(self.source, self.root + b"/tree")
            self.source = self.root + b"/tree"
        self.copy = self.root + b"/copy" if self.push else self.here + b"/copy"
        self.log = open(work + b"/log", "a+")
        self.server = Server(weir, self.root, self.log)
        self.kills, self.wrong, self.kept, self.busy, self.again = 0, [], False, 0, 0

    def start(self, timeout=0):
        source = (os.fsdecode(self.source) if self.push else self.server.url + "/tree") + self.slash
        names = [source, self.server.url + "/copy"] if self.push else [source, self.copy]
        return subprocess.Popen([self.weir, "cp", "-a", "--resume", "--timeout", str(timeout), "--bwlimit", f"{RATE}B"] + names,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def finish(self, client, what):
        try:
            output, _ = client.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            client.kill()
            self.wrong.append(f"{what}: the client does not end: {client.communicate()[0][-300:]!r}")
            return b""
        self.busy += output.count(b"another copy is writing it")
        for word in [b"torn", b"damaged", b"not what its journal", b"somebody else", b"by others", b"another file"]:
            if word in output and what != "flipped":
                self.wrong.append(f"{what}: said what nobody did: {output[-400:]!r}")
        return output

    def is_through(self, client):
        """What became a name of its own is whole: the same command once more would be another copy, into it."""
        return not self.slash and (client.returncode == 0 or (self.server.settle() and self.server.completed))

    def kill_once(self, seconds):
        """True: it was too late."""
        client = self.start()
        side = self.rng.choice(["client", "client", "server", "server", "interrupt"])
        time.sleep(self.rng.random() * seconds)
        self.kills += 1
        if side == "server":
            self.server.process.kill()
            self.server.process.wait()
        else:
            client.send_signal(signal.SIGINT if side == "interrupt" else signal.SIGKILL)
        self.finish(client, f"killed {side}")
        if side == "server":
            self.server = Server(self.weir, self.root, self.log)
        return self.is_through(client)

    def kill_and_return(self, kills, seconds):
        """One copy, whose server dies so often and comes again, to its end."""
        client = self.start(timeout=60)
        for _ in range(kills):
            time.sleep(self.rng.random() * seconds)
            self.server.process.kill()
            self.server.process.wait()
            self.kills += 1
            time.sleep(self.rng.random() * 0.3)
            self.server = Server(self.weir, self.root, self.log, self.server.port)
        output = self.finish(client, "again")
        # the first death was before it was there, or while it was being let in
        if client.returncode == 3 and (b"nobody listens" in output or b"refused the connection" in output):
            client = self.start(timeout=60)
            output = self.finish(client, "again")
        self.again += b"connected again" in output
        if client.returncode != 0:
            self.wrong.append(f"it did not go on: status {client.returncode}: {output[-600:]!r}")

    def flip(self):
        """A bit of what a journal speaks of, or of the journal; None: there is none."""
        journals = [path for path in left_over(os.path.dirname(self.copy))
                    if path.endswith(b".journal") and os.path.getsize(path) >= HEAD + RECORD]
        if not journals:
            return None
        path, at = self.rng.choice(journals), 0
        size = os.path.getsize(path)
        if self.rng.random() < 0.5:
            at = self.rng.randrange(size - (size - HEAD) % RECORD)
        else:
            with open(path, "rb") as file:
                record = file.read()[HEAD:HEAD + RECORD]
            offset, length = (int.from_bytes(record[i:i + 8], "big") for i in (16, 24))
            if int.from_bytes(record[12:16], "big") != 1:
                return None  # struck out
            path, at = path[:-len(b".journal")], offset + self.rng.randrange(length)
        with open(path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0] ^ 1 << self.rng.randrange(8)
            file.seek(at)
            file.write(bytes([byte]))
        return path, at

    def finish_it(self):
        flipped = self.flip() if self.rng.random() < 0.5 else None
        client = self.start()
        output = self.finish(client, "flipped" if flipped else "last")
        if client.returncode != 0:
            self.wrong.append(f"the last one: status {client.returncode}: {output[-600:]!r}")
        if flipped and b"journal" not in output:
            self.wrong.append(f"a flipped bit at {flipped} is not named: {output[-600:]!r}")
        self.kept = b"had come before" in output
        return flipped

    def run(self, kills):
        contents = sum(os.lstat(os.path.join(directory, name)).st_blocks * 512
                       for directory, _, files in os.walk(self.source) for name in files)
        seconds = 0.1 + 1.5 * contents / RATE / (kills + 1)
        if self.rng.random() < 1 / 3:
            self.kill_and_return(kills, seconds)
            through = not self.slash
        else:
            through = False
            for _ in range(kills):
                through = through or self.kill_once(seconds)
            if not self.server.settle():
                self.wrong.append("the server does not notice that its clients are gone")
        flipped = None
        if not through:
            flipped = self.finish_it()
        self.server.stop()
        self.wrong += differences(survey(self.source), survey(self.copy), ("extents",))[:5]
        self.wrong += [f"left over: {path!r}" for path in left_over(self.work)]
        if self.wrong:
            self.log.seek(0)
            self.wrong.append("the server said: " + self.log.read()[-2000:])
        return flipped is not None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="only this one")
    parser.add_argument("--directory", help="where the files are; /dev/shm, or else the usual for temporary ones")
    options = parser.parse_args()
    weir = os.path.join(os.path.abspath(options.build), "weir")
    where = options.directory or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    kills = cases = flips = resumed = busy = again = 0
    number = (options.case or 1) - 1
    while kills < options.kills and not (options.case and cases):
        work = os.fsencode(tempfile.mkdtemp(prefix="weir-resume-", dir=where))
        number += 1
        try:
            case = Case(weir, work, options.seed, number)
            flips += case.run(case.rng.randrange(1, 7))
        finally:
            remove(work)
        if case.wrong:
            print(f"--seed {options.seed} --case {number}:", *case.wrong, sep="\n  ")
            return 1
        kills, cases, resumed, busy = kills + case.kills, cases + 1, resumed + case.kept, busy + case.busy
        again += case.again
    print(f"{kills} kills in {cases} copies: all whole; {resumed} had something to go on with at their last start, "
          f"{flips} bits flipped and named; {busy} times the one before was not noticed yet; {again} went on by themselves")
    return 0


if __name__ == "__main__":
    sys.exit(main())
