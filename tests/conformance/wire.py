"""Frames of docs/wire_format.md, right or wrong, for tests that play a source."""
import struct

PIECE_FIELDS = ("layer", "group", "arena", "shard", "ordinal", "offset", "length")
HELLO, OPEN, PIECE, COMMIT, CLOSE, COMMIT_REPLY, CREDIT, SHM_ARENA, PIECE_REF = range(1, 10)


def _table():
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82f63b78 if value & 1 else 0)
        yield value


_TABLE = tuple(_table())


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xff]
    return crc ^ 0xffffffff


def frame(kind, body, magic=b"BKV1", length=None, crc=None):
    data = magic + struct.pack("<II", kind, len(body) if length is None else length) + body
    return data + struct.pack("<I", crc32c(data) if crc is None else crc)


def epoch(value):
    return struct.pack("<QQ", value.hi, value.lo)


def attempt(value):
    return epoch(value.router) + struct.pack("<QI", value.request, value.attempt)


def hello(source, sink, version=1):
    return frame(HELLO, struct.pack("<I", version) + epoch(source) + epoch(sink))


def open_transfer(attempt_id, secret):
    return frame(OPEN, attempt(attempt_id) + struct.pack("<Q", secret))


def piece_header(attempt_id, source, sink, **fields):
    return (attempt(attempt_id) + epoch(source) + epoch(sink) +
            b"".join(struct.pack("<I", fields.get(name, 0) & 0xffffffff) for name in PIECE_FIELDS))


def commit(attempt_id, chain=bytes(16), state=b""):
    return frame(COMMIT, attempt(attempt_id) + chain + state)


def read_frame(connection):
    """(type, body), or None at the end of the connection."""
    def read(count):
        data = b""
        while len(data) < count:
            piece = connection.recv(count - len(data))
            if not piece:
                return None
            data += piece
        return data

    try:
        prelude = read(12)
        if prelude is None:
            return None
        _, kind, length = struct.unpack("<4sII", prelude)
        body = read(length + 4)
    except ConnectionError:
        return None
    return None if body is None else (kind, body[:-4])
