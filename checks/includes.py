#!/usr/bin/env python3
"""Every #include against checks/layers.txt. Usage: includes.py LAYERS ROOT [FILE...]

Without files: all C sources below ROOT that belong to a folder of the table."""
import os
import re
import sys

C_HEADERS = {"stddef.h", "stdint.h", "stdbool.h", "stdarg.h", "limits.h", "stdalign.h",
             "stdatomic.h", "string.h", "inttypes.h"}
# The files of the core that touch what the rest of it must not.
EXCEPTIONS = {
    "rnic/base/crc32.c": {"<isa-l.h>", "<isa-l/crc.h>"},
    "rnic/base/check_abort.c": {"<stdio.h>", "<stdlib.h>"},  # not part of the core library
    "rnic/base/heap.c": {"<stdlib.h>"},                      # not part of the core library
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def read_layers(path):
    layers = {}
    for line in open(path):
        line = line.split("#")[0].strip()
        if line:
            folder, allowed = line.split(":")
            layers[folder.strip()] = allowed.split()
    return layers


def folder_of(layers, path):
    found = [f for f in layers if path.startswith(f + "/")]
    return max(found, key=len) if found else None


def permitted(name, bracket, folder, allowed, is_test):
    if "*" in allowed:
        return True
    if bracket == '"':
        if ".." in name.split("/"):
            return False
        return any(name == a or name.startswith(a + "/") for a in [folder] + allowed)
    if "<*>" in allowed or is_test:
        public = {"<weir/", "<infiniband/", "<rdma/"}
        fenced = [p for p in public if ("<" + name).startswith(p)]
        return all(p in allowed for p in fenced) or is_test or "<*>" in allowed and not fenced
    if "<c>" in allowed and name in C_HEADERS:
        return True
    return any(("<" + name).startswith(a) for a in allowed if a.startswith("<"))


def check(path, text, layers):
    folder = folder_of(layers, path)
    if folder is None:
        return []
    bad = []
    is_test = path.endswith(("_test.c", "_test.h"))
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        bracket, name = match.groups()
        written = f"<{name}>" if bracket == "<" else f'"{name}"'
        if written in EXCEPTIONS.get(path, ()):
            continue
        if bracket == '"' and ".." in name.split("/"):
            bad.append(f"{path}:{number}: {written}: write includes from the root")
        elif not permitted(name, bracket, folder, layers[folder], is_test):
            bad.append(f"{path}:{number}: {folder} may not include {written}")
    return bad


def main():
    layers = read_layers(sys.argv[1])
    root = sys.argv[2]
    files = sys.argv[3:]
    if not files:
        for folder in layers:
            for where, _, names in os.walk(os.path.join(root, folder)):
                files += [os.path.relpath(os.path.join(where, n), root) for n in names
                          if n.endswith((".c", ".h"))]
    bad = []
    for path in sorted(set(files)):
        bad += check(path, open(os.path.join(root, path)).read(), layers)
    print("\n".join(bad) if bad else f"includes: {len(set(files))} files keep the table")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
