#!/usr/bin/env python3
"""The proxy does what it is told: what it is used for in the other tests is shown here on plain sockets."""
import os
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from cluster import PATIENCE_S, main, wait_for  # noqa: E402
from proxy import Proxy  # noqa: E402


class Echo:
    """Sends back what comes; notes how each connection ended."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.ends = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client:
            try:
                while True:
                    data = client.recv(65536)
                    if not data:
                        self.ends.append("end")
                        return
                    client.sendall(data)
            except OSError:
                self.ends.append("reset")


class ProxyTest(unittest.TestCase):
    def setUp(self):
        self.echo = Echo()
        self.addCleanup(self.echo.listener.close)
        self.proxy = Proxy(self.echo.address)
        self.addCleanup(self.proxy.close)

    def connect(self):
        client = socket.create_connection(("127.0.0.1", self.proxy.port), timeout=PATIENCE_S)
        self.addCleanup(client.close)
        return client

    def receive(self, client, count):
        data = b""
        while len(data) < count:
            piece = client.recv(count - len(data))
            if not piece:
                break
            data += piece
        return data

    def echoes(self, client, data=b"hello"):
        client.sendall(data)
        self.assertEqual(self.receive(client, len(data)), data)

    def silent(self, client, seconds=0.2):
        client.settimeout(seconds)
        with self.assertRaises(TimeoutError):
            client.recv(1)
        client.settimeout(PATIENCE_S)

    def test_bytes_and_ends_pass_both_ways_and_are_counted(self):
        client = self.connect()
        data = os.urandom(3 << 20)
        threading.Thread(target=client.sendall, args=(data,), daemon=True).start()
        self.assertEqual(self.receive(client, len(data)), data)
        self.assertEqual(self.proxy.passed, {"up": len(data), "down": len(data)})
        client.shutdown(socket.SHUT_WR)
        self.assertEqual(client.recv(1), b"")
        self.assertEqual(self.echo.ends, ["end"])
        wait_for(lambda: self.proxy.live() == 0)

    def test_delay_and_throttle_take_their_time(self):
        client = self.connect()
        self.proxy.delay(0.1)
        began = time.monotonic()
        self.echoes(client)
        self.assertGreaterEqual(time.monotonic() - began, 0.2)
        self.proxy.resume()
        self.proxy.throttle(100_000)
        began = time.monotonic()
        self.echoes(client, bytes(30_000))
        self.assertGreaterEqual(time.monotonic() - began, 0.25)

    def test_a_hole_swallows_nothing_and_lets_all_through_afterwards(self):
        client = self.connect()
        self.echoes(client)
        self.proxy.hold()
        client.sendall(b"later")
        other = self.connect()
        other.sendall(b"also")
        self.silent(client)
        self.silent(other)
        self.proxy.resume()
        self.assertEqual(self.receive(client, 5), b"later")
        self.assertEqual(self.receive(other, 4), b"also")

    def test_a_hole_opens_at_the_byte(self):
        client = self.connect()
        self.proxy.hold_after(10)
        client.sendall(b"0123456789later")
        wait_for(lambda: self.proxy.passed["up"] == 10, what="the bytes before it")
        self.silent(client)
        self.assertEqual(self.proxy.passed, {"up": 10, "down": 0})
        self.proxy.release()
        self.assertEqual(self.receive(client, 15), b"0123456789later")

    def test_held_connects_leave_the_others_alone(self):
        client = self.connect()
        self.echoes(client)
        self.proxy.hold_connects()
        other = self.connect()
        other.sendall(b"x")
        self.silent(other)
        self.echoes(client)
        self.proxy.resume()
        self.assertEqual(self.receive(other, 1), b"x")

    def test_refused_until_resumed_on_the_same_port(self):
        client = self.connect()
        self.echoes(client)
        self.proxy.refuse()
        with self.assertRaises(ConnectionRefusedError):
            self.connect()
        self.echoes(client)
        self.proxy.resume()
        self.echoes(self.connect())

    def test_the_kth_connection_is_cut(self):
        self.echoes(self.connect())
        self.proxy.cut_connection(2)
        self.echoes(self.connect())
        with self.assertRaises(ConnectionResetError):
            self.echoes(self.connect())
        self.echoes(self.connect())

    def test_a_connection_is_cut_at_the_byte(self):
        client = self.connect()
        self.proxy.cut_after(10, "down")
        client.sendall(bytes(25))
        data = b""
        with self.assertRaises(ConnectionResetError):
            while True:
                data += client.recv(1)
        self.assertLessEqual(len(data), 10)
        self.assertEqual(self.proxy.passed["down"], 10)
        wait_for(lambda: self.echo.ends == ["reset"])
        self.echoes(self.connect())

    def test_a_cut_while_bytes_come_the_other_way_stops_that_connection_alone(self):
        for _ in range(20):
            client = self.connect()
            sender = threading.Thread(target=self.send_without_end, args=(client,), daemon=True)
            sender.start()
            self.proxy.cut_after(1_000_000, "up")
            self.read_to_the_end(client)
            sender.join()
        self.echoes(self.connect())

    @staticmethod
    def read_to_the_end(client):
        """Whichever thread looks first is told of a reset."""
        try:
            while client.recv(65536):
                pass
        except OSError:
            pass

    @staticmethod
    def send_without_end(client):
        try:
            while True:
                client.sendall(bytes(65536))
        except OSError:
            pass

    def test_reset_reaches_both_ends(self):
        client = self.connect()
        self.echoes(client)
        self.proxy.reset()
        with self.assertRaises(ConnectionResetError):
            client.recv(1)
        wait_for(lambda: self.echo.ends == ["reset"])

    def test_a_silent_drop_tells_nobody(self):
        client = self.connect()
        self.echoes(client)
        self.proxy.drop_silently()
        client.sendall(b"lost")
        self.silent(client)
        client.close()
        other = self.connect()
        self.echoes(other)
        self.assertEqual(self.echo.ends, [])
        self.assertEqual(self.proxy.live(), 1)
        self.assertEqual(self.proxy.half_open(), 1)  # the other end keeps it


if __name__ == "__main__":
    main()
