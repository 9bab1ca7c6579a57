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
from stage import LISTENS_WITHIN_S, REFUSED, Stage

ROLES = ("serve", "connect")  # what our RNIC does
FAMILIES = (4, 6)
MTUS = (256, 1024, 4096)
# What a client says when the server is not there yet; of datagrams, SIDR's status 1: no such service.
NOT_YET = REFUSED + r"|RDMA_CM_EVENT_UNREACHABLE, error: 1$"
# riostream's server listens before it sets the option that lets its peer map memory.
TOO_EARLY = r"^riomap: Cannot allocate memory$"
# What a pingpong's server says when the last acknowledgement was lost, and who sent it has ended since.
LAST_ACK_LOST = r"transport retry counter exceeded \(12\) for wr_id 2$"
# Retries of 7, as pingpongs and rsockets have, rxe takes for "for ever" (rxe_comp.c): the same end there repeats to nobody
# until it is killed (an rsocket that waits so does not look at our DREQ either). So long after its peer it has ended if
# it ever will: 70 of a pingpong's ACK timeouts, nine of an rsocket's.
ENDS_AFTER_PEER_S = 5
PLAYS = 5  # of a cell whose last acknowledgement is lost each time, or where nothing was harmed
# The same where nobody repeats what is lost: each second play or so stops for ever, and each second meets no harm. (Two
# copies of a message that come at once are one to a pingpong, whose next one is not sent then: it stops, too.)
PLAYS_UNRELIABLE = 16
STOPPED_S = 1  # so long without a byte on the link
SERVERS = 8  # started for one client that comes too early each time
# For a server to be ready. Group addresses: 01:00:5e is IPv4's, 33:33:00:77 that of lab.GROUP.
WAITS = {"tcp": 'until cat /proc/net/tcp /proc/net/tcp6 | grep -q " 0A "; do sleep 0.02; done',
         "member": 'until grep -q -e 01005e4d0001 -e 333300770001 /proc/net/dev_mcast; do sleep 0.02; done'}


@dataclasses.dataclass
class Row:
    """In the commands {address} is the server's address, {control} its IPv4 address (for what is agreed over TCP),
    {own} the address of the end that runs it, {gid} the index of its GID, {mtu} the RoCE MTU (without it in a
    command, the link's MTU alone decides), {family} 4 or 6, {own_programs} where those of this folder are.
    `ready` says when the server is: "tcp" once it listens, "member" once it is in a multicast group, "cm" once the kernel
    says that it listens, or, if it is ours, never: the client asks again while it is refused, for LISTENS_WITHIN_S. "device"
    as "cm", but with a new server for each client, which may be refused by the kernel, too. `body(scene)` plays the row by itself, where two commands are not
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
    some: tuple = ()  # (role, family, MTU) of its cells, where all of them would take too long
    impairment: str = ""  # one of harm.IMPAIRMENTS, or harm.CM_LOSS
    unreliable: bool = False  # its service repeats nothing: the program may wait for ever for what was lost
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
        return [Cell(self, *words) for words in self.some or itertools.product(self.roles, self.families, self.mtus)
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
    is_up = 'until grep -q ":12B7 " /proc/net/udp; do sleep 0.02; done'  # port 4791; it may not listen yet

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
    is_up = 'until rdma resource show cm_id | grep -q " state LISTEN "; do sleep 0.02; done'
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
        self.notes = []  # what a reader of the result should know
        self.before = {}  # this play: what had been harmed

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

    def wait_or_stop(self, process):
        """None: the link is silent, and something was harmed; of a row without unreliable services, never."""
        carried, since = self.lab.bytes_carried(), time.monotonic()
        while self.cell.row.unreliable and process.running() and since < self.stage.until:
            time.sleep(0.05)
            now = time.monotonic()
            if self.lab.bytes_carried() != carried:
                carried, since = self.lab.bytes_carried(), now
            elif now - since > STOPPED_S * self.stage.settings["slow"]:
                if self.lab.harm.happened(self.before):
                    return None
                since = now
        return self.wait(process)

    def wait_for_client(self, client, server):
        """As wait_or_stop; None also for rxe's that repeats to nobody."""
        row = self.cell.row
        if row.impairment and not row.unreliable and self.client is self.guest and row.ready == "tcp":
            self.stage.wait_until(lambda: not client.running() or not server.running(), "either end", client)
            if client.running() and repeats_to_nobody(self, client):
                ended = self.wait(server)
                if ended != row.server_status:
                    raise Failed(f"the server ({self.server.name}) ended with {ended}")
                return None
        return self.wait_or_stop(client)

    def start_server(self, command, ready):
        """Started, and ready as far as can be told from outside."""
        server = self.start(self.server, command)
        self.wait_for(self.server, WAITS.get(ready, self.server.is_up), server)
        return server

    def wait_for(self, end, shell_words, process):
        """Until a shell at this end has found true what it looks for, or the process has ended."""
        waiting = end.start(shell_words, native=True)
        self.stage.wait_until(lambda: not waiting.running() or not process.running(), shell_words, process)
        waiting.stop()

    def was_refused(self, row, client):
        """Whatever it ended with: some programs end well. By a server that cannot be early any more, that is a fault."""
        kernel_listens = row.ready == "cm" and self.server is self.guest
        if row.ready in WAITS or not re.search(f"{NOT_YET}|{TOO_EARLY}", client.text(), re.MULTILINE):
            return False
        if kernel_listens and not re.search(TOO_EARLY, client.text(), re.MULTILINE):
            raise Failed("the client was refused by a server that listens")
        return True

    def run_pair(self, row):
        """Of ours there is no telling from outside when a server listens: the client asks again while refused, but not
        for ever. Who comes in between, and is refused in part, may end the server: there is a new one, likewise."""
        server, starts, refused = self.start_server(row.server, row.ready), 1, 0
        listens_by = time.monotonic() + LISTENS_WITHIN_S * self.stage.settings["slow"]
        while True:
            if self.cell.row.impairment:
                self.lab.harm.watch.goodbyes.begin()
            client = self.start(self.client, row.client)
            status = self.wait_for_client(client, server)
            if not self.was_refused(row, client):
                break
            refused += 1
            renewed = row.ready == "device" or not server.running()
            if starts == SERVERS or (not renewed and time.monotonic() > listens_by):
                raise Failed(f"the client was refused {refused} times, by {starts} server(s)")
            if renewed:
                starts += 1
                server.stop()
                server = self.start_server(row.server, row.ready)
            time.sleep(0.05)
        if refused:
            self.notes.append(f"refused {refused} times before a server listened")
        return server, client, status

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


def repeats_to_nobody(scene, process):
    """Its peer, ours, has all it wanted and is gone; rxe goes on to send anew what was not acknowledged."""
    try:
        process.wait(min(scene.stage.until, time.monotonic() + ENDS_AFTER_PEER_S * scene.stage.settings["slow"]))
    except Failed:
        before = scene.lab.rxe_repetitions()
        time.sleep(scene.stage.settings["slow"])
        return process.running() and scene.lab.rxe_repetitions() > before
    return False


def last_ack_lost(scene, server):
    if not scene.cell.row.impairment:
        return False
    if scene.server is scene.guest and repeats_to_nobody(scene, server):
        server.stop()
        return True
    scene.wait(server)
    return bool(re.search(LAST_ACK_LOST, server.text(), re.MULTILINE))


def goodbye_lost(scene, server):
    """The DREQ of rxe's client, which has ended: with the process its connection is forgotten, and no kernel repeats the
    DREQ then. Who waits for it, or for an acknowledgement from there, does so in vain."""
    if not scene.cell.row.impairment or scene.client is not scene.guest or scene.cell.row.ready != "cm":
        return False
    try:
        server.wait(min(scene.stage.until, time.monotonic() + ENDS_AFTER_PEER_S * scene.stage.settings["slow"]))
    except Failed:
        return server.running() and bool(scene.lab.harm.watch.goodbyes.missing())
    return False


def reply_lost(scene, server, client):
    """The answer to a SIDR_REQ, which comes once: who has answered takes the same request for another one, and its
    program, which has the one that it waited for, does not look."""
    return (scene.cell.row.unreliable and server.running() and not scene.lab.harm.missing(scene.before)
            and re.search(r"RDMA_CM_EVENT_UNREACHABLE, error: -110", client.text()))


def play_once(scene):
    """None: the acknowledgement of the last message was lost, or a message that nobody repeats. Nobody's fault: the
    client had all it wanted, or could not have it."""
    row = scene.cell.row
    scene.before = scene.lab.harm.counts() if row.unreliable else {}
    server, client, status = scene.run_pair(row)
    if status is None:
        client.stop()
        server.stop()
        return None
    if status != row.client_status and reply_lost(scene, server, client):
        server.stop()
        return None
    if status != row.client_status:
        raise Failed(f"the client ({scene.client.name}) ended with {status}")
    ended = None
    if row.server_ends:
        if not row.unreliable and goodbye_lost(scene, server):
            scene.notes.append("the client's DREQ was lost")
            server.stop()
            return None
        if not row.unreliable and last_ack_lost(scene, server):
            return None
        ended = scene.wait_or_stop(server)
        if ended is None:
            server.stop()
            return None
        if ended != row.server_status:
            raise Failed(f"the server ({scene.server.name}) ended with {ended}")
    else:
        server.stop()
    return Evidence([server.output(ended), client.output(status)], 0)


def play_commands(scene):
    """Until it has gone through once, and what should be harmed has been."""
    evidence, before = None, scene.lab.harm.counts()
    plays = PLAYS_UNRELIABLE if scene.cell.row.unreliable else PLAYS
    for count in range(1, plays + 1):
        evidence = play_once(scene) or evidence
        missing = scene.lab.harm.missing(before)
        if evidence and not missing:
            if count > 1:
                scene.notes.append(f"played {count} times")
            return evidence
        scene.stage.begin_again()
    if evidence:
        raise idle(scene, missing)
    raise Failed(f"{plays} times in a row the last acknowledgement, or a message that nobody repeats, was lost")


def idle(scene, missing):
    return Failed(f"\"{scene.cell.row.impairment}\" did nothing: no packet was {' or '.join(missing)}")


def play_body(scene):
    before = scene.lab.harm.counts()
    evidence = scene.cell.row.body(scene)
    missing = scene.lab.harm.missing(before)
    if missing:
        raise idle(scene, missing)
    return evidence


def judge(scene):
    before = scene.lab.bytes_carried()
    row = scene.cell.row
    evidence = play_body(scene) if row.body else play_commands(scene)
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
    if result["status"] == "fail":
        lab.leave_guest()
    result["seconds"] = time.monotonic() - begin
    result["notes"] = scene.notes if scene else []
    return result
