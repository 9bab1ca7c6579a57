"""What a copy to several targets costs its source: one weir cp to servers on this host, whose own work is not counted.

Each target's bytes are written by its own server, which feeds the next; so the source is to pay for one copy, however
many there are: its processor time says so. The wall time is that of all of them on the processors there are.
Not here: when it is measured (files.py)."""
import contextlib
import os
import resource

import file_loads
import file_tools
import stage as stages

LENGTH = 256 << 20
COUNTS = (1, 4, 8)
COST_AT_MOST = 1.2  # of one copy
NAMES = {"fan-out: one copy": 0, **{f"fan-out: --to, {count} target{'s' if count > 1 else ''}": count for count in COUNTS}}


def targets_of(count, copy, folder, stack):
    """The servers' addresses; they end with the stack."""
    found = []
    for number in range(max(1, count)):
        root = os.path.join(folder, f"target{number}")
        os.mkdir(root)
        port = file_tools.WEIR_PORT + number
        stack.enter_context(copy.served([copy.stage.weir, "serve", "--insecure", "--listen", f"{copy.stage.address}:{port}", "--root", root,
                                         "--fabric", "soft"]))
        found.append(f"weir://{copy.stage.address}:{port}/")
    return found


def run(name, ground, source, length, options):
    """Wall and processor seconds of the source."""
    count = NAMES[name]
    copy = file_tools.Copy(stages.Stage(options.build, options.scale), source, ground, options.work, max(1, count))
    with contextlib.ExitStack() as stack:
        targets = targets_of(count, copy, ground, stack)
        words = [word for target in targets for word in ("--to", target)] if count else []
        command = [copy.stage.weir, "cp", "-aq", "--fabric", "soft", *words, source, *([] if count else targets)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        copy.timed(command) # the servers have not ended yet: what this adds is the source's
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    for number in range(len(targets)):
        found = file_loads.count(os.path.join(ground, f"target{number}", os.path.basename(source)))
        if found != (1, length):
            raise RuntimeError(f"target {number} has {found[1]} bytes of {length}")
    return copy.wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
