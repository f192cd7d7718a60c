"""A TCP connection between a client and a server that a test can end like a machine that fails: with a reset, or with
silence while everything looks open."""
import socket
import struct
import threading


class Relay:
    """One listening port in front of `target`; any number of connections."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.sockets = []
        self.silent = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.target)
            self.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source, sink):
        try:
            while True:
                data = source.recv(65536)
                if self.silent.is_set():
                    return  # taken, and never heard of again
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
        except OSError:
            pass

    def reset(self):
        """RST to both."""
        for one in self.sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()

    def fall_silent(self):
        self.silent.set()

    def close(self):
        self.listener.close()
        for one in self.sockets:
            one.close()
