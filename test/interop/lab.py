"""The network between the host's RNIC and the guest's: a tap, addresses, MTU, and what is made to go wrong.

This code lives in namespaces that run.py made, as their process 1: when it ends, for whatever reason, the
kernel removes guest, programs, tap and namespaces. Not here: what is run on both ends (row.py).
Invariant: after `configure` both ends have the MTU and the addresses that are asked for, and the guest's GIDs
are known."""
import ipaddress
import os
import re
import subprocess
import tempfile

import guest as guest_module
import harm
import image
from model import Failed

HOST = {4: "10.77.0.1", 6: "fd77::1"}
GUEST = {4: "10.77.0.2", 6: "fd77::2"}
PREFIX = {4: 24, 6: 64}
GROUP = {4: "239.77.0.1", 6: "ff0e::77:1"}  # for multicast
TAP = "interop0"
TAP_MAC = "52:54:00:77:00:01"

# A link's MTU for a RoCE MTU: rxe and rdma_cm take the largest that fits. IPv6 demands 1,280 of every link.
LINK_MTU = {256: 400, 1024: 1500, 4096: 4500}
IPV6_LEAST = 1280


def ip(*words):
    done = subprocess.run(["ip", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failed(f"ip {' '.join(words)}: {done.stdout.strip()}")


def has_ipv6(link_mtu):
    return link_mtu >= IPV6_LEAST


class Lab:
    def __init__(self, build, image_folder, accelerator):
        self.build, self.image, self.wanted = build, image_folder, accelerator
        self.folder = tempfile.mkdtemp(prefix="weir-interop.", dir="/tmp")
        self.guest, self.link_mtu, self.harm = None, None, None
        self.guest_gids, self.host_gids = {}, {}

    # --- start

    def start(self):
        if not os.path.exists("/dev/net/tun"):
            raise Failed("there is no /dev/net/tun: the guest cannot be given an interface")
        ip("link", "set", "lo", "up")
        ip("link", "set", "lo", "multicast", "on")
        ip("tuntap", "add", TAP, "mode", "tap")
        ip("link", "set", TAP, "address", TAP_MAC)
        with open(f"/proc/sys/net/ipv6/conf/{TAP}/accept_dad", "w") as file:
            file.write("0")
        ip("link", "set", TAP, "up")
        self.boot()

    def accelerators(self):
        """KVM is tried once: where it opens but does not carry a stock kernel, the cache remembers."""
        if self.wanted != "auto":
            return [self.wanted]
        refused = os.path.exists(f"{self.image}/kvm-refused")
        return ["kvm", "tcg"] if os.access("/dev/kvm", os.W_OK) and not refused else ["tcg"]

    def boot(self):
        own = image.of_this_build(self.build)
        if self.harm:
            self.harm.close()
        choices = self.accelerators()
        for accelerator in choices:
            try:
                self.guest = guest_module.Guest(self.image, own, TAP, accelerator, self.folder)
                break
            except guest_module.Died as failure:
                if accelerator == choices[-1]:
                    raise
                with open(f"{self.image}/kvm-refused", "w") as file:
                    file.write(str(failure))
        self.link_mtu, self.harm = None, None

    def alive(self):
        return self.guest is not None and not self.guest.dead

    def leave_guest(self):
        """What has failed may have left something behind that others would fail by: the next cell gets a new guest."""
        if self.guest:
            self.guest.close()

    def close(self):
        if self.harm:
            self.harm.close()
        if self.guest:
            self.guest.close()
        subprocess.run(["rm", "-rf", self.folder])

    # --- the link

    def configure(self, link_mtu, impairment):
        """Boots again if the guest has died; else only what differs is done."""
        if not self.alive():
            self.guest.close()
            self.boot()
        if link_mtu != self.link_mtu:
            self.set_mtu(link_mtu)
        if self.harm is None or impairment != self.harm.name:
            self.set_harm(impairment)

    def set_harm(self, name):
        if self.harm:
            self.harm.close()
        self.harm = harm.Harm(self.guest, TAP, name, self.link_mtu)

    def set_mtu(self, mtu):
        """Below IPv6's least MTU the kernel takes the IPv6 addresses away, so all are set anew."""
        families = [4, 6] if has_ipv6(mtu) else [4]
        ip("link", "set", TAP, "mtu", str(mtu))
        ip("addr", "flush", "dev", TAP, "scope", "global")
        script = ["set -e", f"ip link set eth0 mtu {mtu}", "ip addr flush dev eth0 scope global"]
        for family in families:
            ip("addr", "add", f"{HOST[family]}/{PREFIX[family]}", "dev", TAP, *(["nodad"] if family == 6 else []))
            script.append(f"ip addr add {GUEST[family]}/{PREFIX[family]} dev eth0" + (" nodad" if family == 6 else ""))
            # Who is asked for an address first gets a second for it from the kernel's RDMA, which the guest may need.
            script.append(f"ip neigh replace {HOST[family]} lladdr {TAP_MAC} nud permanent dev eth0")
            ip("neigh", "replace", GUEST[family], "lladdr", guest_module.MAC, "nud", "permanent", "dev", TAP)
        script.append("cd /sys/class/infiniband/rxe0/ports/1/gids; grep -v 0000:0000:0000:0000$ *")
        text = self.guest.run("\n".join(script))
        self.guest_gids = {family: gid_index(text, GUEST[family]) for family in families}
        self.host_gids = {family: gid_index(self.host_gid_table(), HOST[family]) for family in families}
        self.link_mtu = mtu

    def host_gid_table(self):
        """As sysfs has it: an index and a GID in each line."""
        done = subprocess.run([f"{self.build}/weir", "run", "ibv_devinfo", "-v"], stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, WEIR_LIBRARY_DIR=f"{self.build}/dropin"))
        table = re.findall(r"GID\[ *(\d+)\]:\s+([0-9a-f:.]+)", done.stdout)
        return "\n".join(f"{number} {packed(gid)}" for number, gid in table)

    def rxe_repetitions(self):
        """How often the guest's queue pairs have sent anew."""
        return int(self.guest.run("cat /sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err"))

    def bytes_carried(self):
        """Both ways, as the host's end of the link counted them."""
        with open("/proc/net/dev") as file:
            fields = next(line for line in file if line.split(":")[0].strip() == TAP).split(":")[1].split()
        return int(fields[0]) + int(fields[8])


def packed(address):
    """An address as sysfs writes a GID."""
    value = ipaddress.ip_address(address)
    if value.version == 4:
        value = ipaddress.ip_address(f"::ffff:{address}")
    return value.exploded


def gid_index(text, address):
    for number, gid in re.findall(r"^(\d+)[: ]([0-9a-f:]{39})$", text, re.MULTILINE):
        if gid == packed(address):
            return int(number)
    raise Failed(f"there is no GID for {address}:\n{text}")
