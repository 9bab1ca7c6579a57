"""The pingpongs of ibverbs-utils: connected over TCP (their servers hear IPv4 alone), data compared by -c."""
from model import Failed, line
from row import Row

GROUP = "pingpong"


def pingpong(program, iterations=200, size=4096, options="-m {mtu}", **more):
    """Both ends print how many iterations took how long; -c compares every byte that arrives."""
    common = f"ibv_{program} -g {{gid}} -n {iterations} -s {size} -c {options}".strip()
    shown = options.replace("-m {mtu}", "").strip()
    done = rf"^{iterations} iters in [0-9.]+ seconds"
    return Row(f"{program} -s {size} {shown}".strip(), common, f"{common} {{control}}",
               [line(done, where=0), line(done)], ready="tcp", wire=2 * iterations * size, **more)


def no_xrc(scene):
    """rxe has no XRC. When it gets it, this row fails, and the real one is to be written."""
    started = scene.start(scene.guest, "ibv_xsrq_pingpong -g {gid}")
    if scene.wait(started) == 0 or "XRC" not in started.text().upper():
        raise Failed("ibv_xsrq_pingpong was not refused in the guest")


ROWS = [
    pingpong("rc_pingpong", short=2),
    pingpong("rc_pingpong", options="-e -m {mtu}"),
    pingpong("rc_pingpong", size=1),
    pingpong("rc_pingpong", 20, size=100001),
    pingpong("uc_pingpong"),
    pingpong("uc_pingpong", options="-e -m {mtu}", mtus=(1024,), short=0),
    pingpong("ud_pingpong", size=200, options=""),  # which has no -m: the link's MTU decides
    pingpong("ud_pingpong", size=199, options="-e", mtus=(1024,), short=0),
    pingpong("srq_pingpong", options="-m {mtu}"),
    pingpong("srq_pingpong", options="-e -m {mtu}", mtus=(1024,), short=0),
    *[pingpong("rc_pingpong", 100, impairment=name, mtus=(1024,), timeout_s=60, short=1 if name == "everything" else 0)
      for name in ("loss", "reorder", "duplicate", "everything")],
    pingpong("srq_pingpong", 50, impairment="everything", mtus=(1024,), timeout_s=60, short=0),
    # One message at a time: there is nothing that could be overtaken.
    # So many that each second play or so meets no harm: a copy stops them as often as not (row.py, PLAYS_UNRELIABLE).
    *[pingpong(program, 17 if name == "loss" else 3, size=size, options=options, impairment=name, unreliable=True, timeout_s=60, mtus=(1024,),
               families=families, short=1 if name == "duplicate" else 0)
      for program, size, options, name, families in (
          ("uc_pingpong", 900, "-m {mtu}", "loss", (4,)), ("uc_pingpong", 900, "-m {mtu}", "duplicate", (6,)),
          ("ud_pingpong", 200, "", "loss", (6,)), ("ud_pingpong", 200, "", "duplicate", (4,)))],
    Row("xsrq_pingpong: rxe has no XRC", body=no_xrc, roles=("connect",), families=(4,), mtus=(1024,), wire=0, short=0),
]
