"""The pingpongs of ibverbs-utils: connected over TCP (their servers hear IPv4 alone), data compared by -c."""
from model import line
from row import MTUS, Row

GROUP = "pingpong"


def pingpong(program, iterations=300, size=4096, options="", **more):
    """Both ends print how many iterations took how long; -c compares every byte that arrives."""
    common = f"ibv_{program} -g {{gid}} -n {iterations} -s {size} -c {options}".strip()
    if more.get("mtus", MTUS) == MTUS:
        common += " -m {mtu}"
    done = rf"^{iterations} iters in [0-9.]+ seconds"
    return Row(f"{program} -s {size} {options}".strip(), common, f"{common} {{control}}",
               [line(done, where=0), line(done)], ready="tcp", wire=2 * iterations * size, **more)


ROWS = [
    pingpong("rc_pingpong"),
    pingpong("rc_pingpong", options="-e"),
    pingpong("rc_pingpong", size=1),
    pingpong("rc_pingpong", 20, size=100001),
]
