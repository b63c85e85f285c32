#!/usr/bin/env python3
"""Writes a seed corpus for fuzz_template: the snippets of the unit tests, the named templates and,
where the reference vectors are, every reference template with some of its contexts.

usage: make_corpus.py OUT_DIR [CONFORMANCE_DIR]
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def write(out, conformance=None):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    table = json.loads((ROOT / "tests/unit/template_snippets.json").read_text())
    context = json.dumps(table["context"]).encode()
    for i, row in enumerate(table["snippets"]):
        (out / f"snippet.{i}").write_bytes(row["template"].encode() + b"\0" + context)
    for path in (ROOT / "src/template/named").glob("*.jinja"):
        (out / path.name).write_bytes(path.read_bytes())
    cases = conformance and pathlib.Path(conformance) / "templates" / "cases.json"
    if not cases or not cases.exists():
        return
    seen = {}
    for case in json.loads(cases.read_text()):
        name = case["template"]
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 4:
            continue
        text = (cases.parent / "files" / name).read_bytes()
        (out / f"{name}.{seen[name]}").write_bytes(text + b"\0" + json.dumps(case["context"]).encode())


if __name__ == "__main__":
    write(*sys.argv[1:3])
