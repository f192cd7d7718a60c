"""Reads and writes GGUF files without believing anything in them: for tests that change a good file."""
import struct

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 4, 5, 6, 7, 8, 9, 10
_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


def string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def encoded(kind, value):
    """The bytes of a value; of an array (element type, values)."""
    if kind == STRING:
        return string(value)
    if kind == ARRAY:
        element, values = value
        return struct.pack("<IQ", element, len(values)) + b"".join(encoded(element, one) for one in values)
    return struct.pack(_FORMATS[kind], value)


class Tensor:
    def __init__(self, name, dims, kind, offset):
        self.name, self.dims, self.kind, self.offset = name, dims, kind, offset

    def encoded(self):
        return (string(self.name) + struct.pack("<I", len(self.dims)) +
                b"".join(struct.pack("<Q", dim & (2 ** 64 - 1)) for dim in self.dims) +
                struct.pack("<IQ", self.kind, self.offset))


class GgufFile:
    """keys: {name: (type, encoded value)} in the file's order; tensors; data."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self._bytes = file.read()
        magic, self.version, tensors, keys = struct.unpack_from("<4sIQQ", self._bytes)
        assert magic == b"GGUF"
        self._at = 24
        self.keys = dict(self._key() for _ in range(keys))
        self.tensors = [self._tensor() for _ in range(tensors)]
        self.data = self._bytes[-(-self._at // 32) * 32:]

    def _take(self, layout):
        values = struct.unpack_from(layout, self._bytes, self._at)
        self._at += struct.calcsize(layout)
        return values[0] if len(values) == 1 else values

    def _text(self):
        length = self._take("<Q")
        self._at += length
        return self._bytes[self._at - length:self._at].decode()

    def _skip(self, kind):
        if kind == STRING:
            self._text()
        elif kind == ARRAY:
            element, count = self._take("<IQ")
            for _ in range(count):
                self._skip(element)
        else:
            self._take(_FORMATS[kind])

    def _key(self):
        name, kind = self._text(), self._take("<I")
        start = self._at
        self._skip(kind)
        return name, (kind, self._bytes[start:self._at])

    def _tensor(self):
        name, rank = self._text(), self._take("<I")
        dims = [self._take("<Q") for _ in range(rank)]
        return Tensor(name, dims, *self._take("<IQ"))

    def set(self, name, kind, value):
        self.keys[name] = (kind, encoded(kind, value))

    def remove(self, name):
        del self.keys[name]

    def text(self, name):
        return self.keys[name][1][8:].decode()

    def encoded(self, tensor_count=None, key_count=None, keys=None, pad=True):
        """The file; counts as they are unless given, `keys` as [(name, type, encoded)]."""
        keys = [(name, *value) for name, value in self.keys.items()] if keys is None else keys
        head = struct.pack("<4sIQQ", b"GGUF", self.version,
                           len(self.tensors) if tensor_count is None else tensor_count,
                           len(keys) if key_count is None else key_count)
        head += b"".join(string(name) + struct.pack("<I", kind) + value for name, kind, value in keys)
        head += b"".join(tensor.encoded() for tensor in self.tensors)
        return head + bytes(-len(head) % 32 if pad else 0) + self.data

    def write(self, path):
        with open(path, "wb") as file:
            file.write(self.encoded())
        return path
