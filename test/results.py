#!/usr/bin/env python3
"""Says what `meson test` has logged in a build directory.

usage: results.py BUILD    prints `PASSED FAILED SKIPPED NAME...`: the names are of tests that may be
run again by themselves, for they failed without a word from a sanitizer. Those are none at all where
more failed than a busy machine explains.
"""

import glob
import json
import sys

EXPLAINED_BY_LOAD = 3
# What a sanitizer finds is there, however seldom it is met.
REPORTS = ("Sanitizer", "runtime error:")


def main(build):
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
        if not any(r in test.get(s, "") for r in REPORTS for s in ("stdout", "stderr"))
    ]
    if len(failed) > EXPLAINED_BY_LOAD:
        again = []
    print(passed, len(failed), skipped, *again)


main(sys.argv[1])
