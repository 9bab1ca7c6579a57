"""What goes wrong on the link, in the guest, both ways; and the proof that it did.

Here: rules of tc(8) for RoCE packets alone, and their counters. Not here: who asks for it (lab.py), what a cell makes
of the proof (row.py).
Invariant: what `Harm.counts` says was done to packets of port 4791 since the rules were set."""
import re
import socket
import threading

# `netem` words, and what must come of them.
IMPAIRMENTS = {
    "loss": ("loss 2%", ("lost",)),
    "reorder": ("delay 4ms reorder 75% 50%", ("late",)),
    "duplicate": ("duplicate 10%", ("doubled",)),
    "everything": ("delay 2ms reorder 90% loss 1% duplicate 5%", ("lost", "late", "doubled")),
}
# Each second packet to queue pair 1, of each direction; the pair's number stands behind IP, UDP and four bytes.
CM_LOSS = "every second CM message lost"
TO_QP1 = {"ip": 20 + 8 + 4, "ipv6": 40 + 8 + 4}
# Each with an ifb of its own: the host's kernel need not know netem.
WAYS = {"ingress": "back", "egress": "out"}
# Filters u32 of one priority are shown, and counted, together whatever their way.
PRIORITY = {(way, version): number for number, (way, version) in
            enumerate(((way, version) for way in WAYS for version in TO_QP1), 1)}
UDP = {"ip": (9, 22), "ipv6": (6, 42)}  # where the protocol stands, and the destination port
ETH_P_ALL, PACKET_OUTGOING = 3, 4
REMOVED = ("tc qdisc del dev eth0 clsact; " + "; ".join(f"ip link del {name}" for name in WAYS.values()) + "; true")


def cm_loss_rules():
    return ["tc qdisc add dev eth0 clsact"] + [
        f"tc filter add dev eth0 {way} protocol {version} prio {PRIORITY[way, version]} u32 match u32 1 0x00ffffff"
        f" at {offset} action gact pass random determ drop 2" for way in WAYS for version, offset in TO_QP1.items()]


def netem_rules(netem, link_mtu):
    rules = ["tc qdisc add dev eth0 clsact"]
    for way, name in WAYS.items():
        rules += [f"ip link add {name} type ifb", f"echo 1 >/proc/sys/net/ipv6/conf/{name}/disable_ipv6",
                  f"ip link set {name} up mtu {link_mtu}", f"tc qdisc add dev {name} root netem {netem}"]
        rules += [f"tc filter add dev eth0 {way} protocol {version} prio {PRIORITY[way, version]} u32"
                  f" match u8 17 0xff at {protocol} match u16 4791 0xffff at {port} action mirred egress redirect dev {name}"
                  for version, (protocol, port) in UDP.items()]
    return rules


class Order:
    """Counts the RoCE packets from the guest that come behind a later one of their queue pair, at the host's end."""

    def __init__(self, interface):
        self.late, self.highest = 0, {}
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.bind((interface, 0))
        self.socket.settimeout(0.2)
        self.ended = False
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.ended:
            try:
                frame, source = self.socket.recvfrom(1 << 16)
            except TimeoutError:
                continue
            if source[2] != PACKET_OUTGOING:
                self.see(frame)

    def see(self, frame):
        header = 20 if frame[12:14] == b"\x08\x00" else 40
        protocol, port = UDP["ip" if header == 20 else "ipv6"]
        bth = frame[14 + header + 8:]
        if frame[12:14] not in (b"\x08\x00", b"\x86\xdd") or len(bth) < 12 or frame[14 + protocol] != 17 \
                or frame[14 + port:16 + port] != (4791).to_bytes(2, "big"):
            return
        is_response = 13 <= bth[0] & 31 <= 18 and bth[0] >> 5 in (0, 5)  # its numbers are those of the requester
        flow, psn = (bth[5:8], is_response), int.from_bytes(bth[9:12], "big")
        ahead = (psn - self.highest.get(flow, psn)) % (1 << 24)
        if ahead < 1 << 23:
            self.highest[flow] = psn
        else:
            self.late += 1

    def close(self):
        self.ended = True
        self.thread.join()
        self.socket.close()


def figures(text):
    """Of all rules or queues that tc shows, in packets."""
    return {name: sum(int(number) for number in re.findall(pattern, text)) for name, pattern in (
        ("sent", r"Sent \d+ bytes (\d+) pkt"), ("dropped", r"pkt \(dropped (\d+)"), ("waiting", r"backlog \S+ (\d+)p"))}


class Harm:
    """`name`: one of IMPAIRMENTS, CM_LOSS, or nothing for a good link."""

    def __init__(self, guest, interface, name, link_mtu):
        self.guest, self.name, self.order = guest, name, None
        guest.run(REMOVED)
        if name == CM_LOSS:
            guest.run(" && ".join(cm_loss_rules()))
        elif name:
            guest.run(" && ".join(netem_rules(IMPAIRMENTS[name][0], link_mtu)))
        if name and "late" in self.wanted():
            self.order = Order(interface)

    def wanted(self):
        return ("lost in", "lost out") if self.name == CM_LOSS else IMPAIRMENTS[self.name][1]

    def counts(self):
        """What was done so far to packets of both ways, by kind; of CM_LOSS by way."""
        if not self.name:
            return {}
        shown = self.guest.run("; echo =; ".join(f"tc -s filter show dev eth0 {way}" for way in WAYS)
                               + "".join(f"; echo =; tc -s qdisc show dev {name}" for name in WAYS.values()
                                         if self.name != CM_LOSS)).split("=\n")
        filters = [figures(text) for text in shown[:2]]
        if self.name == CM_LOSS:
            return {"lost in": filters[0]["dropped"], "lost out": filters[1]["dropped"]}
        queues = [figures(text) for text in shown[2:]]
        left = sum(queue["sent"] + queue["dropped"] + queue["waiting"] for queue in queues)
        return {"lost": sum(queue["dropped"] for queue in queues),
                "doubled": left - sum(one["sent"] for one in filters), "late": self.order.late if self.order else 0}

    def missing(self, before):
        """What has not happened since `before`, which counts() said, though it should."""
        if not self.name:
            return []
        now = self.counts()
        return [kind for kind in self.wanted() if now[kind] <= before[kind]]

    def happened(self, before):
        now = self.counts()
        return any(now[kind] > before[kind] for kind in now)

    def close(self):
        if self.order:
            self.order.close()
