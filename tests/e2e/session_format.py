"""The session file, read and written as docs/session-format.md says: by another program than hokku."""
import json
import struct
import zlib

from conftest import wait_until

RECORDS_AT = 64


def slots(data):
    """(generation, length) of the slots whose checksum is right."""
    assert data[:8] == b"HOKKUSES" and struct.unpack_from("<II", data, 8) == (2, 0)
    out = []
    for at in (16, 40):
        generation, length, crc = struct.unpack_from("<QQI", data, at)
        if crc == zlib.crc32(data[at:at + 16]):
            out.append((generation, length))
    return out


def records(data):
    """(tag, begin, end, offset of the head, payload) of what counts."""
    length = max(slots(data))[1]
    assert length <= len(data)
    at = RECORDS_AT
    while at < length:
        tag, crc, begin, end, n, head_crc = struct.unpack_from("<4sIQQQI", data, at)
        assert head_crc == zlib.crc32(data[at:at + 32])
        payload = data[at + 36:at + 36 + n]
        assert crc == zlib.crc32(payload) and len(payload) == n
        yield tag.decode(), begin, end, at, payload
        at += 36 + n
    assert at == length


def describe(path):
    return json.loads([p for tag, _, _, _, p in records(path.read_bytes()) if tag == "META"][-1])


def saved(path, turns):
    """describe(path), once it has so many turns: a chat saves beside what follows, as fast as the disk is."""
    def found():
        try:
            return [d for d in [describe(path)] if d["turns"] == turns]
        except FileNotFoundError:
            return None
    return wait_until(found)[0]


def record(tag, begin, end, payload):
    head = struct.pack("<4sIQQQ", tag.encode(), zlib.crc32(payload), begin, end, len(payload))
    return head + struct.pack("<I", zlib.crc32(head)) + payload


def file(parts, generations=(2, 1)):
    """A file of these (tag, begin, end, payload), both slots good."""
    body = b"".join(record(*p) for p in parts)
    out = b"HOKKUSES" + struct.pack("<II", 2, 0)
    for generation in generations:
        slot = struct.pack("<QQ", generation, RECORDS_AT + len(body))
        out += slot + struct.pack("<II", zlib.crc32(slot), 0)
    return out + body


def parts(data):
    return [(tag, begin, end, payload) for tag, begin, end, _, payload in records(data)]


def redescribe(path, meta):
    """The same, but for what its description says."""
    path.write_bytes(file((tag, begin, end, json.dumps(meta).encode() if tag == "META" else p)
                          for tag, begin, end, p in parts(path.read_bytes())))


def state(data):
    """What the records come to: META, template, messages, ids, pieces of KV that all count."""
    meta, template, messages, ids, kv = None, b"", [], [], []
    for tag, begin, end, _, p in records(data):
        if tag == "META":
            meta = json.loads(p)
        elif tag == "TMPL":
            template = p
        elif tag == "MSGS":
            messages[begin:] = [p] * (end - begin)
        elif tag == "TIME":
            ids[begin:] = struct.unpack(f"<{len(p) // 4}i", p)
            kv = [k for k in kv if k[0] < begin]
            kv = [(b, e, min(u, begin), p) for b, e, u, p in kv]
        elif tag == "KVCH":
            assert begin == (kv[-1][2] if kv else 0)
            kv.append((begin, end, end, p))
    return meta, template, messages, ids, kv


def version_1(data):
    """The same session as the first version of the format had it (its KV in one piece of at most 512 positions)."""
    meta, template, messages, ids, kv = state(data)
    assert len(kv) == 1 and kv[0][1] <= 512 and kv[0][2] == kv[0][1]
    meta["template"] = template.decode()
    sections = [(b"META", json.dumps(meta).encode()), (b"MSGS", struct.pack("<Q", len(messages)) + b"".join(messages)),
                (b"TIME", struct.pack(f"<{len(ids)}i", *ids)), (b"KVCH", kv[0][3])]
    at = 24 + 24 * 4 + 4
    head = b"HOKKUSES" + struct.pack("<IIQ", 1, 4, at + sum(len(s) for _, s in sections))
    for tag, s in sections:
        head += struct.pack("<4sIQQ", tag, zlib.crc32(s), at, len(s))
        at += len(s)
    return head + struct.pack("<I", zlib.crc32(head)) + b"".join(s for _, s in sections)
