"""Of options that exclude each other the command line's counts, whatever the environment and the configuration file say."""
import json
import re

import pytest

from conftest import BY_ITSELF

N = ["-n", "1"]


def finished(r):
    assert r.returncode == 0, r
    return json.loads(r.stdout.splitlines()[0])


@pytest.fixture
def saved(hokku, home):
    hokku(*N, "--session", "other", "hi")
    hokku(*N, "--session", "mine", "hi")
    return home


@pytest.mark.parametrize("env,args", [
    ({"HOKKU_SESSION": "other"}, ["--continue", "hi"]), ({"HOKKU_SESSION": "other"}, ["--base", "mine", "hi"]), ({"HOKKU_SESSION": "other"}, ["--lines"]),
    ({"HOKKU_SESSION": "other", "HOKKU_CONTINUE": "1"}, ["--lines"]), ({"HOKKU_LINES": "1"}, ["--turns"]), ({"HOKKU_TURNS": "1"}, ["--lines"]),
    ({"HOKKU_LINES": "1"}, ["--session", "mine", "hi"]), ({"HOKKU_CONTINUE": "1"}, ["--session", "mine", "hi"]),
    ({"HOKKU_GRAMMAR": 'root ::= "no"'}, ["-j", '{"const": 1}', "hi"]), ({"HOKKU_IGNORE_EOS": "1"}, ["-j", '{"const": 1}', "hi"]),
    ({"HOKKU_JSON_SCHEMA": "{}"}, ["--ignore-eos", "hi"]), ({"HOKKU_CHAT_TEMPLATE": "chatml"}, ["-no-cnv", "hi"]),
    ({"HOKKU_NO_CONVERSATION": "1"}, ["--chat-template", "chatml", "hi"]), ({"HOKKU_PROMPT": "x"}, ["hi"]),
    ({"HOKKU_HF_REPO": "no/such"}, ["-m", None, "hi"])])
@pytest.mark.parametrize("file", [False, True])
def test_the_command_line_counts(hokku, saved, stories, tmp_path, env, args, file):
    args = [stories if a is None else a for a in args]
    if file:
        (tmp_path / "config/hokku").mkdir(parents=True, exist_ok=True)
        (tmp_path / "config/hokku/config").write_text("".join(f"{k[6:].lower()} = {v}\n" for k, v in env.items()))
        env = {}
    before = (tmp_path / "state/hokku/sessions/other.session").read_bytes()
    got = finished(hokku(*N, "--json", *args, env=env, input="hi\n" if args[0] in ("--lines", "--turns") else None))
    assert (tmp_path / "state/hokku/sessions/other.session").read_bytes() == before
    if "-j" in args:
        assert got["text"] == "1"


def test_quiet_on_the_command_line_counts_where_others_have_more_said(hokku, tmp_path):
    (tmp_path / "config/hokku").mkdir(parents=True)
    (tmp_path / "config/hokku/config").write_text("logprobs 2\nstats\n")
    env = {"HOKKU_VERBOSE": "1"}
    assert hokku(*N, "-q", "hi", env=env).stderr == b""
    assert [len(p["top"]) for p in finished(hokku(*N, "-q", "--json", "hi", env=env))["logprobs"]] == [2]
    assert b"context" in hokku(*N, "-q", "--stats", "hi").stderr and b"seed" in hokku(*N, "-q", "-v", "hi").stderr
    assert b"context" in hokku(*N, "--stats", "hi", env={"HOKKU_QUIET": "1"}).stderr


@pytest.mark.parametrize("env", [True, False])
def test_a_saved_conversation_keeps_its_system_prompt_and_the_configurations_is_for_new_ones(hokku, saved, tmp_path, env):
    hokku(*N, "--session", "own", "-sys", "Be brief.", "hi")
    if not env:
        (tmp_path / "config/hokku").mkdir(parents=True, exist_ok=True)
        (tmp_path / "config/hokku/config").write_text("system-prompt Be loud.\n")
    env = {"HOKKU_SYSTEM_PROMPT": "Be loud."} if env else {}
    for name, system in [("own", b"Be brief."), ("mine", None), ("new", b"Be loud.")]:
        for _ in range(2):
            assert hokku(*N, "--session", name, "more", env=env).returncode == 0
        text = hokku("sessions", "export", name, "-").stdout
        assert text.startswith(b"## System\n\n" + system if system else b"## You"), (name, text)
    hokku(*N, "--session", "own", "-sys", "Be kind.", "more", env=env)
    assert hokku("sessions", "export", "own", "-").stdout.startswith(b"## System\n\nBe kind.")
    finished(hokku(*N, "--session", "own", "-sys", "", "more", "--json", env=env))
    assert hokku("sessions", "export", "own", "-").stdout.startswith(b"## You")


@pytest.mark.parametrize("how", ["--session", "--base"])
def test_a_shape_of_the_command_line_counts_and_not_what_a_session_has_that_excludes_it(hokku, home, how):
    finished(hokku(*N, "--json", "--session", "own", "--ignore-eos", "hi"))
    assert finished(hokku("-n", 9, "--json", how, "own", "-j", '{"const": 1}', "hi"))["text"] == "1"
    assert finished(hokku("-n", 9, "--json", how, "own", "--grammar", 'root ::= "no"', "hi"))["text"] == "no"
    assert finished(hokku("-n", 40, "--json", how, "own", "hi"))["finish_reason"] == ("stop" if how == "--session" else "length")


def test_of_two_system_prompts_the_command_lines_is_read(hokku, tmp_path):
    (tmp_path / "s").write_text("short")
    long = {"HOKKU_SYSTEM_PROMPT": "a much longer text " * 9}
    n = lambda *a, **kw: finished(hokku(*N, "--json", *a, "hi", **kw))["prompt_tokens"]
    assert n("-sysf", tmp_path / "s", env=long) == n("-sysf", tmp_path / "s") < n(env=long)


@pytest.mark.parametrize("env,says", [
    ({"HOKKU_SESSION": "a", "HOKKU_CONTINUE": "1"}, b"HOKKU_SESSION and HOKKU_CONTINUE cannot be combined: expected one of them"),
    ({"HOKKU_SESSION": "a"}, b"HOKKU_SESSION and lines ({}:2) cannot be combined: each line is"),
    ({}, b"")])
def test_where_both_are_from_elsewhere_the_error_says_from_where(hokku, tmp_path, env, says):
    (tmp_path / "config/hokku").mkdir(parents=True)
    config = tmp_path / "config/hokku/config"
    config.write_text("# all lines\nlines\n")
    r = hokku(*N, env=env, input="hi\n")
    assert r.returncode == (2 if says else 0) and says.replace(b"{}", bytes(config)) in r.stderr and (r.stdout == b"") == bool(says), r
    assert hokku("sessions", env=env).returncode == 0  # to whom neither is a word


@pytest.mark.parametrize("name,value,says", [("model", "/nonexist.gguf", "/nonexist.gguf: cannot open"), ("device", "gpu", '--device: found "gpu"'),
                                             ("model", "http://h/m.gguf", "-m: found an http://"), ("hf-repo", "nope", '--hf-repo: found "nope", expected USER/REPO'),
                                             ("spec", "draft", "--spec draft: found no draft model"),
                                             ("system-prompt", "@nope", "@nope: no such system prompt"), ("json-schema", "@nope", "--json-schema: nope: cannot be opened")])
def test_an_error_about_a_value_from_elsewhere_says_from_where_also_where_it_is_found_late(hokku, tmp_path, name, value, says):
    config = tmp_path / "config/hokku/config"
    config.parent.mkdir(parents=True)
    variable = "HOKKU_" + name.upper().replace("-", "_")
    assert hokku("hi", env={variable: value}).stderr.startswith(f"hokku: environment variable {variable}: {says}".encode())
    config.write_text(f"temp 0\n{name} {value}\n")
    assert hokku("hi").stderr.startswith(f"hokku: {config}:2: {says}".encode())
    r = hokku(f"--{name}", value, "hi", env={variable: value})  # who has just typed it knows
    assert r.returncode in (2, 3) and r.stderr.startswith(f"hokku: {says}".encode()), r


# What each option with a value does not take, where "x" is one that it does or is found wrong only later.
CANNOT_BE = {"model": "/nofile", "file": "/nofile", "system-prompt": "@nope", "system-prompt-file": "/nofile", "chat-template-file": "/nofile", "model-draft": "/nofile",
             "json-schema": "{", "grammar-file": "/nofile", "session": "no/name", "base": "nope"}
ANY_TEXT = {"prompt", "prefill", "reverse-prompt"}


def test_an_error_about_any_setting_from_elsewhere_says_from_where(hokku, tmp_path):
    config = tmp_path / "config/hokku/config"
    config.parent.mkdir(parents=True)
    names = [*re.findall(r"^ +(?:-\w+, )?--([\w-]+) [A-Za-z|]", hokku("--help").stdout.decode(), re.M), "continue"]
    assert len(names) > 50 and ANY_TEXT | set(CANNOT_BE) < set(names)
    for name in names:
        if name in ANY_TEXT | {"print-completion"}:
            continue
        value, variable = CANNOT_BE.get(name, "1" if name == "continue" else "x"), "HOKKU_" + name.upper().replace("-", "_")
        r = hokku("hi", env={**BY_ITSELF, variable: value})
        assert r.returncode and r.stderr.startswith(f"hokku: environment variable {variable}: ".encode()), (name, r)
        config.write_text(f"temp 0\n{name} {value}\n")
        r = hokku("hi", env={} if name == "keep" else BY_ITSELF)
        assert r.returncode and r.stderr.startswith(f"hokku: {config}:2: ".encode()), (name, r)
        config.unlink()


@pytest.mark.parametrize("args", [["sessions"], ["models"], ["tokenize", "text"], ["inspect"], ["render", "context.json"], ["score", "text"], ["replay", "other"], ["bench", "-p", "8", "-n", "2"],
                                  ["serve", "--stop"], ["--version"], ["--print-completion", "bash"]], ids=" ".join)
def test_what_a_configuration_says_of_answers_holds_up_nothing_else(hokku, saved, tmp_path, args):
    (tmp_path / "config/hokku").mkdir(parents=True)
    (tmp_path / "config/hokku/config").write_text("spec draft\nsession a\ncontinue\n")
    (tmp_path / "text").write_text("one two three")
    (tmp_path / "context.json").write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}]}))
    r = hokku(*args, cwd=tmp_path)
    assert r.returncode == 0, r
    for args, says in ([*N, "hi"], b"cannot be combined"), ([*N, "--session", "a", "hi"], b"expected -md FILE"), (["serve"], b"expected -md FILE"):
        r = hokku(*args)
        assert r.returncode == 2 and says in r.stderr, r
