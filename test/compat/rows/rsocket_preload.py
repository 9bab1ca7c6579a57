"""librspreload: plain TCP sockets, moved onto rsockets by Debian's preload library. It takes over accept but
not accept4, which today's nc and Python call; so the server calls accept."""
import os

from model import Evidence, Failed, Row, proof, wire
from stage import bytes_carried, tcp_listeners

GROUP = "librspreload"
PACKAGES = ["librdmacm1"]
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRELOAD = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
SIZE = 4 << 20


def preloaded(stage):
    """librspreload before our libraries: it is what looks for the r* functions."""
    env = stage.environment_on_weir()
    runtimes = [path for path in stage.runtimes if path]
    ours = [path for path in env["LD_PRELOAD"].split(":") if path not in runtimes]
    return {"native": True, "env": dict(env, LD_PRELOAD=":".join([*runtimes, PRELOAD, *ours]))}


def echo(option):
    def body(stage):
        before = bytes_carried(stage)
        how = preloaded(stage)
        server = stage.start(f"/usr/bin/python3 {HERE}/socket_echo.py 127.0.0.1", **how)
        stage.ready("cm", server, 1)
        if tcp_listeners():
            raise Failed("the server listens by TCP")
        client = stage.run(f"/usr/bin/python3 {HERE}/socket_echo.py {option} 127.0.0.1", **how)
        server.wait()
        return Evidence([server.output(), client], bytes_carried(stage) - before)
    return body


def row(name, option, quick):
    command = "LD_PRELOAD=librspreload.so python3 test/compat/socket_echo.py"
    return Row(name, [f"{command} 127.0.0.1", f"{command} {option} 127.0.0.1"],
               [proof("SHA-256 of 4 MiB there and back; nothing listens by TCP"), wire(2 * SIZE)],
               body=echo(option), programs=[PRELOAD], timeout_s=30, quick=quick)


ROWS = [
    row("python3 sockets, in turns", "-c", True),
    row("python3 sockets, two threads", "-t", True),
]
