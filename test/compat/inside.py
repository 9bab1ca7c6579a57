#!/usr/bin/env python3
"""Plays one row in the namespace that run.py made, and writes its result as JSON.

Usage: inside.py SETTINGS_JSON RESULT_FILE"""
import glob
import json
import os
import re
import sys
import time

import pysuite
import rows
from model import Failed, Skipped, shorten
from stage import SANITIZER_REPORT, Stage, play, run_quietly


def our_frame():
    """A line of valgrind's stacks that names one of our objects, or one of our sources."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    names = {os.path.basename(path) for path in glob.glob(f"{root}/rnic/**/*.c", recursive=True)}
    sources = "|".join(re.escape(name) for name in sorted(names))
    return re.compile(rf"\(in \S*(?:libibverbs|librdmacm|libweir-\w+)\.so|\((?:{sources}):\d+\)")


OUR_FRAME = our_frame()


def valgrind_errors(stage):
    """Blocks of valgrind's reports that have one of our objects on the stack."""
    blocks = []
    for path in glob.glob(f"{stage.folder}/valgrind.*"):
        with open(path, errors="replace") as file:
            text = re.sub(r"^==\d+== ?", "", file.read(), flags=re.MULTILINE)
        if "HEAP SUMMARY" not in text:
            raise Failed(f"valgrind did not finish\n{shorten(text)}")
        blocks += [block for block in text.split("\n\n")
                   if " at 0x" in block and OUR_FRAME.search(block)]
    return blocks


def judge(stage, row):
    evidence = row.body(stage) if row.body else play(stage, row)
    if evidence:
        for check in row.checks:
            try:
                check.test(evidence)
            except Failed as failure:
                seen = "\n".join(f"--- {one.command}\n{shorten(one.text)}" for one in evidence.outputs)
                raise Failed(f"{failure}\n{seen}")
    text = stage.all_text() + stage.sanitizer_text()
    report = re.search(SANITIZER_REPORT, text)
    if report:
        raise Failed(f"sanitizer: {text[max(0, report.start() - 100):report.start() + 1500]}")
    if stage.valgrind:
        errors = valgrind_errors(stage)
        if errors:
            raise Failed(f"valgrind: {len(errors)} errors in our libraries\n" + "\n".join(errors[:4]))


def prepare(stage, row):
    """Mounts of our own where that is allowed: nothing of one row is seen by the next."""
    if os.getpid() == 1:
        run_quietly("mount", "-t", "tmpfs", "none", "/dev/shm")
    stage.network()
    stage.run_options = row.run_options
    stage.environment = row.environment
    stage.valgrind = stage.settings["valgrind"]
    stage.sanitized_environment = row.sanitized_environment


def row_of(settings):
    if "python_list" in settings:
        return pysuite.row("list", pysuite.listing)
    if "python_test" in settings:
        return pysuite.row(settings["python_test"])
    return rows.find(settings["row"])


def main():
    settings = json.loads(sys.argv[1])
    row = row_of(settings)
    stage = Stage(settings, row.timeout_s)
    begin = time.monotonic()
    result = {"status": "pass", "reason": "", "warnings": []}
    try:
        prepare(stage, row)
        judge(stage, row)
    except Failed as failure:
        found = re.search(SANITIZER_REPORT, stage.sanitizer_text() + stage.all_text())
        said = found.string[found.start():found.start() + 1500] if found else ""
        result.update(status="fail", reason=f"{failure}\n{said}".strip())
    except Skipped as skip:
        result.update(status="skip", reason=str(skip))
    except Exception as error:  # of the harness itself
        result.update(status="fail", reason=f"{type(error).__name__}: {error}")
    result["seconds"] = time.monotonic() - begin
    result["warnings"] = stage.warnings()
    result["notes"] = stage.notes
    stage.close()
    with open(sys.argv[2], "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
