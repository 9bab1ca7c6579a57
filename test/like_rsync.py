#!/usr/bin/env python3
"""What `weir cp` makes of a target that is there already, with rsync and the same options as the oracle.

Usage: like_rsync.py BUILD [--trees N] [--seed N] [--user] [--merging]

For each seed: a random tree, a target that was a copy of it until both changed at random, and random
options (which files are sent, what is left out, what is deleted), some with files of rules in the
directories of both. rsync, a push and a pull of weir cp each bring a copy of that target up to date; then
the three are compared, and what they said of it with -i. Then the same again: there must be nothing left
to do, unless the options ask for it. A case that fails is made again by --seed."""
import argparse
import os
import random
import re
import stat
import subprocess
import sys

from fidelity import Maker, Server, arguments, begin, compare, execute, remove, survey

WORDS = [b"a", b"b", b"c", b"d", b"core", b"x.o", b"y.o", b"z.c", b".hid", b"sp ace", b"br[1]", b"star*"]
TIME = 1_500_000_000
# Files of rules in directories, by what is in them: rules, rules that name no side, patterns; and what names such files.
MERGED = {".rules": [":", ":n", ":e", ":p", "dir-merge", "dir-merge,en"], ".rsync-filter": [":"],
          ".plain": [":s", ":r", ":sn", "dir-merge,r"], ".patterns": [":-", ":+", ":-n", ":-s", ":+r", "dir-merge,-e"]}


class PlainMaker(Maker):
    """Names that patterns are likely to meet, and times that are likely to be met again."""

    def name(self):
        return self.random.choice(WORDS) + self.random.choice([b"", b"", b"1", b"2"])

    def acl(self, path, name):
        """fidelity.py has them; rsync loses some."""

    def finish(self, path):
        super().finish(path)
        if not self.root and stat.S_ISDIR(os.lstat(path).st_mode):
            os.chmod(path, 0o755)
        ns = (TIME + self.random.randrange(3)) * 10**9 + self.random.choice([0, 5, 999_999_999])
        os.utime(path, ns=(ns, ns), follow_symlinks=False)


def entries(top):
    """Every path below it but the top, those in a directory behind it."""
    found = []
    for directory, names, files in os.walk(top):
        found += [os.path.join(directory, name) for name in sorted(names) + sorted(files)]
    return found


class Changer:
    """What happens to a tree after it was copied."""

    def __init__(self, top, seed):
        self.random, self.top = random.Random(seed), top
        for path in entries(top):
            if os.path.lexists(path) and self.random.random() < 0.35:
                self.change(path)
        for _ in range(self.random.randrange(6)):
            self.add()

    def touch(self, path):
        ns = (TIME + self.random.randrange(-2, 4)) * 10**9 + self.random.choice([0, 5, 999_999_999])
        os.utime(path, ns=(ns, ns), follow_symlinks=False)

    def change(self, path):
        mode = os.lstat(path).st_mode
        kind = self.random.randrange(6)
        if os.fsdecode(os.path.basename(path)) in MERGED and kind in (1, 4, 5):  # what is no rule ends rsync
            kind = 3
        if kind == 0:
            self.delete(path)
        elif kind == 1:
            self.delete(path)
            self.make(path)
        elif kind == 2 and not stat.S_ISLNK(mode):
            os.chmod(path, self.random.choice([0o600, 0o640, 0o644, 0o755]) | (0o700 if stat.S_ISDIR(mode) else 0))
        elif kind == 3:
            self.touch(path)
        elif stat.S_ISREG(mode):
            self.rewrite(path, kind == 4)
        elif stat.S_ISDIR(mode):
            self.make(os.path.join(path, b"extra%d" % self.random.randrange(3)))

    def rewrite(self, path, keep_length):
        before = os.lstat(path)
        os.chmod(path, before.st_mode & 0o7777 | 0o600)
        with open(path, "r+b") as file:
            if keep_length:
                if before.st_size:
                    file.seek(self.random.randrange(before.st_size))
                    file.write(b"!")
            else:
                file.truncate(self.random.choice([0, 10, 5000, 40_000, 1_200_000]))
        if self.random.random() < 0.5:
            os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
        else:
            self.touch(path)

    @staticmethod
    def delete(path):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            remove(path)
        else:
            os.unlink(path)

    def make(self, path):
        if os.path.lexists(path):
            return
        kind = self.random.randrange(4)
        if kind == 0:
            os.mkdir(path)
            if self.random.random() < 0.6:
                self.make(os.path.join(path, self.random.choice(WORDS)))
        elif kind == 1:
            os.symlink(self.random.choice([b"nowhere", b"a", b"../b"]), path)
        else:
            with open(path, "wb") as file:
                file.write(self.random.randbytes(self.random.choice([0, 1, 100, 40_000])))
        self.touch(path)

    def add(self):
        self.make(os.path.join(self.random.choice(directories(self.top)), self.random.choice(WORDS) + b"9"))


def pattern(rng):
    """One as people write them, and worse."""
    part = lambda: rng.choice(["a", "b", "c", "d", "core", "*", "?", "*.o", "[abc]*", "[!a]", "x.o", "sp*", "**", "***",
                               "br\\[1]", "*1", "star\\*", "[[:alpha:]]", "d*", "y**"])
    text = "/".join(part() for _ in range(rng.choice([1, 1, 1, 2, 2, 3])))
    return rng.choice(["", "", "/"]) + text + rng.choice(["", "", "/"])


def rule(rng):
    """As --filter takes it."""
    kind = rng.choice(["-", "+", "-", "H", "S", "P", "R", "P", "-s", "-r", "+s", "+r", "-p", "-!", "P!", "Hp", "exclude", "hide,p",
                       "protect", "risk,!", "include,r"])
    if rng.random() < 0.1 and kind in "-+HSPR":  # where the tree is: the two differ in what is above the target
        return f"{kind}/ tree/{pattern(rng).lstrip('/')}"
    return f"{kind}{rng.choice([' ', '_'])}{pattern(rng)}"


def merging(rng):
    """An option that has files of rules in directories read."""
    if rng.random() < 0.25:
        return "-F"
    name = rng.choice(list(MERGED))
    return f"--filter={rng.choice(MERGED[name])}{rng.choice([' ', '_'])}{rng.choice(['', '', '/'])}{name}"


def merges(options):
    return any(option == "-F" or option.startswith(("--filter=:", "--filter=dir-merge")) for option in options)


def line_of(name, rng):
    if name == ".patterns":
        return pattern(rng)
    return f"{rng.choice('-+')} {pattern(rng)}" if name == ".plain" else rng.choice([rule(rng)] * 8 + ["!", "# none", ""])


def directories(top):
    return [top] + [path for path in entries(top) if os.path.isdir(path) and not os.path.islink(path)]


def add_files_of_rules(paths, rng):
    """In some directories. A pattern with a slash at its start is none in a directory whose name rsync takes for a part
    of that pattern."""
    for path in paths:
        before = os.lstat(path)
        for name in MERGED:
            if rng.random() < 0.25 and not os.path.lexists(os.path.join(path, name.encode())):
                lines = [line_of(name, rng) for _ in range(rng.randrange(4))]
                if set(path) & set(b"[*?\\"):
                    lines = [line for line in lines if not re.search(r"(^|[ _])/", line)]
                with open(os.path.join(path, name.encode()), "wb") as file:
                    file.write("\n".join(lines).encode())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def choose_options(rng, merging_each):
    """Those of both programs."""
    options = ["-a"] + [o for o in ["-H", "-X"] if rng.random() < 0.3]
    for option, likely in [("-c", 0.2), ("-u", 0.2), ("-I", 0.1), ("--size-only", 0.15), ("--inplace", 0.2), ("--existing", 0.12),
                           ("--ignore-existing", 0.12), ("--force", 0.3), ("-n", 0.1)]:
        if rng.random() < likely:
            options.append(option)
    if rng.random() < 0.4:
        options.append(rng.choice(["--delete", "--delete", "--delete-excluded"]))
    if "-H" in options:  # which of the names decides is a matter of order
        options = [option for option in options if option not in ("-u", "--size-only")]
    if "--ignore-existing" in options and "-n" in options:  # rsync then sees into directories that are none there
        options.remove("-n")
    # rsync looks at these before it makes way for a file, weir then does not make it
    if rng.random() < 0.5 and not merging_each and "--force" not in options and "--delete" not in options:
        options += [f"--{rng.choice(['exclude', 'exclude', 'include'])}={pattern(rng)}"
                    for _ in range(rng.randrange(1, 5))]
    elif rng.random() < 0.6 or merging_each:
        rules = [f"--filter={rule(rng)}" for _ in range(rng.randrange(1, 6))]
        if rng.random() < 0.6 or merging_each:
            rules += [merging(rng) for _ in range(rng.randrange(1, 4))]
            rng.shuffle(rules)
        options = [option for option in options if option != "--force"] + rules
    if rng.random() < 0.2:
        options.append(f"--{rng.choice(['max', 'max', 'min'])}-size={rng.choice(['0', '1', '100', '100-1', '40K', '40KB', '0.5M'])}")
    if rng.random() < 0.2 and "-H" not in options:  # names of one file at the target: who is first finds another mode
        options.append(f"--chmod={rng.choice(['D755,F644', 'go-w', 'u+rwX,go=rX', 'Fa+x', 'ug=rwX,o=', 'F600,Du=rwx', 'a+X,Dg+s'])}")
    return options


def for_rsync(options):
    """weir deletes at the end, with what each directory of the target then has for rules."""
    deletes = any(option.startswith("--delete") for option in options)
    return options + ["--delete-after"] if deletes and merges(options) else options


# Seeds that differed once.
KNOWN = [3860,   # a link that another takes the place of had extended attributes
         50458,  # a name that is left out was linked to one that is not
         111513,  # names of one file at the target that are two in the source
         930106]  # as a user: extended attributes of a file that its owner may not write

LETTERS = re.compile(rb"^([<>ch.*][fdLDS][^ ]{9}|\*deleting  |\.[fdLDS]         ) (.*)$")


def stands(path, top):
    """Something else than a directory, in the source."""
    where = os.path.join(top, path.rstrip(b"/"))
    return os.path.lexists(where) and (os.path.islink(where) or not os.path.isdir(where))


def linked(path, top):
    """One of several names: which of them is copied, and which are its links, is nobody's business."""
    where = os.path.join(top, path)
    return os.path.lexists(where) and os.lstat(where).st_nlink > 1 and (os.path.islink(where) or not os.path.isdir(where))


def ruled(options):
    return any(option.startswith(("--filter", "-F")) for option in options)


def said(output, top, options):
    """What -i said, as a set; left out are who sent, links' targets, what names of one file refer to, the directories
    that rsync's dry run both deletes and cannot delete, and, in a dry run with rules, where weir makes way for nothing,
    the directories that are in the way."""
    in_the_way = "-n" in options and ruled(options)
    found = set()
    kept = {line.split(b": ", 1)[1] + b"/" for line in output.splitlines() if line.startswith(b"cannot delete non-empty directory: ")}
    for line in output.splitlines():
        match = LETTERS.match(line)
        if match:
            letters = match.group(1).replace(b"<", b">")
            letters = letters[:6] + b".." + letters[8:] if b"+" not in letters else letters  # rsync forgets some owners
            name = re.sub(rb" [-=]> .*", b"", match.group(2))
            if not (letters.startswith(b"*") and (name in kept or in_the_way and stands(name, top))) and not linked(name, top):
                found.add((letters, name))
    return found


def prepare(work, seed, root, links, ruled):
    """tree, and the target in three copies, whose files have one name each where links are none of it."""
    PlainMaker(os.path.join(work, b"tree"), seed, root)
    subprocess.run(["cp", "-a", "tree", "target"], cwd=work, check=True)
    if ruled:
        add_files_of_rules([work] + directories(os.path.join(work, b"tree")), random.Random(seed * 3))
        add_files_of_rules(directories(os.path.join(work, b"target")), random.Random(seed * 3 + seed % 3))
    Changer(os.path.join(work, b"target"), seed * 2 + 1)
    Changer(os.path.join(work, b"tree"), seed * 2)
    for copy in ["rsync", "push", "pull"]:
        subprocess.run(["cp", "-a", "target", copy] if links else ["cp", "-a", "--no-preserve=links", "target", copy],
                       cwd=work, check=True)


def counts(path, key, source, window, one, other):
    """A difference that matters. Not the contents of one of several names, when all of them seemed the same: it is
    those of the one that came first. Nor the time of the directory that all was copied into, nor of what rsync takes
    for a directory that it has not made."""
    if key is None:
        return True
    if key == "content":
        return os.lstat(source).st_nlink == 1 if os.path.lexists(source) else True
    if key != "mtime":
        return True
    if min(one["mtime"], other["mtime"]) > (TIME + 10**8) * 10**9:  # of a directory that is not sent: something in it went
        return False
    directory = os.path.isdir(source) and not os.path.islink(source)
    if path == b"" and not source.endswith(b"tree/") or (directory and not one["mode"].startswith("0o4")):
        return False
    return not window or one["mtime"] // 10**9 != other["mtime"] // 10**9


def linked_before(path, before, one, other):
    """The two disagree only about names that had the same file as one of the others all along: a name that is left out
    stays where it was, and whether the others come to it or get a file of their own is nobody's business."""
    these, those = ({name for name in trees if trees[name].get("names") == trees[path].get("names")} for trees in (one, other))
    known = {before[name]["names"] for name in these & those if "names" in before.get(name, {})}
    return all(before.get(name, {}).get("names") in known for name in these ^ those)


def tangled(before, top):
    """Names that are one file at the target, and several in the source: whose owner and time it has in the end is that
    of the one that came last, or of none."""
    groups = {}
    for name, fact in before.items():
        groups.setdefault(fact.get("names"), set()).add(name)
    found = set()
    for names in groups.values():
        sources = [os.path.join(top, name) for name in names]
        if len({os.lstat(path).st_ino if os.path.lexists(path) else path for path in sources}) > 1:
            found |= names
    return found


def loses_rules(command, work):
    """rsync's own two ways to delete disagree before anything was copied: a file of rules that clears the list of one
    directory has cleared it for others, too."""
    if "--delete-after" not in command:
        return False
    after, during = ([line for line in execute(way, work)[1].splitlines() if line.startswith(b"*deleting")]
                     for way in (command + ["-n"], [part for part in command if part != "--delete-after"] + ["-n"]))
    return sorted(after) != sorted(during)


def deletes_elsewhere(output, before):
    """Where the source has a directory and the target a symbolic link that --ignore-existing leaves, rsync deletes
    what is where the link leads."""
    for line in output.splitlines():
        if line.startswith(b"*deleting "):
            parts = line[len(b"*deleting "):].strip(b" ").rstrip(b"/").split(b"/")
            above = (b"/".join(parts[:depth]) for depth in range(1, len(parts)))
            if any(before.get(path, {}).get("mode", "").startswith("0o12") for path in above):
                return True
    return False


def check_case(work, weir, server, seed, root, merging_each):
    rng = random.Random(seed)
    options = choose_options(rng, merging_each)
    # -1, which is what weir does unless told otherwise, makes rsync's -u a second wrong
    window = [] if rng.random() < 0.6 and "-u" not in options else ["--modify-window=0"]
    into = rng.random() < 0.7  # the contents of the tree; else the tree itself
    source, sub = ("tree/", "") if into else ("tree", "/tree")
    prepare(work, seed, root, "-H" in options and "--inplace" not in options, merges(options))
    if not into:
        for copy in ["rsync", "push", "pull"]:
            os.rename(os.path.join(work, os.fsencode(copy)), os.path.join(work, b"moved"))
            os.mkdir(os.path.join(work, os.fsencode(copy)))
            os.rename(os.path.join(work, b"moved"), os.path.join(work, os.fsencode(copy), b"tree"))
    commands = {"rsync": ["rsync", "-i"] + (window or ["--modify-window=-1"]) + for_rsync(options) + [source, "rsync/"],
                "push": [weir, "cp", "-i"] + window + options + [source, server.url + "/push/"],
                "pull": [weir, "cp", "-i"] + window + options + [server.url + "/" + source, "pull/"]}
    wrong, trees, words, codes, complaints = [], {}, {}, {}, {}
    lost = loses_rules(commands["rsync"], work)
    top = os.path.join(work, b"tree") if into else work
    sent = {os.path.relpath(path, top) for path in entries(os.path.join(work, b"tree"))}
    before = survey(os.path.join(work, b"rsync"))
    mixed = {name for name in tangled(before, top) if "names" in before[name]}
    for name, command in commands.items():
        codes[name], output, errors = execute(command, work, 15 if name == "rsync" else 60)
        complaints[name] = errors
        lost |= name == "rsync" and deletes_elsewhere(output, before)
        words[name] = said(output, os.path.join(work, source.encode() if into else b""), options)
        trees[name] = survey(os.path.join(work, os.fsencode(name)), sent)
        if name != "rsync" and (codes[name] == 0) != (codes["rsync"] == 0):
            wrong.append(f"{name}: status {codes[name]} and {codes['rsync']}: {complaints['rsync'][-300:]!r} {errors[-300:]!r}")
    # -H: which of the names of one file is copied decides what another of them keeps of its own
    without = ("extents",) if "-X" in options else ("extents", "xattrs")
    for name in ["push", "pull"]:
        wrong += [f"rsync and {name}: {text}" for path, key, text in compare(trees["rsync"], trees[name], without)
                  if counts(path, key, os.path.join(top, path), window, trees["rsync"].get(path), trees[name].get(path)) and
                  not (key == "names" and linked_before(path, before, trees["rsync"], trees[name])) and
                  not (key in ("uid", "gid", "mode", "mtime") and path in mixed)]
        for who, other in [("rsync", name), (name, "rsync")]:
            wrong += [f"{who} says, and {other} does not: {line!r}" for line in sorted(words[who] - words[other])][:8]
    # 2: its own protocol, with names of one file that are in the way of nothing
    lost |= codes["rsync"] not in (0, 23) or (codes["rsync"] != 0 and codes["push"] == codes["pull"] == 0)
    # weir makes way for nothing where rules protect something
    lost |= ruled(options) and b"(--force replaces it)" in complaints["push"]
    return [] if lost else wrong, len(trees["rsync"]), window + options + [source], lost


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", action="store_true", help="the first case that fails is left where it is")
    parser.add_argument("--merging", action="store_true", help="files of rules in directories in each case")
    options = arguments(parser)
    weir, work, root = begin(options, "like-rsync")
    server = Server(weir, os.fsdecode(work))
    seeds = [*(KNOWN if options.seed == 1 else []), *range(options.seed, options.seed + options.trees)]
    failed = files = lost = 0
    try:
        for seed in seeds:
            wrong, count, used, gave_up = check_case(work, weir, server, seed, root, options.merging)
            files += count
            lost += gave_up
            if wrong:
                failed += 1
                print(f"seed {seed}: {' '.join(used)}: {len(wrong)} differences")
                print("".join(f"  {text}\n" for text in wrong[:12]), flush=True)
                if options.keep:
                    print(os.fsdecode(work))
                    break
            for name in os.listdir(work):
                remove(os.path.join(work, name))
    finally:
        status = server.stop()
        if not (options.keep and failed):
            remove(work)
    print(f"like_rsync: {len(seeds)} trees, {files} files as {'root' if root else 'a user'}, {failed} differ; "
          f"rsync gave up on {lost}")
    sys.exit(1 if failed or status != 0 else 0)


if __name__ == "__main__":
    main()
