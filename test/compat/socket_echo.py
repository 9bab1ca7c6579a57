#!/usr/bin/env python3
"""Plain TCP sockets, nothing of RDMA: an echo server and its client. Under librspreload they are rsockets.

Usage: socket_echo.py ADDRESS | socket_echo.py -c ADDRESS | socket_echo.py -t ADDRESS. The client sends
4 MiB, in turns with receiving (-c) or from a second thread (-t), and prints the digest of what came back
beside that of what it sent."""
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


def receive(connection, length):
    found = b""
    while len(found) < length:
        piece = connection.recv(65536)
        if not piece:
            break
        found += piece
    return found


def ask(address, threaded):
    data = bytes(range(256)) * (SIZE // 256)
    found = b""
    with socket.create_connection((address, PORT)) as connection:
        if threaded:
            sender = threading.Thread(target=connection.sendall, args=(data,))
            sender.start()
            found = receive(connection, SIZE)
            sender.join()
        else:
            for first in range(0, SIZE, 32768):
                connection.sendall(data[first:first + 32768])
                found += receive(connection, 32768)
    print("sent", hashlib.sha256(data).hexdigest())
    print("came back", hashlib.sha256(found).hexdigest())
    return 0 if found == data else 1


if __name__ == "__main__":
    if sys.argv[1] in ("-c", "-t"):
        sys.exit(ask(sys.argv[2], sys.argv[1] == "-t"))
    serve(sys.argv[1])
