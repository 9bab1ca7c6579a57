"""Which way a cache line goes between the processors: near, or far.

The host of a virtual machine chooses anew, every few seconds, where its processors run: on one die a line moves in 50 ns, on two in 250, and what two
processes exchange is then twice as dear, or more. That is the machine's, not the programs'. So the line is timed right before and right after each
figure, and figures are held against each other only where all four were alike.
Not here: what is done about figures that are not (run.py)."""
import subprocess

NEAR, FAR, MIXED = "near", "far", "mixed"
FAR_NS = 120
SECONDS = "0.08"


def state(limits):
    done = subprocess.run([limits, "spin", SECONDS], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    return FAR if float(done.stdout) >= FAR_NS else NEAR


class Figure(float):
    """A number that knows the state it was measured in, for those that are taken from an earlier run."""

    def __new__(cls, value, met):
        figure = super().__new__(cls, value)
        figure.state = met
        return figure


def watched(limits, measure):
    """What `measure` returns, and the state it was measured in; mixed: it changed meanwhile."""
    before = state(limits)
    figure = measure()
    if isinstance(figure, Figure):
        return float(figure), figure.state
    return figure, before if before == state(limits) else MIXED


def alike(states):
    """None of them mixed, and all the same."""
    return len(set(states)) == 1 and MIXED not in states
