#!/usr/bin/env python3
"""Looks at RoCEv2 packets as they stand on the wire.

check_capture.py check FILE KEY=VALUE...    each packet of a pcap file: ICRC, lengths, DF, and what is asked:
    class=N hop=N label=N port=N            traffic class, hop limit, flow label, UDP source port of SENDs and WRITEs
    counts=1|0                              IPv4 identifications of data packets count up inside a segmented send, or are all 0
    least=N                                 at least so many data packets
check_capture.py offload INTERFACE tx 0|1    switches an offload, as ethtool -K does
"""
import fcntl
import os
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "captures"))
import wire

ROCE_PORT = 4791
DATA = [*range(12), 0x64]  # RC SEND and WRITE, UD SEND
SIOCETHTOOL = 0x8946
OFFLOADS = {"tx": 0x17}


def offload(interface, name, value):
    data = bytearray(struct.pack("II", OFFLOADS[name], int(value)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        import ctypes
        buffer = (ctypes.c_char * len(data)).from_buffer(data)
        request = struct.pack("16sP", interface.encode(), ctypes.addressof(buffer))
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)


def parse(frame):
    """A RoCEv2 packet's fields, or None."""
    kind = struct.unpack("!H", frame[12:14])[0]
    ip = frame[14:]
    packet = {}
    if kind == 0x0800 and ip[9] == 17:
        header, rest = ip[:20], ip[20:struct.unpack("!H", ip[2:4])[0]]
        packet["id"], fragment = struct.unpack("!HH", ip[4:8])
        packet.update({"class": ip[1], "hop": ip[8], "df": fragment == 0x4000})
    elif kind == 0x86dd and ip[6] == 17:
        header, rest = ip[:40], ip[40:40 + struct.unpack("!H", ip[4:6])[0]]
        word = struct.unpack("!I", ip[:4])[0]
        packet.update({"class": word >> 20 & 255, "label": word & 0xfffff, "hop": ip[7], "df": True})
    else:
        return None
    packet["port"], destination, length, _ = struct.unpack("!HHHH", rest[:8])
    if destination != ROCE_PORT:
        return None
    assert length == len(rest), "UDP length %d of %d bytes" % (length, len(rest))
    bth = rest[8:]
    packet["opcode"] = bth[0]
    packet["psn"] = struct.unpack("!I", bth[8:12])[0] & 0xffffff
    packet["bytes"] = len(header) + len(rest)
    packet["icrc"] = struct.unpack("<I", bth[-4:])[0] == wire.icrc(header + rest, len(header))
    return packet


def check(path, wishes):
    wanted = dict(wish.split("=") for wish in wishes)
    least, counts = int(wanted.pop("least", 1)), wanted.pop("counts", None)
    wanted = {name: int(value, 0) for name, value in wanted.items()}
    packets = [packet for frame in wire.frames(path) if (packet := parse(frame)) is not None]
    data = [packet for packet in packets if packet["opcode"] in DATA]
    wrong = [packet for packet in packets if not packet["icrc"] or not packet["df"]]
    wrong += [packet for packet in data if any(packet.get(name) != value for name, value in wanted.items())]
    assert not wrong, "%d of %d packets are wrong, the first: %s" % (len(wrong), len(packets), wrong[0])
    assert len(data) >= least, "%d packets of data only" % len(data)
    ids = [packet.get("id", 0) for packet in data]
    if counts == "1":
        steps = sum(after == before + 1 for before, after in zip(ids, ids[1:]))
        assert max(ids) < 64 and steps > len(ids) / 2, "identifications do not count up: %s" % ids[:80]
    elif counts == "0":
        assert not any(ids), "identifications are not 0: %s" % ids[:80]
    print("%d packets, %d of data, up to %d bytes: ICRC and DF right" %
          (len(packets), len(data), max(packet["bytes"] for packet in packets)))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    {"check": lambda: check(sys.argv[2], sys.argv[3:]), "offload": lambda: offload(*sys.argv[2:5])}[sys.argv[1]]()
