#!/usr/bin/env python3
"""The interop matrix: our RNIC against a stock kernel's rxe, in both roles.

Usage: test/interop/run.py BUILD_DIR [OPTION...]          (./dev interop builds, installs, and calls this)

A Debian kernel with rxe is booted in qemu and stays up for all cells. All of it lives in namespaces of this
process; when it ends, in whatever way, the kernel removes everything."""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "compat"))  # model and stage: checks, and programs on our libraries

import image  # noqa: E402
import lab as lab_module  # noqa: E402
import matrix  # noqa: E402
import row as row_module  # noqa: E402
import rows  # noqa: E402
from model import Failed  # noqa: E402

INSIDE = "WEIR_INTEROP_IMAGE"  # set once the namespaces are entered


def enter_namespaces(image_folder):
    """Becomes process 1 of namespaces of its own: as root, or as a user who is root inside."""
    common = ["-n", "-p", "-m", "-f", "--kill-child", "--mount-proc"]
    for words in (["unshare", *common], ["unshare", "-Ur", *common]):
        if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL).returncode == 0:
            os.environ[INSIDE] = image_folder
            os.execvp("unshare", [*words, sys.executable, os.path.abspath(__file__), *sys.argv[1:]])
    sys.exit("interop: no namespaces can be made here (unshare -n -p -m)")


def parse():
    parser = argparse.ArgumentParser(description="the interop matrix")
    parser.add_argument("build", help="build directory")
    parser.add_argument("--short", action="store_true", help="the cells that CI runs")
    parser.add_argument("--only", metavar="PATTERN", help="cells whose name matches")
    parser.add_argument("--list", action="store_true", help="name the cells and stop")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="each cell so many times")
    parser.add_argument("--strict", action="store_true", help="our RNIC with WEIR_STRICT=1")
    parser.add_argument("--libraries", metavar="DIR", help="libraries of another build (sanitized ones)")
    parser.add_argument("--accelerator", choices=["auto", "kvm", "tcg"], default="auto", help="qemu's")
    parser.add_argument("--cache", metavar="DIR", default=os.path.join(HERE, "..", "..", ".cache", "interop"),
                        help="where the guest's image is kept")
    parser.add_argument("--capture", metavar="FILE", help="what crosses the link, by tcpdump")
    parser.add_argument("--json", metavar="FILE", help="results for other programs")
    return parser.parse_args()


def chosen(arguments, rows_and_cells):
    """In the order of the link's settings: changing them takes longer than a cell."""
    try:
        wanted = re.compile(arguments.only or "")
    except re.error as failure:
        refuse_pattern(arguments, f"no regular expression: {failure}")
    found = []
    for number, (row, cells) in enumerate(rows_and_cells):
        if arguments.short:
            cells = short_form(number, row, cells)
        found += [cell for cell in cells if wanted.search(cell.name())]
    if not found:
        refuse_pattern(arguments, "no cell of the short form matches" if arguments.short else "no cell matches")
    return sorted(found, key=lambda cell: (cell.link_mtu(), cell.row.impairment))


def short_form(number, row, cells):
    """row.short of its cells, taken in turn: the rows together go round roles, versions and MTUs. (7 has no divisor
    in common with the 12 or 10 cells of a row, so that each is met.)"""
    return [cells[(number + turn) * 7 % len(cells)] for turn in range(min(row.short, len(cells)))]


def settings_of(arguments):
    return {"build": os.path.abspath(arguments.build), "mode": "preload", "strict": arguments.strict, "valgrind": False,
            "libraries": arguments.libraries and os.path.abspath(arguments.libraries), "slow": 1}


def patience():
    """Time limits grow on a machine that others load: they are there for what hangs."""
    return min(4, max(1, os.getloadavg()[0] / (os.cpu_count() or 1)))


def play(lab, arguments, cells):
    settings = settings_of(arguments)
    played = []
    for cell in cells:
        for _ in range(arguments.repeat):
            settings["slow"] = patience()
            result = row_module.play(lab, cell, settings)
            matrix.show(cell, result)
            played.append((cell, result))
    return played


def no_guest(reason):
    print(f"FAILED: the guest cannot be started, nothing was tried: {reason}\n0 passed, 1 failed, 0 skipped")
    sys.exit(1)


def make_image(arguments):
    """While the network is still there."""
    if not shutil.which("qemu-system-x86_64"):
        no_guest("not installed: qemu-system-x86")
    try:
        return image.make(os.path.abspath(arguments.cache))
    except image.NoImage as failure:
        no_guest(failure)


def refuse_pattern(arguments, reason):
    """A name that is misspelt must not pass for cells that pass."""
    sys.stderr.write(f"interop: --only '{arguments.only}': {reason} (--list names the cells)\n")
    sys.exit(2)


def start(arguments):
    """The lab, in the namespaces."""
    subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/shm"], check=True)
    lab = lab_module.Lab(os.path.abspath(arguments.build), os.environ[INSIDE], arguments.accelerator)
    try:
        lab.start()
    except (Failed, image.NoImage) as failure:
        lab.close()
        no_guest(failure)
    if arguments.capture:
        subprocess.Popen(["tcpdump", "-Z", "root", "-U", "-i", lab_module.TAP, "-w", arguments.capture, "port", "4791"],
                         stderr=subprocess.DEVNULL)
    print(f"The guest is up after {lab.guest.uptime} s ({lab.guest.accelerator}):"
          f" {lab.guest.run('uname -sr').strip()}, rdma-core as on this machine")
    return lab


def main():
    arguments = parse()
    rows_and_cells = [(row, row.cells()) for row in rows.load()]
    cells = chosen(arguments, rows_and_cells)
    if arguments.list:
        for cell in cells:
            print(cell.name())
        return 0
    if INSIDE not in os.environ:
        enter_namespaces(make_image(arguments))
    begin = time.monotonic()
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lab = start(arguments)
    try:
        played = play(lab, arguments, cells)
    except KeyboardInterrupt:
        return 130
    finally:
        lab.close()
    matrix.show_matrix(rows_and_cells, {id(cell): result for cell, result in played})
    if arguments.json:
        matrix.write_json(arguments.json, played)
    whole = "" if arguments.only or arguments.repeat > 1 else "short form" if arguments.short else "matrix"
    return matrix.conclude(played, whole, time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main())
