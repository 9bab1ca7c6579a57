"""Many processes of ours behind one address, connected with each other and with the kernel, killed one after the other
(../../many)."""
import argparse
import os
import sys
import threading
import time

from model import Failed
from row import Row

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "many"))

import many_test  # noqa: E402

GROUP = "many"
ORDERS = "/tmp/orders"  # a pipe in the guest


class Peer:
    """The program of all of them, in the guest on rxe: it accepts and connects. For many_test.Test a process of its own."""

    def __init__(self, scene, test):
        self.name, self.port = "peer", many_test.PEER_PORT
        self.address, self.guest = scene.guest.address[scene.cell.family], scene.lab.guest
        self.command = scene.start(scene.guest, f"rm -f {ORDERS}; mkfifo {ORDERS};"
                                   f" exec many {self.port} peer {test.arguments.pause} serve <>{ORDERS}")
        threading.Thread(target=self.listen, args=(test.words,), daemon=True).start()

    def listen(self, words):
        taken = 0
        while self.command.running():
            with self.guest.changed:
                self.guest.changed.wait_for(lambda: b"\n" in self.command.output_bytes[taken:] or not self.command.running())
                said = self.command.output_bytes[taken:]
            whole = said[:said.rfind(b"\n") + 1]
            taken += len(whole)
            for line in whole.decode().splitlines():
                words.put((self, self.by_our_clock(line.split())))
        words.put((self, ["ended"]))

    @staticmethod
    def by_our_clock(words):
        """Times are those at which we have heard of it."""
        return [*words[:4], str(time.monotonic_ns()), *words[5:]] if words[0] in ("down", "out") else words

    def order(self, text):
        self.guest.run(f"echo {text} >{ORDERS}")

    def status(self):
        return self.command.status


def survive(scene, **arguments):
    stage = scene.host.stage
    arguments = argparse.Namespace(build=stage.settings["build"], here=scene.host.address[scene.cell.family], seed=1,
                                   slow=stage.settings["slow"], **arguments)
    said = []
    test = many_test.Test(arguments, dict(stage.base_environment(), LD_LIBRARY_PATH=stage.dropin()), said.append)
    test.peer = Peer(scene, test)
    try:
        test.run()
    except many_test.Failure as failure:
        raise Failed("\n".join([str(failure), *said])) from None
    finally:
        test.clean_up()
    print("\n".join(f"     {line}" for text in said for line in text.splitlines()))


def some(scene):
    survive(scene, processes=5, links=8, kills=5, pause=20, owner=False)


def ten(scene):
    survive(scene, processes=10, links=20, kills=10, pause=1000, owner=True)


ROWS = [
    Row("5 processes, 5 killed", body=some, roles=("connect",), mtus=(1024,), wire=10 << 20, short=1),
    # Both ends connect and accept in both. A quarter of the connections goes to rxe, a quarter comes from there.
    Row("10 processes, 20 connections each, the port's owner killed 10 times", body=ten, roles=("connect",), mtus=(1024,),
        wire=100 << 20, short=0),
]
