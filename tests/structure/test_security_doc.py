"""docs/security.md names a test behind each claim: every one of them is there."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_test_that_the_security_document_names_exists():
    document = (ROOT / "docs/security.md").read_text()
    sources = {p.relative_to(ROOT / "tests").as_posix(): p.read_text(errors="replace")
               for p in (ROOT / "tests").rglob("*") if p.suffix in (".py", ".c")}
    claims = [line.split("|")[1:-1] for line in document.splitlines() if line.startswith("| ") and "claim | test" not in line]
    assert len(claims) > 25
    functions = {name for text in sources.values() for name in re.findall(r"\b(?:def|static void) (\w+)\(", text)}
    for claim, tests in claims:
        names = re.findall(r"`([^`]+)`", tests)
        assert names, claim
        for name in names:
            if "/" in name:
                assert name in sources, name
            else:
                assert name in functions, name
