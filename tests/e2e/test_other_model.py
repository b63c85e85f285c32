"""/model: the same conversation with another model; and what else a chat can change in the middle and take back."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pexpect
import pytest
from conftest import HOKKU, ROOT, model
from test_places import shim  # noqa: F401 (fixture)
from test_pull import server  # noqa: F401 (fixture)
from test_repl import PLAIN, chat, tiny  # noqa: F401 (fixtures)

BUILTIN = str(ROOT / "builtin/hokku-builtin.gguf")


def test_the_same_model_again_goes_on_as_if_nothing_had_happened(chat, stories, tmp_path):
    shutil.copy(stories, tmp_path / "a copy.gguf")
    c = chat("-m", stories, *PLAIN, "-n", 10)
    first, want = c.answer("Once upon a time"), c.answer("There was")
    c = chat("-m", stories, *PLAIN, "-n", 10)
    assert c.answer("Once upon a time") == first
    assert "(now " in c.say(f"/model '{tmp_path}/a copy.gguf'")
    assert c.answer("There was") == want
    assert f"{tmp_path}" not in c.say("/model") and "context   128" in c.say("/model")


def test_another_model_reads_what_was_said(chat, hokku, stories):
    """Its answer is the one that it gives to the same text, in a program of its own."""
    c = chat("-m", stories, *PLAIN, "-n", 10)
    first = c.answer("Once upon a time").strip("\n")
    c.say(f"/model {BUILTIN}")
    second = c.answer("and then").strip()
    want = hokku("-m", BUILTIN, *PLAIN, "-n", 10, f"Once upon a time{first}\nand then").stdout.decode().strip()
    assert second == want
    # The turns before can be undone and brought back, as ever.
    c.say("/undo 2")
    assert "2 turns" in c.say("/redo 2")
    assert c.say("/context").count("\n") >= 4


def test_the_seed_stays_whoever_chose_it(chat, tiny):
    c = chat("-m", tiny, "-n", 4)
    for line in ("/set seed random", "/retry", "/retry 5"):
        c.say("one")
        c.say(line)
        before = c.say("/set seed").split("seed ")[-1]
        for name in (BUILTIN, tiny):
            assert "(now " in c.say(f"/model {name}") and c.say("/set seed").split("seed ")[-1] == before


def test_a_template_comes_with_its_model(chat, stories):
    c = chat("-m", stories, "--temp", 0, "-n", 10)
    c.say("Once upon a time")
    assert "none: plain completion" in c.say("/show model")
    c.say(f"/model {BUILTIN}")
    assert "<|im_start|>" in c.say("/show template") and "template  yes" in c.say("/model")
    assert "hokku:" not in c.say("Who are you?")


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    """Files of no use: one is missing, one no model, one cut off, one has a template that is none; the last one's keys and values
    have no room anywhere, which is known only when there is no other model any more."""
    d = tmp_path_factory.mktemp("bad")
    (d / "not.gguf").write_text("no model")
    whole = open(BUILTIN, "rb").read()
    (d / "cut.gguf").write_bytes(whole[:len(whole) // 2])
    assert b"{% for" in whole or b"{%- for" in whole
    (d / "template.gguf").write_bytes(whole.replace(b"{% for", b"{% fur").replace(b"{%- for", b"{%- fur"))
    subprocess.run([sys.executable, ROOT / "tests/make_gguf.py", d / "fat.gguf", *"--arch qwen2 --layers 3 --embd 32 --heads 64".split(),
                    *"--kv-heads 64 --head-dim 1024 --ff 32 --types Q8_0 --vocab 300".split()], check=True, capture_output=True)
    return d


@pytest.mark.parametrize("other,message", [("nowhere", "No such file"), ("not", "expected \"GGUF\""), ("cut", "truncated"),
                                           ("template", "the chat template"), ("fat", "are available")])
def test_a_model_that_cannot_be_loaded_loses_nothing(chat, bad, other, message):
    options = ["-m", BUILTIN, "--temp", 0, "-n", 10, "-c", 2000000]
    c = chat(*options)
    first, want = c.answer("Hello"), c.answer("Who are you?")
    c = chat(*options)
    assert c.answer("Hello") == first
    out = c.say(f"/model {bad}/{other}.gguf")
    assert "hokku: " in out and message in out
    assert c.answer("Who are you?") == want
    assert c.leave() == 0


def test_where_the_old_model_has_no_room_either_the_chat_ends_and_is_kept(chat, hokku, stories, bad, shim, tmp_path):
    memory = tmp_path / "meminfo"
    memory.write_text("MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n")
    c = chat("-m", stories, *PLAIN, "-n", 10, env={"LD_PRELOAD": shim, "TEST_MEMINFO": str(memory)})
    first = c.answer("Once upon a time")
    memory.write_text("MemTotal: 16000000 kB\nMemAvailable: 1 kB\n")  # somebody else has taken it
    c.p.send(f"/model {bad}/fat.gguf\r")
    c.p.expect(pexpect.EOF)
    c.p.close()
    assert c.p.exitstatus == 4
    assert "cannot be opened again" in c.p.before and c.p.before.count("are available") == 2
    c = chat("-m", stories, *PLAIN, "-n", 10, "--continue")
    assert "1 turn" in c.first and first.strip() in c.first


# ------------------------------------------------------------------------------------------ from the Hub


@pytest.fixture
def hub(server, home):
    """A Hub with the builtin model, and one file that is none; `home` asks it."""
    server.reset()
    server.add("someone/Small-GGUF", files={"small-q8_0.gguf": pathlib.Path(BUILTIN).read_bytes()})
    server.add("someone/Broken-GGUF", files={"broken-q8_0.gguf": b"GGUF" + bytes(2000)})
    home.update(HF_ENDPOINT=server.url, NO_PROXY="*")
    return server


def test_a_model_by_its_name_is_downloaded_and_answers(chat, hub, stories):
    c = chat("-m", stories, *PLAIN, "-n", 10)
    c.answer("Once upon a time")
    out = c.say("/model someone/Small-GGUF:q8_0")
    assert "downloaded small-q8_0.gguf" in out and "(now hokku built-in" in out
    want = c.answer("and then")
    c = chat("-m", stories, *PLAIN, "-n", 10)
    c.answer("Once upon a time")
    assert "(now hokku built-in" in c.say(f"/model {BUILTIN}")
    assert c.answer("and then") == want
    # There already: nothing is said of a download, nor of the places that were looked into.
    c.say(f"/model {stories}")
    assert [l[:5] for l in c.say("/model someone/Small-GGUF:q8_0").strip().split("\n")[1:]] == ["(now "]


@pytest.mark.parametrize("name,message", [("someone/Nowhere-GGUF", "someone/Nowhere-GGUF"), ("someone/Broken-GGUF", "GGUF"),
                                          ("someone/Small-GGUF:q2_k", "q2_k")])
def test_a_name_that_gives_no_model_loses_nothing(chat, hub, name, message):
    options = ["-m", BUILTIN, "--temp", 0, "-n", 10]
    c = chat(*options)
    first, want = c.answer("Hello"), c.answer("Who are you?")
    c = chat(*options)
    assert c.answer("Hello") == first
    errors = [l for l in c.say(f"/model {name}").split("\n") if l.startswith("hokku: ")]
    assert len(errors) == 1 and message in errors[0]
    assert c.answer("Who are you?") == want


def test_what_is_named_as_a_file_is_one_and_asks_nobody(chat, hub, stories):
    c = chat("-m", stories)
    for name in ("someone/small.gguf", "someone/Small-q8_0.GGUF", "./someone/Small-GGUF", "someone/Small-GGUF/x"):
        before = len(hub.seen())
        assert f"hokku: {name}: cannot open: No such file" in c.say(f"/model {name}") and len(hub.seen()) == before


def test_ctrl_c_stops_the_download_and_the_chat_goes_on(chat, hub, stories):
    options = ["-m", stories, *PLAIN, "-n", 10]
    c = chat(*options)
    first, want = c.answer("Once upon a time"), c.answer("There was")
    c = chat(*options)
    assert c.answer("Once upon a time") == first
    hub.plan = [("slow", 150_000, 0.5)]
    c.p.send("/model someone/Small-GGUF\r")
    c.p.expect(r"\d %")
    c.p.send("\x03")
    c.ready()
    assert c.answer("There was") == want
    assert c.leave() == 0


def test_a_saved_session_follows_to_the_other_model(chat, hokku, stories, tiny):
    c = chat("-m", stories, *PLAIN, "-n", 10, "--session", "s")
    c.say("Once upon a time")
    c.say(f"/model {tiny}")
    c.say("more")
    assert c.leave() == 0
    c = chat("--session", "s", *PLAIN, "-n", 10)
    assert "2 turns" in c.first
    assert "Once upon a time" in c.say("/context")
    assert "qwen2" in c.say("/model")
    assert hokku("replay", "s").returncode == 0


def test_a_session_of_another_model_names_the_command_that_opens_it(chat, hokku, stories, tiny, tmp_path):
    other = tmp_path / "it's a \"model\".gguf"
    shutil.copy(tiny, other)
    assert hokku("-m", other, "-n", 3, "--session", "theirs", "Hello").returncode == 0
    c = chat("-m", stories, *PLAIN, "-n", 5)
    c.say("Once upon a time")
    said = re.search(r"^hokku: session theirs is of another model .*: (/model .*), then (/load theirs)$", c.say("/load theirs"), re.M)
    assert "1 turn" not in c.say("/undo")  # nothing was replaced
    assert "(now " in c.say(said.group(1))
    assert "(session theirs: 1 turn" in c.say(said.group(2))
    assert c.leave() == 0
    other.unlink()
    c = chat("-m", stories, *PLAIN)
    out = c.say("/load theirs")
    assert "made with the model" in out and "/model" not in out  # its file is gone


def test_what_was_replaced_comes_back_to_the_other_model(chat, stories, tiny):
    c = chat("-m", stories, *PLAIN, "-n", 6)
    c.say("one two three")
    c.say("/clear")
    c.say(f"/model {tiny}")
    assert "1 turn" in c.say("/undo")
    assert "one two three" in c.say("/context")
    assert "hokku:" not in c.say("go on")


def test_token_ids_of_the_other_model_are_not_guessed(chat, stories, tiny):
    c = chat("-m", stories, *PLAIN, "-n", 6, "-l", "5+2")
    assert "/set logit-bias off" in c.say(f"/model {tiny}")
    c.say("/set logit-bias none")
    c.say('/set schema {"type":"integer"}')
    assert "/set schema off" in c.say(f"/model {tiny}")
    c.say("/set schema off")
    assert "(now " in c.say(f"/model {tiny}")


def test_biases_for_the_other_model_do_not_come_back_with_undo(chat, stories, tiny):
    """They would be for whatever tokens have these ids here, or for none, and a session that is saved so could not be loaded."""
    c = chat("-m", stories, *PLAIN, "-n", 6, "--session", "plain")
    c.say("one")
    assert c.leave() == 0
    c = chat("-m", stories, *PLAIN, "-n", 6, "-l", "5+2")
    c.say("two")
    c.say("/load plain")
    assert "logit-bias" not in c.say("/undo") and "5+2" in c.say("/set logit-bias")  # the model is the same
    c.say("/redo")
    c.say(f"/model {tiny}")
    out = c.say("/undo")
    assert "(what was replaced is back" in out and "(logit-bias is off: it named tokens of another model)" in out
    assert "logit-bias off" in c.say("/set logit-bias")
    assert "logit-bias" not in c.say("/redo")


def test_settings_that_load_changed_come_back_with_undo(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 6, "--session", "warm")
    c.say("/set temp 0.7")
    c.say("/set think hide")
    c.say("one")
    assert c.leave() == 0
    c = chat("-m", stories, *PLAIN, "-n", 4, "--top-k", 7)
    c.say("two")
    c.say("/load warm")
    assert ["temp 0.7", "n-predict 6"] == [c.say(f"/set {s}").split("\n")[1].strip() for s in ("temp", "n-predict")]
    c.say("/set min-p 0.2")
    c.say("/undo")
    now = [c.say(f"/set {s}").split("\n")[1].strip() for s in ("temp", "n-predict", "top-k", "think", "min-p")]
    assert now == ["temp 0", "n-predict 4", "top-k 7", "think default", "min-p 0.05"]
    c.say("/redo")
    assert ["temp 0.7", "min-p 0.2"] == [c.say(f"/set {s}").split("\n")[1].strip() for s in ("temp", "min-p")]


# ------------------------------------------------------------------------------- a prompt around messages


@pytest.fixture
def frame(home):
    d = os.path.join(home["XDG_CONFIG_HOME"], "hokku", "prompts")
    os.makedirs(d)
    with open(os.path.join(d, "frame.txt"), "w") as f:
        f.write("Say {{input}} and {{input}} again:\n")
    return lambda text: f"Say {text} and {text} again:"


def test_a_prompt_with_a_place_for_the_input_stands_around_it(hokku, frame, stories):
    ask = lambda *args, **kw: hokku("-m", stories, *PLAIN, "-n", 8, *args, **kw).stdout
    assert ask("-sys", "@frame", "the boy") == ask(frame("the boy")) != ask("the boy")
    assert ask("-sys", "@frame", input="the boy\n") == ask(frame("the boy"))
    assert ask("-sys", "@frame", "--lines", input="a\nb\n") == ask("--lines", input=f"{frame('a')}\n{frame('b')}\n")
    assert ask("-sys", "@frame", "--turns", input="a\nb\n") == ask("--turns", input=f"{frame('a')}\n{frame('b')}\n")
    assert ask("-sys", "{{input}}", "x") == ask("-sys", "{{input}}", "x")  # as a text it is a text
    r = hokku("-m", stories, "-sys", "@frame", input="")
    assert r.returncode == 2 and b"no prompt" in r.stderr


def test_the_chat_puts_messages_into_it_until_told_otherwise(chat, frame, stories):
    c = chat("-m", stories, *PLAIN, "-n", 3, "-sys", "@frame")
    assert "Say {{input}} and" in c.say("/system")
    c.say("one")
    c.p.send("/edit\r")
    c.p.expect_exact(frame("one"))  # what was sent, and it is sent as it is
    c.say("")
    assert c.say("/context").count("Say") == 1
    c.say("/system none")
    assert "(no system prompt)" in c.say("/system")
    c.say("two")
    c.p.send("/system @fra\t\r")
    c.p.expect_exact("each message is put into @frame")
    c.ready()
    c.say("three")
    out = c.say("/context")
    assert frame("one") in out and frame("three") in out and "  two\n" in out
    c.say("/system plain words")
    assert "{{input}}" not in c.say("/system")
