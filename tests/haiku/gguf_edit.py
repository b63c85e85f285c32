"""Changes copies of a GGUF file, for tests that must show that the file's content matters.

Reads just enough of GGUF version 3 to find a tensor's data and a metadata array of strings.
"""
import random
import shutil
import struct

SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


class Gguf:
    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            self.f = f
            magic, version, n_tensors, n_kv = struct.unpack("<4sIQQ", f.read(24))
            assert magic == b"GGUF" and version == 3, "a GGUF file of version 3 is needed"
            self.kv, self.spans = {}, {}
            for _ in range(n_kv):
                key = self.string()
                kind, = struct.unpack("<I", f.read(4))
                begin = f.tell()
                self.kv[key] = self.value(kind)
                self.spans[key] = (begin, f.tell())
            infos = []
            for _ in range(n_tensors):
                name = self.string()
                n_dims, = struct.unpack("<I", f.read(4))
                dims = struct.unpack(f"<{n_dims}Q", f.read(8 * n_dims))
                kind, offset = struct.unpack("<IQ", f.read(12))
                infos.append((name, dims, kind, offset))
            align = self.kv.get("general.alignment", 32)
            start = (f.tell() + align - 1) // align * align
            size = f.seek(0, 2) - start
            ends = sorted(o for *_, o in infos) + [size]
            # name -> (where, bytes up to the next tensor, padding included)
            self.tensors = {n: (start + o, ends[ends.index(o) + 1] - o) for n, _, _, o in infos}
            self.weight_bytes = size
        del self.f

    def string(self):
        n, = struct.unpack("<Q", self.f.read(8))
        return self.f.read(n).decode("utf-8", "surrogateescape")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            item, n = struct.unpack("<IQ", self.f.read(12))
            if item != STRING:
                self.f.seek(SCALARS[item] * n, 1)
                return None
            return [self.string() for _ in range(n)]
        raw = self.f.read(SCALARS[kind])
        return int.from_bytes(raw, "little")

    def copy_with_zeroed(self, name, target):
        where, n = self.tensors[name]
        shutil.copyfile(self.path, target)
        with open(target, "r+b") as f:
            f.seek(where)
            while n > 0:
                f.write(bytes(min(n, 1 << 24)))
                n -= 1 << 24

    def copy_with_shuffled(self, key, target, seed=1):
        """The strings of an array in another order: the file keeps its length and its layout."""
        begin, end = self.spans[key]
        items = list(self.kv[key])
        random.Random(seed).shuffle(items)
        raw = struct.pack("<IQ", STRING, len(items))
        for s in items:
            b = s.encode("utf-8", "surrogateescape")
            raw += struct.pack("<Q", len(b)) + b
        assert len(raw) == end - begin
        shutil.copyfile(self.path, target)
        with open(target, "r+b") as f:
            f.seek(begin)
            f.write(raw)
