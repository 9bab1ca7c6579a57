"""What a copy to several targets costs its source: one weir cp to servers on this host, whose own work is not counted.

Each target's bytes are written by its own server, which feeds the next; so the source is to pay for one copy, however
many there are: its processor time says so. The wall time is that of all of them on the processors there are.
The servers have the source's processors and caches, too, and so one copy costs more beside them: as many copies of one
source each, all at once, say how much.
Not here: when it is measured (files.py)."""
import contextlib
import os
import resource
import time

import file_loads
import file_tools
import stage as stages

LENGTH = 256 << 20
COUNTS = (1, 4, 8)
COST_AT_MOST = 1.2  # of one copy
ONE = "fan-out: one copy"
TO = {f"fan-out: --to, {count} target{'s' if count > 1 else ''}": count for count in COUNTS}
AT_ONCE = {f"fan-out: one of {count} copies at once": count for count in COUNTS if count > 1}
NAMES = (ONE, *TO, *AT_ONCE)
# What is held against what.
MARKS = [(name, ONE, True, COST_AT_MOST) for name in TO] + [
    (name, beside, True, COST_AT_MOST) for name, count in TO.items() for beside, other in AT_ONCE.items() if other == count]


def targets_of(count, copy, folder, stack):
    """The servers' addresses; they end with the stack."""
    found = []
    for number in range(count):
        root = os.path.join(folder, f"target{number}")
        os.mkdir(root)
        port = file_tools.WEIR_PORT + number
        stack.enter_context(copy.served([copy.stage.weir, "serve", "--insecure", "--listen", f"{copy.stage.address}:{port}", "--root", root,
                                         "--fabric", "soft"]))
        found.append(f"weir://{copy.stage.address}:{port}/")
    return found


def all_at_once(copy, commands, length):
    file_loads.touch_memory(int(file_tools.MEMORY_OF_COPY * len(commands) * length))
    began = time.monotonic()
    statuses = file_tools.wait_for([file_tools.start(command) for command in commands])
    copy.wall = time.monotonic() - began
    if any(statuses):
        raise RuntimeError(f"{commands[0]}: status {statuses}")


def run(name, ground, source, length, options):
    """Wall and processor seconds of the source, or of one of them."""
    targets = TO.get(name) or AT_ONCE.get(name) or 1
    copy = file_tools.Copy(stages.Stage(options.build, options.scale), source, ground, options.work, targets)
    with contextlib.ExitStack() as stack:
        addresses = targets_of(targets, copy, ground, stack)
        command = [copy.stage.weir, "cp", "-aq", "--fabric", "soft"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        if name in TO: # the servers have not ended yet: what this adds is the source's
            copy.timed([*command, *[word for address in addresses for word in ("--to", address)], source])
        else:
            all_at_once(copy, [[*command, source, address] for address in addresses], length)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    for number in range(targets):
        found = file_loads.count(os.path.join(ground, f"target{number}", os.path.basename(source)))
        if found != (1, length):
            raise RuntimeError(f"target {number} has {found[1]} bytes of {length}")
    sources = AT_ONCE.get(name, 1)
    return copy.wall, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / sources
