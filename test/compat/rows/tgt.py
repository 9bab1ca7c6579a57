"""tgt as an iSER target, libiscsi as its client: SCSI commands, and data by RDMA both ways."""
import hashlib
import os
import re

from model import Evidence, Failed, Row, line, proof, wire
from stage import bytes_carried

GROUP = "tgt, libiscsi"
PACKAGES = ["tgt", "libiscsi-bin", "libiscsi7"]
TARGET = "iqn.2026-01.org.weir:disk"
CLIENT = "iqn.2026-01.org.weir:client"
URL = f"iser://127.0.0.1/{TARGET}/1"
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZE = 64 << 20


def export(stage):
    """tgtd with one unit of 64 MiB behind an iSER portal. tgt 1.0.85 asks for both kinds of binding."""
    disk = os.path.join(stage.folder, "disk")
    with open(disk, "wb") as file:
        file.truncate(SIZE)
    target = stage.start("/usr/sbin/tgtd -f",
                         env={"TGT_IPC_SOCKET": os.path.join(stage.folder, "ipc")})
    tgtadm = "/usr/sbin/tgtadm --lld iser --mode"
    control = {"native": True, "env": {"TGT_IPC_SOCKET": os.path.join(stage.folder, "ipc")}}

    def listening():
        return stage.run(f"{tgtadm} target --op show", status=None, **control).status == 0
    if not stage.wait_until(listening, "tgtd", target, 0.2):
        raise Failed(f"tgtd ended: {target.text()}")
    for words in (f"target --op new --tid 1 --targetname {TARGET}",
                  f"logicalunit --op new --tid 1 --lun 1 --backing-store {disk}",
                  "target --op bind --tid 1 --initiator-address ALL",
                  f"target --op bind --tid 1 --initiator-name {CLIENT}"):
        stage.run(f"{tgtadm} {words}", **control)
    return target, disk


def row(command, checks, quick=False, moved=0, link=""):
    """tgtd is killed, and tells of no bytes but those on a wire: only over UDP can these be counted."""
    def body(stage):
        target, disk = export(stage)
        before = bytes_carried(stage)
        done = stage.run(command.replace("iscsi_verify.py", f"/usr/bin/python3 {HERE}/iscsi_verify.py"))
        written = re.search("written ([0-9a-f]+)", done.text)
        if written:
            with open(disk, "rb") as file:
                found = hashlib.sha256(file.read(4096 * 512)).hexdigest()
            if found != written.group(1):
                raise Failed("the disk of the target does not hold what was written")
        if not target.running():
            raise Failed(f"tgtd ended: {target.text()}")
        return Evidence([done], bytes_carried(stage) - before)
    checks = checks + ([wire(moved)] if moved and link == "udp" else [])
    return Row(command.split()[0] + (f" over {link}" if link else ""), ["tgtd -f", command], checks, body=body,
               quick=quick, timeout_s=40, environment={"WEIR_LINK": link} if link else {},
               programs=["/usr/sbin/tgtd", "iscsi-inq"])


ROWS = [
    *(row(f"iscsi-inq -i {CLIENT} {URL}", [line("Peripheral Qualifier:CONNECTED"), line("VIRTUAL-DISK")],
          quick=link == "", link=link) for link in ("", "udp")),
    row(f"iscsi-readcapacity16 -i {CLIENT} {URL}", [line(f"Total size:{SIZE}")]),
    *(row(f"iscsi_verify.py {URL} 7",
          [proof("SHA-256 of 2 MiB written, read back, and found on the target's disk")], quick=link == "udp",
          moved=2 * 4096 * 512, link=link) for link in ("", "udp")),
]
