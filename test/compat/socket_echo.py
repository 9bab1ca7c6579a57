#!/usr/bin/env python3
"""Plain TCP sockets, nothing of RDMA: an echo server and its client. Under librspreload they are rsockets.

Usage: socket_echo.py ADDRESS | socket_echo.py -c ADDRESS. The client sends 4 MiB and prints the digest of
what came back beside that of what it sent."""
import ctypes
import hashlib
import socket
import sys
import threading

PORT = 18800
SIZE = 4 << 20


def serve(address):
    with socket.create_server((address, PORT)) as listener:
        # Python's own accept is accept4, which librspreload does not take over.
        accepted = ctypes.CDLL(None).accept(listener.fileno(), None, None)
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, accepted)
    with connection:
        while piece := connection.recv(65536):
            connection.sendall(piece)


def ask(address):
    data = bytes(range(256)) * (SIZE // 256)
    with socket.create_connection((address, PORT)) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        found = b""
        while len(found) < SIZE:
            piece = connection.recv(65536)
            if not piece:
                break
            found += piece
        sender.join()
    print("sent", hashlib.sha256(data).hexdigest())
    print("came back", hashlib.sha256(found).hexdigest())
    return 0 if found == data else 1


if __name__ == "__main__":
    sys.exit(ask(sys.argv[2]) if sys.argv[1] == "-c" else serve(sys.argv[1]))
