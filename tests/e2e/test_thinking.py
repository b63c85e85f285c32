"""What a model thinks goes to standard error, its answer to standard output, whichever marks part them."""
import json

import parrot
import pytest
from server import serving, streamed
from test_repl import chat  # noqa: F401 (fixture)

# What stands before the answer: the thinking "hm hm", in the notation of a family.
NOTATIONS = {
    "think": "<think>\nhm hm\n</think>\n\n",
    "thinking": "<thinking>hm hm</thinking>",
    "seed-oss": "<seed:think>hm hm</seed:think>",
    "magistral": "[THINK]hm hm[/THINK]",
    "command-a": "<|START_THINKING|>hm hm<|END_THINKING|><|START_RESPONSE|>",
    "apertus": "<|inner_prefix|>hm hm<|inner_suffix|>",
    "gemma4": "<|channel>thought\nhm hm\n<channel|>",
    "gpt-oss": "<|channel|>analysis<|message|>hm hm<|end|><|start|>assistant<|channel|>final<|message|>",
    "granite": "<think>hm hm</think><response>",
}
ASK = ["--chat-template", "chatml", "--temp", 0, "-n", 3, "-c", 512, "Once upon a time"]


@pytest.mark.parametrize("name", NOTATIONS)
def test_thinking_goes_to_standard_error_and_the_answer_to_standard_output(hokku, stories, name):
    before = NOTATIONS[name]
    done = hokku("-m", stories, *ASK, "--prefill", before + "So")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"So") and b"hm" not in done.stdout
    assert b"hm hm" in done.stderr
    for out in (done.stdout, done.stderr):
        assert not any(mark in out for mark in (b"think>", b"THINK", b"channel", b"message|", b"inner", b"response"))
    hidden = hokku("-m", stories, *ASK, "--prefill", before + "So", "--think", "hide")
    assert b"hm hm" not in hidden.stderr and hidden.stdout == done.stdout
    answer = json.loads(hokku("-m", stories, *ASK, "--prefill", before + "So", "--json").stdout)
    assert answer["thinking"] == "hm hm" and answer["text"].encode() == done.stdout.rstrip(b"\n")


def test_without_a_template_nobody_is_told_whether_to_think(hokku, tmp_path):
    path = parrot.write(tmp_path / "m.gguf", ["<think>\n", "why", "\n</think>\n\n", "so"], "{{ messages[-1].content }}")
    ask = ["-m", path, "--temp", 0, "Hi\n"]
    plain = ["-no-cnv", *ask]
    for think in "on", "off":
        r = hokku("--think", think, *plain)
        assert (r.returncode, r.stdout) == (2, b"") and f"--think {think} is told to the chat template, which -no-cnv does not use: leave one of them out".encode() in r.stderr, r
        assert hokku(*plain, env={"HOKKU_THINK": think}).stdout == b"so" == hokku("--think", think, *ask, env={"HOKKU_NO_CONVERSATION": "on"}).stdout
    for think, shown in ("default", True), ("hide", False):
        r = hokku("--think", think, *plain)
        assert (r.returncode, r.stdout, b"why" in r.stderr) == (0, b"so", shown), r


@pytest.mark.parametrize("text, unheard", [
    ("", ["on", "off"]), ("{% if enable_thinking %}{% endif %}", []), ("{% for m in messages %}{% if thinking is defined %}{% endif %}{% endfor %}", []),
    ("{% set thinking = 1 %}{{ thinking * 0 }}{{ messages[0].thinking }}", ["on", "off"]), ("{% if thinking_budget is defined %}{% endif %}", ["on"])])
def test_who_is_not_told_whether_to_think_is_named(hokku, tmp_path, text, unheard):
    path = parrot.write(tmp_path / "m.gguf", ["so"], text + "{{ messages[-1].content }}")
    ask = ["-m", path, "--temp", 0, "Hi\n"]
    for think in "on", "off":
        said = f"hokku: --think {think}: the chat template does not read it, so the model is not told".encode()
        assert (said in hokku("--think", think, *ask).stderr) == (think in unheard)
        assert said not in hokku("-q", "--think", think, *ask).stderr + hokku(*ask, env={"HOKKU_THINK": think}).stderr


def test_where_there_is_no_template_nobody_is_told_which_is_said(home, hokku, chat, stories):  # noqa: F811
    said = "there is no chat template, so the model is not told"
    for think in "on", "off", "hide":
        r = hokku("-m", stories, "-n", 2, "--temp", 0, "--think", think, "Once upon")
        assert r.returncode == 0 and (f"hokku: --think {think}: {said}".encode() in r.stderr) == (think != "hide"), r
    c = chat("-m", stories, "-no-cnv")
    assert said in c.say("/think on") and said in c.say("/set think off") and said not in c.say("/think hide")
    with serving(home, "--think", "off", model=["-m", stories]) as s:
        assert s.ask("/health")[0] == 200 and said in s.end()[1]


@pytest.mark.parametrize("text", ["", "{{ '' if thinking }}"])
def test_so_is_who_is_not_told_in_a_chat_and_by_a_server(home, chat, tmp_path, text):  # noqa: F811
    path = parrot.write(tmp_path / "m.gguf", ["so"], text + "{{ messages[-1].content }}")
    said = "the chat template does not read it, so the model is not told"
    c = chat("-m", path)
    for line in "/think off", "/think", "/set think on", "/set think":
        assert (said in c.say(line)) == (text == ""), line
    assert said not in c.say("/think hide") + c.say("/set think default")
    with serving(home, "--think", "off", model=["-m", path]) as s:
        assert s.ask("/health")[0] == 200 and (said in s.end()[1]) == (text == "")


def test_a_template_with_a_field_for_thinking_gets_the_answer_alone_as_content(hokku, stories, tmp_path):
    template = tmp_path / "fields.jinja"
    template.write_text("{% for m in messages %}{% if '<' in m.content or 'hm' in m.content %}{{ raise_exception('marks') }}{% endif %}"
                        "{{ m.role }} {{ m.content }}{{ m.thinking }}\n{% endfor %}assistant")
    done = hokku("-m", stories, "--chat-template-file", template, "-n", 3, "-c", 512, "--temp", 0, "--turns",
                 "--prefill", NOTATIONS["gpt-oss"] + "So", input="one\ntwo\nthree\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"So") == 3


@pytest.mark.parametrize("pieces,stops,answer", [
    (["<think>\n", "a STOP b", "\n</think>\n\n", "So", " STOP", "tail"], ["STOP"], "So "),
    (["<thi", "nk>a", " ST", "OP</thi", "nk>", "\n\nSo", " S", "TO", "P tail"], ["STOP"], "So "),
    (["<think>", "one", "\n\ntwo", "\n</think>", "\n\n ", "So\n", "tail"], ["\n"], "So"),
    (["<think>", "a", "</think>So STOP tail", "more"], ["STOP"], "So "),
    (["<think>", "a", "</think>", "So", "think"], ["think", "nothing"], "So"),
    (["<", "b> STOP", "tail"], ["STOP"], "<b> "),
    (["<thi", "STOP", "tail"], ["STOP"], "<thi"),
    ([" \n", "So", "tail"], ["\n"], " "),
    (["<think>", "a STOP"], ["STOP"], ""),
    (["<thi"], ["hi"], "<t"),
])
def test_a_stop_text_ends_the_answer_and_not_its_thinking(hokku, home, tmp_path, pieces, stops, answer):
    path = parrot.write(tmp_path / "m.gguf", pieces, "{{ messages[-1].content }}{{ '\\n' }}")
    r = hokku("-m", path, "--json", "--temp", 0, *(w for stop in stops for w in ("-r", stop)), "Hi")
    got = json.loads(r.stdout)
    assert got["text"] == answer and got["finish_reason"] == ("stop" if answer == "" else "stop_text"), got
    if pieces[0] == "<think>\n":
        assert got["thinking"] == "a STOP b"
    with serving(home, model=["-m", path, "-t", 1]) as s:
        body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "stop": stops}
        assert s.ask("/v1/chat/completions", body)[2]["choices"][0]["message"]["content"] == answer
        chunks = streamed(s.ask("/v1/chat/completions", {**body, "stream": True})[2])
        assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == answer
