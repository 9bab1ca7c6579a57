"""ibverbs-utils: the pingpongs, and the programs that list devices."""
import re
import time

from model import Check, Evidence, Failed, Row, above, line, proof, wire
from stage import run_quietly

GROUP = "ibverbs-utils"
PACKAGES = ["ibverbs-utils"]


def pingpong(arguments, iterations=1000, bytes_each=4096, quick=False, valgrind=False):
    """Both print how many iterations took how long; -c makes them compare what arrives."""
    command = f"ibv_{arguments}"
    checks = [line(rf"^{iterations} iters in [0-9.]+ seconds", times=1),
              line(rf"^{iterations} iters in [0-9.]+ seconds", where=0),
              wire(2 * iterations * bytes_each)]
    if " -c" in arguments:
        checks.append(proof("the program compares every byte received (-c)"))
    if " -t" in arguments:
        checks.append(above(r"^Max receive completion clock cycles = ([0-9]+)",
                            "completion clock cycles"))
    return Row(arguments, [command, f"{command} localhost"], checks, quick=quick, valgrind=valgrind)


def short(arguments, bytes_each=4096, quick=False):
    """Valgrind takes a while for every iteration."""
    return pingpong(f"{arguments} -n 20", 20, bytes_each, quick, valgrind=True)


def everyone(pattern):
    """Each command's output has such a line."""
    def test(evidence):
        for output in evidence.outputs:
            if not re.search(pattern, output.text, re.MULTILINE):
                raise Failed(f"no line like '{pattern}' from {output.command}")
    return Check(f"\"{pattern.strip('^$')}\" from each", test)


def xrc_pingpong(arguments, messages=5, size=4096, quick=False, clients=1):
    """Each end has sending and receiving queue pairs on one shared receive queue. Of several
    clients, the messages of one go through the others' receiving queue pairs."""
    command = f"ibv_{arguments}"
    return Row(arguments, [command] + clients * [f"{command} localhost"],
               [everyone("^success$"), wire(2 * clients * messages * size)], ready="start",
               quick=quick, valgrind="-n" not in arguments)


def asyncwatch(stage):
    """An address comes and goes; the device must say so."""
    watch = stage.start("ibv_asyncwatch")
    stage.ready("async event FD", watch, 1)
    time.sleep(0.2)
    for words in ("link set weird0 down", "link set weird0 up", "addr add 10.77.0.9/24 dev weird0"):
        run_quietly("ip", *words.split())
        time.sleep(0.1)
    if not stage.wait_until(lambda: "event_type" in watch.text(), "an event", watch):
        raise Failed("asyncwatch ended")
    watch.stop()
    return Evidence([watch.output()], 0)


ROWS = [
    Row("devices", ["ibv_devices"], [line(r"^\s+weir0\s+[0-9a-f]{16}$", text="weir0 and its GUID")],
        quick=True),
    Row("devinfo", ["ibv_devinfo"], [line("PORT_ACTIVE"), line("hca_id:\tweir0")], quick=True),
    Row("devinfo -l", ["ibv_devinfo -l"], [line("^1 HCA found:"), line("weir0")]),
    Row("devinfo -v", ["ibv_devinfo -v"],
        [line(r"max_qp:\t+[1-9]"), line(r"max_cqe:\t+[1-9]"), line(r"max_mr_size:\t+0x[0-9a-f]{6,}"),
         line(r"GID\[ *[0-9]+\]:", times=2), line("PORT_ACTIVE")], quick=True),
    Row("devices, two of them", ["ibv_devices"], [line("weir0"), line("weir1")],
        run_options="--devices 2"),
    Row("asyncwatch", ["ibv_asyncwatch"],
        [line(r"event_type .*\([0-9]+\), port", text="event_type ... port 1, after a change of address")],
        body=asyncwatch, timeout_s=15),
    pingpong("rc_pingpong", quick=True),
    pingpong("rc_pingpong -g 0 -c", quick=True),
    pingpong("rc_pingpong -g 1 -e", quick=True),
    pingpong("rc_pingpong -g 0 -t"),
    pingpong("rc_pingpong -g 0 -N -c", quick=True),
    pingpong("rc_pingpong -g 0 -N -e"),
    pingpong("rc_pingpong -g 0 -s 1 -c", bytes_each=1),
    pingpong("rc_pingpong -g 0 -s 1048576 -n 100 -c", 100, 1048576),
    pingpong("rc_pingpong -g 0 -m 4096 -s 65536 -n 200 -r 16", 200, 65536),
    pingpong("rc_pingpong -g 0 -o -c", quick=True),
    pingpong("rc_pingpong -g 0 -O -c"),
    pingpong("rc_pingpong -g 0 -o -P -c"),
    pingpong("rc_pingpong -g 0 -c -p 20000 -d weir0 -i 1 -l 3"),
    pingpong("uc_pingpong -g 0 -c -p 20000 -d weir0 -i 1 -l 3"),
    pingpong("ud_pingpong -g 0 -c -p 20000 -d weir0 -i 1 -l 3", bytes_each=1024),
    pingpong("srq_pingpong -g 0 -c -p 20000 -d weir0 -i 1 -l 3"),
    pingpong("rc_pingpong -g 0 -j -c", quick=True),
    pingpong("rc_pingpong -g 0 -j -N -c"),
    short("rc_pingpong -g 0 -c", quick=True), short("rc_pingpong -g 0 -e"),
    short("rc_pingpong -g 0 -j -t"), short("rc_pingpong -g 0 -o"),
    short("uc_pingpong -g 0 -c"), short("uc_pingpong -g 0 -e"),
    short("ud_pingpong -g 0 -c", 1024), short("ud_pingpong -g 0 -e", 1024),
    short("srq_pingpong -g 0 -c"), short("srq_pingpong -g 0 -e"),
    pingpong("uc_pingpong"),
    pingpong("uc_pingpong -g 0 -c", quick=True),
    pingpong("uc_pingpong -g 0 -e"),
    pingpong("uc_pingpong -g 0 -s 65536 -n 100", 100, 65536),
    pingpong("ud_pingpong", bytes_each=1024),
    pingpong("ud_pingpong -g 0 -c", bytes_each=1024, quick=True),
    pingpong("ud_pingpong -g 0 -e", bytes_each=1024),
    pingpong("ud_pingpong -g 0 -s 64 -n 2000", 2000, 64),
    pingpong("srq_pingpong"),
    pingpong("srq_pingpong -g 0 -c", quick=True),
    pingpong("srq_pingpong -g 0 -e"),
    pingpong("srq_pingpong -g 0 -o -q 4"),
    xrc_pingpong("xsrq_pingpong -g 0", quick=True),
    xrc_pingpong("xsrq_pingpong"),
    xrc_pingpong("xsrq_pingpong -g 0 -e"),
    xrc_pingpong("xsrq_pingpong -g 0 -o -n 100 -s 65536", 100, 65536),
    xrc_pingpong("xsrq_pingpong -g 0 -c 3", clients=3, quick=True),
    xrc_pingpong("xsrq_pingpong -g 0 -c 3 -e -n 100 -s 65536", 100, 65536, clients=3),
]
