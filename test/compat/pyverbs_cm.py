#!/usr/bin/env python3
"""Two processes that meet by rdma_cm, all by pyverbs: messages both ways, compared by the client.

Usage: pyverbs_cm.py ADDRESS            the server; it echoes COUNT messages
       pyverbs_cm.py -c ADDRESS         the client; prints "checked COUNT echoes" """
import hashlib
import sys

import pyverbs.cm_enums as ce
from pyverbs.cmid import AddrInfo, CMID
from pyverbs.qp import QPCap, QPInitAttr

PORT = "18700"
COUNT = 100
SIZE = 4000


def limits():
    return QPInitAttr(cap=QPCap(max_send_wr=4, max_recv_wr=4))


def message(number):
    return (hashlib.sha256(str(number).encode()).digest() * (SIZE // 32 + 1))[:SIZE]


def serve(address):
    listener = CMID(creator=AddrInfo(src=address, src_service=PORT, port_space=ce.RDMA_PS_TCP,
                                     flags=ce.RAI_PASSIVE), qp_init_attr=limits())
    listener.listen()
    child = listener.get_request()
    memory = child.reg_msgs(SIZE)
    child.post_recv(memory)
    child.accept()
    for number in range(COUNT):
        child.get_recv_comp()
        if memory.read(SIZE, 0) != message(number):
            sys.exit(f"message {number} arrived wrong")
        if number + 1 < COUNT:
            child.post_recv(memory)
        child.post_send(memory)
        child.get_send_comp()
    child.disconnect()
    print("served")


def ask(address):
    client = CMID(creator=AddrInfo(dst=address, dst_service=PORT, port_space=ce.RDMA_PS_TCP),
                  qp_init_attr=limits())
    out, back = client.reg_msgs(SIZE), client.reg_msgs(SIZE)
    client.post_recv(back)
    client.connect()
    for number in range(COUNT):
        out.write(message(number), SIZE)
        client.post_send(out)
        client.get_send_comp()
        client.get_recv_comp()
        if back.read(SIZE, 0) != message(number):
            sys.exit(f"echo {number} came back wrong")
        if number + 1 < COUNT:
            client.post_recv(back)
    client.disconnect()
    print(f"checked {COUNT} echoes")


if __name__ == "__main__":
    ask(sys.argv[2]) if sys.argv[1] == "-c" else serve(sys.argv[1])
