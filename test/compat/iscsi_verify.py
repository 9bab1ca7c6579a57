#!/usr/bin/env python3
"""Writes to an iSCSI unit by libiscsi and reads it back, and compares digests.

Usage: iscsi_verify.py URL SEED. Prints the SHA-256 of what was written and read. The library is Debian's
libiscsi.so.7 by its public functions; this file is only its caller."""
import ctypes
import hashlib
import random
import sys

BLOCK = 512
CHUNK = 128  # blocks per command
TOTAL = 4096  # blocks


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Url(ctypes.Structure):  # the head of struct iscsi_url
    _fields_ = [("portal", ctypes.c_char * 256), ("target", ctypes.c_char * 256)]


def library():
    lib = ctypes.CDLL("libiscsi.so.7")
    pointers = ("iscsi_create_context", "iscsi_parse_full_url", "iscsi_write10_sync",
                "iscsi_read10_iov_sync")
    for name in pointers:
        getattr(lib, name).restype = ctypes.c_void_p
    lib.iscsi_get_error.restype = ctypes.c_char_p
    return lib


def require(lib, context, right, what):
    if not right:
        sys.exit(f"{what}: {lib.iscsi_get_error(context).decode(errors='replace')}")


def status(task):
    return ctypes.cast(task, ctypes.POINTER(ctypes.c_int))[0]


def write_all(lib, context, lun, data):
    for first in range(0, TOTAL, CHUNK):
        piece = data[first * BLOCK:(first + CHUNK) * BLOCK]
        task = lib.iscsi_write10_sync(context, lun, first, piece, len(piece), BLOCK, 0, 0, 0, 0, 0)
        require(lib, context, task and status(task) == 0, f"write of block {first}")
        lib.scsi_free_scsi_task(ctypes.c_void_p(task))


def read_all(lib, context, lun):
    found = b""
    for first in range(0, TOTAL, CHUNK):
        buffer = ctypes.create_string_buffer(CHUNK * BLOCK)
        vector = Vector(ctypes.addressof(buffer), len(buffer))
        task = lib.iscsi_read10_iov_sync(context, lun, first, len(buffer), BLOCK, 0, 0, 0, 0, 0,
                                         ctypes.byref(vector), 1)
        require(lib, context, task and status(task) == 0, f"read of block {first}")
        lib.scsi_free_scsi_task(ctypes.c_void_p(task))
        found += buffer.raw
    return found


def main():
    url, seed = sys.argv[1], int(sys.argv[2])
    lib = library()
    context = ctypes.c_void_p(lib.iscsi_create_context(b"iqn.2026-01.org.weir:client"))
    parsed = lib.iscsi_parse_full_url(context, url.encode())
    require(lib, context, parsed, "parse")
    head = ctypes.cast(parsed, ctypes.POINTER(Url)).contents
    lib.iscsi_set_session_type(context, 2)  # normal
    lib.iscsi_set_targetname(context, head.target)
    lun = int(url.split("?")[0].rsplit("/", 1)[1])
    require(lib, context, lib.iscsi_full_connect_sync(context, head.portal, lun) == 0, "connect")
    data = random.Random(seed).randbytes(TOTAL * BLOCK)
    write_all(lib, context, lun, data)
    found = read_all(lib, context, lun)
    print("written", hashlib.sha256(data).hexdigest())
    print("read", hashlib.sha256(found).hexdigest())
    lib.iscsi_logout_sync(context)
    lib.iscsi_destroy_context(context)
    return 0 if data == found else 1


if __name__ == "__main__":
    sys.exit(main())
