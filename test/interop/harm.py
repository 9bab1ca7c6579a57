"""What goes wrong on the link, in the guest, both ways; and the proof that it did.

Here: rules of tc(8) for RoCE packets alone, and their counters. Not here: who asks for it (lab.py), what a cell makes
of the proof (row.py).
Invariant: what `Harm.counts` says was done to RoCE packets since the rules were set."""
import re

from watch import PORT, UDP, Watch

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
                  f" match u8 17 0xff at {protocol} match u16 {PORT} 0xffff at {port} action mirred egress redirect dev {name}"
                  for version, (protocol, port) in UDP.items()]
    return rules


def figures(text):
    """Of all rules or queues that tc shows, in packets."""
    return {name: sum(int(number) for number in re.findall(pattern, text)) for name, pattern in (
        ("sent", r"Sent \d+ bytes (\d+) pkt"), ("dropped", r"pkt \(dropped (\d+)"), ("waiting", r"backlog \S+ (\d+)p"))}


class Harm:
    """`name`: one of IMPAIRMENTS, CM_LOSS, or nothing for a good link."""

    def __init__(self, guest, interface, name, link_mtu):
        self.guest, self.name, self.watch = guest, name, None
        guest.run(REMOVED)
        if name == CM_LOSS:
            guest.run(" && ".join(cm_loss_rules()))
        elif name:
            guest.run(" && ".join(netem_rules(IMPAIRMENTS[name][0], link_mtu)))
        if name:
            self.watch = Watch(interface)

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
                "doubled": left - sum(one["sent"] for one in filters), "late": self.watch.order.late}

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
        if self.watch:
            self.watch.close()
