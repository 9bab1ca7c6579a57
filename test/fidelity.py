#!/usr/bin/env python3
"""What `weir cp -aHAXS` keeps, with rsync -aHAXS as the oracle.

Usage: fidelity.py BUILD [--trees N] [--seed N] [--user]

For each seed: a random tree (hard links, holes, odd names, modes, owners, ns times, ACLs, extended
attributes, devices, FIFOs, sockets), copied by rsync, by a push and by a pull of weir cp; then all
are compared, everything of every file but the holes with the source, too. What rsync alone loses
(the group's rights in some ACLs; as a user, what is below directories with others) is counted and is not weir's fault. A tree that fails is made again
by --seed. Without root, and with --user, what takes root is left out of the trees."""
import argparse
import os
import random
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile

BLOCK = 4096
NAMES = [b"plain", b"with space", b"new\nline", b"-rf", b"--force", b"\xff\xfe invalid", b"caf\xc3\xa9",
         b"tab\there", b"quote'\"", b"back\\slash", b"*", b"?[x]", b"$(id)", b".hidden", b"...", b"~", b" ",
         b"weir:x", b"a:b", b"#", b"\x01\x7f", b".weir-short"]


class Maker:
    """A tree from a seed."""

    def __init__(self, top, seed, root):
        self.random, self.root = random.Random(seed), root
        self.files, self.directories, self.others = [], [], []
        self.top = top
        os.mkdir(top)
        self.sizes = [0, 1, 100, BLOCK, BLOCK + 1, 32 << 10, (32 << 10) + 1, 200_000]
        self.fill(top, 0)
        for path in self.files + self.others:
            self.finish(path)
        for path in reversed(self.directories + [top]):
            self.finish(path)

    def name(self):
        kind = self.random.random()
        if kind < 0.5:
            return self.random.choice(NAMES) + b"%d" % self.random.randrange(1000)
        if kind < 0.55:
            return bytes(self.random.choice(b"abc\xf0\n") for _ in range(255))
        return b"f%d" % self.random.randrange(10000)

    def fill(self, directory, depth):
        for _ in range(self.random.randrange(2 if depth else 8, 14)):
            path = os.path.join(directory, self.name())
            if os.path.lexists(path) or len(path) > 3500:
                continue
            kind = self.random.random()
            if kind < 0.2 and depth < 6:
                os.mkdir(path)
                self.directories.append(path)
                if self.random.random() < 0.8:
                    self.fill(path, depth + 1)
            elif kind < 0.65:
                self.make_file(path)
            elif kind < 0.78:
                os.symlink(self.random.choice([b"nowhere", b"/etc/passwd", b"../..", b"x" * 1000,
                                               b"\xff\n"]), path)
                self.others.append(path)
            elif kind < 0.92:
                self.make_link(path)
            else:
                self.make_special(path)

    def make_file(self, path):
        with open(path, "wb") as file:
            for _ in range(self.random.randrange(4)):
                size = self.random.choice(self.sizes)
                if self.random.random() < 0.4:
                    file.seek(self.random.choice([1, BLOCK, 3 * BLOCK, 1 << 20]), os.SEEK_CUR)
                elif self.random.random() < 0.3:
                    file.write(bytes(size))  # zeros that are no hole
                else:
                    file.write(self.random.randbytes(size))
            if self.random.random() < 0.3:
                file.truncate(file.tell() + self.random.choice([0, 5, 300_000]))
        self.files.append(path)

    def make_link(self, path):
        pool = self.files + self.others
        if pool:
            os.link(self.random.choice(pool), path, follow_symlinks=False)

    def make_special(self, path):
        kind = self.random.randrange(4 if self.root else 2)
        if kind == 0:
            os.mkfifo(path)
        elif kind == 1:
            os.mknod(path, stat.S_IFSOCK | 0o600)
        else:
            number = os.makedev(self.random.randrange(4096), self.random.randrange(1 << 20))
            os.mknod(path, (stat.S_IFCHR if kind == 2 else stat.S_IFBLK) | 0o600, number)
        self.others.append(path)

    def acl(self, path, name):
        if self.random.random() < 0.25:
            entry = struct.Struct("<HHI")
            perms = lambda: self.random.randrange(8)
            tags = [(1, 7, 0xffffffff), (2, perms(), 0 if not self.root else 1234),
                    (4, perms(), 0xffffffff), (16, perms(), 0xffffffff), (32, perms(), 0xffffffff)]
            if not self.root:
                tags[1] = (2, perms(), os.getuid())
            os.setxattr(path, name, struct.pack("<I", 2) + b"".join(entry.pack(*t) for t in tags))

    def xattrs(self, path, link):
        if self.random.random() < 0.3 and not link and not self.is_special(path):
            for i in range(self.random.randrange(1, 4)):
                os.setxattr(path, b"user.n%d\xff" % i, self.random.randbytes(
                    self.random.choice([0, 1, 20, 700])))
        if self.root and self.random.random() < 0.15:
            os.setxattr(path, b"trusted.weir", b"t", follow_symlinks=False)

    @staticmethod
    def is_special(path):
        mode = os.lstat(path).st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))

    def finish(self, path):
        mode = os.lstat(path).st_mode
        link = stat.S_ISLNK(mode)
        if self.root:
            os.chown(path, self.random.choice([0, 1, 1234, 65534]), self.random.choice([0, 2, 4321]),
                     follow_symlinks=False)
        self.xattrs(path, link)
        if not link:
            bits = self.random.choice([0o644, 0o600, 0o755, 0o444, 0o4755, 0o2755, 0o1777, 0o7777, 0o640])
            if stat.S_ISDIR(mode):
                bits |= 0o500
                if self.root and self.random.random() < 0.2:
                    self.acl(path, "system.posix_acl_default")
            elif self.root and self.random.random() < 0.1:
                bits = 0
            os.chmod(path, bits)
            self.acl(path, "system.posix_acl_access")
        when = self.random.choice([0, 1, 1_000_000_000, 1_700_000_000, 4_000_000_000, -5])
        ns = when * 10**9 + self.random.randrange(10**9)
        os.utime(path, ns=(ns, ns), follow_symlinks=False)


def extents(path, size):
    """Where there is data."""
    found, at = [], 0
    fd = os.open(path, os.O_RDONLY)
    try:
        while at < size:
            try:
                data = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:
                break
            at = os.lseek(fd, data, os.SEEK_HOLE)
            found.append((data, at))
    finally:
        os.close(fd)
    return found


def describe(path):
    """Everything of one file, but what differs from copy to copy by nature."""
    status = os.lstat(path)
    mode = status.st_mode
    fact = {"mode": oct(mode), "uid": status.st_uid, "gid": status.st_gid, "mtime": status.st_mtime_ns}
    if stat.S_ISLNK(mode):
        fact["target"] = os.readlink(path)
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        fact["rdev"] = status.st_rdev
    if stat.S_ISREG(mode):
        fact["size"] = status.st_size
        with open(path, "rb") as file:
            fact["content"] = hash(file.read())
        fact["extents"] = extents(path, status.st_size)
    fact["xattrs"] = {n: os.getxattr(path, n, follow_symlinks=False)
                      for n in os.listxattr(path, follow_symlinks=False)}
    return fact


def survey(top, counted=None):
    """Path -> facts, with the names of one file as the path of its first, if only some are counted of these."""
    facts, groups = {}, {}
    pending = [b""] if os.path.lexists(top) else []
    while pending:
        relative = pending.pop()
        path = os.path.join(top, relative)
        status = os.lstat(path)
        fact = describe(path)
        if stat.S_ISDIR(status.st_mode):
            pending += [os.path.join(relative, name) for name in os.listdir(path)]
        elif counted is None or relative in counted:
            groups.setdefault(status.st_ino, []).append(relative)
        facts[relative] = fact
    for names in groups.values():
        for name in names:
            facts[name]["names"] = min(names)
    return facts


def compare(one, other, without=()):
    """(path, key, words) for each difference; key None where one has not got the path at all."""
    for path in sorted(one.keys() | other.keys()):
        if path not in one or path not in other:
            yield path, None, f"{path!r} only in {'the first' if path in one else 'the second'}"
            continue
        for key in one[path].keys() | other[path].keys():
            a, b = one[path].get(key), other[path].get(key)
            if key not in without and a != b:
                yield path, key, f"{path!r}: {key}: {a!r} and {b!r}"


def differences(one, other, without=()):
    return [text for _, _, text in compare(one, other, without)]


class Server:
    def __init__(self, weir, root):
        self.process = subprocess.Popen([weir, "serve", "--insecure", "--listen", "127.0.0.1:0", "--root", root, "--super"],
                                        stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if " at weir://" not in line:
            sys.exit("the server does not start: " + line)
        self.url = "weir://" + line.split(" at weir://")[1].split("/")[0]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


def execute(command, where, seconds=60):
    """Status, output and errors; 124 where it took too long, as rsync does with some trees."""
    process = subprocess.Popen(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        output, errors = process.communicate(timeout=seconds)
        return process.returncode, output, errors
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return 124, b"", b"took more than %d s" % seconds


def run(command, where):
    status, output, errors = execute(command, where)
    return None if status == 0 else f"{command[0]}: status {status}: {output[-1000:]!r} {errors[-1000:]!r}"


def remove(path):
    for directory, _, _ in os.walk(path):
        os.chmod(directory, 0o700)
    shutil.rmtree(path, ignore_errors=True)


def check_tree(work, weir, server, seed, root):
    source, copies = os.path.join(work, b"tree"), {}
    Maker(source, seed, root)
    wrong = []
    for copy in [b"rsync", b"push", b"pull"]:
        os.mkdir(os.path.join(work, copy))
    status, _, errors = execute(["rsync", "-aHAXS", "tree", "rsync/"], work, 60 if root else 20)
    said = f"rsync: status {status}: {errors[-1000:]!r}" if status else None
    losses = int(status != 0)  # a user's rsync locks itself out of directories with some ACLs
    if root:
        wrong.append(said)
    wrong.append(run([weir, "cp", "-aHAXSq", "tree", server.url + "/push/"], work))
    wrong.append(run([weir, "cp", "-aHAXSq", server.url + "/tree", "pull/"], work))
    wrong = [text for text in wrong if text]
    original = survey(source)
    for copy in [b"rsync", b"push", b"pull"]:
        copies[copy] = survey(os.path.join(work, copy, b"tree"))
    for copy in [b"push", b"pull"]:
        wrong += [f"the source and {copy.decode()}: {text}"
                  for text in differences(original, copies[copy], ("extents",))]
        for path, key, text in compare(copies[b"rsync"], copies[copy]):
            if path in original and path in copies[copy] and key != "extents" \
                    and (key is None or original[path].get(key) == copies[copy][path].get(key)):
                losses += copy == b"push"
            else:
                wrong.append(f"rsync and {copy.decode()}: {text}")
    count = len(original)
    for name in [b"tree", b"rsync", b"push", b"pull"]:
        remove(os.path.join(work, name))
    return wrong, count, losses


def arguments(parser):
    """What the programs that have rsync for an oracle are told."""
    parser.add_argument("build")
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--user", action="store_true")
    options = parser.parse_args()
    if not shutil.which("rsync"):
        sys.exit("there is no rsync (./dev names the package)")
    return options


def leave_network():
    """Into a network namespace of our own, where we may: processes of two users cannot share port 4791 of one."""
    inside = os.environ.pop("WEIR_FIDELITY_INSIDE", None)
    if inside is None and subprocess.run(["unshare", "-n", "true"], stderr=subprocess.DEVNULL).returncode == 0:
        os.environ["WEIR_FIDELITY_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$0" "$@"', sys.executable, *sys.argv])


def begin(options, name):
    """The program, a folder to work in, and whether it is root who does; with --user it is not from here on."""
    build = os.path.realpath(options.build)
    os.environ["WEIR_LIBRARY_DIR"] = os.path.join(build, "dropin")
    root = os.getuid() == 0 and not options.user
    if os.getuid() == 0 and options.user:
        leave_network()
    work = os.fsencode(tempfile.mkdtemp(prefix=f"weir-{name}-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    if os.getuid() == 0 and options.user:
        os.chown(work, 65534, 65534)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    return os.path.join(build, "weir"), work, root


def main():
    options = arguments(argparse.ArgumentParser())
    weir, work, root = begin(options, "fidelity")
    server = Server(weir, os.fsdecode(work))
    failed = files = losses = 0
    try:
        for seed in range(options.seed, options.seed + options.trees):
            wrong, count, lost = check_tree(work, weir, server, seed, root)
            files += count
            losses += lost
            if wrong:
                failed += 1
                print(f"seed {seed}: {len(wrong)} differences")
                print("".join(f"  {text}\n" for text in wrong[:12]))
    finally:
        status = server.stop()
        remove(work)
    print(f"fidelity: {options.trees} trees, {files} files as {'root' if root else 'a user'}, {failed} trees differ; "
          f"rsync lost {losses}")
    sys.exit(1 if failed or status != 0 else 0)


if __name__ == "__main__":
    main()
