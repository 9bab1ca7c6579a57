"""What arrives at the host's end of the link from the guest, packet by packet.

Here: packets that are late, and connections that nobody ended. Not here: what harms them (harm.py), what a cell makes
of it (row.py).
Invariant: only RoCE packets of the guest's are looked at, each once and in the order of their arrival."""
import socket
import threading

PORT = 4791
UDP = {"ip": (9, 22), "ipv6": (6, 42)}  # where the protocol stands, and the destination port
ETH_P_ALL, PACKET_OUTGOING = 3, 4
UD_SEND_ONLY, CM_QP = 100, 1
# Attributes of the CM's messages: a connection is asked for, ended, and ended because the other end has asked for that.
REQ, DREQ, DREP = 0x10, 0x15, 0x16


def base_header(frame):
    """From the BTH on; None of what is no RoCE packet."""
    header = 20 if frame[12:14] == b"\x08\x00" else 40
    protocol, port = UDP["ip" if header == 20 else "ipv6"]
    bth = frame[14 + header + 8:]
    if frame[12:14] not in (b"\x08\x00", b"\x86\xdd") or len(bth) < 12 or frame[14 + protocol] != 17 \
            or frame[14 + port:16 + port] != PORT.to_bytes(2, "big"):
        return None
    return bth


class Order:
    """Counts the packets that come behind a later one of their queue pair."""

    def __init__(self):
        self.late, self.highest = 0, {}

    def see(self, bth):
        is_response = 13 <= bth[0] & 31 <= 18 and bth[0] >> 5 in (0, 5)  # its numbers are those of the requester
        flow, psn = (bth[5:8], is_response), int.from_bytes(bth[9:12], "big")
        ahead = (psn - self.highest.get(flow, psn)) % (1 << 24)
        if ahead < 1 << 23:
            self.highest[flow] = psn
        else:
            self.late += 1


class Goodbyes:
    """Of the connections that the guest has asked for since `begin`: those of whose end it has said nothing. (Of
    ucmatose's the server asks for that.)"""

    def __init__(self):
        self.begin()

    def begin(self):
        self.asked, self.ended = set(), set()

    def see(self, bth):
        mad = bth[20:]  # behind the DETH; its data, which begin with the sender's communication ID, behind 24 bytes
        if bth[0] == UD_SEND_ONLY and int.from_bytes(bth[5:8], "big") == CM_QP and len(mad) >= 28:
            seen = {REQ: self.asked, DREQ: self.ended, DREP: self.ended}.get(int.from_bytes(mad[16:18], "big"))
            if seen is not None:
                seen.add(mad[24:28])

    def missing(self):
        return self.asked - self.ended


class Watch:
    def __init__(self, interface):
        self.order, self.goodbyes = Order(), Goodbyes()
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.bind((interface, 0))
        self.socket.settimeout(0.2)
        self.closed = False
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.closed:
            try:
                frame, source = self.socket.recvfrom(1 << 16)
            except TimeoutError:
                continue
            bth = base_header(frame)
            if source[2] != PACKET_OUTGOING and bth:
                self.order.see(bth)
                self.goodbyes.see(bth)

    def close(self):
        self.closed = True
        self.thread.join()
        self.socket.close()
