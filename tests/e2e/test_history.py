"""What was typed in a chat, kept for the next one."""
import os
import stat

from test_repl import PLAIN, chat  # noqa: F401 (fixtures)


def test_history_is_kept_private_and_comes_back(chat, stories, home):  # noqa: F811
    c = chat("-m", stories, *PLAIN, "-n", 4)
    c.say("a line to remember\nwith a second one \\n")
    assert c.leave() == 0
    path = os.path.join(home["XDG_STATE_HOME"], "hokku", "history")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    c = chat("-m", stories, *PLAIN, "-n", 4)
    c.p.send("\x1b[A")
    c.p.expect("remember")
    c.p.expect(r"second one \\n")
    c.p.send("\x1b[B\x12")  # Down, Ctrl-R
    c.p.expect("search")
    c.p.send("to rem\r")  # Enter runs what was found
    c.p.expect("cut after")
    c.ready()
    assert "a line to remember" in c.say("/context")


def test_a_message_too_long_for_the_history_costs_no_other(chat, stories, home, tmp_path):  # noqa: F811
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nhead -c 1100000 /dev/zero | tr '\\0' 'z' > \"$1\"\n")
    editor.chmod(0o700)
    c = chat("-m", stories, *PLAIN, "-n", 4, env={"VISUAL": str(editor)})
    c.say("one to remember")
    c.p.send("/editor\r")
    c.p.expect("zzz")
    c.p.send("\r")
    c.p.expect("the history is not kept: a message of 1100000 bytes, expected at most 1048576")
    c.ready()
    c.say("and another")
    assert c.leave() == 0
    with open(os.path.join(home["XDG_STATE_HOME"], "hokku", "history")) as f:
        assert f.read().split("\n") == ["one to remember", "/editor", "and another", ""]


def test_a_damaged_history_loses_no_line_but_the_damaged(chat, stories, home):  # noqa: F811
    path = os.path.join(home["XDG_STATE_HOME"], "hokku", "history")
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
        f.write(b"first\n" + bytes(100) + b"second\nhalf of the thi")
    c = chat("-m", stories, *PLAIN, "-n", 4)
    for entry in ("half of the thi", "second", "first"):
        c.p.send("\x1b[A")
        c.p.expect(entry, timeout=10)
    c.p.send("\x05\x15")
    c.say("a whole one")
    assert c.leave() == 0
    with open(path, "rb") as f:
        assert f.read().endswith(b"\nhalf of the thi\na whole one\n")


def test_no_history_leaves_no_file(chat, stories, home):  # noqa: F811
    c = chat("-m", stories, *PLAIN, "-n", 4, "--no-history")
    c.say("a secret")
    c.leave()
    assert not os.path.exists(os.path.join(home["XDG_STATE_HOME"], "hokku", "history"))
