"""What leaves a file of the interpreter says where it is from."""
import pathlib
import re

SRC = pathlib.Path(__file__).resolve().parents[2] / "src"


def test_a_name_of_the_interpreter_begins_with_its_file_or_its_struct():
    headers = "\n".join(re.sub(r"//.*", "", p.read_text()) for p in (SRC / "jinja").glob("*.h"))
    known = {"jinja"} | set(re.findall(r"\bstruct (\w+)", headers)) | {p.stem for p in (SRC / "jinja").glob("*.[ch]")}
    known |= {k.split("_")[0] for k in known}
    # A declaration stands at the beginning of a line; its name is what comes before the bracket.
    names = re.findall(r"^(?!static|typedef|#|struct \w+;)[a-z][\w ]*[ *](\w+)(?:\(|\[\]|;|,| =)", headers, re.M)
    assert len(names) > 100
    wrong = [n for n in names if not any(n.startswith(k + "_") for k in known)]
    assert not wrong, wrong
