"""The end of a wire in a name space, at which frames are sent and taken."""

import ctypes
import os
import select
import socket
import time


class Wire:
    def __init__(self, namespace, interface):
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/self/ns/net") as before, open("/run/netns/" + namespace) as there:
            assert libc.setns(there.fileno(), 0x40000000) == 0, os.strerror(ctypes.get_errno())
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            self.socket.bind((interface, 0))
            assert libc.setns(before.fileno(), 0x40000000) == 0

    def send(self, frame):
        self.socket.send(frame)

    def take(self, end):
        """The next frame that has come, or comes until then by the monotonic clock."""
        while select.select([self.socket], [], [], max(0, end - time.monotonic()))[0]:
            frame, (_, _, way, *_) = self.socket.recvfrom(65535)
            if way != socket.PACKET_OUTGOING:
                return frame
        return None
