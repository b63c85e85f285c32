"""The table of characters is what its generator writes."""
import pathlib
import re
import subprocess
import sys
import unicodedata

import pytest

BASE = pathlib.Path(__file__).resolve().parents[2] / "src/base"


def test_the_table_of_characters_is_what_its_generator_writes():
    table = (BASE / "unicode_table.h").read_text()
    if f"(Unicode {unicodedata.unidata_version})" not in table:
        pytest.skip(f"this Python has Unicode {unicodedata.unidata_version}")
    made = subprocess.run([sys.executable, BASE / "unicode_gen.py"], capture_output=True, text=True, check=True).stdout
    version = re.compile(r"Python \d+\.\d+")
    assert version.sub("", made) == version.sub("", table)
