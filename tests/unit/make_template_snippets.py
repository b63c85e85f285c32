#!/usr/bin/env python3
"""Asks Jinja2 what the snippets of template_snippets.json render, and writes the answers into it.

usage: make_template_snippets.py [FILE ...]     (needs jinja2 3.1)

Each FILE holds more snippets, separated by lines of %%%%. The environment is that of Hugging
Face's apply_chat_template; but for list.append() and its like, which its sandbox refuses and
chat templates use all the same. What Jinja2 refuses must fail here too, in whatever words.
"""
import datetime
import json
import pathlib
import re
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = 1767323045
TABLE = pathlib.Path(__file__).with_name("template_snippets.json")


class Raised(Exception):
    pass


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise Raised(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)
    # (%:z as Python has it since 3.12.)
    env.globals["strftime_now"] = lambda f: now.strftime(re.sub("%(%|:z)", lambda m: m[0] if m[1] == "%" else "", f))
    return env


def answer(env, template, context):
    """template: its source, or what env.from_string has made of it."""
    try:
        made = env.from_string(template) if isinstance(template, str) else template
        return {"text": made.render(**context)}
    except Raised as e:
        return {"raised": str(e)}
    except Exception as e:  # whatever it is: it must fail here too
        return {"error": f"{type(e).__name__}: {e}"}


def main():
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {"context": {}, "snippets": []}
    templates = [row["template"] for row in table["snippets"]]
    for name in sys.argv[1:]:
        templates += [t.strip("\n") for t in pathlib.Path(name).read_text().split("\n%%%%\n")]
    env, rows = environment(), []
    for template in dict.fromkeys(templates):
        row = {"template": template, **answer(env, template, json.loads(json.dumps(table["context"])))}
        if re.search(r" at 0x[0-9a-f]", row.get("text", "")):
            print("left out, its text is an address:", template)
            continue
        rows.append(row)
    TABLE.write_text(json.dumps({"now": NOW, "context": table["context"], "snippets": rows},
                                ensure_ascii=False, indent=1) + "\n")
    print(len(rows), "snippets,", sum("error" in row for row in rows), "of them errors")


if __name__ == "__main__":
    main()
