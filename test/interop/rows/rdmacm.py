"""The programs of rdmacm-utils: connected by the communication manager."""
from harm import CM_LOSS
from model import above, line
from row import Row

GROUP = "rdma_cm"


def rping(options, count, size, **more):
    """Each round is a SEND, a READ, a SEND, a WRITE; with -V the client compares what comes back."""
    return Row(f"rping {options}", f"rping -s -a {{own}} {options} -C {count}",
               f"rping -c -a {{address}} {options} -C {count} -v",
               [line(rf"^ping data: rdma-ping-{count - 1}: ")], wire=2 * count * size, **more)


def exchange(program, options="", wire=1000, **more):
    """ucmatose and udaddy end with the sum of their errors."""
    common = f"{program} -b {{own}} {options}".strip()
    return Row(f"{program} {options}".strip(), common, f"{common} -s {{address}}",
               [line("return status 0"), line("return status 0", where=0), line("data transfers complete")],
               wire=wire, **more)


def stream(program, options, **more):
    """rsockets. Prints name, size, transfers, iterations, total, time, Gb/s and microseconds per transfer."""
    return Row(f"{program} {options}", f"{program} {options} -b {{own}}", f"{program} {options} -s {{address}}",
               [above(r"^\w+ +\d\S* +.*s +[0-9.]+ +([0-9.]+)$", "usec/xfer")], **more)


def multicast(options="", **more):
    """The receiver must be in the group before the sender sends. Over IPv6 the kernel's
    rdma_cm refuses to join (cma_iboe_join_multicast: ENOTSUPP for RoCEv2)."""
    common = f"mckey {options} -b {{own}} -m {{group}}"
    return Row(f"mckey {options}".strip(), common, f"{common} -s",
               [line("return status 0"), line("return status 0", where=0), line("data transfers complete", where=0),
                line("joined dgid", where=0)], ready="member", families=(4,), **more)


# Each of these costs seconds; together they meet each IP version and role.
HARMED = {"loss": (4,), "reorder": (6,), "duplicate": (4,), "everything": (4, 6)}

ROWS = [
    rping("-V -S 1000", 20, 1000),
    rping("-V -S 65535", 5, 65535),
    rping("-q -V -S 23", 10, 23),
    exchange("ucmatose", "-S 100 -C 10"),
    exchange("ucmatose", "-c 10 -C 20 -S 5001", wire=2 * 10 * 20 * 5001),
    exchange("udaddy", "-S 100 -C 10"),
    exchange("udaddy", "-c 3 -C 20 -S 201"),
    multicast(), multicast("-C 30 -S 200", mtus=(1024,), short=0),
    stream("rstream", "-T v -S 4096 -C 20", wire=20 * 4096),
    stream("rstream", "-T v -S 65536 -C 5", wire=5 * 65536, mtus=(1024,), short=0),
    stream("riostream", "-T v -S 4096 -C 20", wire=20 * 4096),
    *[rping("-V -S 4000", 20, 4000, impairment=name, timeout_s=90, mtus=(1024,), short=1)
      for name in ("loss", "reorder", "duplicate", "everything")],
    *[exchange("ucmatose", "-c 3 -C 10 -S 5001", wire=2 * 3 * 10 * 5001, impairment=name, timeout_s=90, mtus=(1024,),
               families=families, short=1 if name == "everything" else 0) for name, families in HARMED.items()],
    *[stream("rstream", "-T v -S 4096 -C 20", wire=20 * 4096, impairment=name, timeout_s=90, mtus=(1024,),
             families=families, short=1 if name == "everything" else 0) for name, families in HARMED.items()],
    # Over datagrams: nobody repeats a message, only the request for the service.
    *[exchange("udaddy", "-S 100 -C 15", impairment=name, unreliable=True, timeout_s=60, mtus=(1024,), families=families,
               short=1 if name == "duplicate" else 0) for name, families in HARMED.items() if name != "everything"],
    # The client ends at once after its DREQ, which is lost half of the times.
    rping("-V -S 100", 2, 100, impairment=CM_LOSS, timeout_s=60, mtus=(1024,), short=1),
]
