"""What a row is, the cells of the matrix that it stands for, and how one cell is played.

A row is two commands, a server's and a client's, typed in the same way on either end: our RNIC's (`weir run`, on
the host) and the kernel's (in the guest). A cell is a row with the role of our RNIC, an IP version and a RoCE MTU.
Not here: the network (lab.py), the rows (rows/).
Invariant: a cell passes only if both ends ended well, its checks hold, and its bytes crossed the link."""
import dataclasses
import itertools
import re
import shlex
import time

import lab as lab_module
from model import Evidence, Failed, Skipped, shorten
from stage import REFUSED, Stage

ROLES = ("serve", "connect")  # what our RNIC does
FAMILIES = (4, 6)
MTUS = (256, 1024, 4096)
# What a client says when the server is not there yet; of datagrams, SIDR's
# status 1: no such service. riostream's server listens before it sets the option that lets its peer map memory.
NOT_YET = REFUSED + r"|RDMA_CM_EVENT_UNREACHABLE, error: 1$|^riomap: Cannot allocate memory$"
# What a pingpong's server says when the last acknowledgement was lost, and who sent it has ended since.
LAST_ACK_LOST = r"transport retry counter exceeded \(12\) for wr_id 2$"
# A pingpong's retries are 7, which rxe takes for "for ever" (rxe_comp.c): the same server there repeats to nobody until
# it is killed. So long after its client it has ended if it ever will: 70 of its ACK timeouts.
ENDS_AFTER_CLIENT_S = 5
PLAYS = 5  # of a cell whose last acknowledgement is lost each time, or whose client is too early each time
# For a server to be ready. Group addresses: 01:00:5e is IPv4's, 33:33:00:77 that of lab.GROUP.
WAITS = {"tcp": 'until cat /proc/net/tcp /proc/net/tcp6 | grep -q " 0A "; do sleep 0.02; done',
         "member": 'until grep -q -e 01005e4d0001 -e 333300770001 /proc/net/dev_mcast; do sleep 0.02; done'}


@dataclasses.dataclass
class Row:
    """In the commands {address} is the server's address, {control} its IPv4 address (for what is agreed over TCP),
    {own} the address of the end that runs it, {gid} the index of its GID, {mtu} the RoCE MTU (without it in a
    command, the link's MTU alone decides), {family} 4 or 6, {own_programs} where those of this folder are.
    `ready` says when the server is: "tcp" once it listens, "member" once it is in a multicast group, "cm" never (the
    client asks again while it is refused), "device" as "cm", but once it has a device, and with a new server for each
    client. `body(scene)` plays the row by itself, where two commands are not
    enough; it returns an Evidence, or None when it has proven all, or raises Failed. `wire`: so many bytes
    crossed the link."""
    name: str
    server: str = ""
    client: str = ""
    checks: list = dataclasses.field(default_factory=list)
    ready: str = "cm"
    wire: int = 1
    roles: tuple = ROLES
    families: tuple = FAMILIES
    mtus: tuple = MTUS
    impairment: str = ""  # one of lab.IMPAIRMENTS, or lab.CM_LOSS
    timeout_s: int = 30
    short: int = 2  # so many of its cells run in CI
    server_ends: bool = True  # False: it is killed once the client is done
    server_status: int = 0
    client_status: int = 0
    body: object = None
    note: str = ""
    group: str = ""

    def __post_init__(self):
        if not self.checks and not self.body:
            raise ValueError(f"{self.name}: a row needs a proof")

    def cells(self):
        return [Cell(self, *words) for words in itertools.product(self.roles, self.families, self.mtus)
                if lab_module.has_ipv6(link_mtu(self, words[2])) or words[1] == 4]

    def title(self):
        return self.name + (f", {self.impairment}" if self.impairment else "")


@dataclasses.dataclass
class Cell:
    row: Row
    role: str
    family: int
    mtu: int

    def name(self):
        return f"{self.row.group}/{self.row.title()} [we {self.role}, IPv{self.family}, MTU {self.mtu}]"

    def link_mtu(self):
        return link_mtu(self.row, self.mtu)


def link_mtu(row, mtu):
    """Programs that set the path MTU themselves keep a link that IPv6 can use."""
    asks = "{mtu}" in row.server + row.client
    return lab_module.LINK_MTU[1024 if asks and mtu == 256 else mtu]


class HostEnd:
    """Programs on our RNIC."""
    name = "our RNIC"
    has_device = 'until grep -q ":12B7 " /proc/net/udp; do sleep 0.02; done'  # port 4791

    def __init__(self, lab, stage):
        self.stage, self.address, self.gids = stage, lab_module.HOST, lab.host_gids
        self.folder, self.own_programs = stage.folder, f"{stage.settings['build']}/test/interop"
        self.weir = stage.weir()

    def start(self, command, native=False):
        """A word of the shell makes it the shell's: it is that on the other end always."""
        return self.stage.start(f"sh -c {shlex.quote(command)}" if re.search(r"[;&|<>$]", command) else command,
                                native=native)


class GuestEnd:
    """Programs on rdma-core and rxe."""
    name = "rxe"
    has_device = 'until rdma resource show cm_id | grep -q " state LISTEN "; do sleep 0.02; done'
    folder, own_programs, weir = "/tmp", "/bin", "weir"

    def __init__(self, lab, stage):
        self.stage, self.guest, self.address, self.gids = stage, lab.guest, lab_module.GUEST, lab.guest_gids

    def start(self, command, native=True):
        started = self.guest.start(command)
        self.stage.processes.append(started)
        return started


class Scene:
    """One cell being played. `host` and `guest` are the ends, `server` and `client` the same by role."""

    def __init__(self, lab, cell, settings):
        self.lab, self.cell = lab, cell
        lab.configure(cell.link_mtu(), cell.row.impairment)
        self.stage = Stage(settings, cell.row.timeout_s, alone=False)
        self.host, self.guest = HostEnd(lab, self.stage), GuestEnd(lab, self.stage)
        ours_serves = cell.role == "serve"
        self.server, self.client = (self.host, self.guest) if ours_serves else (self.guest, self.host)

    def fill(self, command, end):
        """A command line as this end types it."""
        family = self.cell.family
        words = {"address": self.server.address[family], "control": self.server.address[4],
                 "own": end.address[family], "gid": end.gids.get(family), "mtu": self.cell.mtu, "family": family,
                 "group": lab_module.GROUP[family],
                 "own_programs": end.own_programs}
        return re.sub(r"\{(%s)\}" % "|".join(words), lambda match: str(words[match.group(1)]), command)

    def start(self, end, command):
        return end.start(self.fill(command, end))

    def wait(self, process):
        return process.wait(self.stage.until)

    def start_server(self, command, ready):
        """Started, and ready as far as can be told from outside."""
        server = self.start(self.server, command)
        if ready == "device":
            self.wait_for(self.server, self.server.has_device, server)
        elif ready != "cm":
            self.wait_for(self.server, WAITS[ready], server)
        return server

    def wait_for(self, end, shell_words, process):
        """Until a shell at this end has found true what it looks for, or the process has ended."""
        waiting = end.start(shell_words, native=True)
        self.stage.wait_until(lambda: not waiting.running() or not process.running(), shell_words, process)
        waiting.stop()

    def run_pair(self, row):
        """By rdma_cm there is no telling from outside when a server listens: the client asks again while refused. Who
        comes in between, and is refused in part, may end the server: there is a new one, but not for ever."""
        server, starts = self.start_server(row.server, row.ready), 1
        while True:
            client = self.start(self.client, row.client)
            status = self.wait(client)
            if status == 0 or not re.search(NOT_YET, client.text(), re.MULTILINE):
                return server, client, status
            if row.ready == "device" or not server.running():
                starts += row.ready != "device"
                if starts > PLAYS:
                    return server, client, status
                server.stop()
                server = self.start_server(row.server, row.ready)
            time.sleep(0.05)

    def said(self):
        """What both ends have printed, for who has to find out."""
        return "\n".join(f"--- {process.command}\n{shorten(process.text(), 25)}" for process in self.stage.processes
                         if "until " not in process.command)

    def close(self):
        try:
            for process in self.stage.processes:
                process.stop()
        finally:
            self.stage.processes = [one for one in self.stage.processes if hasattr(one, "popen")]
            self.stage.close()


def repeats_to_nobody(scene, server):
    """The client has all it wanted and is gone; rxe goes on to send anew what was not acknowledged."""
    if scene.server is not scene.guest or scene.cell.row.ready != "tcp":
        return False
    try:
        server.wait(min(scene.stage.until, time.monotonic() + ENDS_AFTER_CLIENT_S * scene.stage.settings["slow"]))
    except Failed:
        before = scene.lab.rxe_repetitions()
        time.sleep(1)
        return server.running() and scene.lab.rxe_repetitions() > before
    return False


def last_ack_lost(scene, server):
    if not scene.cell.row.impairment:
        return False
    if repeats_to_nobody(scene, server):
        server.stop()
        return True
    scene.wait(server)
    return bool(re.search(LAST_ACK_LOST, server.text(), re.MULTILINE))


def play_once(scene):
    """None: the acknowledgement of the last message was lost. Nobody's fault: the client had all it wanted."""
    row = scene.cell.row
    server, client, status = scene.run_pair(row)
    if status != row.client_status:
        raise Failed(f"the client ({scene.client.name}) ended with {status}")
    ended = None
    if row.server_ends:
        if last_ack_lost(scene, server):
            return None
        ended = scene.wait(server)
        if ended != row.server_status:
            raise Failed(f"the server ({scene.server.name}) ended with {ended}")
    else:
        server.stop()
    return Evidence([server.output(ended), client.output(status)], 0)


def play_commands(scene):
    for _ in range(PLAYS):
        evidence = play_once(scene)
        if evidence:
            return evidence
        scene.stage.begin_again()
    raise Failed(f"{PLAYS} times in a row the server ({scene.server.name}) missed the last acknowledgement")


def judge(scene):
    before = scene.lab.bytes_carried()
    row = scene.cell.row
    evidence = row.body(scene) if row.body else play_commands(scene)
    carried = scene.lab.bytes_carried() - before
    if evidence:
        evidence.wire_bytes = carried
        for check in row.checks:
            check.test(evidence)
    if carried < row.wire:
        raise Failed(f"{carried} bytes crossed the link, wanted {row.wire}")


def play(lab, cell, settings):
    """Plays a cell and returns its result, as a dictionary."""
    begin = time.monotonic()
    result = {"status": "pass", "reason": ""}
    scene = None
    try:
        scene = Scene(lab, cell, settings)
        judge(scene)
    except Failed as failure:
        result = {"status": "fail", "reason": f"{failure}\n{scene.said() if scene else ''}"}
    except Skipped as reason:
        result = {"status": "skip", "reason": str(reason)}
    finally:
        if scene:
            try:
                scene.close()
            except Failed as failure:
                result = {"status": "fail", "reason": f"{result['reason']}\nat the end: {failure}"}
    result["seconds"] = time.monotonic() - begin
    return result
