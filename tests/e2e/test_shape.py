"""Answers held to a JSON Schema or a grammar, from the command line."""
import json

import jsonschema
import pytest

from conftest import ROOT
from test_repl import chat  # noqa: F401 (fixture)

BUILTIN = ["-m", ROOT / "builtin/hokku-builtin.gguf", "--device", "cpu", "--no-history"]
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
          "required": ["name", "age"], "additionalProperties": False}


@pytest.mark.parametrize("seed", range(6))
def test_every_answer_obeys_whatever_the_temperature(hokku, seed):
    r = hokku(*BUILTIN, "-s", seed, "--temp", [0, .8, 5][seed % 3], "-j", json.dumps(PERSON), "Who are you?")
    assert r.returncode == 0, r.stderr
    jsonschema.validate(json.loads(r.stdout), PERSON)
    assert r.stdout == json.dumps(json.loads(r.stdout), separators=(",", ":"), ensure_ascii=False).encode()


def test_a_schema_from_a_file_for_every_line_and_indented(hokku, tmp_path):
    (tmp_path / "person.json").write_text(json.dumps(PERSON))
    r = hokku(*BUILTIN, "-j", f"@{tmp_path / 'person.json'}", "--lines", input="a\nb\nc\n")
    assert r.returncode == 0 and len(r.stdout.splitlines()) == 3
    for line in r.stdout.splitlines():
        jsonschema.validate(json.loads(line), PERSON)
    r = hokku(*BUILTIN, "-j", f"@{tmp_path / 'person.json'}", "--json-indent", 2, "Hi")
    assert r.stdout.decode().rstrip("\n") == json.dumps(json.loads(r.stdout), indent=2, ensure_ascii=False)


def test_the_same_seed_gives_the_same_answer(hokku):
    runs = {hokku(*BUILTIN, "-s", 7, "-j", json.dumps(PERSON), "Hi").stdout for _ in range(2)}
    assert len(runs) == 1


def test_a_grammar_as_text_and_as_a_file(hokku, tmp_path):
    text = 'root ::= ("yes" | "no") ", " [a-z]{3}'
    (tmp_path / "g.gbnf").write_text(text)
    (tmp_path / "marked.gbnf").write_bytes(b"\xef\xbb\xbf" + text.encode())  # as some editors begin a file
    for option in (["--grammar", text], ["--grammar-file", tmp_path / "g.gbnf"], ["--grammar-file", tmp_path / "marked.gbnf"]):
        r = hokku(*BUILTIN, *option, "Is the sea wet?")
        assert r.returncode == 0 and r.stdout.decode().rstrip("\n")[-5:-3] == ", " and r.stdout.startswith((b"yes", b"no"))


def test_an_answer_cut_by_its_length_is_a_failure_that_is_said(hokku):
    r = hokku(*BUILTIN, "-n", 4, "--json", "-j", json.dumps(PERSON), "Hi")
    assert r.returncode == 1 and json.loads(r.stdout)["finish_reason"] == "length"
    assert b"before it obeyed the grammar" in r.stderr and b"--json-close" in r.stderr


@pytest.mark.parametrize("n", [26, 30, 40])
def test_json_close_brings_it_to_its_end_in_time(hokku, n):
    r = hokku(*BUILTIN, "-n", n, "--temp", 5, "--json-close", "-j", json.dumps(PERSON), "Hi")
    assert r.returncode == 0, r.stderr
    jsonschema.validate(json.loads(r.stdout), PERSON)


def test_json_close_ends_thinking_in_time(hokku, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ messages[-1]['content'] }}\n<think>\n")
    r = hokku(*BUILTIN, "--chat-template-file", tmp_path / "t.jinja", "--think", "hide", "-n", 60, "--temp", 3, "--json-close", "-j", json.dumps(PERSON), "Hi")
    assert r.returncode == 0, r.stderr
    jsonschema.validate(json.loads(r.stdout), PERSON)


def test_a_line_that_does_not_obey_does_not_stop_the_others(hokku):
    r = hokku(*BUILTIN, "-n", 4, "--lines", "--json", "--grammar", 'root ::= "a" | "this is far longer than four tokens can say, and is said nevertheless"', input="a\nb\nc\nd\ne\nf\n")
    ended = [json.loads(l) for l in r.stdout.splitlines()]
    assert all(("text" in j) for j in ended) and r.stderr.count(b"before it obeyed") == sum(j["finish_reason"] == "length" for j in ended)
    short = [j for j in ended if j["text"] == "a"]
    assert r.returncode == (len(short) < 6) and len(ended) == 6
    assert all(j["finish_reason"] == ("stop" if j in short else "length") for j in ended)


def test_a_stop_text_that_cuts_it_is_a_failure(hokku):
    r = hokku(*BUILTIN, "--grammar", 'root ::= "one two"', "-r", "tw", "Hi")
    assert r.returncode == 1 and b"at a stop text before it obeyed the grammar: leave -r out" in r.stderr and b"larger" not in r.stderr


def test_a_grammar_that_begins_with_a_blank_is_obeyed_to_the_byte(hokku):
    r = hokku(*BUILTIN, "--grammar", 'root ::= " x" "\\n"', "Hi")
    assert (r.returncode, r.stdout) == (0, b" x\n"), r


def test_alternatives_are_those_of_the_model(hokku):
    r = hokku(*BUILTIN, "--json", "--logprobs", 3, "--grammar", 'root ::= "q" [0-9]', "Hi")
    j = json.loads(r.stdout)
    assert r.returncode == 0 and j["text"][0] == "q", r
    assert all(len(t["top"]) == 3 for t in j["logprobs"]), j["logprobs"][0]


def test_a_chat_takes_a_schema_shows_it_and_lets_it_go(chat, tmp_path):
    (tmp_path / "person.json").write_text(json.dumps(PERSON))
    (tmp_path / "bad.json").write_text('{"type": "object",\n "not": {"required": ["a"]}}')
    c = chat(*BUILTIN, "-n", 80, "--json-close")
    assert "schema               off" in c.say("/set")
    assert f"schema               @{tmp_path}/person.json" in c.say(f"/set schema @{tmp_path}/person.json")
    for _ in range(2):
        jsonschema.validate(json.loads(c.answer("Who are you?")), PERSON)
    c.say("/clear")  # what the conversation is replaced by is held to it, too
    jsonschema.validate(json.loads(c.answer("Who are you?")), PERSON)
    jsonschema.validate(json.loads(c.answer("/retry 9")), PERSON)
    out = c.say(f"/set schema @{tmp_path}/bad.json")
    assert "line 2, column 2 (#/not)" in out
    assert "person.json" in c.say("/set schema")  # as before
    c.say("/set ignore-eos on")
    assert "cannot be combined" in c.say("Who are you?")
    c.say("/set ignore-eos off")
    assert "schema               off" in c.say("/set schema off")
    assert not c.answer("Who are you?").startswith("{")


def test_a_chat_names_a_schema_s_file_as_others_and_completes_it(chat, home, tmp_path):
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a folder/person.json").write_text('{"const": 7}')
    assert home["HOME"] == str(tmp_path)
    c = chat(*BUILTIN, "-n", 20)
    for typed in ("~/a folder/person.json", "~/a\\ folder/person.json", f'"{tmp_path}/a folder/person.json"'):
        assert f"schema               @{typed}" in c.say(f"/set schema @{typed}")
        assert c.answer("Who are you?").strip() == "7"
        c.say("/set schema off")
    c.p.send("/set schema @~/a\t")
    c.p.expect_exact("\\ folder/")
    c.p.send("p\t")
    c.p.expect_exact("erson.json")
    assert "schema               @~/a\\ folder/person.json" in c.say("")
    out = c.say(f"/set schema {tmp_path}/a folder/person.json").replace("\r\n", "")
    assert f"is a file: /set schema @{tmp_path}/a folder/person.json reads it" in out and "--json" not in out


def test_a_chat_says_when_an_answer_does_not_obey_yet(chat):
    grammar = 'root ::= "this is far longer thén three tökens ççççççççççççççççç can say"'
    c = chat(*BUILTIN, "-n", 3, "--grammar", grammar)
    assert f"(the answer does not obey {grammar[:59]}… yet)" in c.say("Hi")
    c.say("/set n-predict 200")
    out = c.say("/continue")
    assert "does not obey" not in out and "can say" in out
    c.say("/set n-predict 1")
    c.say('/set schema {"const":"short, but more than one"}')
    assert '(the answer does not obey {"const":"short, but more than one"} yet)' in c.say("Hi")


def test_an_answer_that_was_held_says_when_it_goes_on_freely(chat):
    schema = '{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"]}'
    free = "was held to a grammar or schema, and none is set now: it goes on freely"
    c = chat(*BUILTIN, "--session", "s")
    c.say("/set n-predict 3")
    c.say(f"/set schema {schema}")
    c.say("more")
    assert free not in c.say("/continue")  # it still is
    c.leave()
    c = chat(*BUILTIN, "--session", "s")
    assert free in c.say("/continue")
    assert free not in c.say("/continue")  # of what went on freely there is nothing to say
    c.leave()


def test_replay_says_that_it_cannot_repeat_a_constrained_answer(hokku):
    for session, lines in ("s", ["-j", '{"enum":[1,2]}']), ("s", []):
        assert hokku(*BUILTIN, "-s", 3, "--session", session, *lines, "Hi").returncode == 0
    r = hokku("replay", "--device", "cpu", "s")
    assert r.returncode == 0 and b"1 answer not compared: held to a grammar" in r.stdout and b"of 1 answer" in r.stdout, r
    assert json.loads(hokku("replay", "--device", "cpu", "--json", "s").stdout)["constrained"] == 1
    assert hokku(*BUILTIN, "--session", "t", "--grammar", 'root ::= "x"', "Hi").returncode == 0
    r = hokku("replay", "--device", "cpu", "t")
    assert r.returncode == 1 and b"held to a grammar" in r.stderr


def test_bench_tells_what_masks_cost(hokku, tmp_path):
    (tmp_path / "person.json").write_text(json.dumps(PERSON))
    (tmp_path / "g.gbnf").write_text('root ::= ("yes" | "no") ", " [a-z]{3}')
    for name in "person.json", "g.gbnf":
        r = hokku("bench", *BUILTIN[:2], "--grammar", tmp_path / name, "-o", "json")
        assert r.returncode == 0, r.stderr
        j = json.loads(r.stdout)
        assert j["n_vocab"] == 4096 and j["masks"] >= j["answers"] >= j["ended"] > 0
        assert 0 < j["mean_us"] <= j["max_us"] and j["p99_9_us"] <= j["max_us"] and j["prepare_ms"] > 0 < j["vocabulary_ms"]
        assert b"| mean us |" in hokku("bench", *BUILTIN[:2], "--grammar", tmp_path / name).stdout
    (tmp_path / "bad.json").write_text('{"not": {"type": "null"}}')
    for name, words in ("bad.json", b"#/not"), ("nowhere.gbnf", b"--grammar"):
        r = hokku("bench", *BUILTIN[:2], "--grammar", tmp_path / name)
        assert r.returncode == 2 and words in r.stderr, r


def test_the_beginning_that_the_user_gives_is_part_of_it(hokku):
    r = hokku(*BUILTIN, "--prefill", '{"name":"Ba', "-j", json.dumps(PERSON), "Hi")
    assert r.returncode == 0 and json.loads(r.stdout)["name"].startswith("Ba")
    r = hokku(*BUILTIN, "--prefill", "Sure: ", "-j", json.dumps(PERSON), "Hi")
    assert r.returncode == 2 and b"change that beginning, or the grammar" in r.stderr


def test_an_answer_on_channels_obeys_in_its_final_message(hokku, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ messages[-1]['content'] }}{# <|channel|>final #}<|start|>assistant")
    args = [*BUILTIN, "--chat-template-file", tmp_path / "t.jinja", "-n", 150, "--temp", 3, "--json-close", "-j", json.dumps(PERSON), "--json"]
    thought = 0
    for seed in range(6):
        for think in "on", "off":
            answer = json.loads(hokku(*args, "-s", seed, "--think", think, "Hi").stdout)
            assert set(json.loads(answer["text"])) >= set(PERSON["required"]), answer
            assert think == "on" or not answer.get("thinking"), answer
            thought += bool(answer.get("thinking"))
    assert thought
    # What was begun for the model: a message before the last, and the last
    r = hokku(*args[:-1], "--think", "hide", "--prefill", "<|channel|>analysis<|message|>hm <|end|><|start|>assistant<|channel|>final<|message|>{", "Hi")
    assert json.loads(r.stdout)
    r = hokku(*args[:-1], "--prefill", "<|channel|>final<|message|>nothing", "Hi")
    assert r.returncode == 2 and b"behind its thinking does not obey" in r.stderr, r.stderr


def test_thinking_is_free_and_what_follows_obeys(hokku, tmp_path):
    template = "{{ messages[-1]['content'] }}\n<think>\n"
    (tmp_path / "t.jinja").write_text(template)
    # The beginning of the answer is thinking, then its end, then a beginning that must obey.
    args = [*BUILTIN, "--chat-template-file", tmp_path / "t.jinja", "--grammar", 'root ::= "yes" | "no"', "Hi"]
    r = hokku(*args, "--prefill", "whatever comes to mind </think>\n")
    assert r.returncode == 0 and r.stdout.strip() in (b"yes", b"no")
    r = hokku(*args, "-n", 5)  # it does not come to an end
    assert r.returncode == 1 and b"before it obeyed" in r.stderr


@pytest.mark.parametrize("args,words", [
    (["-j", '{"not": {"type": "null"}}'], b"line 1, column 2 (#/not)"),
    (["-j", "@/nowhere.json"], b"--json-schema: /nowhere.json"),
    (["--grammar", "root ::= x"], b"--grammar: line 1, column 10"),
    (["--grammar", "root ::= [a]", "-j", "{}"], b"-j and --grammar cannot be combined: expected one of them"),
    (["-j", "{}", "--ignore-eos"], b"--ignore-eos"),
    (["-j", "{}", "--json-indent", "17"], b"17"),
])
def test_what_cannot_be_asked_for_is_wrong_usage(hokku, args, words):
    r = hokku(*BUILTIN, *args, "Hi")
    assert r.returncode == 2 and words in r.stderr and not r.stdout


def test_an_end_mark_alone_is_no_channel(hokku, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ messages[-1]['content'] }}<|end|>\n")  # ends a turn elsewhere
    assert hokku(*BUILTIN, "--chat-template-file", tmp_path / "t.jinja", "-n", 300, "--json-close", "-j", json.dumps(PERSON), "Hi").returncode == 0


def test_an_enum_means_its_values_once_whatever_their_spelling(hokku):
    """1 and 1.0 are one value, and the order of an object's properties tells no two apart."""
    for schema, answer in [({"enum": [1, 1.0, "a", 1], "type": "integer"}, b"1"),
                           ({"enum": [-0.5, 0.25, 0.5], "const": 0.25}, b"0.25"),
                           ({"enum": [3, [2, {"x": 1.0, "y": 2}]], "const": [2.0, {"y": 2, "x": 1}]}, b'[2,{"y":2,"x":1}]')]:
        r = hokku(*BUILTIN, "-j", json.dumps(schema), "Hi")
        assert (r.returncode, r.stdout.strip()) == (0, answer), r.stderr
    r = hokku(*BUILTIN, "-j", '{"enum": [1, "1", [1]], "const": 2}', "Hi")
    assert r.returncode == 2 and b"no text at all obeys it" in r.stderr


def test_a_schema_that_would_take_for_ever_is_refused(hokku):
    defs = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)} | {"a40": {"type": "integer"}}
    r = hokku(*BUILTIN, "-j", json.dumps({"enum": ["x", 2], "$ref": "#/$defs/a0", "$defs": defs}), "Hi")
    assert r.returncode == 2 and b"more than 67108864 steps: make its lists, patterns and combinations smaller" in r.stderr
