#!/usr/bin/env python3
"""A live engine under fire: server.c, its honest clients (client.c) and an attacker (attack.c).

usage: hostile.py BUILD_DIR [--packets N] [--seed S] [--keep DIR]

Two hosts made of namespaces. Every packet that was sent must be accounted for: taken by the engine,
refused by it under a reason, or lost in the kernel under a counter. The server's memory is watched;
that it writes nowhere it may not is for the server to say, that it leaks nothing for the sanitizer
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
              "UdpInCsumErrors", "Ip6InHdrErrors", "Ip6InAddrErrors", "Ip6InDiscards",
              "Udp6NoPorts", "Udp6InCsumErrors")
    result = {name: values.get(name, 0) for name in wanted if values.get(name, 0) != 0}
    for line in open(f"/proc/{pid}/net/dev"):
        if line.strip().startswith(INTERFACE + ":"):
            dropped = int(line.split(":")[1].split()[3])
    if dropped:
        result["rx_dropped"] = dropped
    return result


INTERFACE = "weir0"


def statistics(path):
    values = {}
    for line in open(path):
        if not line.startswith("#"):
            name, value = line.split()
            values[name] = values.get(name, 0) + int(value)
    return values


def account(shots, client, server, lost, kernel):
    """sent = accepted + refused by reason + lost"""
    honest = client["udp_packets_sent"]
    received = server["udp_packets_received"] + server.get("udp_truncated", 0)
    missing = lost + sum(kernel.values())
    refused = {name[8:]: value for name, value in server.items() if name.startswith("refused_")}
    accepted = received - sum(refused.values()) - server.get("udp_truncated", 0)
    print(f"account: {shots} shots + {honest} honest packets = {accepted} accepted"
          f" + {sum(refused.values())} refused + {missing} lost in the kernel"
          f" + {shots + honest - received - missing} unaccounted for")
    for name, value in sorted(refused.items(), key=lambda item: -item[1]):
        print(f"account: {value:10} refused: {name}")
    for name, value in kernel.items():
        print(f"account: {value:10} lost: {name}")
    print(f"account: {lost:10} lost: full sockets")
    # An honest sender's segments are one datagram to a full socket's counter.
    unaccounted = shots + honest - received - missing
    if unaccounted < 0 or unaccounted > lost * 63:
        fail(f"{unaccounted} packets are not accounted for")
    by_link = sum(refused.get(reason, 0) for reason in ("icrc", "identification", "broadcast"))
    short = server["udp_packets_received"] - server["packets_received"] - by_link
    if not 0 <= short <= refused.get("truncated", 0):
        fail(f"{short} packets came in by the link, were not refused there, and reached no device")
    if sum(refused.values()) == 0 or accepted <= 0:
        fail("nothing was refused, or nothing accepted: this was no attack")
    return accepted


def outside_world():
    subprocess.check_call("""set -e
        far ip addr add 10.78.0.3/24 dev weir0
        far ip addr add fd78::3/64 dev weir0 nodad
        for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f 2>/dev/null || true; done
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


def run(build, packets, seed, folder):
    programs = build / "test" / "hostile"
    outside_world()
    environment = dict(os.environ, WEIR_STATISTICS=str(folder / "server.statistics"))
    server = subprocess.Popen([programs / "hostile_server"], env=environment,
                              stdout=subprocess.PIPE, text=True)
    wait_for(server, "server: ready")
    environment["WEIR_STATISTICS"] = str(folder / "client.statistics")
    client = subprocess.Popen(["far", programs / "hostile_client"], env=environment,
                              stdout=subprocess.PIPE, text=True)
    wait_for(client, "client: ready")
    before = most = resident(server.pid)
    begun = time.monotonic()
    attack = subprocess.Popen(["far", programs / "hostile_attack", INTERFACE, str(server.pid),
                               str(seed), str(packets), folder / "trace"],
                              stdout=subprocess.PIPE, text=True)
    while attack.poll() is None and server.poll() is None:
        time.sleep(0.2)
        most = max(most, resident(server.pid) if server.poll() is None else 0)
    if server.poll() is not None:
        attack.kill()
        fail(f"the server died: status {server.returncode}")
    shots = attack.communicate()[0]
    took = time.monotonic() - begun
    print(shots, end="")
    if attack.returncode != 0:
        fail(f"the attacker ended with {attack.returncode}")
    quiet = time.monotonic() + 30
    while server.poll() is None and sockets(server.pid)[0] > 0 and time.monotonic() < quiet:
        time.sleep(0.1)
    time.sleep(1)  # clients go on for a moment in peace; nothing hangs on how long
    client.send_signal(signal.SIGTERM)
    print(client.communicate(timeout=200)[0], end="")
    if client.returncode != 0:
        fail(f"an honest client was wronged: status {client.returncode}")
    if server.poll() is not None:
        return
    flooded = flood(programs, environment, seed)
    quiet = time.monotonic() + 30
    while sockets(server.pid)[0] > 0 and time.monotonic() < quiet:
        time.sleep(0.1)
    lost, kernel = sockets(server.pid)[1], refused_by_kernel(server.pid)
    most = max(most, resident(server.pid))
    server.send_signal(signal.SIGTERM)
    print(server.communicate(timeout=200)[0], end="")
    if server.returncode != 0:
        fail(f"the server ended with {server.returncode}")
    to_port = int(shots.splitlines()[-1].split()[1]) + flooded
    account(to_port, statistics(folder / "client.statistics"),
            statistics(folder / "server.statistics"), lost, kernel)
    sanitized = b"__asan_init" in (programs / "hostile_server").read_bytes()
    print(f"memory: {before >> 20} MiB resident before, {most >> 20} MiB at most;"
          f" {packets / took:.0f} shots/s; seed {seed}; {'sanitized' if sanitized else 'plain'}")
    if most - before > (GROWTH_SANITIZED if sanitized else GROWTH_MAX):
        fail("the server's memory grew without bound")


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
