"""The suite's own verbs programs: operations that no program of the distribution proves byte by byte."""
from model import line
from row import Row

GROUP = "verbs"


def own(program, options, proof, **more):
    command = f"{{own_programs}}/{program} -g {{gid}} -m {{mtu}} {options}".strip()
    return Row(f"{program} {options}".strip(), command, f"{command} {{control}}",
               [line(proof, where=0), line(proof)], ready="tcp", **more)


RC = "data: 175 operations right"
UC = "data: 102 operations right"

ROWS = [
    own("data", "-t rc", RC, short=3, wire=10 << 20, timeout_s=60),
    own("data", "-t uc", UC, wire=1 << 17, timeout_s=60),
    own("windows", "", "windows: all right"),
    # A responder like rxe takes what comes too late or too early for lost, and its requester asks again for the rest of
    # a READ only after 67 ms of silence: with one packet in ten out of order, 1 MiB takes a minute.
    *[own("data", "-t rc -l 65536", RC, impairment=name, timeout_s=90, short=1 if name == "everything" else 0, mtus=(1024,), wire=1 << 19)
      for name in ("loss", "reorder", "duplicate", "everything")],
]
