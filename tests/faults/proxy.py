"""A TCP proxy whose link fails as told. One thread per proxy; every method may be called from any other.

    link = Proxy("127.0.0.1:7000")
    link.throttle(50_000); link.hold(); link.resume(); link.reset(); link.cut_after(4096)

"up" is from whoever connects to the target, "down" the way back. Python's standard library only.
"""
import collections
import selectors
import socket
import struct
import threading
import time

READ_BYTES = 64 << 10
BUFFER_BYTES = 256 << 10


class Flow:
    """One direction of a connection."""

    def __init__(self, source, sink, way):
        self.source, self.sink, self.way = source, sink, way
        self.chunks = collections.deque()  # (when it may go on, bytes)
        self.waiting = 0
        self.next_send = 0.0  # not before, when throttled
        self.ended = False    # the source will send no more
        self.closed = False   # and the sink was told


class Connection:
    def __init__(self, client, number):
        self.client, self.number = client, number
        self.server = None  # None until the target was asked
        self.flows = ()
        self.dead = False   # nothing passes any more, not even an end


class Proxy:
    """Listens at once, on a port of its own. A context manager; close() ends it and all connections."""

    def __init__(self, target=None):
        self.target = target
        self._lock = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._listener = self._listen(0)
        self.port = self._listener.getsockname()[1]
        self._connections = set()
        self._running = True
        self._rules_off()
        self.accepted = 0                      # connections so far
        self._passed = {"up": 0, "down": 0}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def passed(self):
        """Bytes so far by way: all that anybody has received."""
        with self._lock:  # held while bytes are sent and counted
            return dict(self._passed)

    # --- What goes wrong. Each stays in force until resume().

    def delay(self, seconds):
        """Every byte arrives so much later."""
        self._set(_delay=seconds)

    def throttle(self, bytes_per_s):
        """Each direction of each connection."""
        self._set(_rate=bytes_per_s)

    def hold(self):
        """A black hole: connections are taken, nothing passes. Nothing is lost either: resume() lets it all through."""
        self._set(_held=True)

    def hold_after(self, count, way="up"):
        """hold() once so many more bytes have passed that way. Returns what `passed` is then."""
        with self._lock:
            self._hold_after[way] = self._passed[way] + count
            return self._hold_after[way]

    def release(self):
        """Ends what hold() and hold_after() began; other rules stay."""
        self._set(_held=False, _hold_after={})

    def hold_connects(self):
        """New connections are taken and go no further; those there are work on."""
        self._set(_connects_held=True)

    def refuse(self):
        """New connections are refused; those there are work on."""
        with self._lock:
            if self._listener is not None:
                self._selector.unregister(self._listener)
                self._listener.close()
                self._listener = None

    def cut_connection(self, k=1):
        """The k-th connection from now on is reset as soon as it is made."""
        self._set(_cut_connection=self.accepted + k)

    def cut_after(self, count, way="up"):
        """After so many more bytes that way the connection that carried the last of them is reset."""
        with self._lock:
            self._cut_after[way] = self._passed[way] + count

    def resume(self):
        """No rule is in force any more; connections that live go on."""
        with self._lock:
            self._rules_off()
            if self._listener is None:
                self._listener = self._listen(self.port)
        self._wake()

    # --- What happens once, to the connections of now.

    def reset(self):
        """RST to both ends."""
        with self._lock:
            for connection in list(self._connections):
                self._cut(connection)

    def drop_silently(self):
        """Both ends keep a connection from which nothing ever comes again, not even an end: as when a host vanishes or
        a firewall forgets. New connections are not affected."""
        with self._lock:
            for connection in self._connections:
                connection.dead = True
        self._wake()

    def live(self):
        """Connections that are not over."""
        with self._lock:
            return sum(not connection.dead for connection in self._connections)

    def half_open(self):
        """Silently dropped connections that one of the ends still keeps."""
        with self._lock:
            return sum(connection.dead and not all(flow.ended for flow in connection.flows)
                       for connection in self._connections)

    def close(self):
        with self._lock:
            self._running = False
        self._wake()
        self._thread.join()
        self.reset()
        self.refuse()
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()

    # --- Inner workings. Everything below holds the lock, but for the wait in _run.

    def _rules_off(self):
        self._delay = 0
        self._rate = None
        self._held = self._connects_held = False
        self._cut_connection = None
        self._cut_after, self._hold_after = {}, {}

    def _set(self, **rules):
        with self._lock:
            for name, value in rules.items():
                setattr(self, name, value)
        self._wake()

    def _wake(self):
        self._wake_write.send(b"x")

    def _listen(self, port):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(256)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        return listener

    def _run(self):
        while True:
            with self._lock:
                if not self._running:
                    return
                timeout = self._prepare()
            ready = self._selector.select(timeout)
            with self._lock:
                if self._running:
                    self._turn(ready)

    def _prepare(self):
        """What each socket is watched for; returns how long to wait."""
        now = time.monotonic()
        waits = []
        for connection in list(self._connections):
            if connection.server is None and not (self._held or self._connects_held):
                self._connect(connection)
            if connection not in self._connections:
                continue  # there was nobody to connect to
            watched = {connection.client: 0, connection.server: 0}
            for flow in connection.flows:
                if not flow.ended and flow.waiting < BUFFER_BYTES and (connection.dead or not self._held):
                    watched[flow.source] |= selectors.EVENT_READ
                if connection.dead or self._held or not flow.chunks:
                    continue
                when = max(flow.chunks[0][0], flow.next_send)
                if when <= now:
                    watched[flow.sink] |= selectors.EVENT_WRITE
                else:
                    waits.append(when - now)
            for sock, events in watched.items():
                if sock is not None:
                    self._watch(sock, events, connection)
        return min(waits) if waits else None

    def _watch(self, sock, events, connection):
        registered = self._selector.get_map().get(sock)
        if registered is None:
            if events:
                self._selector.register(sock, events, connection)
        elif not events:
            self._selector.unregister(sock)
        elif registered.events != events:
            self._selector.modify(sock, events, connection)

    def _turn(self, ready):
        for key, events in ready:
            if key.fileobj is self._wake_read:
                self._wake_read.recv(4096)
            elif key.fileobj is self._listener:
                self._accept()
            elif key.data in self._connections:
                self._move(key.data, key.fileobj, events)

    def _accept(self):
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.accepted += 1
        connection = Connection(client, self.accepted)
        self._connections.add(connection)
        if self.accepted == self._cut_connection:
            self._cut(connection)

    def _connect(self, connection):
        host, port = self.target.rsplit(":", 1)
        try:
            connection.server = socket.create_connection((host, int(port)), timeout=5)
        except OSError:
            return self._cut(connection)
        connection.server.setblocking(False)
        connection.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.flows = (Flow(connection.client, connection.server, "up"),
                            Flow(connection.server, connection.client, "down"))

    def _move(self, connection, sock, events):
        try:
            for flow in connection.flows:
                if events & selectors.EVENT_READ and flow.source is sock and not flow.ended:
                    self._read(connection, flow)
                if events & selectors.EVENT_WRITE and flow.sink is sock and flow.chunks and not self._held:
                    self._write(connection, flow)
                if connection not in self._connections:
                    return  # that write was the last before a cut
        except OSError:
            if not connection.dead:
                return self._cut(connection)
            for flow in connection.flows:  # its end is nobody's news
                flow.ended = flow.ended or flow.source is sock
        if connection in self._connections and not connection.dead:
            self._pass_ends(connection)

    def _read(self, connection, flow):
        data = flow.source.recv(READ_BYTES)
        if not data:
            flow.ended = True
        elif not connection.dead:
            flow.chunks.append((time.monotonic() + self._delay, data))
            flow.waiting += len(data)

    def _write(self, connection, flow):
        due, data = flow.chunks.popleft()
        most = len(data) if self._rate is None else max(1, self._rate // 50)
        limits = [rule[flow.way] for rule in (self._cut_after, self._hold_after) if flow.way in rule]
        most = min([most, *(limit - self._passed[flow.way] for limit in limits)])
        sent = flow.sink.send(data[:most]) if most > 0 else 0
        if sent < len(data):
            flow.chunks.appendleft((due, data[sent:]))
        flow.waiting -= sent
        self._passed[flow.way] += sent
        if self._rate is not None:
            flow.next_send = max(time.monotonic(), flow.next_send) + sent / self._rate
        if self._reached(self._hold_after, flow.way):
            self._held = True
        if self._reached(self._cut_after, flow.way):
            self._cut(connection)

    def _reached(self, rule, way):
        """Whether a limit is reached, which ends its rule."""
        if way not in rule or self._passed[way] < rule[way]:
            return False
        del rule[way]
        return True

    def _pass_ends(self, connection):
        for flow in connection.flows:
            if flow.ended and not flow.chunks and not flow.closed:
                flow.closed = True
                try:
                    flow.sink.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
        if all(flow.closed for flow in connection.flows):
            self._forget(connection)

    def _cut(self, connection):
        for sock in (connection.client, connection.server):
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._forget(connection)

    def _forget(self, connection):
        self._connections.discard(connection)
        for sock in (connection.client, connection.server):
            if sock is not None:
                self._watch(sock, 0, None)
                sock.close()
