#!/usr/bin/env python3
"""What `weir cp` takes of a tree by a list (--files-from, -R), with rsync and the same options as the oracle.

Usage: lists_like_rsync.py BUILD [--trees N] [--seed N] [--user]

For each seed: a random tree, a random list of paths in it, some of them wrong, random rules, and a target that may have
been a copy of it. rsync, a push and a pull of weir cp each bring a copy of that target up to date, and the three are
compared. A case that fails is made again by --seed."""
import argparse
import os
import random
import shutil
import subprocess
import sys

from fidelity import Server, arguments, begin, compare, execute, remove, survey

NAMES = ["a", "b", "c", "d", "x.o", "y.c"]


def make(top, rng, depth=0):
    os.mkdir(top)
    for name in rng.sample(NAMES, rng.randrange(1, 5)):
        path = os.path.join(top, name)
        if depth < 3 and "." not in name and rng.random() < 0.75:
            make(path, rng, depth + 1)
        elif rng.random() < 0.15:
            os.symlink(rng.choice(["nowhere", "a", "../b"]), path)
        else:
            with open(path, "w") as file:
                file.write(f"{rng.random()}" * rng.choice([0, 1, 3000]))
        os.utime(path, (1_500_000_000 + rng.randrange(3),) * 2, follow_symlinks=False)


def paths_of(top):
    found = []
    for directory, names, files in os.walk(top):
        found += [os.path.relpath(os.path.join(directory, name), top) for name in sorted(names) + sorted(files)]
    return found


def is_directory(top, path):
    whole = os.path.join(top, path)
    return os.path.isdir(whole) and not os.path.islink(whole)


def listed(top, rng):
    """Some are listed with directories that they are in. A link with a slash behind it rsync follows, and weir does not."""
    paths = paths_of(top)
    chosen = rng.sample(paths, min(len(paths), rng.choice([1, 2, 3, 6])))
    chosen += [os.path.dirname(path) for path in chosen if "/" in path and rng.random() < 0.3]
    chosen = [path + rng.choice(["", "", "/", "/."]) if is_directory(top, path) else path for path in chosen]
    chosen += [rng.choice(["nothere", "a/nothere", "a/b/c/d/e"])] if rng.random() < 0.1 else []
    chosen += [rng.choice([".", "./"])] if rng.random() < 0.1 else []
    rng.shuffle(chosen)
    return chosen


def pattern(rng):
    return rng.choice(["", "", "/"]) + rng.choice(NAMES + ["*.o", "a/b", "*", "a/*", "**/c"]) + rng.choice(["", "", "/"])


def rules(rng):
    return [f"--filter={rng.choice('--+HS')} {pattern(rng)}" for _ in range(rng.choice([0, 0, 1, 1, 2, 4]))]


def choose(top, rng):
    """The options of both, and their sources: what follows the tree."""
    options = ["-a"] + rules(rng)
    recursive = rng.random() < 0.6
    paths = listed(top, rng)
    sound = all(os.path.lexists(os.path.join(top, path)) for path in paths)  # else weir deletes nothing
    if rng.random() < 0.7:
        with open(os.path.join(os.path.dirname(top), "list"), "w") as file:
            file.write("".join(path + "\n" for path in paths))
        options += ["--files-from=list"] + (["-r"] if recursive else [])
        paths = [""]
    else:
        options += ["-R"] + ([] if recursive else ["--no-r"])
    if recursive and sound and rng.random() < 0.3:
        options.append(rng.choice(["--delete", "--delete", "--delete-excluded"]))
    return options, paths


def prepare(work, seed, rng):
    top = os.path.join(work, "tree")
    make(top, rng)
    os.chmod(top, 0o750)
    kind = rng.randrange(3)
    for copy in ["rsync", "push", "pull"]:
        if kind == 0 and seed % 2 == 0:
            continue
        if kind == 0:
            os.mkdir(os.path.join(work, copy))
        else:
            subprocess.run(["cp", "-a", "tree", copy], cwd=work, check=True)
    if kind == 2:
        shutil.rmtree(top)
        make(top, rng)
        os.chmod(top, 0o705)
    return top


def check_case(work, weir, server, seed):
    rng = random.Random(seed)
    top = prepare(work, seed, rng)
    options, paths = choose(top, rng)
    commands = {"rsync": ["rsync", *options, *(f"tree/./{path}" for path in paths), "rsync/"],
                "push": [weir, "cp", *options, *(f"tree/./{path}" for path in paths), server.url + "/push/"],
                "pull": [weir, "cp", *options, *(f"{server.url}/tree/./{path}" for path in paths), "pull/"]}
    # directories that do not come for want of -r are errors, not remarks
    skips = "--no-r" in options and any(is_directory(top, path) for path in paths)
    wrong, trees, codes = [], {}, {}
    for name, command in commands.items():
        codes[name], _, errors = execute(command, work)
        trees[name] = survey(os.path.join(work, name).encode())
        if name != "rsync":
            if (codes[name] == 0) != (codes["rsync"] == 0) and not skips:
                wrong.append(f"{name}: status {codes[name]} and {codes['rsync']}: {errors[-300:]!r}")
            wrong += [f"rsync and {name}: {text}" for path, key, text in compare(trees["rsync"], trees[name], ("extents",))
                      if not (key == "mtime" and (path == b"" or trees["rsync"][path]["mode"].startswith("0o4")))]
    if wrong:
        wrong.append(" ".join(commands["push"][2:]))
        if os.path.exists(os.path.join(work, "list")):
            with open(os.path.join(work, "list")) as file:
                wrong.append("list: " + " ".join(file.read().split("\n")))
        wrong.append("tree: " + " ".join(path + "/" * is_directory(top, path) for path in paths_of(top)))
    return wrong, len(trees["rsync"])


def main():
    options = arguments(argparse.ArgumentParser())
    weir, work, root = begin(options, "lists-like-rsync")
    work = os.fsdecode(work)
    server = Server(weir, work)
    failed = files = 0
    try:
        for seed in range(options.seed, options.seed + options.trees):
            wrong, count = check_case(work, weir, server, seed)
            files += count
            if wrong:
                failed += 1
                print(f"seed {seed}:\n" + "".join(f"  {text}\n" for text in wrong), flush=True)
            for name in os.listdir(work):
                path = os.path.join(work, name)
                remove(path) if os.path.isdir(path) else os.unlink(path)
    finally:
        status = server.stop()
        remove(work)
    print(f"lists_like_rsync: {options.trees} lists, {files} files as {'root' if root else 'a user'}, {failed} differ")
    sys.exit(1 if failed or status != 0 else 0)


if __name__ == "__main__":
    main()
