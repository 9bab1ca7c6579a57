#!/usr/bin/env python3
"""Says what `meson test` has logged in a build directory.

usage: results.py BUILD    prints `PASSED FAILED SKIPPED NAME...`: the names are of tests that may be
run again by themselves, for they failed without a crash; of a build with sanitizers, whose reports may
lie in a file of some server, those that took too long. None at all where more failed than a busy
machine explains.
"""

import glob
import json
import os
import signal
import sys

EXPLAINED_BY_LOAD = 3
# What crashes does so again, however seldom: by an invariant of ours, or in a test's own process.
CRASHES = ("CHECK failed", "failed with exception", "core dumped", "Sanitizer: ", "runtime error: ")
SIGNALS = tuple(-s for s in (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV))


def crashed(test):
    said = test.get("stdout", "") + test.get("stderr", "")
    return test["returncode"] in SIGNALS or any(word in said for word in CRASHES)


def may_run_again(test, has_sanitizers):
    return not crashed(test) and (test["result"] == "TIMEOUT" or not has_sanitizers)


def main(build):
    has_sanitizers = os.path.basename(os.path.normpath(build)) != "build"
    passed, skipped, failed = 0, 0, []
    for path in glob.glob(build + "/meson-logs/testlog*.json"):
        with open(path, encoding="utf-8") as log:
            for test in map(json.loads, log):
                if test["result"] in ("OK", "EXPECTEDFAIL"):
                    passed += 1
                elif test["result"] == "SKIP":
                    skipped += 1
                else:
                    failed.append(test)
    again = [
        test["name"].split(" / ")[-1]
        for test in failed
        if may_run_again(test, has_sanitizers)
    ]
    if len(failed) > EXPLAINED_BY_LOAD:
        again = []
    print(passed, len(failed), skipped, *again)


main(sys.argv[1])
