"""The state that the machine is in: which way a cache line goes between the processors, and whether their cores are whole.

The host of a virtual machine chooses anew, every few seconds, where its processors run. On one die a line moves in 50 ns ("near"), on two in 250
("far"), and what two processes exchange is then twice as dear, or more. And where another machine is at work on the other thread of a core, ours has
half of it: what executes many instructions takes up to twice as long, what waits for a line does not. Both are the machine's, not the programs'. So
both are looked at right before and right after a figure, and figures are held against each other only where all were alike.
Not here: what is done about figures that are not (run.py, cases.py)."""
import subprocess

NEAR, FAR, MIXED = "near", "far", "mixed"
SHARED = ", cores shared"
FAR_NS = 120
SHARED_FROM = 0.36  # 0.28 to 0.30 where the core is whole, 0.45 to 0.53 where it is not
LINE_SECONDS, CORE_SECONDS = "0.08", "0.02"


def _number(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    return float(done.stdout)


def state(limits, cores=False):
    line = FAR if _number(limits, "spin", LINE_SECONDS) >= FAR_NS else NEAR
    return line + SHARED if cores and _number(limits, "cores", CORE_SECONDS) >= SHARED_FROM else line


class Figure(float):
    """A number that knows the state it was measured in, for those that are taken from an earlier run."""

    def __new__(cls, value, met):
        figure = super().__new__(cls, value)
        figure.state = met
        return figure


def watched(limits, measure, cores=False):
    """What `measure` returns, and the state it was measured in; mixed: it changed meanwhile."""
    before = state(limits, cores)
    figure = measure()
    if isinstance(figure, Figure):
        return float(figure), figure.state
    return figure, before if before == state(limits, cores) else MIXED


def alike(states):
    """None of them mixed, and all the same."""
    return len(set(states)) == 1 and MIXED not in states


def clean(states):
    """All alike, and no core shared."""
    return alike(states) and not any(state.endswith(SHARED) for state in states)
