#!/usr/bin/env python3
"""The compatibility matrix: unmodified programs of the distribution on our libraries.

Usage: test/compat/run.py BUILD_DIR [OPTION...]          (./dev compat builds, installs, and calls this)

Each row runs in a fresh network namespace (and process and mount namespaces where that is allowed), its
programs in processes of their own, started by `weir run` as a user would. Its result is proven by what
the programs print, by digests of what was moved, and by the bytes counted on the wire."""
import argparse
import concurrent.futures
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import document
import hugepages
import pysuite
import report
import rows

HERE = os.path.dirname(os.path.abspath(__file__))
PR_SET_PDEATHSIG = 1


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def namespace_words():
    """How to get a namespace here: with one for processes, so that nothing outlives its row; as root,
    or as a user who is root inside."""
    for words in (["unshare", "-n", "-p", "-f", "--kill-child", "--mount-proc"],
                  ["unshare", "-Urn", "-p", "-f", "--kill-child", "--mount-proc"],
                  ["unshare", "-n"], ["unshare", "-Urn"]):
        probe = subprocess.run([*words, "ip", "link", "set", "lo", "up"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        if probe.returncode == 0:
            return words
    sys.exit("compat: no network namespace can be made here (unshare -n, unshare -Urn)")


def installed(program):
    return os.path.exists(program) if program.startswith("/") else shutil.which(program)


class Runner:
    def __init__(self, arguments):
        self.arguments = arguments
        self.namespace = namespace_words()
        self.folder = tempfile.mkdtemp(prefix="weir-compat-results.")
        libraries = arguments.libraries and os.path.abspath(arguments.libraries)
        self.settings = {"build": os.path.abspath(arguments.build), "libraries": libraries,
                         "mode": arguments.mode, "strict": arguments.strict,
                         "valgrind": arguments.valgrind,
                         "slow": 4 if arguments.valgrind else 2 if libraries else 1}

    def patience(self):
        """Time limits grow on a machine that others load: they are there for what hangs."""
        crowd = os.getloadavg()[0] / (os.cpu_count() or 1)
        return self.settings["slow"] * min(4, max(1, crowd))

    def inside(self, script, settings, timeout_s):
        """Runs one of our scripts in a namespace and returns the JSON that it leaves."""
        handle, path = tempfile.mkstemp(dir=self.folder)
        os.close(handle)
        process = subprocess.Popen(
            [*self.namespace, sys.executable, os.path.join(HERE, script), json.dumps(settings), path],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=die_with_parent)
        try:
            text, _ = process.communicate(timeout=timeout_s * settings["slow"] + 30)
        except subprocess.TimeoutExpired:
            process.kill()
            return {"status": "fail", "reason": "the row hung, and its end too", "seconds": timeout_s,
                    "warnings": []}
        try:
            with open(path) as file:
                return json.load(file)
        except ValueError:
            return {"status": "fail", "reason": f"the harness broke: {text}", "seconds": 0, "warnings": []}

    def hindrance(self, row):
        """Why the row cannot be tried in this run, or an empty text."""
        missing = [program for program in row.programs if not installed(program)]
        if missing:
            return f"not installed: {' '.join(missing)}"
        if self.settings["libraries"] and not row.sanitized:
            return row.note
        if self.settings["mode"] == "library-path" and row.paths:
            return "looks into /sys and /dev, where only weir run shows the device"
        if self.settings["mode"] == "library-path" and row.run_options:
            return "needs an option of weir run"
        return ""

    def play(self, row):
        reason = self.hindrance(row)
        if reason:
            return {"status": "skip", "reason": reason, "seconds": 0, "warnings": []}
        settings = dict(self.settings, row=rows.full_name(row), slow=self.patience())
        if row.group == pysuite.GROUP:
            settings["python_test"] = row.name
        with hugepages.lease() if row.huge_pages else contextlib.nullcontext():
            result = self.inside("inside.py", settings, row.timeout_s)
        if self.settings["strict"] and result["warnings"] and result["status"] == "pass":
            report.judge_warnings(row, result)
        return result

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def refuse_pattern(arguments, reason):
    """A name that is misspelt must not pass for rows that pass."""
    sys.stderr.write(f"compat: --only '{arguments.only}': {reason} (--list names the rows)\n")
    sys.exit(2)


def chosen(arguments, every):
    try:
        wanted = re.compile(arguments.only or "")
    except re.error as failure:
        refuse_pattern(arguments, f"no regular expression: {failure}")
    found = [row for row in every if wanted.search(rows.full_name(row))
             and (row.quick or not arguments.quick) and (row.valgrind or not arguments.valgrind)]
    if not found:
        refuse_pattern(arguments, "no row of this form matches")
    return found


def parse():
    parser = argparse.ArgumentParser(description="the compatibility matrix")
    parser.add_argument("build", help="build directory")
    parser.add_argument("--quick", action="store_true", help="the rows that CI runs")
    parser.add_argument("--sample", action="store_true", help="of the Python tests only every fourth")
    parser.add_argument("--only", metavar="PATTERN", help="rows whose group/name matches")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="each row so many times")
    parser.add_argument("--libraries", metavar="DIR", help="libraries of another build (sanitized ones)")
    parser.add_argument("--strict", action="store_true", help="with WEIR_STRICT=1; a warning must be known")
    parser.add_argument("--valgrind", action="store_true", help="the pingpongs under valgrind")
    parser.add_argument("--mode", choices=["preload", "library-path"], default="preload")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time (1: measured to be steady)")
    parser.add_argument("--json", metavar="FILE", help="results for other programs")
    parser.add_argument("--write-doc", metavar="FILE", nargs="?", const="docs/compatibility.md",
                        help="make docs/compatibility.md of the results")
    parser.add_argument("--no-python", action="store_true", help="without rdma-core's Python tests")
    return parser.parse_args()


def play_all(runner, arguments):
    every = rows.load()
    if not (arguments.no_python or arguments.valgrind):
        names = pysuite.names(runner)
        every += [pysuite.row(name) for name in (names[::4] if arguments.sample else names)]
    tasks = [row for row in chosen(arguments, every) for _ in range(arguments.repeat)]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for row, result in zip(tasks, pool.map(runner.play, tasks)):
            report.show(row, result)
            yield row, result


def main():
    arguments = parse()
    if arguments.list:
        for row in chosen(arguments, rows.load()):
            print(rows.full_name(row), "(quick)" if row.quick else "")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    runner = Runner(arguments)
    try:
        results = list(play_all(runner, arguments))
    except KeyboardInterrupt:
        return 130
    finally:
        runner.close()
    if arguments.json:
        report.write_json(arguments.json, results)
    if arguments.write_doc:
        document.write(arguments.write_doc, results)
    return report.conclude(results)


if __name__ == "__main__":
    sys.exit(main())
