#!/usr/bin/env python3
"""What we put on a wire, recorded between two hosts (namespaces) as the kernel sends it, and judged by two that know nothing
of us: tshark, and the checks of wire.py. Usage: recorded_test.py BUILD_DIR [--keep FILE]   77: not possible here"""
import collections
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import wire

HERE = os.path.dirname(os.path.abspath(__file__))
MTU = 1500
LIMIT = 60

# What tshark is wrong about: it guesses at the protocol above a SEND by the payload's first bytes, and calls what does not fit
# its guess malformed; so with two SENDs of rc-ops-naks. These guesses are switched off, and nothing else is passed over.
GUESSES = ["smc", "smb_direct", "rpcordma", "nvme-rdma", "lnet", "iser", "infiniband_sdp", "fcoib"]

FAR, FAR6 = "10.78.0.2", "fd78::2"


def pingpong(kind, gid, size, count, **sends):
    return (f"ibv_{kind}_pingpong -g {gid} -s {size} -n {count}", f"ibv_{kind}_pingpong -g {gid} -s {size} -n {count} {FAR}",
            sends)


# Server, client, and how many packets of each opcode they send, repetitions not counted. Acknowledgements may stand for
# several requests: 0 says that there are some. Path MTU is 1024.
PROGRAMS = [
    pingpong("rc", 0, 3000, 10, RC_SEND_FIRST=20, RC_SEND_MIDDLE=20, RC_SEND_LAST=20, RC_ACKNOWLEDGE=0),
    pingpong("rc", 1, 101, 10, RC_SEND_ONLY=20, RC_ACKNOWLEDGE=0),
    pingpong("uc", 0, 3000, 10, UC_SEND_FIRST=20, UC_SEND_MIDDLE=20, UC_SEND_LAST=20),
    pingpong("uc", 1, 5, 10, UC_SEND_ONLY=20),
    pingpong("ud", 0, 1000, 10, UD_SEND_ONLY=20),
    pingpong("ud", 1, 999, 10, UD_SEND_ONLY=20),
    (f"rping -s -a {FAR} -C 3 -S 200", f"rping -c -a {FAR} -C 3 -S 200",
     dict(CM_REQ=0, CM_REP=1, CM_RTU=1, CM_DREQ=0, CM_DREP=0, RC_SEND_ONLY=12, RC_READ_REQUEST=3, RC_READ_RESPONSE_ONLY=3,
          RC_WRITE_ONLY=3, RC_ACKNOWLEDGE=0)),
    (f"rping -s -a {FAR6} -C 2 -S 5000", f"rping -c -a {FAR6} -C 2 -S 5000",
     dict(CM_REQ=0, CM_REP=1, CM_RTU=1, CM_DREQ=0, CM_DREP=0, RC_SEND_ONLY=8, RC_READ_REQUEST=2, RC_READ_RESPONSE_FIRST=2,
          RC_READ_RESPONSE_MIDDLE=6, RC_READ_RESPONSE_LAST=2, RC_WRITE_FIRST=2, RC_WRITE_MIDDLE=6, RC_WRITE_LAST=2,
          RC_ACKNOWLEDGE=0)),
    (f"rping -s -a {FAR} -p 7998", f"rping -c -a {FAR} -p 7999 -C 1", dict(CM_REQ=6, CM_REJ=6)),  # rdmacm/retry.c: a listener may be late
    ("ib_atomic_bw -F -n 5 -A FETCH_AND_ADD", f"ib_atomic_bw -F -n 5 -A FETCH_AND_ADD {FAR}",
     dict(RC_FETCH_ADD=5, RC_ATOMIC_ACKNOWLEDGE=5)),
    ("ib_atomic_bw -F -n 5 -A CMP_AND_SWAP", f"ib_atomic_bw -F -n 5 -A CMP_AND_SWAP {FAR}",
     dict(RC_COMPARE_SWAP=5, RC_ATOMIC_ACKNOWLEDGE=5)),
    ("ib_write_bw -F -n 5 -s 65536", f"ib_write_bw -F -n 5 -s 65536 {FAR}",
     dict(RC_WRITE_FIRST=5, RC_WRITE_MIDDLE=310, RC_WRITE_LAST=5, RC_ACKNOWLEDGE=0)),
]


class Failed(Exception):
    pass


class Repeated(Failed):
    """Other packets than expected, though each is right: on a busy machine a timer may repeat a READ from its middle."""


def expect(condition, text):
    if not condition:
        raise Failed(text)


class Traffic:
    """Programs on our libraries on this host and on the far one. What only two of us say to each other, once something was
    lost or late, the judges do not know: it is switched off."""

    def __init__(self, build):
        self.environment = dict(os.environ, WEIR_SELECTIVE="0")
        self.run = [f"{build}/weir", "run", "--"]
        self.started = []

    def start(self, command, far):
        process = subprocess.Popen((["far"] if far else []) + self.run + command.split(), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env=self.environment)
        self.started.append(process)
        return process

    def finish(self, process, command):
        try:
            return process.communicate(timeout=LIMIT)[0], process.returncode
        except subprocess.TimeoutExpired:
            raise Failed(f"{command}: still running after {LIMIT} s")

    def await_device(self, server):
        """Somebody on the far host has opened RoCEv2's port."""
        until = time.monotonic() + LIMIT
        while ":12B7 " not in subprocess.run(["far", "cat", "/proc/net/udp", "/proc/net/udp6"], stdout=subprocess.PIPE,
                                             text=True).stdout:
            expect(time.monotonic() < until and server.poll() is None, "the server does not open UDP port 4791")
            time.sleep(0.02)

    def play(self, server, client, refused, path):
        """A server on the far host and its client here, recorded; the client asks again until the server listens."""
        far = self.start(server, True)
        self.await_device(far)
        until = time.monotonic() + LIMIT
        while True:
            recording = Recording(path)
            output, status = self.finish(self.start(client, False), client)
            if status == 0 or refused or far.poll() is not None or time.monotonic() > until:
                break
            recording.stop()
            time.sleep(0.05)
        if status != 0:
            far.kill()
        far_output, far_status = self.finish(far, server)
        recording.stop()
        output += f"{server}: exit status {far_status}\n{far_output}"
        expect((status != 0 or far_status != 0) == refused, f"{client}: exit status {status}\n{output}")

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()


class Recording:
    """tcpdump on the joined interface of this host. Both directions pass it."""

    def __init__(self, path):
        self.path = path
        self.process = subprocess.Popen(["tcpdump", "-i", "weir0", "-w", path, "-U", "-B", "16384", "--immediate-mode", "-Z",
                                         "root", "udp", "port", "4791"], stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        expect("listening on" in line, f"tcpdump: {line}")

    def stop(self):
        self.process.terminate()
        _, report = self.process.communicate(timeout=LIMIT)
        expect(re.search(r"^0 packets dropped by kernel", report, re.M), report)


def distinct(packets):
    """Opcodes and how many packets carry them, repetitions counted once."""
    seen = {(p.source, p.destination, p.qpn, p.name, p.psn) for p in packets}
    return collections.Counter(name for _, _, _, name, _ in seen)


def check_program(recording, client, sends):
    packets, wrong = wire.packets(recording, MTU)
    expect(not wrong, f"{client}:\n" + "\n".join(wrong[:10]))
    found = distinct(packets)
    wanted = {name.replace("_", " ", 1): count for name, count in sends.items()}
    for name in sorted(set(found) | set(wanted)):
        count = wanted.get(name)
        # A server that was not ready at once; a goodbye for a program before, said by who came after it.
        late = name in ("CM MRA", "CM REJ", "CM DREQ", "CM DREP") and count is None
        if late or (count == 0 and found[name] > 0):
            continue
        if found[name] != count:
            raise Repeated(f"{client}: {found[name]} packets {name}, should be {count}")
    print(f"{client}: {len(packets)} packets: " + ", ".join(f"{n} {c}" for n, c in sorted(found.items())))
    return packets


def tshark(path, *arguments, guess=False):
    command = ["tshark", "-n", "-r", path, *arguments]
    for protocol in [] if guess else GUESSES:
        command += ["--disable-protocol", protocol]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    expect(result.returncode == 0, f"tshark: {result.stderr}")
    return result.stdout.splitlines()


def malformed(path, guess=False):
    return tshark(path, "-Y", "_ws.malformed or _ws.expert.severity == error", guess=guess)


def check_tshark(path, packets):
    lines = malformed(path)
    expect(not lines, "tshark finds malformed:\n" + "\n".join(lines[:10]))
    opcodes = collections.Counter(tshark(path, "-T", "fields", "-e", "infiniband.bth.opcode"))
    ours = collections.Counter(str(p.opcode) for p in packets)
    expect(opcodes == ours, f"tshark counts {opcodes}, we {ours}")
    return sum(opcodes.values())


def check_judges(path, work):
    """Both judges are seen to find what is wrong: a flipped bit, and a READ request cut short."""
    data = bytearray(open(path, "rb").read())
    good, _ = wire.packets(path)
    flipped = f"{work}/flipped.pcap"
    data[len(data) - 10] ^= 4
    open(flipped, "wb").write(data)
    after, wrong = wire.packets(flipped)
    expect(len(after) == len(good) - 1 and len(wrong) == 1 and "ICRC" in wrong[0], f"a flipped bit was not found: {wrong}")
    cut = f"{work}/cut.pcap"
    frame = next(f for f in wire.frames(path) if f[12:14] == b"\x08\x00" and f[42] == 12)[:-14]
    open(cut, "wb").write(bytes(data[:24]) + bytes(8) + len(frame).to_bytes(4, "little") * 2 + frame)
    ops = f"{HERE}/rc-ops-naks.pcap"
    expect(malformed(ops, guess=True) and not malformed(ops), "tshark's guesses need not be switched off")
    expect(malformed(cut), "tshark has nothing to say of a READ request cut short")


def set_segments_apart():
    """The interface takes whole packets with their checksums, so that those recorded are those that a cable carries."""
    code = ("import fcntl,socket,struct,ctypes\n"
            "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
            "for c in (0x17,0x24):\n"  # ETHTOOL_STXCSUM, ETHTOOL_SGSO
            "    v=ctypes.create_string_buffer(struct.pack('II',c,0))\n"
            "    fcntl.ioctl(s,0x8946,struct.pack('16sP',b'weir0',ctypes.addressof(v)))\n")
    for prefix in ([], ["far"]):
        subprocess.run(prefix + [sys.executable, "-c", code], check=True)


def await_network():
    """A new interface takes up to a second until IPv6 goes through it: then the far host refuses a connection."""
    until = time.monotonic() + LIMIT
    for address in (FAR, FAR6):
        while True:
            try:
                socket.create_connection((address, 1), timeout=1)
            except ConnectionRefusedError:
                break
            except OSError as error:
                expect(time.monotonic() < until, f"{address}: {error}")
                time.sleep(0.02)


def record_all(build, work):
    traffic, everything, parts = Traffic(build), [], []
    try:
        for number, (server, client, sends) in enumerate(PROGRAMS):
            parts.append(f"{work}/{number}.pcap")
            for again in (True, True, False):
                traffic.play(server, client, "CM_REJ" in sends, parts[-1])
                try:
                    everything += check_program(parts[-1], client, sends)
                    break
                except Repeated as error:
                    if not again:
                        raise
                    print(f"once more: {error}")
    finally:
        traffic.close()
    whole = f"{work}/all.pcap"
    with open(whole, "wb") as file:
        for number, part in enumerate(parts):
            data = open(part, "rb").read()
            file.write(data if number == 0 else data[24:])
    return whole, everything


def main(build, keep):
    if "WEIR_RECORDED_INSIDE" not in os.environ:
        missing = [p for p in ("tshark", "tcpdump", "rping", "ib_write_bw", "ibv_rc_pingpong") if not shutil.which(p)]
        if missing:
            print(f"not installed: {' '.join(missing)}")
            return 77
        os.environ["WEIR_RECORDED_INSIDE"] = "1"
        os.execv(f"{HERE}/../namespaces.sh", ["namespaces.sh", "--mtu", str(MTU), sys.executable, __file__, build]
                 + (["--keep", keep] if keep else []))
    set_segments_apart()
    with tempfile.TemporaryDirectory() as work:
        try:
            await_network()
            whole, packets = record_all(build, work)
            segments = sum(p.version == 4 and p.identification > 0 for p in packets)
            expect(segments > 0, "no packet was cut from a longer one by the kernel: nothing shows that identifications count up")
            dissected = check_tshark(whole, packets)
            check_judges(whole, work)
        except Failed as error:
            print(f"FAIL {error}")
            return 1
        if keep:
            shutil.copy(whole, keep)
    print(f"{len(packets)} packets, every ICRC and checksum right, {segments} of them segments with an identification above 0; "
          f"tshark dissects {dissected} and finds nothing malformed")
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), sys.argv[3] if sys.argv[2:3] == ["--keep"] else None))
