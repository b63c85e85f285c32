"""hokku replay: the answers of a session, evaluated again, are those of its recording."""
import json
import re
import struct

import pytest
from conftest import ROOT, model
from session_format import file, parts
from test_repl import chat, tiny  # noqa: F401 (fixtures)
from test_repl_sessions import SAMPLED, ask, sessions  # noqa: F401 (fixtures)


def test_replay_agrees_with_the_recording(hokku, chat, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED, "--session", "s", "--overflow", "shift", "-c", "128")
    for line in ("/system Be kind.", "one", "two", "/retry 77", "/set temp 0.5", "/continue", "three and some more words"):
        c.say(line)
    c.leave()
    r = hokku("replay", sessions / "s.session")
    assert r.returncode == 0 and b"all agree" in r.stdout and b"4 answers" in r.stdout, r
    assert json.loads(hokku("replay", "--json", "s").stdout)["agree"] is True


def test_replay_check_evaluates_in_other_pieces_with_drafts_and_in_company(hokku, chat, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED, "--session", "s", "--exact")
    for line in ("one", "two", "/retry 77", "/continue", "three"):
        c.say(line)
    c.leave()
    assert next(json.loads(p) for t, _, _, p in parts((sessions / "s.session").read_bytes()) if t == "META")["exact"] is True
    r = hokku("replay", "--check", "s")
    assert r.returncode == 0 and b"all agree" in r.stdout and b"4 answers" in r.stdout, r
    assert b"also evaluated anew, in pieces of 1 token, in pieces of 7 tokens, in pieces of 64 tokens, with drafts, " \
           b"beside other answers\n" in r.stdout, r
    said = json.loads(hokku("replay", "--check", "--json", "s").stdout)
    assert said["agree"] is True and said["answers"] == 4 and len(said["also"]) == 6 and "not_tried" not in said
    assert "also" not in json.loads(hokku("replay", "--json", "s").stdout)


@pytest.mark.parametrize("types", [("q8_0", "q8_0"), ("q8_0", "f16"), ("f16", "q8_0")], ids="-".join)
def test_replay_has_the_cache_types_of_the_recording(hokku, sessions, types):
    """Of q8_0 and f16 come other words: the recording says which they were, whatever the configuration says now."""
    k, v = types
    r = hokku("-ctk", k, "-ctv", v, "-n", 200, "-s", 5, "--temp", 1.5, "--ignore-eos", "--session", "s", "Write a haiku about the sea")
    assert r.returncode == 0, r.stderr
    meta = next(json.loads(p) for t, _, _, p in parts((sessions / "s.session").read_bytes()) if t == "META")
    assert (meta["cache_type_k"], meta["cache_type_v"]) == types
    other = {"HOKKU_CACHE_TYPE_K": "f16" if k == "q8_0" else "q8_0", "HOKKU_CACHE_TYPE_V": "f16" if v == "q8_0" else "q8_0"}
    for env in ({}, other):
        r = hokku("replay", "s", env=env)
        assert r.returncode == 0 and b"all agree" in r.stdout, r
    r = hokku("replay", "s", "-ctk", other["HOKKU_CACHE_TYPE_K"], "-ctv", other["HOKKU_CACHE_TYPE_V"])
    assert r.returncode == 1 and b"token" in r.stdout, r  # what is asked for is had


def test_replay_has_the_model_and_the_context_of_the_recording(hokku, tiny, sessions):
    """What the environment gives to every call names no other model or context for a recording; the command line does."""
    ask(hokku, tiny, "s", "one", "-c", 100, "--overflow", "shift", "-n", 150, "--ignore-eos")
    env = {"HOKKU_MODEL": str(ROOT / "builtin/hokku-builtin.gguf"), "HOKKU_CTX_SIZE": "60"}
    r = hokku("replay", "s", env=env)
    assert r.returncode == 0 and b"all agree" in r.stdout, r
    r = hokku("replay", "s", "-m", env["HOKKU_MODEL"])
    assert r.returncode == 1 and b"made with the model" in r.stderr, r
    r = hokku("replay", "s", "-c", 60)
    assert r.returncode == 5 and b"does not fit the context of 60" in r.stderr and b"room in -c 100" in r.stderr, r


@pytest.fixture
def shifted(hokku, tiny):
    """Three turns that shifted the context: the first one of 48 tokens, the others one of 64."""
    for n_ctx, prompts in ((48, "k\n"), (64, "b\nc\n")):
        r = hokku("-m", tiny, "--turns", "--session", "s", "--overflow", "shift", "-c", n_ctx, "-n", 70, "-s", 2, "--ignore-eos",
                  input=prompts)
        assert r.returncode == 0 and (b"left out" in r.stderr or n_ctx == 48), r.stderr


def test_replay_shifts_each_answer_as_the_context_that_it_was_recorded_in(hokku, shifted):
    for more in ((), ("-c", 2048, "--check")):
        r = hokku("replay", "s", *more)
        assert r.returncode == 0 and b"all agree: 210 tokens of 3 answers" in r.stdout and b"not compared" not in r.stdout, r
    assert b"beside other answers" in r.stdout
    r = hokku("replay", "s", "-c", 48)
    assert r.returncode == 5 and b"turn 2 does not fit the context of 48" in r.stderr and b"room in -c 64" in r.stderr, r


def test_replay_does_not_compare_what_was_shifted_in_a_context_of_unknown_length(hokku, shifted, sessions):
    """As sessions of hokku were before a run said it."""
    path = sessions / "s.session"
    data = parts(path.read_bytes())
    for n_ctx in (48, 64):
        data = [(t, b, e, p.replace(struct.pack("<IQ", 3, n_ctx), struct.pack("<I", 2)) if t == "MSGS" else p) for t, b, e, p in data]
    path.write_bytes(file(data))
    for n_ctx, compared in ((48, 1), (64, 2), (2048, 0)):
        r = hokku("replay", "s", "-c", n_ctx, "--check")
        said = f"{3 - compared} answer{'s' * (compared < 2)} not compared: made with --overflow shift in a context whose length is not recorded"
        assert said.encode() in r.stdout and b"differ" not in r.stderr and b"turn " not in r.stdout, r
        assert (r.returncode == 0) == (compared > 0) == (f" tokens of {compared} answer".encode() in r.stdout), r
    assert json.loads(hokku("replay", "--json", "s").stdout)["context_unknown"] == 1


def test_replay_names_the_context_that_the_answers_of_a_larger_one_need(hokku):
    """A session that was gone on with in a smaller context: its earlier answers are good, and need more room than the last one says."""
    for more in (("-s", 5, "count from 1 to 10"), ("-s", 6, "Write a haiku about the sea"), ("-s", 6, "Write a haiku about the moon"),
                 ("-s", 6, "-c", 80, "--overflow", "drop", "What is my name?")):
        r = hokku("--session", "s", *more)
        assert r.returncode == 0, r.stderr
    assert b"dropped the oldest 2 turns" in r.stderr
    for less in ((), ("-c", 20), ("--check",)):  # an answer, and a prompt, that does not fit
        r = hokku("replay", "s", *less)
        assert r.returncode == 5 and r.stdout == b"" and b"does not fit the context of" in r.stderr, r
    needed = int(re.search(rb"room in -c (\d+)", r.stderr)[1])
    assert needed > 80
    r = hokku("replay", "s", "-c", needed)
    assert r.returncode == 0 and b"4 answers" in r.stdout, r
    assert hokku("replay", "s", "-c", needed - 1).returncode == 5


def test_replay_names_the_first_token_that_differs(hokku, tiny, sessions):
    tokens = ask(hokku, tiny, "s", "one")["tokens"]
    path = sessions / "s.session"
    data = path.read_bytes()
    ids = struct.pack(f"<{len(tokens)}i", *tokens)
    other = (tokens[10] + 1) % 1000
    bad = ids[:40] + struct.pack("<i", other) + ids[44:]
    path.write_bytes(file((t, b, e, p.replace(ids, bad) if t == "MSGS" else p) for t, b, e, p in parts(data)))
    r = hokku("replay", "s")
    assert r.returncode == 1
    assert re.search(rf"turn 1, token 11 of \d+ .*recorded {other} .*now {tokens[10]} ".encode(), r.stdout), r.stdout


def test_replay_says_when_the_ground_has_changed(hokku, chat, tiny):
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    c.say("one")
    c.say("/system Something else.")
    c.say("two")
    c.leave()
    r = hokku("replay", "s")
    assert r.returncode == 0 and b"1 answer not compared" in r.stdout, r


def test_replay_tries_nothing_where_no_answer_can_be_compared(hokku, chat, tiny):
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    c.say("one")
    c.say("/system Something else.")
    c.leave()
    r = hokku("replay", "--check", "s")
    assert r.returncode == 1 and b"1 answer not compared: what came before" in r.stdout and b"tried" not in r.stdout, r
    assert r.stderr == b"hokku: no answer of the session could be compared\n", r
    said = json.loads(hokku("replay", "--check", "--json", "s").stdout)
    assert said["answers"] == 0 and said["skipped"] == 1 and "also" not in said, said
    assert len(said["not_tried"]) == 6 and set(said["not_tried"].values()) == {"no answer could be compared"}, said
    assert "not_tried" not in json.loads(hokku("replay", "--json", "s").stdout)
