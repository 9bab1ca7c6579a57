"""RoCEv2 packets of an Ethernet recording, read and checked from the specification alone: nothing here comes from our
C code, so that both would have to be wrong in the same way.

ICRC [RoCEv2 annex A17.3.3]: the Ethernet's CRC-32 (zlib's), little-endian, over eight bytes of ones, the IP header, the
UDP header, the BTH and the rest. As ones count what may change on the way: TOS, TTL, header checksum; traffic class, flow
label, hop limit; the UDP checksum; the BTH's fifth byte."""
import collections
import struct
import zlib

SERVICES = {0: "RC", 1: "UC", 3: "UD", 4: "CNP", 5: "XRC"}
FORMS = ["SEND_FIRST", "SEND_MIDDLE", "SEND_LAST", "SEND_LAST_IMMEDIATE", "SEND_ONLY", "SEND_ONLY_IMMEDIATE", "WRITE_FIRST",
         "WRITE_MIDDLE", "WRITE_LAST", "WRITE_LAST_IMMEDIATE", "WRITE_ONLY", "WRITE_ONLY_IMMEDIATE", "READ_REQUEST",
         "READ_RESPONSE_FIRST", "READ_RESPONSE_MIDDLE", "READ_RESPONSE_LAST", "READ_RESPONSE_ONLY", "ACKNOWLEDGE",
         "ATOMIC_ACKNOWLEDGE", "COMPARE_SWAP", "FETCH_ADD"]
CM_KINDS = {0x10: "REQ", 0x11: "MRA", 0x12: "REJ", 0x13: "REP", 0x14: "RTU", 0x15: "DREQ", 0x16: "DREP"}

Packet = collections.namedtuple("Packet", "number version source destination identification length opcode name qpn psn")


class Wrong(Exception):
    pass


def frames(path):
    """The frames of a pcap file."""
    data = open(path, "rb").read()
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">"}[data[:4]]
    at = 24
    while at < len(data):
        kept, whole = struct.unpack_from(order + "II", data, at + 8)
        if kept != whole:
            raise Wrong("a frame was cut")
        yield data[at + 16:at + 16 + kept]
        at += 16 + kept


def sum16(data):
    """Ones' complement sum; 0xffff over what holds its own right checksum. [RFC 1071]"""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def icrc(ip, header_length):
    masked = bytearray(ip[:-4])
    for at in (1, 8, 10, 11) if ip[0] >> 4 == 4 else (1, 2, 3, 7):
        masked[at] = 0xff
    if ip[0] >> 4 == 6:
        masked[0] |= 0x0f
    udp = header_length
    masked[udp + 6] = masked[udp + 7] = masked[udp + 8 + 4] = 0xff
    return zlib.crc32(b"\xff" * 8 + masked)


def check_ip(ip):
    """Length of the IP header, and the pseudo header of UDP's checksum."""
    if ip[0] >> 4 == 4:
        length, fragment = struct.unpack_from(">H2xH", ip, 2)
        if ip[0] != 0x45 or length != len(ip):
            raise Wrong(f"IPv4 length {length} of {len(ip)} bytes")
        if sum16(ip[:20]) != 0xffff:
            raise Wrong("IPv4 header checksum")
        if fragment != 0x4000:
            raise Wrong(f"IPv4 fragment field {fragment:#x}: not DF alone")
        return 20, ip[12:20]
    length = struct.unpack_from(">H", ip, 4)[0]
    if length + 40 != len(ip):
        raise Wrong(f"IPv6 length {length} of {len(ip) - 40} bytes")
    return 40, ip[8:40]


def opcode_name(opcode, udp):
    service, form = SERVICES.get(opcode >> 5), opcode & 31
    if service is None or (form >= len(FORMS) and form not in (22, 23)):
        raise Wrong(f"opcode {opcode:#x}")
    if service == "UD" and int.from_bytes(udp[13:16], "big") == 1:
        return "CM " + CM_KINDS.get(struct.unpack_from(">H", udp, 8 + 12 + 8 + 16)[0], "?")
    return f"{service} {FORMS[form] if form < len(FORMS) else 'SEND_INVALIDATE'}"


def read(frame, number, mtu):
    """A checked packet; None where it is not RoCEv2."""
    ip = frame[14:]
    ethertype = struct.unpack_from(">H", frame, 12)[0]
    if ethertype not in (0x0800, 0x86dd) or ip[9 if ethertype == 0x0800 else 6] != 17:
        return None
    header, addresses = check_ip(ip)
    udp = ip[header:]
    _, port, length, checksum = struct.unpack_from(">HHHH", udp)
    if port != 4791:
        return None
    if length != len(udp):
        raise Wrong(f"UDP length {length} of {len(udp)} bytes")
    if len(ip) > mtu:
        raise Wrong(f"{len(ip)} bytes where the MTU is {mtu}")
    if icrc(ip, header) != int.from_bytes(udp[-4:], "little"):
        raise Wrong(f"ICRC is {udp[-4:].hex()}, should be {icrc(ip, header).to_bytes(4, 'little').hex()}")
    if checksum != 0 and sum16(addresses + struct.pack(">HH", 17, length) + udp) != 0xffff:
        raise Wrong("UDP checksum")
    if udp[9] & 15 != 0 or udp[12] & 63 != 0 or udp[16] & 127 != 0:
        raise Wrong("reserved bits of the BTH, or its version")
    identification = struct.unpack_from(">H", ip, 4)[0] if header == 20 else 0
    return Packet(number, ip[0] >> 4, addresses[:len(addresses) // 2], addresses[len(addresses) // 2:], identification,
                  len(ip), udp[8], opcode_name(udp[8], udp), int.from_bytes(udp[13:16], "big"),
                  int.from_bytes(udp[17:20], "big"))


def packets(path, mtu=65535):
    """All RoCEv2 packets, and what is wrong with others as text."""
    good, wrong = [], []
    for number, frame in enumerate(frames(path), 1):
        try:
            packet = read(frame, number, mtu)
            good += [packet] if packet else []
        except Wrong as error:
            wrong.append(f"frame {number}: {error}")
    return good, wrong
