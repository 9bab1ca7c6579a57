#!/usr/bin/env python3
"""Function and file length as a ratchet. Usage: functions.py RATCHET ROOT [FILE...]

A function has at most 60 lines, a file 600. What is longer stands in RATCHET with its length, which
may shrink and never grow; what is no longer longer must leave the list. Relies on the format: a
function body opens with { and closes with } in column 0."""
import os
import re
import sys

FUNCTION_MAX = 60
FILE_MAX = 600
FOLDERS = ["rnic", "weir", "include", "tools", "sim", "examples", "fuzz", "test", "bench"]
NAME = re.compile(r"(\w+)\s*\(")


def functions(text):
    """Yields (name, lines) for each function definition."""
    lines = text.splitlines()
    start = None
    for number, line in enumerate(lines):
        if line.startswith("{"):
            head = number
            while head > 0 and lines[head - 1] and not lines[head - 1].startswith(("}", "/", " *", "#")) \
                    and not lines[head - 1].rstrip().endswith((";", "*/")):
                head -= 1
            match = NAME.search(" ".join(lines[head:number]))
            start = (match.group(1), head) if match else None
        elif line.startswith("}") and start:
            yield start[0], number - start[1] + 1
            start = None


def read_ratchet(path):
    entries = {}
    for line in open(path):
        line = line.split("#")[0].strip()
        if line:
            name, length = line.rsplit(None, 1)
            entries[name] = int(length)
    return entries


def main():
    ratchet = read_ratchet(sys.argv[1])
    root = sys.argv[2]
    files = sys.argv[3:]
    if not files:
        for folder in FOLDERS:
            for where, _, names in os.walk(os.path.join(root, folder)):
                files += [os.path.relpath(os.path.join(where, n), root) for n in names
                          if n.endswith((".c", ".h"))]
    found, count = {}, 0
    for path in sorted(set(files)):
        text = open(os.path.join(root, path)).read()
        length = len(text.splitlines())
        if length > FILE_MAX:
            found[path] = length
        for name, lines in functions(text):
            count += 1
            if lines > FUNCTION_MAX:
                found[f"{path}:{name}"] = lines
    bad = []
    for name, length in sorted(found.items()):
        if length > ratchet.get(name, 0):
            bad.append(f"{name}: {length} lines" + (f", was {ratchet[name]}" if name in ratchet else
                       f"; at most {FILE_MAX if ':' not in name else FUNCTION_MAX}"))
    if not sys.argv[3:]:
        bad += [f"{name}: no longer too long, take it out of the ratchet" for name in ratchet
                if name not in found]
    print("\n".join(bad) if bad else f"functions: {count} functions, {len(found)} on the ratchet")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
