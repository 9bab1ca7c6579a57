#!/usr/bin/env python3
"""Instructions per message in the core: bench_core under callgrind, which counts the same on a loaded machine.

Each case runs with two numbers of messages; the difference leaves out what is done once. With --caches also
first-level cache misses (a simulated cache) and mispredicted branches."""

import argparse
import subprocess
import sys
import tempfile

FEW, MANY = 2048, 10240


def events(build, case, messages, caches):
    """{event: count} of one run."""
    with tempfile.NamedTemporaryFile(prefix="callgrind.") as out:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}"]
        command += ["--cache-sim=yes", "--branch-sim=yes"] if caches else []
        command += [f"{build}/bench/bench_core", case, str(messages)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stderr}")
        names, totals = None, None
        for line in out.read().decode().splitlines():
            if line.startswith("events:"):
                names = line.split()[1:]
            elif line.startswith(("summary:", "totals:")):
                totals = [int(word) for word in line.split()[1:]]
        return dict(zip(names, totals))


def cases(build):
    listed = subprocess.run([f"{build}/bench/bench_core", "?"], capture_output=True, text=True, check=False)
    return listed.stderr.split("cases:")[1].split()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", help="build directory")
    parser.add_argument("case", nargs="*", help="cases (default: all)")
    parser.add_argument("--caches", action="store_true", help="simulate caches and branches too (slower)")
    arguments = parser.parse_args()
    shown = {"Ir": "instructions"}
    if arguments.caches:
        shown |= {"Dr": "reads", "Dw": "writes", "D1mr": "D1 read misses", "D1mw": "D1 write misses",
                  "Bc": "branches", "Bcm": "mispredicted"}
    print("| per message, both sides | " + " | ".join(shown.values()) + " |")
    print("|---" * (len(shown) + 1) + "|")
    for case in arguments.case or cases(arguments.build):
        few = events(arguments.build, case, FEW, arguments.caches)
        many = events(arguments.build, case, MANY, arguments.caches)
        figures = [f"{(many[event] - few[event]) / (MANY - FEW):.1f}" for event in shown]
        print(f"| {case} | " + " | ".join(figures) + " |", flush=True)


if __name__ == "__main__":
    main()
