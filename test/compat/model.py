"""What a row of the matrix is, and the proofs that a row can ask for.

Here: plain data and checks on what was seen. Not here: how processes are run (stage.py).
Invariant: a row without a proof beyond the exit status cannot be made."""
import dataclasses
import re


class Failed(Exception):
    """The row's proof was not found; the text says what is missing."""


class Skipped(Exception):
    """The row cannot be tried on this machine; the text says why."""


@dataclasses.dataclass
class Output:
    """What one command left behind. `status` is None while it runs or when its end is no matter."""
    command: str
    status: int
    text: str


@dataclasses.dataclass
class Evidence:
    """What a row's checks look at: one Output per command, and the bytes that crossed the wire or went through memory."""
    outputs: list
    wire_bytes: int


@dataclasses.dataclass
class Check:
    text: str  # for the document: how the result is proven
    test: object  # Evidence -> None, or raises Failed


@dataclasses.dataclass
class Row:
    """Commands are what a user types after `weir run`. The last one is the client; those before it
    are servers, started in this order. `ready` says when a server is ready: "tcp" once it listens,
    "start" likewise where only the first one is a server, "cm" once its device is open (the client is
    then repeated while it is refused), "member" once it has joined a group too, a regular expression
    once its output has it, "" at once. A row may instead be a function `body(stage)`,
    that runs the commands itself and raises Failed; `commands` is then what the document shows."""
    name: str
    commands: list
    checks: list
    ready: str = "tcp"
    timeout_s: int = 60
    quick: bool = False
    servers_end: bool = True  # False: they are stopped by SIGTERM once the client is done
    run_options: str = ""  # of weir run
    environment: dict = dataclasses.field(default_factory=dict)
    body: object = None
    valgrind: bool = False
    programs: list = None  # what must be installed; by default the first word of each command
    huge_pages: bool = False  # lent for its time, where the runner may
    paths: bool = False  # looks into /sys and /dev, where only `weir run` shows the device
    sanitized: bool = True  # False: `note` says why it does not run on a sanitized library
    note: str = ""
    sanitized_environment: dict = dataclasses.field(default_factory=dict)  # on such libraries, besides
    group: str = ""
    packages: tuple = ()

    def __post_init__(self):
        if not self.checks:
            raise ValueError(f"{self.name}: a row needs a proof")
        if self.programs is None:
            self.programs = sorted({command.split()[0] for command in self.commands})


def shorten(text, lines=12):
    return "\n".join(text.strip().splitlines()[-lines:])


def line(pattern, where=-1, times=1, text=None):
    """At least `times` lines of the output of command `where` match."""
    def test(evidence):
        found = len(re.findall(pattern, evidence.outputs[where].text, re.MULTILINE))
        if found < times:
            raise Failed(f"{found} lines like '{pattern}', wanted {times}")
    shown = text or pattern.strip("^$").replace(r"\.", ".").replace(" +", " ")
    return Check(f"{times} x \"{shown}\"" if times > 1 else f"\"{shown}\"", test)


def absent(pattern, where=-1, text=None):
    def test(evidence):
        match = re.search(pattern, evidence.outputs[where].text, re.MULTILINE)
        if match:
            raise Failed(f"'{match.group(0)}' in the output")
    return Check(text or f"no \"{pattern}\"", test)


def above(pattern, what, least=0.0, where=-1, times=1):
    """The group of `pattern` is a number above `least`, in each of `times` lines or more."""
    def test(evidence):
        values = re.findall(pattern, evidence.outputs[where].text, re.MULTILINE)
        if len(values) < times:
            raise Failed(f"{len(values)} lines with {what}, wanted {times}")
        for value in values:
            if float(value.replace(",", "")) <= least:
                raise Failed(f"{what} is {value}")
    return Check(f"{what} > {least:g}" + (f" in {times} lines" if times > 1 else ""), test)


def wire(least):
    """At least so many bytes crossed the namespace's interfaces, or went through memory between its processes."""
    def test(evidence):
        if evidence.wire_bytes < least:
            raise Failed(f"{evidence.wire_bytes} bytes on the wire, wanted {least}")
    return Check(f"{least:,} bytes or more on the wire", test)


def proof(text):
    """For a row with a body: what the body proves."""
    return Check(text, lambda evidence: None)
