#!/usr/bin/env python3
"""Peers that lie, on every port of every server (entry SEC-11): garbage, wrong fields, impossible pieces. Each is turned
away by itself; a stream that runs all the while, and everything afterwards, is as if nobody had been there."""
import fcntl
import itertools
import os
import random
import socket
import struct
import threading

from service import ServiceTest, ids
import api
from cluster import PATIENCE_S, main, wait_for
import wire

ROUTER = api.state_pb.Epoch(hi=0xbad, lo=1)
SOURCE = api.state_pb.Epoch(hi=0xbad, lo=2)
PROMPT = [5] * 40
MISSING_PIECE = 10  # worker.v1.Cause
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2


def attempt_id(request):
    return api.state_pb.AttemptId(router=ROUTER, request=request, attempt=1)


class Peer:
    """A router and a source in one, with sessions to one decode worker that believes in both."""
    requests = itertools.count(1)  # of all peers: an id that is over stays known for a while

    def __init__(self, target):
        self.channel = api.channel(target)
        self.workers = api.stub(self.channel, "baton.worker.v1.WorkerService")
        self.router = api.Duplex(self.workers.Session, timeout_s=None)
        self.router.send(api.worker_pb.SessionRequest(hello=dict(router_epoch=ROUTER, session_number=1,
                                                                 protocol_version=1)))
        self.worker = self.router.receive().events[0].hello
        self.source = api.Duplex(api.stub(self.channel, "baton.transfer.v1.TransferService").Session, timeout_s=None)
        self.source.send(api.transfer_pb.SessionRequest(hello=self.source_hello()))
        self.sink = self.source.receive().hello
        self.closed = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self):
        """Its leases last as long as it does."""
        while not self.closed.wait(1):
            self.router.send(api.worker_pb.SessionRequest(heartbeat={}))
            self.source.send(api.transfer_pb.SessionRequest(heartbeat={}))

    def source_hello(self, **fields):
        return api.transfer_pb.SourceHello(**{**dict(
            source_epoch=SOURCE, sink_epoch=self.worker.worker_epoch, protocol_version=1,
            layout_fp=self.worker.layout_fp, numerics_id=self.worker.numerics_id), **fields})

    def reserve(self, **fields):
        """The sink's word: granted or refused."""
        self.attempt = attempt_id(next(Peer.requests))
        self.source.send(api.transfer_pb.SessionRequest(reserve=api.transfer_pb.Reserve(**{**dict(
            attempt=self.attempt, prompt=PROMPT, n=1, max_tokens=8, layout_fp=self.worker.layout_fp,
            numerics_id=self.worker.numerics_id), **fields})))
        while True:
            answer = self.source.receive()
            if answer.WhichOneof("message") in ("granted", "refused"):
                self.granted = answer.granted
                return answer.WhichOneof("message")

    def release(self):
        self.source.send(api.transfer_pb.SessionRequest(release=dict(attempt=self.attempt)))

    def address(self, kind):
        return next(one for one in self.sink.data_addresses if one.startswith(kind)).split(":", 1)[1]

    def connect(self, kind="tcp"):
        """A data connection without a word yet."""
        if kind == "tcp":
            host, port = self.address("tcp").rsplit(":", 1)
            connection = socket.create_connection((host, int(port)))
        else:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect("\0" + self.address("shm"))
        connection.settimeout(PATIENCE_S)
        return connection

    def hello(self):
        return wire.hello(SOURCE, self.worker.worker_epoch)

    def opened(self):
        """A granted transfer that is open on a connection of its own."""
        assert self.reserve() == "granted"
        connection = self.connect()
        connection.sendall(self.hello() + wire.open_transfer(self.attempt, self.granted.secret))
        return connection

    def piece(self, payload=bytes(64), body_length=None, **fields):
        fields.setdefault("length", len(payload))
        header = wire.piece_header(fields.pop("attempt", self.attempt), fields.pop("source", SOURCE),
                                   fields.pop("sink", self.worker.worker_epoch), **fields)
        return wire.frame(wire.PIECE, header + payload, length=body_length)

    def close(self):
        self.closed.set()
        self.source.cancel()
        self.router.cancel()
        self.channel.close()


def send(connection, data):
    """Whether the other side was still there."""
    try:
        connection.sendall(data)
        return True
    except OSError:
        return False


class HostilePeers(ServiceTest):
    """`auto`: both transports listen."""

    @classmethod
    def prepare(cls, alone):
        cls.long = api.generation("the time of the stream beside", max_tokens=400, ignore_eos=True, temperature=1, seed=8)
        cls.long_gold = ids(alone.generate(cls.long))

    def setUp(self):
        self.stop = threading.Event()
        self.wrong, self.served = [], 0
        self.beside = threading.Thread(target=self.stream)
        self.beside.start()
        self.target = self.cluster.worker("decode")["listen"]

    def tearDown(self):
        self.stop.set()
        self.beside.join()
        self.assertEqual(self.wrong, [])
        self.assertGreater(self.served, 0)
        super().tearDown()

    def stream(self):
        """What goes on beside: the same answer again and again."""
        while not self.stop.is_set() or self.served == 0:
            try:
                answer = ids(self.client.generate(self.long))
                if answer != self.long_gold:
                    self.wrong.append(answer)
            except api.Failure as failure:
                self.wrong.append(failure)
                return
            self.served += 1

    def peer(self):
        peer = Peer(self.target)
        self.addCleanup(peer.close)
        return peer

    def assert_ended(self, connection):
        """By the other side."""
        while wire.read_frame(connection) is not None:
            pass
        connection.close()

    def test_what_fits_is_taken(self):
        """So that the others are turned away for what is wrong with them."""
        peer = self.peer()
        connection = peer.opened()
        connection.sendall(peer.piece() + wire.commit(peer.attempt))
        kind, body = wire.read_frame(connection)
        self.assertEqual((kind, struct.unpack("<I", body[-4:])[0]), (wire.COMMIT_REPLY, MISSING_PIECE))
        connection.close()

    def test_pieces_that_fit_nothing_end_their_connection(self):
        peer = self.peer()
        other = attempt_id(999)
        bad = [dict(layer=2), dict(layer=-1), dict(group=1), dict(group=-1), dict(arena=2), dict(arena=-1), dict(shard=1),
               dict(ordinal=3), dict(ordinal=2 ** 31), dict(ordinal=-1), dict(offset=2 ** 31), dict(offset=-1),
               dict(offset=64), dict(length=0), dict(length=63), dict(length=65), dict(length=-1),
               dict(payload=b""), dict(payload=bytes(1 << 20)), dict(payload=bytes((1 << 20) + 1)),
               dict(attempt=other), dict(source=ROUTER), dict(sink=SOURCE), dict(ordinal=2, payload=bytes(1 << 19))]
        for fields in bad:
            with self.subTest(**{name: value if name != "payload" else len(value) for name, value in fields.items()}):
                connection = peer.opened()
                wait_for(lambda: self.cluster.blocks_held("decode") > 0, what="the grant")
                send(connection, peer.piece(**fields))
                self.assert_ended(connection)

    def test_frames_that_are_none_end_their_connection(self):
        peer = self.peer()
        numbers = random.Random(11)
        good = peer.piece
        bad = [lambda: b"GET / HTTP/1.1\r\n\r\n", lambda: bytes(64), lambda: numbers.randbytes(4096),
               lambda: wire.frame(99, bytes(28)), lambda: wire.frame(wire.COMMIT_REPLY, bytes(32)),
               lambda: wire.frame(wire.SHM_ARENA, bytes(40)), lambda: wire.frame(wire.CLOSE, bytes(27)),
               lambda: wire.frame(wire.PIECE, b"", length=2 ** 32 - 1), lambda: wire.frame(wire.OPEN, b""),
               lambda: wire.frame(wire.CLOSE, bytes(28), crc=1), lambda: good()[:-1] + b"\xff" + bytes(12),
               lambda: peer.hello(), lambda: wire.open_transfer(peer.attempt, 1), lambda: good() + good(),
               lambda: wire.frame(wire.PIECE_REF, wire.piece_header(peer.attempt, SOURCE, peer.worker.worker_epoch,
                                                                    length=64) + bytes(20)),
               lambda: wire.frame(wire.COMMIT, bytes(44), length=(16 << 20) + 1)]
        for index, make in enumerate(bad):
            with self.subTest(index=index):
                connection = peer.opened()
                send(connection, make())
                send(connection, bytes(256))  # the rest of what was promised, if anything was
                self.assert_ended(connection)
        for first in (b"\0", peer.hello()[:20], wire.hello(ROUTER, SOURCE), wire.hello(SOURCE, ROUTER),
                      wire.hello(SOURCE, peer.worker.worker_epoch, version=2)):
            for kind in ("tcp", "shm"):
                connection = peer.connect(kind)
                send(connection, first + bytes(64))
                self.assert_ended(connection)

    def test_commits_that_lie_are_refused(self):
        peer = self.peer()
        state = api.state_pb.DecoderState(attempt=attempt_id(1), prompt=PROMPT, choices=[dict(tokens=[-1])])
        for body in (b"", b"\xff" * 100, bytes(1 << 20), state.SerializeToString()):
            connection = peer.opened()
            send(connection, wire.commit(peer.attempt, state=body))
            answer = wire.read_frame(connection)
            if answer is not None:
                self.assertEqual(answer[0], wire.COMMIT_REPLY)
                self.assertNotEqual(struct.unpack("<I", answer[1][-4:])[0], 0)
            connection.close()

    def test_shared_memory_that_is_not_what_it_says_is_not_read(self):
        peer = self.peer()
        layers = 2

        def arena(sizes, regions, sealed=True, files=2):
            """Sends hello and an arena; the connection."""
            connection = peer.connect("shm")
            handles = []
            for size in sizes[:files]:
                handle = os.memfd_create("hostile", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
                os.truncate(handle, size)
                if sealed:
                    fcntl.fcntl(handle, F_ADD_SEALS, F_SEAL_SHRINK)
                handles.append(handle)
            body = struct.pack("<II", layers, 2) + b"".join(struct.pack("<QQ", *one) for one in regions)
            try:
                connection.sendall(peer.hello())
                socket.send_fds(connection, [wire.frame(wire.SHM_ARENA, body)], handles)
            except OSError:
                pass
            for handle in handles:
                os.close(handle)
            return connection

        whole = [(index << 16, 1 << 16) for index in range(4)]
        sizes = (1 << 18, 65536 * 8)
        for name, connection in (("not sealed", arena(sizes, whole, sealed=False)), ("one file", arena(sizes, whole, files=1)),
                                 ("no file", arena(sizes, whole, files=0)), ("short", arena((4096, 65536 * 8), whole)),
                                 ("short generations", arena((1 << 18, 8), whole)),
                                 ("beyond", arena(sizes, [*whole[:3], (1 << 18, 1)])),
                                 ("wraps", arena(sizes, [*whole[:3], (2 ** 64 - 1, 2)])),
                                 ("too few", arena(sizes, whole[:2]))):
            with self.subTest(arena=name):
                self.assert_ended(connection)
        for name, fields in (("block", dict(block=2 ** 31)), ("slot", dict(slot=65536)), ("layer", dict(layer=7)),
                             ("region", dict(block=10 ** 6)), ("ordinal", dict(ordinal=77))):
            with self.subTest(reference=name):
                self.assertEqual(peer.reserve(), "granted")
                connection = arena(sizes, whole)
                header = wire.piece_header(peer.attempt, SOURCE, peer.worker.worker_epoch, length=64,
                                           layer=fields.get("layer", 0), ordinal=fields.get("ordinal", 0))
                tail = struct.pack("<IIQI", 0, fields.get("slot", 0), 0, fields.get("block", 0))
                send(connection, wire.open_transfer(peer.attempt, peer.granted.secret) +
                     wire.frame(wire.PIECE_REF, header + tail))
                self.assert_ended(connection)

    def test_reservations_out_of_range_are_refused(self):
        peer = self.peer()
        other = api.state_pb.Digest(hi=1, lo=2)
        for fields in (dict(layout_fp=other), dict(numerics_id=other), dict(prompt=[]), dict(prompt=[-1]),
                       dict(prompt=[2 ** 31 - 1]), dict(prompt=[5] * 600), dict(n=0), dict(n=2 ** 32 - 1),
                       dict(max_tokens=0), dict(max_tokens=2 ** 32 - 1), dict(remaining_ns=-2 ** 63),
                       dict(age_ns=2 ** 64 - 1, n=99)):
            with self.subTest(**{name: str(value)[:40] for name, value in fields.items()}):
                self.assertEqual(peer.reserve(**fields), "refused")
        self.assertEqual(peer.reserve(remaining_ns=2 ** 63 - 1, cache_namespace=bytes(16), max_tokens=471), "granted")
        peer.release()

    def test_hellos_that_lie_end_their_session(self):
        peer = self.peer()
        sources = api.stub(peer.channel, "baton.transfer.v1.TransferService")
        other = api.state_pb.Digest(hi=1, lo=2)
        for fields in (dict(protocol_version=2), dict(sink_epoch=ROUTER), dict(source_epoch=api.state_pb.Epoch())):
            session = api.Duplex(sources.Session)
            session.send(api.transfer_pb.SessionRequest(hello=peer.source_hello(**fields)))
            self.assertIn(session.end_of().code, ("FAILED_PRECONDITION", "INVALID_ARGUMENT"))
        for message in (b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f", api.transfer_pb.SessionRequest(),
                        api.transfer_pb.SessionRequest(heartbeat={}), api.transfer_pb.SessionRequest(
                            reserve=dict(attempt=attempt_id(1), layout_fp=other))):
            session = api.Duplex(sources.Session)
            session.send(message)
            session.end_of()  # bytes that are no message end it as a client's own end does: with OK
        for message in (b"\xff" * 50, api.worker_pb.SessionRequest(), api.worker_pb.SessionRequest(
                hello=dict(session_number=1, protocol_version=1)), api.worker_pb.SessionRequest(attach={})):
            session = api.Duplex(peer.workers.Session)
            session.send(message)
            session.end_of()

    def test_submits_that_lie_are_refused_by_both_roles(self):
        for role in ("decode", "prefill"):
            connection = api.channel(self.cluster.worker(role)["listen"])
            self.addCleanup(connection.close)
            workers = api.stub(connection, "baton.worker.v1.WorkerService")
            router = api.Duplex(workers.Session)
            self.addCleanup(router.cancel)
            router.send(api.worker_pb.SessionRequest(hello=dict(router_epoch=ROUTER, session_number=1, protocol_version=1)))
            epoch = router.receive().events[0].hello.worker_epoch
            good = dict(attempt=attempt_id(1), sampling=dict(top_p=1), stop=dict(max_tokens=8), prompt=PROMPT, choices=[{}])
            for index, fields in enumerate((
                    dict(prompt=[]), dict(prompt=[-1]), dict(prompt=[2 ** 31 - 1]), dict(prompt=[5] * 512),
                    dict(choices=[]), dict(choices=[{}] * 1000), dict(choices=[dict(tokens=[9 ** 9])]),
                    dict(choices=[dict(tokens=[5] * 600)]), dict(choices=[dict(logprobs=[{}])]),
                    dict(stop={}), dict(stop=dict(max_tokens=2 ** 32 - 1)), dict(stop=dict(max_tokens=8, min_tokens=9)),
                    dict(stop=dict(max_tokens=8, stop_strings=[b""])), dict(sampling=dict(top_p=0)),
                    dict(sampling=dict(top_p=float("nan"))), dict(sampling=dict(top_p=1, temperature=-1)),
                    dict(sampling=dict(top_p=1, repetition_penalty=0)),
                    dict(sampling=dict(top_p=1, logit_bias=[dict(token_id=-1)])), dict(logprobs=dict(output=21)),
                    dict(attempt=api.state_pb.AttemptId(router=SOURCE, request=1, attempt=1)))):
                with self.subTest(role=role, index=index):
                    state = api.state_pb.DecoderState(**{**good, **fields})
                    call = workers.Submit.future(api.worker_pb.SubmitRequest(
                        state=state, session_number=1, submit_number=1, worker_epoch=epoch), timeout=PATIENCE_S)
                    with self.assertRaises(api.Failure) as caught:
                        api.Unary(call).result()
                    self.assertIn(caught.exception.code, ("INVALID_ARGUMENT", "FAILED_PRECONDITION"))
            for message in (b"\xff" * 50, api.worker_pb.SubmitRequest()):
                with self.assertRaises(api.Failure):
                    api.Unary(workers.Submit.future(message, timeout=PATIENCE_S)).result()

    def test_bytes_that_are_no_http2_reach_nobody(self):
        numbers = random.Random(12)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        addresses = [server[key] for server in self.servers() for key in ("listen", "metrics")]
        for address in addresses:
            host, port = address.rsplit(":", 1)
            for data in (b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", b"POST " + b"a" * 100000, bytes(4096), numbers.randbytes(65536),
                         b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + numbers.randbytes(500), preface,
                         preface + numbers.randbytes(4096), preface + b"\xff\xff\xff\x04\0\0\0\0\0",
                         preface + b"\0\0\0\x04\0\0\0\0\0" + b"\0\x40\0\x01\x04\0\0\0\x01" + numbers.randbytes(16384)):
                connection = socket.create_connection((host, int(port)))
                send(connection, data)
                connection.close()


if __name__ == "__main__":
    main()
