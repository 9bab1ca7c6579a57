"""Programs of other packages that speak verbs: uDAPL, QEMU's live migration, MPICH."""
import os
import re
import socket
import time

from model import Evidence, Failed, Output, Row, line, wire
from rows import openmpi
from stage import bytes_carried

GROUP = "others"
PACKAGES = ["dapl2-utils", "libdapl2", "qemu-system-x86", "mpich"]
DAT = 'weir-v2 u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "lo 0" ""\n'
QEMU = "qemu-system-x86_64 -machine q35,accel=tcg -m 128 -nodefaults -display none -monitor unix:MONITOR,server,nowait"


def dtest(options=""):
    """uDAPL finds its provider in a file; the provider is Debian's own, on verbs and rdma_cm."""
    command = f"dtest -P weir-v2 {options}".strip()

    def body(stage):
        path = os.path.join(stage.folder, "dat.conf")
        with open(path, "w") as file:
            file.write(DAT)
        stage.environment = dict(stage.environment, DAT_OVERRIDE=path)
        before = bytes_carried(stage)
        server = stage.start(command)
        stage.ready("cm", server, 1)
        time.sleep(0.5)  # from the open device to its listener
        client = stage.run(f"{command} -h 127.0.0.1")
        server.wait()
        return Evidence([server.output(), client], bytes_carried(stage) - before)
    return Row(command, [command, f"{command} -h 127.0.0.1"],
               [line("DAPL Test Complete. PASSED"), line("DAPL Test Complete. PASSED", where=0),
                wire(100000)], body=body, programs=["dtest"])


def ask(path, command):
    """One command to QEMU's monitor; returns all it says until its next prompt."""
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(path)
        monitor.settimeout(20)
        seen = b""
        while seen.count(b"(qemu) ") < 1:
            seen += monitor.recv(65536)
        monitor.sendall(command.encode() + b"\n")
        while seen.count(b"(qemu) ") < 2:
            got = monitor.recv(65536)
            if not got:
                break
            seen += got
    return seen.decode(errors="replace")


def guest(stage, name, options=""):
    path = os.path.join(stage.folder, name)
    process = stage.start(f"{QEMU.replace('MONITOR', path)} {options}")
    stage.wait_until(lambda: os.path.exists(path), "QEMU's monitor", process)
    return process, path


def migration(stage):
    target, at = guest(stage, "target", "-incoming rdma:127.0.0.1:4444")
    source, here = guest(stage, "source")
    before = bytes_carried(stage)
    ask(here, "migrate -d rdma:127.0.0.1:4444")

    def ended():
        return re.search("Migration status: (completed|failed)", ask(here, "info migrate"))
    stage.wait_until(ended, "the end of the migration", source, 0.3)
    seen = ask(here, "info migrate")
    status = ask(at, "info status") if target.running() else ""
    if "running" not in status:
        raise Failed(f"the target does not run: {status}\n{seen}\n{target.text()}")
    for process in (source, target):
        process.stop()
    return Evidence([target.output(), Output("info migrate", 0, seen)], bytes_carried(stage) - before)


ROWS = [
    dtest(), dtest("-c"), dtest("-b 65536 -B 20"),
    Row("qemu, live migration",
        [f"{QEMU} -incoming rdma:127.0.0.1:4444", QEMU, "migrate -d rdma:127.0.0.1:4444"],
        [line("Migration status: completed"),
         line(r"transferred ram: [1-9]\d{2,} kbytes", text="memory moved; the target's guest runs"), wire(100000)],
        body=migration, programs=["qemu-system-x86_64"], timeout_s=60),
    openmpi.row("MPICH over UCX, rc_verbs", "", mpirun="mpirun.mpich -np 4", compiler="mpicc.mpich",
                environment={"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_NET_DEVICES": "weir0:1"}),
]
