"""Files are opened in few places: what hokku obeys or keeps only by base/place.c, which looks at whose it is."""
import pathlib
import re

SRC = pathlib.Path(__file__).resolve().parents[2] / "src"

# Who may open, make or rename files by their names, and why.
OPENERS = {
    "base/place.c": "the door",
    "base/file.c": "a file that the user named",
    "gguf/gguf.c": "a model, which may be anything readable",
    "hub/cache.c": "hashing, which tells whether a file is what it should be",
    "hub/fetch.c": "renames the part that it holds open and locked",
    "keep/call.c": "the working directory, to hand it over",
    "keep/keeper.c": "/dev/null",
    "keep/name.c": "what the kernel says that the process may do",
    "base/memory.c": "the kernel's own files below /proc and /sys",
}
# Who may read a file that the user named.
READERS = {"main.c", "tools/run.c", "tools/bench_grammar.c", "term/attach.c", "term/shape.c", "cli/hub_setup.c", "base/file.c", "base/file.h"}


def code(path):
    return re.sub(r"//.*", "", path.read_text())


def test_files_are_opened_in_few_places():
    call = re.compile(r"(?<![\w>.])(open|openat|fopen|freopen|creat|mkdir|mkstemp|mkostemp|mkdtemp|rename|link|symlink)\(")
    found = {p.relative_to(SRC).as_posix() for p in SRC.rglob("*.c") if call.search(code(p))}
    assert found - OPENERS.keys() == set(), "use base/place.h"
    assert OPENERS.keys() - found == set(), "opens nothing any more"


def test_only_what_the_user_names_is_read_without_looking_whose_it_is():
    found = {p.relative_to(SRC).as_posix() for p in SRC.rglob("*.[ch]") if re.search(r"\bfile_read\(", code(p))}
    assert found <= READERS, "use place_read of base/place.h"


def test_json_is_read_and_written_where_a_want_of_memory_is_seen():
    call = re.compile(r"\bjson_(load|dump)(s|b|f|fd|_file|_callback)\(")
    found = {p.relative_to(SRC).as_posix() for p in SRC.rglob("*.[ch]") if call.search(code(p))}
    assert found == {"base/json_text.c"}, "use json_read and json_written"
