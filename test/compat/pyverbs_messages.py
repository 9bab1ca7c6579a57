#!/usr/bin/env python3
"""Two processes, one RC connection, all by pyverbs: SEND, WRITE, READ and atomics with checked results.

Usage: pyverbs_messages.py            the server; it ends with its one client
       pyverbs_messages.py HOST       the client; prints "checked NAME" for each operation

The two meet by TCP and tell each other queue pair, GID, memory key and address as one line of JSON."""
import hashlib
import json
import socket
import sys

from pyverbs import enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SendWR, SGE

PORT = 18600
SIZE = 1 << 20
RIGHTS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ |
          e.IBV_ACCESS_REMOTE_ATOMIC)


class End:
    def __init__(self, stream):
        self.stream = stream
        self.context = Context(name="weir0")
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        self.mr = MR(self.pd, SIZE, RIGHTS)
        capacity = QPCap(max_send_wr=16, max_recv_wr=16)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=capacity))
        self.peer = None

    def tell(self, what):
        self.stream.write(json.dumps(what) + "\n")
        self.stream.flush()

    def hear(self):
        return json.loads(self.stream.readline())

    def connect(self):
        self.tell({"qpn": self.qp.qp_num, "gid": str(self.context.query_gid(1, 0)),
                   "rkey": self.mr.rkey, "address": self.mr.buf})
        self.peer = self.hear()
        route = GlobalRoute(dgid=GID(self.peer["gid"]), sgid_index=0)
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = RIGHTS
        attributes.dest_qp_num = self.peer["qpn"]
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 14, 7, 7
        attributes.min_rnr_timer = 12
        attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        self.qp.to_rts(attributes)

    def sge(self, length, offset=0):
        return SGE(self.mr.buf + offset, length, self.mr.lkey)

    def receive(self, length):
        self.qp.post_recv(RecvWR(sg=[self.sge(length)], num_sge=1))

    def send(self, opcode, length, offset=0, compare=0, add=0):
        work = SendWR(opcode=opcode, num_sge=1, sg=[self.sge(length, offset)])
        if opcode in (e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ):
            work.set_wr_rdma(self.peer["rkey"], self.peer["address"])
        elif opcode != e.IBV_WR_SEND:
            work.set_wr_atomic(self.peer["rkey"], self.peer["address"], compare, add)
        self.qp.post_send(work)
        return self.complete()

    def complete(self):
        while True:
            count, completions = self.cq.poll(1)
            if count:
                if completions[0].status != e.IBV_WC_SUCCESS:
                    sys.exit(f"a completion with status {completions[0].status}")
                return completions[0]


def pattern(seed, length):
    return (hashlib.sha256(bytes([seed])).digest() * (length // 32 + 1))[:length]


def require(right, what):
    if not right:
        sys.exit(f"wrong: {what}")


def serve():
    with socket.create_server(("", PORT)) as listener:
        stream = listener.accept()[0].makefile("rw")
    end = End(stream)
    end.connect()
    end.receive(SIZE)
    end.tell("ready")
    message = end.complete()
    require(message.byte_len == 100000, "length of the message")
    require(end.mr.read(100000, 0) == pattern(1, 100000), "bytes of the message")
    end.tell("message")
    require(end.hear() == "written", "order")
    require(end.mr.read(SIZE, 0) == pattern(2, SIZE), "bytes written")
    end.mr.write(pattern(3, SIZE), SIZE)
    end.tell("changed")
    require(end.hear() == "read", "order")
    end.mr.write((40).to_bytes(8, "little"), 8)
    end.tell("counter")
    require(end.hear() == "added", "order")
    require(int.from_bytes(end.mr.read(8, 0), "little") == 99, "the counter in the end")
    end.tell("done")
    print("checked by the server")


def ask(host):
    end = End(socket.create_connection((host, PORT)).makefile("rw"))
    end.connect()
    require(end.hear() == "ready", "order")
    end.mr.write(pattern(1, 100000), 100000)
    end.send(e.IBV_WR_SEND, 100000)
    require(end.hear() == "message", "order")
    print("checked SEND")
    end.mr.write(pattern(2, SIZE), SIZE)
    end.send(e.IBV_WR_RDMA_WRITE, SIZE)
    end.tell("written")
    require(end.hear() == "changed", "order")
    print("checked WRITE")
    end.send(e.IBV_WR_RDMA_READ, SIZE)
    require(end.mr.read(SIZE, 0) == pattern(3, SIZE), "bytes read")
    end.tell("read")
    require(end.hear() == "counter", "order")
    print("checked READ")
    end.send(e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8, compare=2)
    require(int.from_bytes(end.mr.read(8, 0), "little") == 40, "the counter before it was added to")
    end.send(e.IBV_WR_ATOMIC_CMP_AND_SWP, 8, compare=42, add=99)
    require(int.from_bytes(end.mr.read(8, 0), "little") == 42, "the counter before it was swapped")
    end.tell("added")
    require(end.hear() == "done", "order")
    print("checked atomics")


if __name__ == "__main__":
    serve() if len(sys.argv) == 1 else ask(sys.argv[1])
