"""Many processes of ours behind one address, connected with each other and with the kernel, killed one after the other
(../../many)."""
import os

from model import Failed
from row import Row

GROUP = "many"
TEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "many", "many_test.py")
PORT = 7799


def survive(scene):
    """The peer's program is the guest's, on rxe; what becomes of the connections, many_test.py judges."""
    peer = scene.start(scene.guest, f"many {PORT} peer 0 serve")
    scene.stage.wait_until(lambda: "listening" in peer.text(), "the peer", peer)
    test = scene.host.start(scene.fill(
        f"python3 {TEST} {scene.host.stage.settings['build']} --here {{own}} --peer {{address}}:{PORT}"
        " --processes 5 --links 6 --kills 5 --pause 20", scene.host), native=True)
    if scene.wait(test) != 0:
        raise Failed("many_test.py says so")


ROWS = [
    Row("5 processes, 5 killed", body=survive, roles=("connect",), mtus=(1024,), wire=10 << 20, timeout_s=120, short=1),
]
