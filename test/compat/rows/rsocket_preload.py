"""librspreload: programs with plain TCP sockets, moved onto rsockets by Debian's preload library."""
import hashlib
import os

from model import Evidence, Failed, Row, proof, wire
from stage import bytes_on_wire, tcp_listeners

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


def netcat(stage):
    source, target = os.path.join(stage.folder, "source"), os.path.join(stage.folder, "target")
    with open(source, "wb") as file:
        file.write(os.urandom(SIZE))
    before = bytes_on_wire()
    how = preloaded(stage)
    server = stage.start(f"sh -c 'exec nc -l 127.0.0.1 5001 > {target}'", **how)
    stage.ready("cm", server, 1)
    if tcp_listeners():
        raise Failed("the server listens by TCP")
    client = stage.run(f"sh -c 'exec nc -N 127.0.0.1 5001 < {source}'", **how)
    server.wait()
    with open(source, "rb") as one, open(target, "rb") as other:
        if hashlib.file_digest(one, "sha256").digest() != hashlib.file_digest(other, "sha256").digest():
            raise Failed("what arrived is not what was sent")
    return Evidence([server.output(), client], bytes_on_wire() - before)


def echo(stage):
    before = bytes_on_wire()
    how = preloaded(stage)
    server = stage.start(f"/usr/bin/python3 {HERE}/socket_echo.py 127.0.0.1", **how)
    stage.ready("cm", server, 1)
    if tcp_listeners():
        raise Failed("the server listens by TCP")
    client = stage.run(f"/usr/bin/python3 {HERE}/socket_echo.py -c 127.0.0.1", **how)
    server.wait()
    return Evidence([server.output(), client], bytes_on_wire() - before)


ROWS = [
    Row("nc", ["LD_PRELOAD=librspreload.so nc -l 127.0.0.1 5001 > COPY",
               "LD_PRELOAD=librspreload.so nc -N 127.0.0.1 5001 < FILE"],
        [proof("SHA-256 of 4 MiB sent and received; nothing listens by TCP"), wire(SIZE)], body=netcat,
        programs=["nc", PRELOAD], timeout_s=30),
    Row("python3 sockets", ["LD_PRELOAD=librspreload.so python3 test/compat/socket_echo.py 127.0.0.1",
                            "LD_PRELOAD=librspreload.so python3 test/compat/socket_echo.py -c 127.0.0.1"],
        [proof("SHA-256 of 4 MiB there and back; nothing listens by TCP"), wire(2 * SIZE)], body=echo,
        programs=[PRELOAD], timeout_s=30, quick=True),
]
