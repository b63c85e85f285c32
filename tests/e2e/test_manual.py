"""Help, man page and shell completion: made from one table, and accepted by what reads them."""
import re
import subprocess

import pytest
from conftest import ROOT


@pytest.fixture
def printed(hokku, tmp_path):
    def get(kind):
        r = hokku("--print-completion", kind)
        assert r.returncode == 0, r.stderr
        path = tmp_path / kind
        path.write_bytes(r.stdout)
        return path
    return get


def test_every_option_of_the_help_is_in_all_of_them(hokku, printed):
    help_text = hokku("--help").stdout.decode()
    names = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", help_text)) | {"-sys", "-no-cnv", "-ctk"}
    assert len(names) > 50
    for kind in ("zsh", "man"):
        text = printed(kind).read_text().replace("\\-", "-")
        assert [n for n in names if n not in text] == []
    offered = hokku("--complete", "bash", "-", "hokku -").stdout.decode().split("\0")[1:]
    assert [n for n in names if n not in offered] == []


def test_every_command_of_the_chat_is_in_the_man_page(printed):
    text = printed("man").read_text()
    for name in ("/undo", "/retry", "/why", "/fork", "/continue", "/sessions"):
        assert f".B {name}" in text


def test_the_man_page_says_what_is_no_default(hokku, printed, tmp_path):
    """What the configuration refuses is what the page leaves out, and of its options nothing else."""
    text = printed("man").read_text().replace("\\-", "-")
    said = re.search(r"Every option but (.*?) may", text)[1]
    (tmp_path / "config/hokku").mkdir(parents=True)
    refused = []
    for name in re.findall(r"(?<![\w-])--[a-z][a-z-]+", hokku("--help").stdout.decode()):
        (tmp_path / "config/hokku/config").write_text(name[2:] + "\n")
        if b"is for the command line alone" in hokku("--lines").stderr and name not in refused:
            refused.append(name)
    assert sorted(re.findall(r"--[a-z-]+", said)) == sorted(refused)


def test_in_the_man_page_no_word_behind_an_option_looks_like_its_value(printed):
    """What is said of a short one stands in its line, where a value of others does."""
    text = printed("man").read_text().replace("\\-", "-")
    short = [(name, what) for name, what in re.findall(r"\.TP\n\.B (-\S+)\n(.*)", text) if len(name) < 7]
    assert len(short) > 4 and [o for o in short if o[1][0].isupper()] == []


def test_no_sentence_of_the_man_page_has_more_dots_than_it_means(printed):
    text = printed("man").read_text()
    assert "@coder ..." in text and re.findall(r".*\.{4}.*", text) == []


def test_man_reads_the_page_without_a_warning(printed):
    r = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", printed("man")], capture_output=True, text=True)
    assert r.returncode == 0 and r.stderr == ""


@pytest.mark.parametrize("name", ["coder", "editor", "haiku", "teacher", "terse", "translator"])
def test_system_prompts_are_found_and_say_for_which_models(hokku, stories, name):
    text = (ROOT / "prompts" / f"{name}.txt").read_text()
    assert re.match(r"# .*\n(# .*\n)*(?!#)", text) and re.search(r"\d(\.\d)?B", text.split("\n\n")[0])
    r = hokku("-m", stories, "-no-cnv", "--temp", 0, "-n", 1, "--json", "-sys", f"@{name}", "-c", 2048, "Hi")
    assert r.returncode == 0, r.stderr
    comment = hokku("-m", stories, "-no-cnv", "-n", 1, "-sys", "@nobody", "Hi")
    assert comment.returncode == 2 and f"@{name}".encode() in comment.stderr


def test_the_man_page_in_docs_is_the_one_the_program_prints(printed):
    assert (ROOT / "docs/hokku.1").read_text() == printed("man").read_text(), \
        "run: build/src/hokku --print-completion man > docs/hokku.1"
