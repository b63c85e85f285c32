"""The table of characters is what its generator writes."""
import pathlib
import re
import subprocess
import sys

BASE = pathlib.Path(__file__).resolve().parents[2] / "src/base"


def ranges(text, name):
    body = re.search(rf" {name}\[\] = \{{(.*?)\n\}};", text, re.S).group(1)
    return [(int(a, 0), int(b, 0)) for a, b in re.findall(r"\{(\w+),(\w+)\}", body)]


def test_the_table_of_characters_is_what_its_generator_writes():
    table = (BASE / "unicode_table.h").read_text()
    made = subprocess.run([sys.executable, BASE / "unicode_gen.py"], capture_output=True, text=True, check=True).stdout
    unicode = re.compile(r"\(Unicode [\d.]+\)")
    if unicode.search(made).group() == unicode.search(table).group():
        version = re.compile(r"Python \d+\.\d+")
        assert version.sub("", made) == version.sub("", table)
    # Another Unicode knows more characters, but not other Latin and Greek ones.
    for name in ("zero_width", "double_width", "letters", "digits", "numerals", "unprintable"):
        old, new = ({cp for a, b in ranges(text, name) for cp in range(a, min(b, 0x36F) + 1)} for text in (table, made))
        assert old == new, name
