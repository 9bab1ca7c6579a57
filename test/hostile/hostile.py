#!/usr/bin/env python3
"""Live engines under fire: server.c, two of it behind one address, their honest clients (client.c) and an attacker
(attack.c). RC, UC, UD and XRC, memory windows, groups and broadcasts.

usage: hostile.py BUILD_DIR [--packets N] [--seed S] [--keep DIR]

Two hosts made of namespaces. Every packet that was sent must be accounted for: taken by the engine,
refused by it under a reason, or lost in the kernel under a counter; of what is for several, the kernel
makes a copy for each. The servers' memory is watched; that it writes nowhere it may not is for the server to say, that it leaks nothing for the sanitizer
it is built with. Exit status 77: namespaces are not allowed here.
"""
import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
GROWTH_MAX = 96 << 20  # resident bytes, once everybody is connected; sanitizers keep freed memory
GROWTH_SANITIZED = 640 << 20
FLOOD_S = 5
CONNECT_MAX_MS = 60000  # of an honest client, while requests flood in and after; a lost REQ is repeated after 4 s


def fail(text):
    print("FAILED:", text)
    fail.count += 1


fail.count = 0


def wait_for(process, line):  # the programs have patience of their own, and end without it
    for text in process.stdout:
        print(text, end="")
        if text.strip() == line:
            return
    sys.exit(f"{line}: never said; status {process.wait()}")


def resident(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def sockets(pid):
    """Bytes that wait and datagrams lost, of the sockets of the RoCE port."""
    waiting = lost = 0
    for name in ("udp", "udp6"):
        for line in open(f"/proc/{pid}/net/{name}"):
            fields = line.split()
            if fields[1].endswith(":12B7"):
                waiting += int(fields[4].split(":")[1], 16)
                lost += int(fields[12])
    return waiting, lost


def handed_on():
    """Bytes that one of the processes has handed to the other, which has not read them yet."""
    listing = subprocess.run(["ss", "--unix", "--all", "--no-header"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return sum(int(line.split()[2]) for line in listing.splitlines())


def refused_by_kernel(pid):
    """Datagrams that the kernel refused or lost before a socket had them, by counter."""
    values = {}
    lines = open(f"/proc/{pid}/net/snmp").read().splitlines()
    for names, numbers in zip(lines[::2], lines[1::2]):
        kind = names.split(":")[0]
        values.update({kind + name: int(number)
                       for name, number in zip(names.split()[1:], numbers.split()[1:])})
    for line in open(f"/proc/{pid}/net/snmp6"):
        name, number = line.split()
        values[name] = int(number)
    wanted = ("IpInHdrErrors", "IpInAddrErrors", "IpInDiscards", "IpReasmFails", "UdpNoPorts",
              "UdpInCsumErrors", "UdpIgnoredMulti", "Udp6IgnoredMulti", "Ip6InHdrErrors", "Ip6InAddrErrors", "Ip6InDiscards",
              "Udp6NoPorts", "Udp6InCsumErrors")
    result = {name: values.get(name, 0) for name in wanted if values.get(name, 0) != 0}
    for line in open(f"/proc/{pid}/net/dev"):
        if line.strip().startswith(INTERFACE + ":"):
            dropped = int(line.split(":")[1].split()[3])
    if dropped:
        result["rx_dropped"] = dropped
    return result


INTERFACE = "weir0"


def statistics(paths):
    values = {}
    for path in paths:
        for line in open(path):
            if not line.startswith("#"):
                name, value = line.split()
                values[name] = values.get(name, 0) + int(value)
    return values


def copies(said, members):
    """What the kernel makes of packets for several: each of the processes gets its own."""
    line = next(line for line in said.splitlines() if "to the group of both" in line)
    broadcast, both, first, nobody = (int(word) for word in line.split() if word.isdigit())
    for name, count in (("broadcast", broadcast), ("to both", both), ("to one", first), ("to nobody", nobody)):
        if count == 0:
            fail(f"no shot was {name}")
    return broadcast + both + members


def account(sent, client, server, lost, kernel):
    """sent = accepted + refused by reason + lost. `sent`: (shots, copies of packets for several)."""
    honest, (shots, copied) = client["udp_packets_sent"], sent
    received = server["udp_packets_received"] + server.get("udp_truncated", 0)
    missing = lost + sum(kernel.values())
    refused = {name[8:]: value for name, value in server.items() if name.startswith("refused_")}
    # Between the two processes: handed on, copied for the other because nobody can tell whose it is, lost on that way.
    told, dropped = server.get("registry_copied_packets", 0), server.get("registry_handoff_packets_dropped", 0)
    accepted = received + told - dropped - sum(refused.values()) - server.get("udp_truncated", 0)
    unaccounted = shots + copied + honest - received - missing
    print(f"account: {shots} shots + {copied} second copies + {honest} honest packets + {told} told to the other process"
          f" = {accepted} accepted + {sum(refused.values())} refused + {server.get('udp_truncated', 0)} cut off"
          f" + {missing} lost in the kernel + {dropped} lost between processes + {unaccounted} unaccounted for")
    for name, value in sorted(refused.items(), key=lambda item: -item[1]):
        print(f"account: {value:10} refused: {name}")
    for name, value in kernel.items():
        print(f"account: {value:10} lost: {name}")
    print(f"account: {lost:10} lost: full sockets")
    # An honest sender's segments are one datagram to a full socket's counter.
    if unaccounted < 0 or unaccounted > lost * 63:
        fail(f"{unaccounted} packets are not accounted for")
    by_link = sum(refused.get(reason, 0) for reason in ("icrc", "identification", "broadcast"))
    by_device = server["packets_received"] - server.get("same_host_packets_received", 0)
    short = server["udp_packets_received"] + told - dropped - by_device - by_link
    if not 0 <= short <= refused.get("truncated", 0):
        fail(f"{short} packets came in by the link, were not refused there, and reached no device")
    for reason in ("broadcast", "qkey", "psn", "address", "icrc", "identification"):
        if refused.get(reason, 0) == 0:
            fail(f"nothing was refused for its {reason}: this was no attack")
    if accepted <= 0 or told == 0:
        fail("nothing was accepted, or the processes told each other nothing")


def outside_world():
    subprocess.check_call("""set -e
        far ip addr add 10.78.0.3/24 dev weir0
        far ip addr add 10.78.0.4/24 dev weir0
        far ip addr add fd78::3/64 dev weir0 nodad
        far ip addr add fd78::4/64 dev weir0 nodad
        for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f 2>/dev/null || true; done
        far ip route add 239.78.0.0/16 dev weir0
        ip route add default via 10.78.0.2
        ip -6 route add default via fd78::2""", shell=True)


def flood(programs, environment, seed):
    """Connection requests of many sources, as fast as they can be sent: the honest get in. How many."""
    attack = subprocess.Popen(["far", programs / "hostile_attack", "--flood", INTERFACE, str(FLOOD_S), str(seed)],
                              stdout=subprocess.PIPE, text=True)
    visitor = subprocess.Popen(["far", programs / "hostile_client", "visitor"], env=environment,
                               stdout=subprocess.PIPE, text=True)
    shots = attack.communicate()[0]
    if attack.returncode != 0:
        fail(f"the flood ended with {attack.returncode}")
    wait_for(visitor, "client: connected")
    visitor.send_signal(signal.SIGTERM)
    said = visitor.communicate(timeout=200)[0]
    print(said, end="")
    words = said.splitlines()[-1].split()
    requests, connections, slowest = int(shots.splitlines()[-1].split()[1]), int(words[1]), int(words[-2])
    print(f"flood: {requests / FLOOD_S:.0f} requests/s for {FLOOD_S} s; an honest client connected {connections} times"
          f" meanwhile, at the slowest in {slowest} ms")
    if visitor.returncode != 0 or slowest > CONNECT_MAX_MS:
        fail(f"an honest client had to wait {slowest} ms")
    return requests


class Server:
    """One of two processes behind the address; its ports are `after` those of message.h."""

    def __init__(self, programs, folder, name, after):
        self.name, self.statistics = name, folder / f"{name}.statistics"
        self.process = subprocess.Popen([programs / "hostile_server", str(after)], stdout=subprocess.PIPE, text=True,
                                        env=dict(os.environ, WEIR_STATISTICS=str(self.statistics)))
        self.pid = self.process.pid
        wait_for(self.process, "server: ready")
        self.before = self.most = 0

    def lives(self):
        return self.process.poll() is None

    def look(self):
        if self.lives():
            self.most = max(self.most, resident(self.pid))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        print(self.process.communicate(timeout=200)[0], end="")
        if self.process.returncode != 0:
            fail(f"the {self.name} ended with {self.process.returncode}")

    def judge_memory(self, bound):
        print(f"memory: {self.name}: {self.before >> 20} MiB resident before, {self.most >> 20} MiB at most")
        if self.most - self.before > bound:
            fail(f"the memory of the {self.name} grew without bound")


def settle(servers):
    """Until their sockets are empty."""
    quiet = time.monotonic() + 30
    while all(server.lives() for server in servers) and sockets(servers[0].pid)[0] + handed_on() > 0 and time.monotonic() < quiet:
        time.sleep(0.1)
    time.sleep(0.2)  # what they have taken, and what waits to be handed on, which is dropped soon


def attack(programs, servers, arguments):
    """What the attacker said; None: a server has died."""
    attacker = subprocess.Popen(["far", programs / "hostile_attack", INTERFACE, str(servers[0].pid), *arguments],
                                stdout=subprocess.PIPE, text=True)
    while attacker.poll() is None and all(server.lives() for server in servers):
        time.sleep(0.2)
        for server in servers:
            server.look()
    for server in servers:
        if not server.lives():
            attacker.kill()
            fail(f"the {server.name} died: status {server.process.returncode}")
    said = attacker.communicate()[0]
    print(said, end="")
    if attacker.returncode != 0:
        fail(f"the attacker ended with {attacker.returncode}")
    return said if all(server.lives() for server in servers) else None


def exchanges(said, name):
    """Of an honest client, as it says at its end."""
    line = next(line for line in said.splitlines() if line.startswith(f"client: {name} "))
    return int(line[len(f"client: {name} "):].split()[0])


def run(build, packets, seed, folder):
    programs = build / "test" / "hostile"
    outside_world()
    servers = [Server(programs, folder, "server", 0), Server(programs, folder, "neighbour", 10)]
    environment = dict(os.environ, WEIR_STATISTICS=str(folder / "client.statistics"))
    client = subprocess.Popen(["far", programs / "hostile_client"], env=environment,
                              stdout=subprocess.PIPE, text=True)
    wait_for(client, "client: ready")
    for server in servers:
        server.before = resident(server.pid)
    begun = time.monotonic()
    shots = attack(programs, servers, [str(seed), str(packets), folder / "trace"])
    took = time.monotonic() - begun
    settle(servers)
    time.sleep(1)  # clients go on for a moment in peace; nothing hangs on how long
    client.send_signal(signal.SIGTERM)
    said = client.communicate(timeout=200)[0]
    print(said, end="")
    if client.returncode != 0:
        fail(f"an honest client was wronged: status {client.returncode}")
    if shots is None:
        return
    flooded = flood(programs, environment, seed)
    settle(servers)
    lost, kernel = sockets(servers[0].pid)[1], refused_by_kernel(servers[0].pid)
    for server in servers:
        server.look()
        server.end()
    to_port = int(shots.splitlines()[-1].split()[1]) + flooded
    account((to_port, copies(shots, exchanges(said, "exposed group"))), statistics([folder / "client.statistics"]),
            statistics([server.statistics for server in servers]), lost, kernel)
    sanitized = b"__asan_init" in (programs / "hostile_server").read_bytes()
    print(f"{packets / took:.0f} shots/s; seed {seed}; {'sanitized' if sanitized else 'plain'}")
    for server in servers:
        server.judge_memory(GROWTH_SANITIZED if sanitized else GROWTH_MAX)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--packets", type=int, default=200000)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("WEIR_SEED", "1")))
    parser.add_argument("--keep", type=pathlib.Path, help="where trace and statistics stay")
    arguments = parser.parse_args()
    if os.environ.get("WEIR_HOSTILE") != "inside":
        os.environ["WEIR_HOSTILE"] = "inside"
        os.execv(HERE.parent / "namespaces.sh", ["namespaces.sh", "--mtu", "9000", sys.executable,
                                                 *sys.argv])
    folder = arguments.keep or pathlib.Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.statistics"):  # reports are appended
        old.unlink()
    try:
        run(arguments.build.resolve(), arguments.packets, arguments.seed, folder)
    finally:
        if not arguments.keep and fail.count == 0:
            shutil.rmtree(folder)
        elif fail.count:
            print(f"the trace is in {folder}; BUILD/test/hostile/hostile_attack --print SEED TRACE NUMBER"
                  " shows a packet of it")
    print("hostile:", "FAILED" if fail.count else "all held")
    sys.exit(1 if fail.count else 0)


if __name__ == "__main__":
    main()
