#!/usr/bin/env python3
"""Writes the generated seeds of the fuzz targets: OUT_DIR/TARGET/NAME, the same bytes every time. Everything comes from this
tree; beside them there are the inputs kept in corpus/.

usage: make_corpus.py OUT_DIR [TARGET ...]
"""
import json
import pathlib
import struct
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import make_gguf  # noqa: E402
from make_gguf import Typed  # noqa: E402


def gguf_bytes(kvs, tensors):
    with tempfile.TemporaryDirectory() as d:
        path = pathlib.Path(d) / "seed.gguf"
        make_gguf.write(path, kvs, tensors)
        return path.read_bytes()


def gguf():
    for arch in ("llama", "qwen2", "qwen3"):
        kvs, tensors = make_gguf.model(
            arch=arch, layers=1, embd=32, heads=2, kv_heads=1, ff=32, vocab=260, mix=["Q4_0", "F16", "Q8_0"],
            rope_freqs=True, rope_scaling={"type": "yarn", "factor": 4, "orig_ctx": 32})
        yield arch, gguf_bytes(kvs, tensors)


def tokenizer():
    """A byte of flags, a byte n, n bytes of text, then a GGUF with a vocabulary."""
    byte_level = make_gguf.model(arch="qwen2", layers=1, embd=32, heads=2, kv_heads=1, ff=32, vocab=300, mix=["F16"])[0]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "<X>", "\u2581", "H", "e", "l", "o",
              "ll", "llo", "He", "\u2581He", "\u2581\u2581", "\u00e9", "\U0001f980"]
    kinds = [2, 3, 3] + [6] * 256 + [4] + [1] * (len(tokens) - 260)
    sentence_piece = [
        ("tokenizer.ggml.model", "llama"),
        ("tokenizer.ggml.tokens", Typed("array", ("str", tokens))),
        ("tokenizer.ggml.token_type", Typed("array", ("i32", kinds))),
        ("tokenizer.ggml.scores", Typed("array", ("f32", [-float(len(t)) for t in tokens]))),
        ("tokenizer.ggml.add_eos_token", True),
    ]
    text = "Hello  <s>Hello</s><X> \u00e9\U0001f980 12\r\n<|im_end|>".encode()
    for name, kvs in ("bpe", byte_level), ("spm", sentence_piece):
        vocabulary = gguf_bytes(kvs, [])
        for flags in (0, 0xFF, 0x08):
            yield f"{name}{flags}", bytes([flags, len(text)]) + text + vocabulary


def grammar():
    """A byte that says of which kind, then the text."""
    for i, text in enumerate([
            'root ::= "a" | b+\nb ::= [a-z\\x30-9]{2,5} "\\u00e9"? # why\n',
            r'root ::= "{" (p ("," p)*)? "}"' + "\n" + r'p ::= "\"" ([^"\\] | "\\" ["\\])* "\":" ("1" | root)']):
        yield f"gbnf-{i}", b"\0" + text.encode()
    for i, schema in enumerate([
            {"type": "object", "properties": {"a": {"type": "integer", "minimum": -3, "exclusiveMaximum": 12.5, "multipleOf": 3}, "b": {"enum": [1, "x", None]}},
             "required": ["a"], "additionalProperties": {"type": "number", "maximum": 0.25}},
            {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}, "maxItems": 2}}, "$ref": "#/$defs/t"},
            {"oneOf": [{"type": "string", "pattern": "^(a|[^b-d]\\d){1,3}$", "maxLength": 5}, {"const": {"k": [1.5]}}]},
            {"allOf": [{"type": ["string", "null"], "format": "date"}, {"minLength": 2}], "anyOf": [{"title": "x"}, False]},
            {"type": "array", "prefixItems": [{"type": "boolean"}], "items": {"format": "email"}, "minItems": 2},
            {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}]):
        yield f"schema-{i}", bytes([1 + 2 * (i % 2)]) + json.dumps(schema).encode()


def template():
    """A template, or one with its variables: the snippets of the unit tests and the templates that have names."""
    table = json.loads((ROOT / "tests/unit/template_snippets.json").read_text())
    context = json.dumps(table["context"]).encode()
    for i, row in enumerate(table["snippets"]):
        yield f"snippet.{i:03}", row["template"].encode() + b"\0" + context
    talk = {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": " hi "},
                         {"role": "assistant", "content": "<think>\nhm\n</think>\nyes", "tool_calls": [
                             {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": [1, None]}}}]},
                         {"role": "tool", "name": "f", "content": "{\"a\": 1}"}, {"role": "user", "content": "and?"}],
            "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {
                "type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"]}}}],
            "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", "enable_thinking": False}
    for path in sorted((ROOT / "src/jinja/named").glob("*.jinja")):
        yield path.name, path.read_bytes()
        yield path.name + ".talk", path.read_bytes() + b"\0" + json.dumps(talk).encode()


def session():
    """Sections of a session (docs/session-format.md, fuzz_session.c): a system prompt, a turn, an answer in two runs; settings."""
    def run(first):
        return (struct.pack("<QIIIQQIQQ", first, 0, 0, 1, 0, 0, 2, 7, 42) +
                struct.pack("<fi7fi4fii", .8, 40, .95, .05, 1, -1, 0, .1, 1, 64, 0, 0, 0, 1.75, 2, -1) +
                struct.pack("<Iif", 1, 5, -1.5) + bytes([1, 2, 4, 9]) + bytes(12))

    def text(role, flags, t):
        return struct.pack("<IIQ", role, flags, len(t)) + t
    answer = text(2, 1, b"<think>x</think>yes") + struct.pack("<QQQQQ5iQ", 0, 7, 8, 16, 5, 1, 2, 3, 4, 999, 2) + run(0) + run(3)
    turn = struct.pack("<Q", 3) + text(0, 0, b"Be kind.") + text(1, 0, b"hi") + answer
    settings = {"temp": "0.7", "top-k": "40", "samplers": "top_k;temperature", "overflow": "shift", "n-predict": "-1",
                "ignore-eos": "off", "logprobs": "3", "seed": "7", "think": "hide"}
    for name, messages, n in ("turn", turn, 3), ("empty", struct.pack("<Q", 0), 0):
        for bias in "5-1.5 6-inf", "999+1", "1000+1", "":
            meta = json.dumps({"fingerprint": "f", "kv_format": "fuzz", "kv_positions": n, "n_ctx": 64, "template_crc": 0,
                               "plain": True, "now": 1, "first_kept": 0, "dropped": 0,
                               "settings": {**settings, "logit-bias": bias}}).encode()
            ids = struct.pack(f"<{n}i", *range(n))
            parts = b"".join(struct.pack("<H", len(part)) + part for part in (meta, messages, ids))
            yield f"{name}{bias.replace(' ', '_')}", parts + bytes(4 * n)
            log = [(2, i, i + 1, m) for i, m in enumerate((text(0, 0, b"Be kind."), text(1, 0, b"hi"), answer)[:n])]
            log += [(3, 0, n, ids), (4, 0, n, bytes(4 * n)), (0, 0, 0, meta)] if n else [(0, 0, 0, meta)]
            later = [(3, 1, 3, ids[4:12]), (4, 1, 3, bytes(8)), (2, 2, 3, answer), (1, 0, 0, b"t")] if n else [(2, 0, 0, b"")]
            for more in [], later:
                yield f"log{len(more)}{name}{bias.replace(' ', '_')}", b"\xff" + b"".join(
                    bytes([tag, begin, end]) + struct.pack("<H", len(part)) + part for tag, begin, end, part in log + more)


def terminal():
    """A byte without a meaning, a byte of choices, then what a model wrote."""
    texts = [b"# Title\n**bold** `code` and a sentence that is longer than the line\n```c\nint x;\n```\n",
             b"<think>hm</think>\n\x1b]52;c;aGk=\x07\x1b[2J\xc2\x9b\xe2\x80\xae", "古池や蛙 🦀\t\r\n".encode() * 4]
    for i, text in enumerate(texts):
        for width, choices in ((80, 0x30), (10, 0x71), (0, 0)):
            yield f"{i}.{width}", bytes([width, choices]) + text


def hub():
    """A line (name, Link header or checksum), then a list of files."""
    names = ["m-q4_k_m.gguf", "Q8_0/m-00001-of-00002.gguf", "Q8_0/m-00002-of-00002.gguf", "mmproj-f16.gguf", "a b-UD-Q2_K_XL.gguf"]
    rows = [{"type": "file", "path": n, "size": 9, "oid": "0", "lfs": {"oid": "ab" * 32, "size": 9}} for n in names]
    rows += [{"type": "directory", "path": "Q8_0"}, {"type": "file", "path": "README.md", "size": 1}]
    for i, line in enumerate(["u/r:q8_0", "u/r", '<https://h/?c=1>; rel="next"', '"' + "ab" * 32 + '"']):
        yield f"list{i}", (line + "\n" + json.dumps(rows[i:])).encode()
    yield "escape", ("u/r:x\n" + json.dumps([{"type": "file", "path": "../x.gguf", "size": 1}])).encode()


def request():
    """A byte of the kind, then a request's body; from 128 on of a form of calls, then an answer."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": [1]}'}}
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False}}
    messages = [{"role": "developer", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}]},
                {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "r"}, {"role": "tool", "tool_call_id": "a", "name": "f", "content": "b"}]
    chat = {"messages": messages, "model": "m", "stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": 3, "seed": 1, "stop": ["a", "b"],
            "temperature": 1, "top_p": 0.5, "top_k": 3, "min_p": 0, "presence_penalty": 0, "frequency_penalty": 0, "n": 1, "logprobs": True, "top_logprobs": 2,
            "tools": [tool], "tool_choice": "auto", "parallel_tool_calls": True, "user": None}
    shape = {"messages": messages[1:2], "response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "object"}}}}
    for i, (kind, body) in enumerate([(0, chat), (0, shape), (1, {"prompt": "a\u0000", "max_tokens": 1, "stop": "x"}), (2, {"messages": messages}),
                                      (3, {"content": "a", "add_special": True, "parse_special": False}), (4, {"tokens": [1, 2]})]):
        yield f"body{i}", bytes([kind]) + json.dumps(body).encode()
    arguments = b'{"name": "f", "arguments": {"x": [1]}}'
    for kind, text in ((128, b"a <tool_call>" + arguments + b"</tool_call>\n<tool_call>" + arguments), (129, b"[TOOL_CALLS]f[CALL_ID]a[ARGS]{}"),
                       (130, b"[TOOL_CALLS][" + arguments + b"," + arguments + b"]"), (131, b" <|python_tag|>" + arguments), (131, arguments)):
        yield f"calls{kind}.{len(text)}", bytes([kind]) + text


def config():
    yield "all", (b"# settings\ntemp 0.7\n--top-k = 20\nno-cnv\nlogit-bias 5-inf\nreverse-prompt a b\r\n"
                  b"samplers top_k;temp\nctx_size\t100\nthink=hide\ncache-type-k q8_0\n")
    yield "wrong", b"tmp 1\ntemp x\nseed -1\n"


TARGETS = {f.__name__: f for f in (config, gguf, grammar, hub, request, session, template, terminal, tokenizer)}


def write(directory, target):
    """Files of one target's seeds, in their order."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, data in TARGETS[target]():
        paths.append(directory / name)
        paths[-1].write_bytes(data)
    return paths


if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(TARGETS):
        sys.exit(f"{__doc__.splitlines()[-1]}, TARGET: {' '.join(TARGETS)}")
    for target in sys.argv[2:] or TARGETS:
        write(pathlib.Path(sys.argv[1]) / target, target)
