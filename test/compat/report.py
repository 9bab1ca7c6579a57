"""What the runner says: a line per row, the sum, JSON, and the judgement of warnings of strict mode."""
import json
import re
import sys

import rows

WORDS = {"pass": "ok  ", "fail": "FAIL", "skip": "skip"}

# Warnings of strict mode that are true: (row, warning, what the program does).
TRUE_WARNINGS = [
    (r"^perftest/write_lat", "^weir strict: write-order:",
     "ib_write_lat waits for the last byte of a WRITE to change in memory"),
    (r"^perftest/send_bw", "^weir strict: late-receive:",
     "ib_send_bw sends without asking how many receives its server has left, and a server that is held up"
     " posts the next ones late: it relies on RNR NAKs"),
    (r"^qperf/rc_(bi_bw|bw|rdma_write_bw)", "^weir strict: late-receive:",
     "qperf posts a receive anew for each that it has polled; its client sends (or writes with immediate)"
     " without asking how many are left, and outruns a server that is held up"),
    (r"^qperf/.*_bi_bw", "^weir strict: buffer-reuse:",
     "qperf receives into the buffer that it is sending from"),
    (r"^others/qemu, live migration", "^weir strict: buffer-reuse:",
     "the guest goes on writing to pages that are under way; what it changed is sent again"),
    (r"^Open MPI/btl openib", "^weir strict: unknown-key:",
     "btl/openib posts two receives to a throw-away SRQ whose lkey it has never set, to see whether a"
     " list is taken"),
    (r"^rdma-core's Python tests/.*(invalid|bad_flow|illegal|rereg_(addr|pd)|rc_bind_mw)",
     "^weir strict: (unknown-key|wrong-access|dead-key|limit|unpolled|wrong-call):",
     "the test makes the mistake on purpose and looks whether it is refused"),
    (r"^rdma-core's Python tests/.*test_rdmacm_async_traffic_external_qp",
     "^weir strict: late-receive:",
     "the client posts its receive after its SEND is done, which the server may have answered by then"),
]


def judge_warnings(row, result):
    """A warning that is not listed is a false one, or a program's bug that nobody has looked at."""
    known = [entry for entry in TRUE_WARNINGS if re.search(entry[0], rows.full_name(row))]
    unknown = [text for text in result["warnings"]
               if not any(re.search(entry[1], text) for entry in known)]
    if unknown:
        result.update(status="fail", reason="warned: " + "\n".join(unknown))


def indent(text):
    return "".join(f"     {line}\n" for line in text.splitlines()).rstrip("\n")


def show(row, result):
    reason = result["reason"]
    print(f"{WORDS[result['status']]} {rows.full_name(row)} ({result['seconds']:.1f} s)"
          + (f": {reason}" if result["status"] == "skip" else ""))
    if result["status"] == "fail":
        for command in row.commands:
            print(f"     $ weir run {row.run_options + ' ' if row.run_options else ''}{command}")
        print(indent(reason))
    elif result["warnings"]:
        print(indent("\n".join(result["warnings"])))
    if result.get("notes"):
        print(indent("\n".join(result["notes"])))
    sys.stdout.flush()


def write_json(path, results):
    with open(path, "w") as file:
        json.dump({"rows": [dict(result, group=row.group, name=row.name, commands=row.commands)
                            for row, result in results]}, file, indent=1)


def conclude(results):
    states = [result["status"] for _, result in results]
    for row, result in results:
        if result["status"] == "fail":
            print(f"FAILED: {rows.full_name(row)}")
    print(f"{states.count('pass')} passed, {states.count('fail')} failed, {states.count('skip')} skipped")
    return 1 if "fail" in states or not states else 0
