"""The programs of rdmacm-utils: connected by the communication manager."""
from model import line
from row import Row

GROUP = "rdma_cm"


def rping(options, count, size, **more):
    """Each round is a SEND, a READ, a SEND, a WRITE; with -V the client compares what comes back."""
    return Row(f"rping {options}", f"rping -s -a {{own}} {options} -C {count}",
               f"rping -c -a {{address}} {options} -C {count} -v",
               [line(rf"^ping data: rdma-ping-{count - 1}: ")], wire=2 * count * size, **more)


ROWS = [
    rping("-V -S 1000", 20, 1000),
    rping("-V -S 65535", 5, 65535),
]
