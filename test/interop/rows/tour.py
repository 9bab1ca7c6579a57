"""What goes wrong, between our RNIC and rxe in both roles: pairs of programs of our own (../tour), judged by ../../../docs/interop.md."""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tour"))

from judge import judge  # noqa: E402
from model import Failed  # noqa: E402
from row import Row  # noqa: E402

GROUP = "tour"


def play(scene):
    row = scene.cell.row
    server = scene.start(scene.server, row.server)
    client = scene.start(scene.client, row.client)
    status, server_status = scene.wait(client), scene.wait(server)
    played, complaints = judge(client.text().splitlines())
    if status not in (0, 1) or server_status != 0:
        complaints.append(f"the two ends ended with {status} and {server_status} after {played} cases")
    if complaints:
        raise Failed("\n".join(complaints))


def tour(name, program, cases="", **more):
    return Row(name, f"{{own_programs}}/{program} serve {{own}}", f"{{own_programs}}/{program} {{address}} {cases}", body=play,
               mtus=(1024,), **more)


ROWS = [
    tour("errors, some", "error_tour", "write_unknown_key read_past_end write_to_read_only_region atomic_on_queue_pair_without_right"
         " receive_too_short no_receive_two_retries peer_gone uc_write_unknown_key ud_wrong_qkey middle_without_first psn_ahead"
         " wrong_icrc", timeout_s=60),
    tour("errors, all", "error_tour", roles=("connect",), timeout_s=400, short=0),
    tour("communication management", "cm_tour", timeout_s=60),
]
