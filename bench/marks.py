"""What is demanded of the figures (of run.py and files.py): each mark holds one of ours against a peer's or a limit, as a ratio within one round
of measuring, so that the machine's moods touch both.

`at_most`: a latency, ours divided by theirs; else at least. Pure arithmetic, no measuring (cases.py)."""
import statistics

import lines

MARKS = [  # ours, theirs (a case, or a number in ours' unit), at most?, demanded ratio
    ("ib_send_lat 8 B over UCX's am_lat, side by side", 1, True, 1.25),
    ("ib_write_lat 8 B over UCX's am_lat, side by side", 1, True, 1.25),
    ("ib_write_bw 1 MiB", "limit: process_vm_readv 1 MiB, 4k pages", False, 0.95),
    ("ib_read_bw 1 MiB", "limit: process_vm_readv 1 MiB, 4k pages", False, 0.95),
    ("weir bench write 1 MiB, huge", "limit: process_vm_readv 1 MiB, huge pages", False, 0.95),
    ("ib_write_bw 1 MiB", "UCX put_bw 1 MiB, cma", False, 1.0),
    ("ib_read_bw 1 MiB", "UCX put_bw 1 MiB, cma", False, 1.0),
    ("ib_write_bw 4 KiB over UCX's am_bw, side by side", 1, False, 1.0),
    ("ib_read_bw 4 KiB over UCX's am_bw, side by side", 1, False, 1.0),
    ("ib_send_bw 8 B", "UCX am_bw 8 B, posix", False, 1.0),
    ("ib_send_bw 8 B", 6.4, False, 1.0),
    ("ib_write_bw 1 MiB, pvm refused", "limit: two-copy ring", False, 0.9),
    ("veth9000: ib_write_bw 1 MiB", "veth9000: iperf3", False, 2.5),
    ("veth1500: ib_write_bw 1 MiB", "veth1500: iperf3", False, 2.0),
    ("veth9000-plain: ib_write_bw 1 MiB", "veth9000-plain: iperf3", False, 0.9),
    ("veth1500-plain: ib_write_bw 1 MiB", "veth1500-plain: iperf3", False, 0.9),
    ("veth: ib_send_lat 8 B", "veth: limit: UDP 8 B", True, 1.3),
    *[(f"loss {percent:g} %: goodput over that without, side by side", 1, False, demanded)
      for percent, demanded in ((0.01, 0.98), (0.1, 0.95), (1, 0.8), (5, 0.4))],
    *[(f"shared link, queue of {queue} KiB{where}: greatest of two {kind} and TCP over the least", 2, True, 1)
      for queue in (32, 128, 512) for kind, where in (("flows", ""), ("flows", " in the senders' host"), ("readers", ""))],
    ("10,000 queue pairs: latency 8 B, one at work", "1 queue pair: latency 8 B", True, 1.1),
    ("10,000 queue pairs: latency 8 B, another each time", "1 queue pair: latency 8 B", True, 1.1),
    ("10,000 queue pairs: latency 8 B, another each time over one at work, by turns", 1, True, 1.1),
    ("10,000 queue pairs: rate 8 B, one at work", "1 queue pair: rate 8 B", False, 0.9),
    ("10,000 queue pairs: rate 8 B, another each time", "1 queue pair: rate 8 B", False, 0.9),
    ("10,000 queue pairs: rate 8 B, another each time over one at work, by turns", 1, False, 0.9),
    ("10,000 queue pairs: SENDs 8 B, one at work", "1 queue pair: SENDs 8 B", False, 0.9),
    ("10,000 queue pairs: SENDs 8 B, another each time", "1 queue pair: SENDs 8 B", False, 0.9),
    ("10,000 queue pairs: SENDs 8 B, another each time over one at work, by turns", 1, False, 0.9),
    ("10,000 queue pairs: connect", 5, True, 1),
    ("10,000 queue pairs: idle state of each", 1024, True, 1),
    ("10,000 queue pairs: idle state of each with its rdma_cm id", 1024, True, 1),
    ("10,000 queue pairs: idle, of a core", 0.5, True, 1),
    ("request and reply 8 B over Mercury's, side by side", 1, False, 1.3),
    ("weir bench put 1 MiB", "Mercury na+sm bulk 1 MiB", False, 2.0),
]
# Of files.py: wall times.
FILE_MARKS = [(f"{where}: {ours}", f"{where}: {theirs}", True, demanded) for where, ours, theirs, demanded in [
    ("big, tmpfs, host", "weir cp", "cp", 1.3),
    ("big, tmpfs, host", "weir cp", "rsync", 0.3),
    ("tree, tmpfs, host", "weir cp", "tar, nc, tar", 1),
    ("tree, tmpfs, host", "weir cp", "rsync", 1),
    ("small, tmpfs, host", "weir cp", "tar, nc, tar", 1),
    ("small, tmpfs, host", "weir cp", "rsync", 0.7),
    ("big, tmpfs, host", "weir cp by ssh", "scp", 0.4),
    ("big, tmpfs, host", "weir cp by ssh", "rsync by ssh", 0.4),
    ("tree, tmpfs, host", "weir cp by ssh", "scp", 0.4),
    ("tree, tmpfs, host", "weir cp by ssh", "rsync by ssh", 0.4),
    ("small, tmpfs, host", "weir cp by ssh", "scp", 0.4),
    ("small, tmpfs, host", "weir cp by ssh", "rsync by ssh", 0.7), # as everywhere for many small files, and ssh itself takes 0.3 s of both
    ("big, tmpfs, host", "weir cp --encrypt by ssh", "scp, AES-GCM", 0.67),
    ("big, tmpfs, veth", "weir cp", "rsync daemon", 0.67),
    ("big, tmpfs, veth", "weir cp", "nc", 0.4),
    ("big, tmpfs, veth", "limit: bare program", "nc", None),
    ("big, tmpfs, veth", "weir cp", "limit: bare program", None),
    ("tree, tmpfs, veth", "weir cp", "rsync daemon", 1),
    ("small, tmpfs, veth", "weir cp", "rsync daemon", 0.7),
    ("big, disk, host", "weir cp", "cp", None),
    ("big, disk, host", "weir cp", "rsync", None),
    ("tree, disk, host", "weir cp", "tar, nc, tar", None),
    ("tree, disk, host", "weir cp", "rsync", None),
    ("small, disk, host", "weir cp", "tar, nc, tar", None),
    ("small, disk, host", "weir cp", "rsync", None),
]]
ROUNDS_LEAST = 5


def ratios(ours, theirs, states=(None, None)):
    """Round by round, where both have a figure, and the machine was in one state for both if `states` say in which ({round: state})."""
    if not isinstance(theirs, dict):
        theirs = dict.fromkeys(ours, theirs)
    held = [n for n in sorted(ours) if n in theirs and theirs[n] > 0]
    if None not in states:
        held = [n for n in held if lines.alike([states[0][n], states[1][n]])]
    return [ours[n] / theirs[n] for n in held]


def judge(figures, demanded_of=MARKS, states=None):
    """figures: case -> {round: figure}, empty where it failed. A row for each mark of which a side was to be measured.
    states: case -> {round: the machine's state}, where they were watched."""
    rows, states = [], states or {}
    for ours, theirs, at_most, demanded in demanded_of:
        held = figures.get(theirs, {}) if isinstance(theirs, str) else theirs
        if ours not in figures and theirs not in figures:
            continue
        found = ratios(figures.get(ours, {}), held, (states.get(ours), states.get(theirs)))
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
