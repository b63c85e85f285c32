"""hokku serve: the answers are those of a program of its own, each request is checked whole, who leaves frees its row, and the end is told."""
import contextlib
import json
import os
import random
import re
import resource
import select
import signal
import socket
import sys
import threading
import time

import pytest
from conftest import ROOT
from server import BUILTIN, ENDLESS, key_file, serving, streamed

sys.path.insert(0, str(ROOT / "tests"))
import make_gguf  # noqa: E402

HAIKU = "Write a haiku about the sea"
LONG = {"messages": [{"role": "user", "content": HAIKU}], "max_tokens": 50000, "seed": 1, "temperature": 1.2}


@pytest.fixture
def served(home):
    with serving(home) as s:
        yield s


@pytest.fixture(scope="module")
def any_served(tmp_path_factory):
    """One for all tests that change nothing of it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HOKKU_", "XDG_"))}
    with serving({**env, "HOME": str(tmp_path_factory.mktemp("home"))}) as s:
        yield s


@pytest.fixture
def endless(home):
    with serving(home, "--grace", 0.3, model=ENDLESS) as s:
        yield s


def content(answer):
    return answer["choices"][0]["message"]["content"]


def alone(hokku, prompt, *args):
    r = hokku(*BUILTIN, *args, input=prompt)
    assert r.returncode == 0, r.stderr
    return r.stdout.decode()


# ---- answers

SETTINGS = [
    ({"seed": 7, "max_tokens": 30}, ["-s", 7, "-n", 30]),
    ({"seed": 3, "temperature": 1.3, "top_p": 0.9, "top_k": 0, "min_p": 0.01}, ["-s", 3, "--temp", 1.3, "--top-p", 0.9, "--top-k", 0, "--min-p", 0.01]),
    ({"seed": str(2**64 - 1), "max_tokens": 9}, ["-s", 2**64 - 1, "-n", 9]),
    ({"temperature": 0, "max_completion_tokens": 12}, ["--temp", 0, "-n", 12]),
    ({"seed": 9, "stop": ["\n", "sea"]}, ["-s", 9, "-r", "\n", "-r", "sea"]),
]


@pytest.mark.parametrize("fields, args", SETTINGS)
def test_an_answer_has_the_bytes_of_a_program_of_its_own(served, hokku, fields, args):
    for prompt in (HAIKU, "What is 3 plus 4? " * 20, "Grüße, wer bist du?"):
        expected = alone(hokku, prompt, *args)
        assert content(served.chat(prompt, **fields)) == expected
        status, headers, raw = served.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], "stream": True, **fields})
        assert status == 200 and headers["Content-Type"] == "text/event-stream"
        chunks = streamed(raw)
        assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == expected
        assert chunks[0]["choices"][0]["delta"]["role"] == "assistant" and len(chunks) > 3
        assert len({c["id"] for c in chunks}) == 1 and chunks[-1]["choices"][0]["finish_reason"] in ("stop", "length")


def test_a_plain_completion_has_the_bytes_of_a_program_of_its_own(served, hokku):
    expected = alone(hokku, "The old pond", "-no-cnv", "-s", 5, "-n", 20)
    body = {"prompt": "The old pond", "seed": 5, "max_tokens": 20}
    assert served.ask("/v1/completions", body)[2]["choices"][0]["text"] == expected
    chunks = streamed(served.ask("/v1/completions", {**body, "stream": True})[2])
    assert "".join(c["choices"][0]["text"] for c in chunks) == expected and chunks[0]["object"] == "text_completion"


def test_a_conversation_with_a_system_prompt_is_rendered_as_the_program_does(served, hokku):
    messages = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": [{"type": "text", "text": "I am "}, {"type": "text", "text": "Ann."}]},
                {"role": "assistant", "content": "Hello, Ann."}, {"role": "user", "content": "What is my name?"}]
    line = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "I am Ann."}, *messages[2:]]
    expected = alone(hokku, json.dumps({"messages": line}) + "\n", "--lines", "-s", 4)
    body = {"messages": messages, "seed": 4, "model": "hokku-builtin", "n": 1, "user": None}
    status, _, answer = served.ask("/v1/chat/completions", {k: v for k, v in body.items() if k != "user"})
    assert status == 200 and content(answer) + "\n" == expected
    # Nothing of it is left for the next request.
    assert content(served.chat(HAIKU, seed=4)) == alone(hokku, HAIKU, "-s", 4)
    prompt = served.ask("/apply-template", {"messages": messages})[2]["prompt"]
    assert prompt.count("<|im_start|>") == 5 and "Be short." in prompt and prompt.endswith("assistant\n")


def test_usage_and_log_probabilities_are_those_of_the_program(served, hokku):
    expected = json.loads(alone(hokku, HAIKU, "-s", 7, "-n", 12, "--json", "--logprobs", 3))
    chunks = streamed(served.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": HAIKU}], "seed": 7, "max_tokens": 12, "stream": True, "logprobs": True,
                                                          "top_logprobs": 3, "stream_options": {"include_usage": True}})[2])
    assert chunks[-1]["choices"] == [] and all(c["usage"] is None for c in chunks[:-1])
    usage = chunks[-1]["usage"]
    answer = served.chat(HAIKU, seed=7, max_tokens=12, logprobs=True, top_logprobs=3)
    assert usage["completion_tokens"] == answer["usage"]["completion_tokens"] == len(expected["tokens"]) == 12
    assert usage["total_tokens"] == usage["prompt_tokens"] + 12 and answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    whole = answer["choices"][0]["logprobs"]["content"]
    assert whole == [t for c in chunks[:-1] for t in (c["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert [t["logprob"] for t in whole] == pytest.approx([t["logprob"] for t in expected["logprobs"]])
    assert [[x["token"] for x in t["top_logprobs"]] for t in whole] == [[x["text"] for x in t["top"]] for t in expected["logprobs"]]
    assert "".join(bytes(t["bytes"]).decode() for t in whole) == content(answer)


def test_no_event_has_half_a_character(home, served):
    for seed in range(3):
        body = {"prompt": "Grüße 🐸 ", "seed": seed, "max_tokens": 60, "temperature": 3, "top_k": 0, "top_p": 1, "min_p": 0, "stream": True}
        raw = served.ask("/v1/completions", body)[2]
        whole = served.ask("/v1/completions", {**body, "stream": False})[2]["choices"][0]["text"]
        assert "".join(c["choices"][0]["text"] for c in streamed(raw)) == whole


def test_many_at_once_are_each_what_they_are_alone(served, hokku):
    prompts = [f"{HAIKU} and the number {i}" for i in range(12)]
    expected = {p: alone(hokku, p, "-s", 11) for p in prompts}
    got = {}

    def one(p):
        got[p] = content(served.chat(p, seed=11))
    threads = [threading.Thread(target=one, args=(p,)) for p in prompts]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == expected


def test_a_conversation_goes_on_where_it_ended_whoever_came_between(home, hokku):
    with serving(home, "-c", 8192) as s:
        goes_on(s, hokku)


def goes_on(served, hokku):
    messages = [{"role": "user", "content": "My name is Ann. " * 20}]
    first = served.ask("/v1/chat/completions", {"messages": messages, "seed": 1})[2]
    for i in range(5):
        served.chat(f"{i} is a number", seed=i)
    messages += [{"role": "assistant", "content": content(first)}, {"role": "user", "content": "What is my name?"}]
    answer = served.ask("/v1/chat/completions", {"messages": messages, "seed": 2})[2]
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"] - 2
    assert content(answer) + "\n" == alone(hokku, json.dumps({"messages": messages}) + "\n", "--lines", "-s", 2)


def test_text_to_tokens_and_back(served, hokku):
    tokens = served.ask("/tokenize", {"content": "Grüße <|im_end|>"})[2]["tokens"]
    assert tokens == json.loads(hokku("tokenize", *BUILTIN[:2], input="Grüße <|im_end|>").stdout)
    assert served.ask("/tokenize", {"content": "<|im_end|>", "parse_special": True})[2]["tokens"] == [4095]
    assert served.ask("/detokenize", {"tokens": tokens})[2]["content"] == "Grüße <|im_end|>"


# ---- what is refused

USER = [{"role": "user", "content": "hi"}]
WRONG = [
    (400, "bogus", {"messages": USER, "bogus": 1}), (400, "user", {"messages": USER, "user": 7}), (400, "store", {"messages": USER, "store": True}), (400, "messages", {}), (400, "messages", {"messages": []}),
    (400, "messages", {"messages": "hi"}), (400, "messages[0]", {"messages": ["hi"]}), (400, "messages[0].role", {"messages": [{"role": "robot", "content": "x"}]}),
    (400, "messages[1].role", {"messages": [*USER, {"role": "system", "content": "x"}]}), (400, "messages[0].content", {"messages": [{"role": "user", "content": 3}]}),
    (400, "messages[0].content", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
    (400, "messages[0].name", {"messages": [{"role": "user", "content": "x", "name": "ann"}]}),
    (400, "messages", {"messages": [*USER, {"role": "assistant", "content": "x"}]}),
    (404, "model", {"messages": USER, "model": "gpt-5"}), (400, "n", {"messages": USER, "n": 2}), (400, "temperature", {"messages": USER, "temperature": -1}),
    (400, "temperature", {"messages": USER, "temperature": "1"}), (400, "top_p", {"messages": USER, "top_p": 2}), (400, "top_k", {"messages": USER, "top_k": 1.5}),
    (400, "seed", {"messages": USER, "seed": -1}), (400, "max_tokens", {"messages": USER, "max_tokens": 0}), (400, "stop", {"messages": USER, "stop": [""]}),
    (400, "max_tokens", {"messages": USER, "max_completion_tokens": 4, "max_tokens": 3}), (400, "stop", {"messages": USER, "stop": ["a"] * 17}),
    (400, "presence_penalty", {"messages": USER, "presence_penalty": 0.5}), (400, "frequency_penalty", {"messages": USER, "frequency_penalty": 0.5}),
    (400, "stream_options", {"messages": USER, "stream_options": {"include_usage": True}}), (400, "top_logprobs", {"messages": USER, "top_logprobs": 2}),
    (400, "top_logprobs", {"messages": USER, "logprobs": True, "top_logprobs": 65}), (400, "stream", {"messages": USER, "stream": 1}),
    (400, None, b'{"messages": '), (400, None, b"[1]"), (400, None, b"[" * 5000),
    (400, "response_format", {"messages": USER, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"bogus": 1}}}}),
    (400, None, b'{"a": 1, "a": 2}'), (400, None, b'{"a": [' + b"1," * 200001 + b"1]}"), (400, None, b"\xff"), (400, None, b""),
]


@pytest.mark.parametrize("status, param, body", WRONG)
def test_what_is_wrong_is_refused_by_name_with_what_was_expected(any_served, status, param, body):
    code, headers, answer = any_served.ask("/v1/chat/completions", body)
    assert code == status and headers["Content-Type"] == "application/json"
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["param"] == param, error
    assert len(error["message"]) > 20 and (param is None or "expected" in error["message"]), error


@pytest.mark.parametrize("path, param, body", [
    ("/v1/chat/completions", "messages", {"messages": [{"role": "user", "content": "word " * 1200}]}), ("/v1/chat/completions", "messages", {"messages": [{"role": "user", "content": "word " * 9000}], "stream": True}),
    ("/v1/completions", "prompt", {"prompt": "word " * 1200}), ("/apply-template", "messages", {"messages": [{"role": "user", "content": "word " * 9000}]}),
    ("/v1/chat/completions", "tools", {"messages": USER, "tools": [{"type": "function", "function": {"name": "f"}}]})])
def test_what_only_the_engines_thread_finds_wrong_names_its_field_too(any_served, path, param, body):
    status, _, answer = any_served.ask(path, body)
    assert status == 400 and answer["error"]["param"] == param, answer


def test_the_manual_says_which_fields_a_request_may_have(any_served):
    table = (ROOT / "docs/serve.md").read_text().split("## A request\n\n")[1].split("\n\n")[0]
    said = {"chat": set(), "completion": set()}
    for names, text in (row[2:-2].split(" | ", 1) for row in table.splitlines()[2:]):
        for part in re.split("(?=of a chat also)", names):
            only = re.search("of a (chat|completion)", part) or re.search("of a (chat|completion)", text)
            for kind in [only[1]] if only else said:
                said[kind] |= set(re.findall(r"`(\w+)(?:\.\w+)?`", part))
    for kind, path in ("chat", "/v1/chat/completions"), ("completion", "/v1/completions"):
        message = any_served.ask(path, {"bogus": 1})[2]["error"]["message"]
        assert said[kind] == set(message.split("expected ")[1].split(", "))


def test_what_asks_for_nothing_is_taken(any_served):
    fields = {"max_tokens": 5, "seed": 1}
    assert content(any_served.chat(HAIKU, **fields, user="ann", metadata={"a": "b"}, store=False)) == content(any_served.chat(HAIKU, **fields))


@pytest.mark.parametrize("path, field, expected", [("/v1/chat/completions", "messages", "an array of one message or more"), ("/v1/completions", "prompt", "one text"),
                                                   ("/tokenize", "content", "one text"), ("/detokenize", "tokens", "an array of token ids")])
def test_what_is_missing_is_said_with_what_it_would_be(any_served, path, field, expected):
    status, _, answer = any_served.ask(path, {})
    assert status == 400 and answer["error"]["message"] == f'"{field}" is missing: expected {expected}'


def test_a_body_may_begin_with_a_byte_order_mark(any_served):
    body = json.dumps({"content": "Hi"}).encode()
    assert any_served.ask("/tokenize", b"\xef\xbb\xbf" + body)[::2] == any_served.ask("/tokenize", body)[::2]
    assert any_served.ask("/tokenize", b"\xef\xbb" + body)[0] == 400
    status, _, answer = any_served.ask("/tokenize", b"")
    assert status == 400 and answer["error"]["message"] == "found an empty body, expected a JSON object: {...}"


def test_a_prompt_that_does_not_fit_is_refused_with_both_lengths_and_a_context_beyond_the_training_is_said(home):
    with serving(home, "-c", 300) as s:
        status, _, answer = s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 400}], "stream": True})
        assert status == 400 and answer["error"]["code"] == "context_length_exceeded" and "300" in answer["error"]["message"]
        status, _, answer = s.ask("/v1/completions", {"prompt": "word " * 400})
        assert status == 400 and answer["error"]["param"] == "prompt"
        choice = s.chat("Write a haiku", seed=1, temperature=2)["choices"][0]
        assert choice["finish_reason"] in ("stop", "length")
        assert s.end()[1] == ""
    with serving(home, "-c", 5000) as s:
        assert "a context of 5000 tokens: the model was trained on 1024" in s.end()[1]


def test_wrong_paths_and_methods_are_told(served):
    for method, path, status in [("GET", "/", 404), ("POST", "/v1/nothing", 404), ("GET", "/v1/chat/completions", 405), ("POST", "/health", 405),
                                 ("GET", "/../../etc", 404), ("DELETE", "/v1/models", 405)]:
        code, headers, answer = served.ask(path, method=method)
        assert code == status and answer["error"]["message"], (method, path)
        assert status != 405 or headers["Allow"] in ("POST", "GET, HEAD")
    assert served.ask("/health", method="HEAD")[0] == 200
    code, _, answer = served.ask("/v1/models/bogus")
    assert (code, answer["error"]["param"], answer["error"]["code"]) == (404, "model", "model_not_found")
    code, _, answer = served.ask("/v1/completions", {"prompt": ["a", "b"]})
    assert code == 400 and answer["error"]["param"] == "prompt"


# ---- who leaves

@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_row(endless, stream):
    s = endless.open("/v1/chat/completions", {**LONG, "stream": stream})
    endless.wait_for(answers_running=1)
    other = endless.open("/v1/chat/completions", {**LONG, "stream": not stream, "seed": 2})
    endless.wait_for(answers_running=2)
    s.close()
    endless.wait_for(answers_running=1, cancelled_total=1)
    other.close()
    m = endless.wait_for(answers_running=0, cancelled_total=2)
    assert m["generated_tokens_total"] < 40000 and m["answers_total"] == 0


def test_a_client_that_leaves_while_its_prompt_is_read_frees_its_row_after_a_chunk(home):
    with serving(home, "-b", 32, model=ENDLESS) as s:
        c = s.open("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 30000}]})
        s.wait_for(answers_running=1)
        c.close()
        m = s.wait_for(answers_running=0, cancelled_total=1, seconds=5)
        assert m["generated_tokens_total"] == 0
        assert s.ask("/health")[0] == 200


def test_who_waits_in_the_queue_may_leave(home):
    with serving(home, "-np", 1, model=ENDLESS) as s:
        first = s.open("/v1/chat/completions", LONG)
        s.wait_for(answers_running=1)
        second = s.open("/v1/chat/completions", LONG)
        s.wait_for(answers_waiting=1)
        second.close()
        s.wait_for(answers_waiting=0, answers_running=1)
        first.close()
        s.wait_for(answers_running=0)


@pytest.mark.parametrize("path,body", [("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}), ("/tokenize", {"content": "hi"})])
def test_who_closes_its_sending_side_is_told_that_this_is_leaving(served, path, body):
    """And not that the server ends, with which a client would go elsewhere."""
    served.process.send_signal(signal.SIGSTOP)
    try:
        c = served.open(path, body)
        c.shutdown(socket.SHUT_WR)
    finally:
        served.process.send_signal(signal.SIGCONT)
    got = b"".join(iter(lambda: c.recv(65536), b""))
    assert got.startswith(b"HTTP/1.1 400 ") and b'"code":"client_left"' in got and b"nc without -N" in got, got


# ---- the end

@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once_and_dies_of_the_signal(home, sig):
    with serving(home) as s:
        began = time.monotonic()
        assert s.end(sig) == (-sig, "") and time.monotonic() - began < 5


def test_answers_under_way_may_end_when_the_server_does(home, hokku):
    with serving(home, "--grace", 60, model=ENDLESS) as s:
        body = {**LONG, "max_tokens": 1500}
        whole, streams = s.open("/v1/chat/completions", body), s.open("/v1/chat/completions", {**body, "stream": True})
        s.wait_for(answers_running=2)
        s.process.send_signal(signal.SIGTERM)
        data = b"".join(iter(lambda: streams.recv(65536), b""))
        other = b"".join(iter(lambda: whole.recv(65536), b""))
        _, err = s.process.communicate(timeout=60)
        assert s.process.returncode == -signal.SIGTERM and b"cut off" not in err
        assert data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") or b"data: [DONE]" in data
        assert json.loads(other.partition(b"\r\n\r\n")[2])["usage"]["completion_tokens"] == 1500


def test_what_is_cut_off_at_the_end_is_told_to_all(endless):
    whole, streams = endless.open("/v1/chat/completions", LONG), endless.open("/v1/chat/completions", {**LONG, "stream": True})
    endless.wait_for(answers_running=2)
    endless.process.send_signal(signal.SIGTERM)
    data = b"".join(iter(lambda: streams.recv(65536), b""))
    other = b"".join(iter(lambda: whole.recv(65536), b""))
    _, err = endless.process.communicate(timeout=60)
    assert endless.process.returncode == -signal.SIGTERM and b"2 answers were cut off" in err, err
    assert b'"code":"shutting_down"' in data and b"[DONE]" not in data and other.startswith(b"HTTP/1.1 503") and b"shutting_down" in other


def test_the_socket_that_listens_is_in_no_event_queue_of_the_library(endless):
    """Else libmicrohttpd ends the program where its threads and the caller stop listening at the same moment."""
    listening = {line.split()[9] for line in open("/proc/net/tcp") if line.split()[1].endswith(f":{endless.port:04X}") and line.split()[3] == "0A"}
    place = f"/proc/{endless.process.pid}"
    fds = {fd: os.readlink(f"{place}/fd/{fd}") for fd in os.listdir(f"{place}/fd")}
    door = {fd for fd, link in fds.items() if link.removeprefix("socket:[").removesuffix("]") in listening}
    watched = [set(re.findall(r"tfd: *(\d+)", open(f"{place}/fdinfo/{fd}").read())) for fd, link in fds.items() if "eventpoll" in link]
    assert len(door) == 1 and len(watched) >= 2 and not any(door & w for w in watched), (door, watched)


def test_a_second_signal_kills_at_once(home):
    with serving(home, "--grace", 600, model=ENDLESS) as s:
        c = s.open("/v1/chat/completions", LONG)
        s.wait_for(answers_running=1)
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert s.process.poll() is None
        assert s.end()[0] == -signal.SIGTERM
        c.close()


def flood(s, path, body, n_clients, n_each):
    """Clients that send all their requests at once, and read what comes until they are closed or have it all."""
    data = json.dumps(body).encode()
    request = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data

    def write(c):
        with contextlib.suppress(OSError):
            for _ in range(n_each):
                c.sendall(request)

    def read(c):
        n = 0
        with contextlib.suppress(OSError):
            while n < n_each and (got := c.recv(1 << 20)):
                n += got.count(b"HTTP/1.1 ")
        c.close()
    clients = [s.connect() for _ in range(n_clients)]
    threads = [threading.Thread(target=f, args=(c,)) for c in clients for f in (write, read)]
    for t in threads:
        t.start()
    return threads


def test_a_flood_of_small_requests_stops_neither_an_answer_nor_the_end(home):
    with serving(home, "--grace", 0.5, model=ENDLESS) as s:
        answer = s.open("/v1/chat/completions", {**LONG, "stream": True})
        s.wait_for(answers_running=1)
        text = "".join(random.Random(1).choices("abcdefgh ijklmnop", k=200000))  # which takes longer to split than to send
        threads, n, end = flood(s, "/apply-template", {"messages": [{"role": "user", "content": text}]}, 12, 60), 0, time.monotonic() + 3
        answer.settimeout(0.1)
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                events_now = answer.recv(65536).count(b"data:")
                n += events_now if time.monotonic() > end - 2 else 0  # not what was there when the flood began
        assert n > 5
        began = time.monotonic()
        assert all(t.is_alive() for t in threads[1::2])  # or it was no flood
        assert s.end()[0] == -signal.SIGTERM and time.monotonic() - began < 8
        for t in threads:
            t.join()


# A template that renders for about a second.
SLOWLY = "{% for i in range(3000) %}{% for j in range(3000) %}{% set x = i * j %}{% endfor %}{% endfor %}{{ messages[0].content }}"


@pytest.fixture
def slowly(tmp_path):
    (tmp_path / "slowly.jinja").write_text(SLOWLY)
    return ["--chat-template-file", tmp_path / "slowly.jinja"]


def test_what_a_request_becomes_is_not_made_for_who_has_left(home, slowly):
    with serving(home, *slowly) as s:
        began = time.monotonic()
        status, _, answer = s.ask("/v1/chat/completions", {"messages": USER})
        assert status == 400 and time.monotonic() - began > 0.2, answer  # or nothing is shown below
        took = time.monotonic() - began
        began = time.monotonic()
        for _ in range(3):  # one that is being made, two that wait
            for _ in range(3):
                s.open("/v1/chat/completions", {"messages": USER}).close()
            assert s.ask("/v1/completions", {"prompt": "Hi", "max_tokens": 2})[0] == 200
        assert time.monotonic() - began < 1 + 3 * took  # of nine
        s.wait_for(cancelled_total=9)


def test_the_end_does_not_wait_for_requests_that_are_not_begun(home, slowly):
    with serving(home, "--grace", 0.1, *slowly) as s:
        clients = [s.open("/v1/chat/completions", {"messages": USER}) for _ in range(8)]
        time.sleep(0.5)  # they have come
        s.process.send_signal(signal.SIGTERM)
        told = [b"".join(iter(lambda c=c: c.recv(65536), b"")) for c in clients]
        assert sum(b"503" in t and b"shutting_down" in t for t in told) >= 6, told
        assert s.process.wait(60) == -signal.SIGTERM


def test_a_prompt_that_is_much_too_long_is_refused_before_it_is_split_whole(any_served):
    text = "word " * 1500000
    for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}), ("/v1/completions", {"prompt": text})):
        status, _, answer = any_served.ask(path, body)
        assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
        assert "more than 4096 tokens and the context holds 1024" in answer["error"]["message"]


# ---- limits

def test_a_full_queue_is_told_with_when_to_come_again(home):
    with serving(home, "-np", 1, "--queue", 1, model=ENDLESS) as s:
        open_ones = [s.open("/v1/chat/completions", LONG) for _ in range(2)]
        s.wait_for(answers_running=1, answers_waiting=1)
        status, headers, answer = s.ask("/v1/chat/completions", LONG)
        assert status == 429 and int(headers["Retry-After"]) > 0 and answer["error"]["code"] == "queue_full"
        for c in open_ones:
            c.close()
        s.wait_for(answers_running=0, answers_waiting=0)
        assert s.chat("hi", max_tokens=2)


def test_text_is_split_in_its_turn_and_at_most_a_megabyte(home):
    with serving(home, "-np", 1, "--queue", 1, model=ENDLESS) as s:
        status, _, answer = s.ask("/tokenize", {"content": "a" * (1 << 20)})
        assert status == 200 and answer["tokens"]
        status, _, answer = s.ask("/tokenize", {"content": "a" * ((1 << 20) + 1)})
        assert status == 413 and answer["error"]["param"] == "content" and "1048577" in answer["error"]["message"] and "1048576" in answer["error"]["message"]
        open_ones = [s.open("/v1/chat/completions", LONG)]
        s.wait_for(answers_running=1)
        assert s.ask("/tokenize", {"content": "Hi"})[0] == 200
        open_ones.append(s.open("/v1/chat/completions", LONG))
        s.wait_for(answers_waiting=1)
        assert [s.ask(path, body)[0] for path, body in (("/tokenize", {"content": "Hi"}), ("/apply-template", {"messages": USER}))] == [429, 429]
        for c in open_ones:
            c.close()


def test_what_is_kept_of_requests_is_counted(home):
    stop = ["q" * 500000 + str(i) for i in range(15)]
    with serving(home, "-np", 1, "-t", 1, model=ENDLESS) as s:
        clients = [s.open("/v1/chat/completions", LONG)]
        s.wait_for(answers_running=1)
        for i in range(1, 36):  # which wait, and 7.5 MB of each stay
            clients.append(s.open("/v1/completions", {"prompt": "Write", "max_tokens": 50000, "stop": stop}))
            end = time.monotonic() + 20
            while (m := s.metrics())["answers_running"] + m["answers_waiting"] < i + 1 and not (refused := select.select(clients[-1:], [], [], 0.02)[0]):
                assert time.monotonic() < end
            if m["answers_running"] + m["answers_waiting"] < i + 1:
                break
        assert refused and clients[-1].recv(4096).startswith(b"HTTP/1.1 503") and i >= 30
        for c in clients:
            c.close()
        s.wait_for(answers_running=0)
        assert s.ask("/v1/completions", {"prompt": "Write", "max_tokens": 2, "stop": stop})[0] == 200  # it is given back


def test_log_probabilities_are_kept_as_text(home):
    body = {"messages": USER, "max_tokens": 500, "logprobs": True, "top_logprobs": 64}
    with serving(home, model=ENDLESS) as s:
        before = rss(s.process.pid)
        threads = [threading.Thread(target=s.ask, args=("/v1/chat/completions", {**body, "seed": i})) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert s.metrics()["generated_tokens_total"] == 4 * 500
        assert rss(s.process.pid) - before < 100 << 20  # (as JSON values: 160)


def test_a_body_that_is_too_large_is_refused_before_and_while_it_comes(served):
    s = served.connect()
    s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
    assert s.recv(4096).startswith(b"HTTP/1.1 413")
    s = served.connect()
    s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
    for _ in range(9):
        s.sendall(chunk)
    s.sendall(b"0\r\n\r\n")
    assert s.recv(4096).startswith(b"HTTP/1.1 413")


def test_whoever_is_refused_is_told_however_long_the_body_is(home, tmp_path):
    with serving(home, "--api-key-file", key_file(tmp_path)) as s:
        for key, status in ((b"0123456789abcdef-key", b"413"), (b"0123456789abcdef-kex", b"401")):
            head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key
            c = s.connect()
            c.sendall(head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"100000\r\n" + b" " * (1 << 20) + b"\r\n") * 30 + b"0\r\n\r\n")
            assert c.recv(4096).startswith(b"HTTP/1.1 " + status)
            c.close()
        c = s.connect()
        c.sendall(head + b"\r\nContent-Length: 9000000\r\n\r\n" + b" " * 9000000)
        assert c.recv(4096).startswith(b"HTTP/1.1 401")


def test_who_sends_too_slowly_is_let_go(home):
    with serving(home, "--timeout", 1) as s:
        c = s.connect(20)
        began = time.monotonic()
        try:
            for byte in b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + b" " * 1000:
                c.sendall(bytes([byte]))
                time.sleep(0.05)
            ended = False
        except OSError:
            ended = True
        assert ended and time.monotonic() - began < 15


def test_who_does_not_read_is_let_go_and_holds_little_memory(home):
    with serving(home, "--timeout", 1, model=ENDLESS) as s:
        c = s.open("/v1/chat/completions", {**LONG, "stream": True, "logprobs": True, "top_logprobs": 64})
        s.wait_for(answers_running=1)
        s.wait_for(answers_running=0, cancelled_total=1, seconds=60)
        c.close()


@pytest.mark.parametrize("path, body", [
    ("/tokenize", {"content": "0 1 " * 250000}),
    ("/v1/chat/completions", {**LONG, "stream": True, "logprobs": True, "top_logprobs": 64}),  # cut off, with 1 MB to be read
])
def test_who_reads_an_answer_a_little_at_a_time_is_let_go(home, tmp_path, path, body):
    """Though something is read all the time. (Of a socket with a path the system takes little on.)"""
    with serving(home, "--timeout", 2, listen=f"unix:{tmp_path}/s", model=ENDLESS) as s:
        c, got = s.open(path, body), bytearray()
        with contextlib.suppress(ConnectionResetError):
            while (piece := c.recv(8000)) and len(got) < 2_900_000:
                got += piece
                time.sleep(0.05)
        c.close()
        assert 100_000 < len(got) < 2_900_000 and not got.endswith(b"0\r\n\r\n"), len(got)
        assert content(s.chat(HAIKU, max_tokens=10, seed=1))


def test_a_stream_that_was_read_too_slowly_says_that_it_is_cut_off(home):
    with serving(home, model=ENDLESS) as s:
        c = s.open("/v1/chat/completions", {**LONG, "stream": True, "logprobs": True, "top_logprobs": 64})
        s.wait_for(answers_running=1)
        s.wait_for(answers_running=0, cancelled_total=1, seconds=60)
        c.settimeout(20)
        got = bytearray()
        while not got.endswith(b"0\r\n\r\n") and (piece := c.recv(1 << 20)):
            got += piece
        c.close()
        assert b'"code":"slow_reader"' in got[-1000:] and b"[DONE]" not in got


def rss(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_thousand_slow_clients_neither_stop_a_fast_one_nor_take_its_memory(home):
    with serving(home) as s:
        before = rss(s.process.pid)
        slow = []
        for _ in range(1000):
            c = s.connect()
            c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n{")
            slow.append(c)
        began = time.monotonic()
        assert content(s.chat(HAIKU, max_tokens=10, seed=1))
        assert time.monotonic() - began < 10
        assert rss(s.process.pid) - before < 100 << 20
        for c in slow:
            c.close()
        assert s.ask("/health")[0] == 200


def test_a_flood_of_large_bodies_takes_bounded_memory(home):
    with serving(home) as s:
        before, all_sent, seen = rss(s.process.pid), threading.Barrier(71), threading.Event()

        def one():
            c = s.connect(20)
            try:  # (what is refused is read all the same)
                c.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n" + b"[" * 7900000)
            except OSError:
                pass
            all_sent.wait(60)
            seen.wait(60)
            c.close()
        threads = [threading.Thread(target=one) for _ in range(70)]
        for t in threads:
            t.start()
        all_sent.wait(60)
        time.sleep(0.5)
        taken = rss(s.process.pid) - before
        seen.set()
        for t in threads:
            t.join()
        assert taken < 400 << 20
        assert content(s.chat(HAIKU, max_tokens=10, seed=1))


# ---- waiting, and room

def test_a_stream_that_waits_says_that_it_is_there(home):
    with serving(home, "-np", 1, model=ENDLESS) as s:
        first = s.open("/v1/chat/completions", LONG)
        s.wait_for(answers_running=1)
        second = s.open("/v1/chat/completions", {**LONG, "stream": True})
        s.wait_for(answers_waiting=1)
        s.process.send_signal(signal.SIGSTOP)  # else it would work on the first answer all the while
        time.sleep(15)
        s.process.send_signal(signal.SIGCONT)
        got, end = b"", time.monotonic() + 40
        while b": ping\n\n" not in got and time.monotonic() < end:
            got += second.recv(4096)
        assert b": ping\n\n" in got
        first.close()
        second.close()


def test_a_server_finds_room_beside_the_largest_context(home, tmp_path):
    kvs, tensors = make_gguf.model(layers=2, embd=64, heads=2, ff=64, ctx=1 << 20, vocab=151936)
    make_gguf.write(tmp_path / "long.gguf", kvs, tensors)
    limit = resource.RLIMIT_AS, (300 << 20, 300 << 20)
    with serving(home, "--device", "cpu", model=["-m", tmp_path / "long.gguf", "-t", 2], preexec_fn=lambda: resource.setrlimit(*limit)) as s:
        assert 1 << 14 < s.ask("/v1/models")[2]["data"][0]["context_length"] < 1 << 20
        assert s.chat("hi", max_tokens=3)["usage"]["completion_tokens"] > 0
        schema = {"type": "json_schema", "json_schema": {"name": "yes", "schema": {"type": "boolean"}}}
        assert s.chat("hi", response_format=schema)["choices"][0]["message"]["content"] in ("true", "false")


def test_a_server_that_the_limits_keep_from_starting_says_so(hokku):
    r = hokku("serve", "--listen", "127.0.0.1:0", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8)))
    assert r.returncode == 1 and b"cannot be started: its 4 threads, each with its event queue" in r.stderr and b"(ulimit -n, -u, -v)" in r.stderr, r
