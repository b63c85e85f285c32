#!/usr/bin/env python3
"""Writes a seed corpus for fuzz_template: every reference template with some of its contexts, and
the snippets of the unit tests.

usage: make_corpus.py CONFORMANCE_DIR OUT_DIR
"""
import json
import pathlib
import sys


def main():
    source, out = pathlib.Path(sys.argv[1]) / "templates", pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    seen = {}
    for case in json.loads((source / "cases.json").read_text()):
        name = case["template"]
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 4:
            continue
        text = (source / "files" / name).read_bytes()
        context = json.dumps(case["context"]).encode()
        (out / f"{name}.{seen[name]}").write_bytes(text + b"\0" + context)
    table = pathlib.Path(__file__).parent.parent / "unit" / "template_snippets.json"
    if table.exists():
        for i, row in enumerate(json.loads(table.read_text())["snippets"]):
            (out / f"snippet.{i}").write_bytes(row[0].encode())


if __name__ == "__main__":
    main()
