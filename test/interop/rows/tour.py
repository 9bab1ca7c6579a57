"""What goes wrong, between our RNIC and rxe in both roles: pairs of programs of our own (../tour), judged by ../../../docs/interop.md."""
import os
import re
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tour"))

from judge import judge  # noqa: E402
from harm import CM_LOSS  # noqa: E402
from model import Failed  # noqa: E402
from row import Row  # noqa: E402

GROUP = "tour"


def is_echo(complaint):
    """The guest may be slow: who waits too short asks again, and is answered once more. (Two hosts of ours must agree
    exactly: ours.py.)"""
    found = re.search(r" answers should be (\w+)\*(\d+) and is (\w+)\*(\d+)$", complaint)
    return bool(found) and found.group(1) == found.group(3) and int(found.group(4)) > int(found.group(2))


def play(scene):
    row = scene.cell.row
    server = scene.start(scene.server, row.server)
    client = scene.start(scene.client, row.client)
    status = scene.wait(client)
    if status not in (0, 1):  # it may not even have called the other end
        raise Failed(f"the leading end ended with {status}")
    server_status = scene.wait(server)
    played, complaints = judge(client.text().splitlines())
    if server_status != 0:
        complaints.append(f"the other end ended with {server_status} after {played} cases")
    complaints = [complaint for complaint in complaints if not is_echo(complaint)]
    if complaints:
        raise Failed("\n".join(complaints))


def tour(name, program, cases="", options="", **more):
    """Each case is played in both directions, whoever leads."""
    return Row(name, f"{{own_programs}}/{program} serve {{own}}", f"{{own_programs}}/{program} {options} {{address}} {cases}",
               body=play, mtus=(1024,), **more)


ROWS = [
    tour("errors, some", "error_tour", "write_unknown_key read_past_end write_to_read_only_region atomic_on_queue_pair_without_right"
         " receive_too_short no_receive_two_retries peer_gone uc_write_unknown_key ud_wrong_qkey middle_without_first psn_ahead"
         " wrong_icrc", timeout_s=60),
    tour("errors, all", "error_tour", some=(("connect", 4, 1024), ("serve", 6, 1024)), timeout_s=400, short=0),
    tour("errors that hang on the path MTU", "error_tour", options="--mtu {mtu}", some=(("serve", 4, 256), ("connect", 6, 4096)),
         timeout_s=200, short=0),
    tour("communication management", "cm_tour", timeout_s=60),
    # REQ, REP, RTU, DREQ and DREP are each lost once at least: every event comes all the same.
    tour("communication management", "cm_tour", "active_disconnects passive_disconnects rejected", impairment=CM_LOSS,
         roles=("connect",), timeout_s=200, short=0),
]
