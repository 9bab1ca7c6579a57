"""The guest alone, with two devices of the kernel's: `weir cp` takes the one that leads to the other side, which is not the first.
No bytes cross the link."""
import contextlib

from model import Failed
from row import GuestEnd, Row
from rows import transfer

GROUP = "weir cp, two devices"
DEVICE = "rxe1"  # beside rxe0
ADDRESS = {4: "10.78.0.1", 6: "fd78::1"}


class One(GuestEnd):
    """One of two ends in the guest, each with a folder of its own."""

    def __init__(self, scene, folder):
        super().__init__(scene.lab, scene.stage)
        self.folder, self.address = folder, ADDRESS


class Inside:
    """A scene as transfer.py has it, whose ends are both in the guest."""

    def __init__(self, scene):
        self.cell, self.stage, self.wait, self.host = scene.cell, scene.stage, scene.wait, None
        self.server, self.client = One(scene, "/tmp/server"), One(scene, "/tmp/client")


@contextlib.contextmanager
def second_device(scene):
    guest = scene.lab.guest
    try:
        guest.run(f"ip link add second type dummy && ip link set second up && ip addr add {ADDRESS[4]}/24 dev second && "
                  f"ip addr add {ADDRESS[6]}/64 dev second nodad && rdma link add {DEVICE} type rxe netdev second && "
                  "mkdir -p /tmp/server /tmp/client")
        yield
    finally:
        for process in scene.stage.processes:
            process.stop()  # else the device is in use
        guest.run("ip link delete second; rm -rf /tmp/server /tmp/client")


def copy(scene):
    with second_device(scene):
        served = transfer.copy_both_ways(1000001, "", Inside(scene))
        if f"({DEVICE})" not in served:
            raise Failed(f"not on {DEVICE}: {served}")


ROWS = [Row("a tree and a file, both ways", body=copy, wire=0, timeout_s=60, short=1, some=[("serve", 4, 1024), ("serve", 6, 1024)])]
