"""rdmacm-utils: every example program of librdmacm, each in both of its roles."""
import hashlib
import os
import re

from model import Evidence, Failed, Row, above, absent, line, proof, wire

GROUP = "rdmacm-utils"
PACKAGES = ["rdmacm-utils"]
PING = "rdma-ping-"
HANDSHAKE = 5 * 256  # bytes: REQ, REP, RTU, DREQ and DREP, each a management datagram


def pair(name, server, client, checks, **more):
    return Row(name, [server, client], checks, ready=more.pop("ready", "cm"), **more)


def rping(name, options, count, size=None, address="127.0.0.1", listen=True, persistent=False, **more):
    """With -v the client prints what came back, with -V it compares it with what it sent."""
    server = f"rping -s {'-a ' + address + ' ' if listen else ''}{options} -C {count}"
    client = f"rping -c -a {address} {options} -C {count} -v"
    checks = [line(rf"^ping data: {PING}{count - 1}: ")]
    if size:
        checks += [wire(2 * count * size), proof("rping compares the data (-V)")]
    if persistent:  # -P: the server serves one client after the other, until it is stopped
        client, more = client.replace(" -P", ""), dict(more, servers_end=False)
    return pair(name, server, client, checks, **more)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def rcopy(size, address="127.0.0.1"):
    def body(stage):
        source = os.path.join(stage.folder, "source")
        target = os.path.join(stage.folder, "copied")
        with open(source, "wb") as file:
            file.write(os.urandom(size))
        server = stage.start("rcopy")
        stage.ready("cm", server, 1)
        client = stage.run(f"rcopy {source} {address}:{target}")
        server.stop()
        if not os.path.exists(target) or digest(source) != digest(target):
            raise Failed(f"the copy differs\n{client.text}\n{server.text()}")
        return Evidence([server.output(), client], size)
    return body


def number(options, name):
    return int(re.search(rf"{name} (\d+)", options).group(1))


def stream(program, options, times=1, address="127.0.0.1", quick=False, server="", **more):
    """Prints name, size, transfers, iterations, total, time, Gb/s and microseconds per transfer."""
    checks = [above(r"^\w+ +\d\S* +.*s +[0-9.]+ +([0-9.]+)$", "usec/xfer", times=times)]
    if " -S " in f" {options}":
        checks.append(wire(2 * number(options, "-S") * number(options, "-C")))
    if "-T v" in options:
        checks.append(proof("the program compares every byte (-T v)"))
    return pair(f"{program} {options} {server}".strip(), f"{program} {options} {server}".strip(),
                f"{program} {options} -s {address}",
                checks, quick=quick, **more)


def datagrams(options, quick=False):
    """Left alone, the server takes the first of its addresses, which is ::1. With -T e the client waits for
    ever once an echo took more than 1 ms: the late one overwrites the number that it waits for."""
    checks = [above(r"^\w+ +\d\S* +([0-9.]+).*s +[0-9.]+ +[0-9.]+$", "transfers"),
              wire(number(options, "-S") * number(options, "-C"))]
    return pair(f"udpong {options}", f"udpong -b 127.0.0.1 {options}", f"udpong -s 127.0.0.1 {options}",
                checks, quick=quick, servers_end=False, timeout_s=20)


def exchange(program, options="", client_options=None, address="127.0.0.1", quick=False, **more):
    """ucmatose, udaddy and mckey end with the sum of their errors."""
    client = f"{program} -s {address} {options if client_options is None else client_options}"
    return pair(f"{program} {options}".strip(), f"{program} {options}".strip(), client.strip(),
                [line("return status 0"), line("return status 0", where=0),
                 line("data transfers complete")], quick=quick, **more)


def multicast(options, quick=False, group="239.77.0.1", here="10.77.0.1"):
    """The receiver must be in the group before the sender sends, who alone may be in it for sending only."""
    both = "" if options in ("-o", "over IPv6") else options
    common = f"mckey -m {group} {both}".strip()
    only = " -o" if options == "-o" else ""
    return Row(f"mckey {options}".strip(), [f"{common} -b {here}", f"{common} -s{only} -b {here}"],
               [line("return status 0"), line("return status 0", where=0),
                line("data transfers complete", where=0), line("joined dgid", where=0)],
               ready="member", quick=quick, timeout_s=20)


def xrc(kind, quick=False):
    return pair(f"rdma_xserver, rdma_xclient -c {kind}", f"rdma_xserver -c {kind}",
                f"rdma_xclient -s 127.0.0.1 -c {kind}",
                [line("rdma_xclient: end 0"), line("rdma_xserver: end 0", where=0)],
                quick=quick, timeout_s=20)


ROWS = [
    rping("rping", "", 10, quick=True, valgrind=True),
    rping("rping over IPv6", "", 10, address="::1", quick=True),
    rping("rping, server on every address", "", 10, listen=False),
    rping("rping -q", "-q", 10, valgrind=True), rping("rping -p 9000", "-p 9000 -V -S 100", 10, 100),
    rping("rping -P", "-P", 10, persistent=True),
    rping("rping -V -S 65535", "-V -S 65535", 100, 65535, quick=True),
    rping("rping -V -S 100, 1000 times", "-V -S 100", 1000, 100),
    rping("rping -V -S 100", "-V -S 100", 10, 100, valgrind=True),
    rping("rping between interfaces", "-V -S 1000", 100, 1000, address="10.77.0.1"),
    exchange("ucmatose", quick=True), exchange("ucmatose", "-c 10 -C 50 -S 5000"),
    exchange("ucmatose", "-m -c 4"), exchange("ucmatose", "-c 100 -C 5"),
    exchange("ucmatose", "-t 32 -a 14"), exchange("ucmatose", "-P ib"), exchange("ucmatose", "-b 127.0.0.1"),
    exchange("ucmatose", "-f ip -b 10.77.0.1", "-f ip", address="10.77.0.1"),
    exchange("ucmatose", "-b ::1", "", address="::1"),
    exchange("udaddy", quick=True), exchange("udaddy", "-c 5 -C 20 -S 1000"), exchange("udaddy", "-p 0x0002"),
    multicast("", quick=True), multicast("-C 50 -S 1000"), multicast("-c 3"), multicast("-o"),
    multicast("over IPv6", group="ff0e::77:1", here="fd77::1"),
    Row("rcopy, 1 MiB", ["rcopy", "rcopy FILE 127.0.0.1:COPY"], [proof("SHA-256 of source and copy")],
        body=rcopy(1 << 20), quick=True, programs=["rcopy"]),
    Row("rcopy, 64 MiB", ["rcopy", "rcopy FILE 127.0.0.1:COPY"], [proof("SHA-256 of source and copy")],
        body=rcopy(64 << 20), programs=["rcopy"]),
    Row("rcopy, one byte", ["rcopy", "rcopy FILE 127.0.0.1:COPY"], [proof("SHA-256 of source and copy")],
        body=rcopy(1), programs=["rcopy"]),
    stream("rstream", "-T v -S 4096 -C 100", quick=True), stream("rstream", "-I 10 -C 100"),
    stream("rstream", "-T b -T v -S 65536 -C 100"), stream("rstream", "-T a -T v -S 65536 -C 100"),
    stream("rstream", "-T n -T v -S 65536 -C 100"), stream("rstream", "-T r -T v -S 4096 -C 100"),
    stream("rstream", "-i 0 -T v -S 64 -C 100"), stream("rstream", "-B 4096 -T v -S 65536 -C 20"),
    stream("rstream", "-f ip -T v -S 4096 -C 100"),
    stream("rstream", "-T v -S 4096 -C 100", address="::1", server="-b ::1"),
    stream("riostream", "-T v -S 4096 -C 100", quick=True), stream("riostream", "-T b -T v -S 65536 -C 100"),
    stream("riostream", "-T a -T v -S 65536 -C 100"), stream("riostream", "-I 10 -C 100"),
    pair("rdma_server, rdma_client", "rdma_server", "rdma_client -s 127.0.0.1",
         [line("rdma_client: end 0"), line("rdma_server: end 0", where=0)], quick=True),
    xrc("r"), xrc("x", quick=True),
    datagrams("-S 1000 -C 1000", quick=True),
    datagrams("-T e -S 1000 -C 20"),
    datagrams("-T b -S 64 -C 1000"),
    pair("cmtime", "cmtime -c 100", "cmtime -s 127.0.0.1 -c 100",
         [above(r"^connect +: +([0-9.]+)", "connect time"), above(r"^disconnect +: +([0-9.]+)",
                                                                    "disconnect time"),
          wire(100 * HANDSHAKE), absent("error|fail", text="no error")],
         servers_end=False, quick=True),
]
