"""What is demanded of the figures: each mark holds one of ours against a peer's or a limit, as a ratio within one round
of measuring, so that the machine's moods touch both.

`at_most`: a latency, ours divided by theirs; else at least. Pure arithmetic, no measuring (cases.py)."""
import statistics

MARKS = [  # ours, theirs (a case, or a number in ours' unit), at most?, demanded ratio
    ("ib_send_lat 8 B", "UCX am_lat 8 B, posix", True, 1.25),
    ("ib_write_lat 8 B", "UCX am_lat 8 B, posix", True, 1.25),
    ("ib_write_bw 1 MiB", "limit: process_vm_readv 1 MiB, 4k pages", False, 0.95),
    ("ib_read_bw 1 MiB", "limit: process_vm_readv 1 MiB, 4k pages", False, 0.95),
    ("weir bench write 1 MiB, huge", "limit: process_vm_readv 1 MiB, huge pages", False, 0.95),
    ("ib_write_bw 1 MiB", "UCX put_bw 1 MiB, cma", False, 1.0),
    ("ib_read_bw 1 MiB", "UCX put_bw 1 MiB, cma", False, 1.0),
    ("ib_write_bw 4 KiB", "UCX am_bw 4 KiB, posix", False, 1.0),
    ("ib_read_bw 4 KiB", "UCX am_bw 4 KiB, posix", False, 1.0),
    ("ib_send_bw 8 B", "UCX am_bw 8 B, posix", False, 1.0),
    ("ib_send_bw 8 B", 6.4, False, 1.0),
    ("ib_write_bw 1 MiB, pvm refused", "limit: two-copy ring", False, 0.9),
    ("veth9000: ib_write_bw 1 MiB", "veth9000: iperf3", False, 2.5),
    ("veth1500: ib_write_bw 1 MiB", "veth1500: iperf3", False, 2.0),
    ("veth9000-plain: ib_write_bw 1 MiB", "veth9000-plain: iperf3", False, 0.9),
    ("veth1500-plain: ib_write_bw 1 MiB", "veth1500-plain: iperf3", False, 0.9),
    ("veth: ib_send_lat 8 B", "veth: limit: UDP 8 B", True, 1.3),
    ("loss 0.01 %: ib_write_bw 1 MiB", "veth9000: ib_write_bw 1 MiB", False, 0.98),
    ("loss 0.1 %: ib_write_bw 1 MiB", "veth9000: ib_write_bw 1 MiB", False, 0.95),
    ("loss 1 %: ib_write_bw 1 MiB", "veth9000: ib_write_bw 1 MiB", False, 0.8),
    ("loss 5 %: ib_write_bw 1 MiB", "veth9000: ib_write_bw 1 MiB", False, 0.4),
    ("10,000 queue pairs: latency 8 B, one at work", "1 queue pair: latency 8 B", True, 1.1),
    ("10,000 queue pairs: latency 8 B, another each time", "1 queue pair: latency 8 B", True, 1.1),
    ("10,000 queue pairs: rate 8 B, one at work", "1 queue pair: rate 8 B", False, 0.9),
    ("10,000 queue pairs: rate 8 B, another each time", "1 queue pair: rate 8 B", False, 0.9),
    ("10,000 queue pairs: connect", 5, True, 1),
    ("10,000 queue pairs: idle state of each", 1024, True, 1),
    ("10,000 queue pairs: idle, of a core", 0.5, True, 1),
    ("weir cp, push", "cp", False, None),
    ("weir cp, pull", "cp", False, None),
    ("weir bench request and reply 8 B", "Mercury na+sm rate", False, 1.3),
    ("weir bench put 1 MiB", "Mercury na+sm bulk 1 MiB", False, 2.0),
]
# What is demanded and measured elsewhere, or not yet: said, so that nobody takes its absence for success.
UNMEASURED = ["two flows and one TCP cubic flow on a rate-limited link, within 2x of each other"]
ROUNDS_LEAST = 5


def ratios(ours, theirs):
    """Round by round, where both have a figure."""
    if not isinstance(theirs, dict):
        theirs = dict.fromkeys(ours, theirs)
    return [ours[n] / theirs[n] for n in sorted(ours) if n in theirs and theirs[n] > 0]


def judge(figures):
    """figures: case -> {round: figure}, empty where it failed. A row for each mark of which a side was to be measured."""
    rows = []
    for ours, theirs, at_most, demanded in MARKS:
        held = figures.get(theirs, {}) if isinstance(theirs, str) else theirs
        if ours not in figures and theirs not in figures:
            continue
        found = ratios(figures.get(ours, {}), held)
        row = {"ours": ours, "theirs": theirs if isinstance(theirs, str) else f"{theirs:g}", "demanded": demanded,
               "at_most": at_most, "rounds": len(found)}
        if found:
            median = statistics.median(found)
            row.update(median=median, least=min(found), greatest=max(found))
            if demanded is not None:
                met = median <= demanded if at_most else median >= demanded
                row["met"] = met if len(found) >= ROUNDS_LEAST else None
        rows.append(row)
    return rows


def verdict(row):
    if row["rounds"] == 0:
        return "not measured"
    if row["demanded"] is None:
        return ""
    if row["met"] is None:
        return f"fewer than {ROUNDS_LEAST} rounds"
    return "met" if row["met"] else "NOT MET"
