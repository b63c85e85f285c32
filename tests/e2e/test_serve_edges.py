"""hokku serve at its edges: names and texts of any bytes, what is counted, headers that ask for what is not there."""
import json
import math
import os
import random
import shutil
import signal
import socket
import string
import subprocess
import sys

import pytest
from conftest import HOKKU, ROOT, wait_until
from server import BUILTIN, events, serving
from test_places import shim  # noqa: F401 (fixture)
from test_serve import USER, any_served  # noqa: F401 (fixture)
from test_serve_door import AS_SYSTEMD


def refused(s, status, param, **fields):
    code, _, answer = s.ask("/v1/chat/completions", {"messages": USER, "max_tokens": 1, **fields})
    assert code == status and answer["error"]["param"] == param, answer
    return answer["error"]["message"]


def test_a_model_whose_file_name_is_no_text_answers_by_a_name_that_is(home, tmp_path):
    path = os.fsencode(tmp_path) + b"/m\xff.gguf"
    shutil.copy(ROOT / "builtin/hokku-builtin.gguf", path)
    with serving(home, model=["-m", os.fsdecode(path), "-t", 2]) as s:
        assert s.chat("hi", max_tokens=2, model="m\ufffd")["model"] == "m\ufffd"
        assert s.ask("/v1/models")[2]["data"][0]["id"] == "m\ufffd"


def test_a_temperature_too_small_to_divide_by_is_refused_by_name(any_served, hokku):  # noqa: F811
    for t in (1e-40, 1e-50, 9e-31):
        said = refused(any_served, 400, "temperature", temperature=t)
        assert f'"temperature": found {t}, expected 0, or 1e-30 at least' in said
    any_served.chat("hi", temperature=1e-30, max_tokens=2)
    for t in ("1e-40", "9e-31"):
        r = hokku(*BUILTIN, "--temp", t, "Hi")
        assert r.returncode == 2 and f'--temp: found "{t}", expected 0, or 1e-30 at least'.encode() in r.stderr, r.stderr
    assert hokku(*BUILTIN, "--temp", "1e-30", "-n", 2, "Hi").returncode == 0


def test_log_probabilities_without_alternatives_have_none(any_served):  # noqa: F811
    for n in (0, 1, 3):
        content = any_served.chat("hi", logprobs=True, max_tokens=3, seed=1, **({"top_logprobs": n} if n else {}))["choices"][0]["logprobs"]["content"]
        assert len(content) == 3 and all(len(c["top_logprobs"]) == n for c in content)
        assert all(math.isfinite(c["logprob"]) and c["logprob"] < 0 for c in content)


def test_a_text_ends_where_json_says_and_not_at_a_nul(any_served):  # noqa: F811
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    refused(any_served, 404, "model", model="hokku-builtin\0evil")
    refused(any_served, 400, "messages[0].role", messages=[{"role": "user\0x", "content": "hi"}])
    refused(any_served, 400, "messages[0].role", messages=[{"role": "developer\0", "content": "hi"}, *USER])
    refused(any_served, 400, "messages[0].content", messages=[{"role": "user", "content": [{"type": "text\0", "text": "x"}]}])
    refused(any_served, 400, "tools", tools=[{**tool, "type": "function\0x"}])
    refused(any_served, 400, "tool_choice", tool_choice="none\0")
    refused(any_served, 400, "response_format", response_format={"type": "text\0"})
    refused(any_served, 400, "response_format", response_format={"type": "json_object\0"})


def test_what_is_refused_by_the_engines_thread_is_counted_as_refused(home):
    with serving(home, "-c", 300) as s:
        before = s.metrics()
        assert s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 400}]})[0] == 400
        assert s.ask("/v1/chat/completions", {"messages": USER, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"bogus": 1}}}})[0] == 400
        s.chat("hi", max_tokens=2)
        after = s.metrics()
        assert (after["refused_total"] - before["refused_total"], after["answers_total"] - before["answers_total"]) == (2, 1)


def test_a_schema_that_would_take_for_ever_stops_nobody(any_served):  # noqa: F811
    defs = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)} | {"a40": {"type": "integer"}}
    status, _, answer = any_served.ask("/v1/chat/completions", {"messages": USER, "response_format": {"type": "json_schema", "json_schema": {
        "name": "a", "schema": {"enum": ["x", 2], "$ref": "#/$defs/a0", "$defs": defs}}}})
    assert status == 400 and "steps" in answer["error"]["message"], answer


def test_what_a_template_says_is_told_whole(home, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ raise_exception('a' * 450 + ' ' + 'b' * 450) }}")
    with serving(home, "--chat-template-file", tmp_path / "t.jinja") as s:
        assert "a" * 450 + " " + "b" * 450 in refused(s, 400, "messages")


def test_a_schema_too_ambiguous_to_be_followed_is_its_clients_to_change(home):
    """Found while the answer is made: it was 500, as if the server were to blame."""
    rng, patterns = random.Random(1), []
    for _ in range(1000):  # each takes texts with an even number of some letters
        some = "".join(c for c in string.ascii_lowercase if rng.random() < .5)
        patterns.append({"type": "string", "pattern": f"^[{(o := ''.join(sorted(set(string.ascii_lowercase) - set(some))))}]*([{some}][{o}]*[{some}][{o}]*)*$"})
    body = {"messages": USER, "seed": 1, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"anyOf": patterns}}}}
    with serving(home) as s:
        status, _, answer = s.ask("/v1/chat/completions", body)
        assert status == 400 and answer["error"]["param"] == "response_format", answer
        assert answer["error"]["message"].startswith('"response_format": the grammar is too ambiguous') and "make its alternatives begin differently" in answer["error"]["message"]
        raw = s.ask("/v1/chat/completions", {**body, "stream": True})[2]
        error = json.loads(events(raw)[-1])["error"]
        assert error == answer["error"] and error["type"] == "invalid_request_error"


NULLS = [
    ("/v1/chat/completions", {"messages": USER, "max_tokens": 1}, {"logit_bias": None, "modalities": None, "temperature": None, "stop": None, "stream_options": None, "response_format": None, "tools": None}),
    ("/v1/chat/completions", {"messages": USER, "max_tokens": 1}, {"stream_options": {"include_usage": None, "include_obfuscation": None}}),
    ("/v1/chat/completions", {"messages": USER, "max_tokens": 1}, {"messages": [{"role": "user", "content": "hi", "name": None, "refusal": None, "tool_calls": None}]}),
    ("/v1/chat/completions", {"messages": USER, "max_tokens": 1}, {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": None}]}]}),
    ("/v1/chat/completions", {"messages": [*USER, {"role": "assistant", "content": "a"}, *USER], "max_tokens": 1},  # as OpenAI's own answers come back
     {"messages": [*USER, {"role": "assistant", "content": "a", "refusal": None, "annotations": []}, *USER]}),
    ("/v1/chat/completions", {"messages": USER, "max_tokens": 1}, {"response_format": {"type": "text", "json_schema": None}}),
    ("/v1/completions", {"prompt": "hi", "max_tokens": 1}, {"suffix": None, "best_of": None, "echo": None, "logprobs": None}),
    ("/apply-template", {"messages": USER}, {"stream": None, "temperature": None}),
    ("/tokenize", {"content": "hi"}, {"add_special": None, "with_pieces": None}),
    ("/detokenize", {"tokens": [1]}, {"content": None, "x": None}),
]


@pytest.mark.parametrize("path, body, nulls", NULLS)
def test_null_is_no_value_whatever_the_field_is_called(any_served, path, body, nulls):  # noqa: F811
    def ask(body):
        status, _, answer = any_served.ask(path, {"seed": 1, **body} if "max_tokens" in body else body)
        assert status == 200, answer
        return {k: v for k, v in answer.items() if k not in ("id", "created", "usage")}
    assert ask({**body, **nulls}) == ask(body)


def test_a_field_that_must_be_there_is_missing_where_it_is_null(any_served):  # noqa: F811
    for path, field in ("/v1/chat/completions", "messages"), ("/v1/completions", "prompt"), ("/tokenize", "content"), ("/detokenize", "tokens"):
        status, _, answer = any_served.ask(path, {field: None})
        assert status == 400 and answer["error"]["message"].startswith(f'"{field}" is missing: expected '), answer
    for field in "role", "content":
        said = refused(any_served, 400, f"messages[0].{field}", messages=[{**USER[0], field: None}])
        assert "found nothing" in said
    assert "found nothing" in refused(any_served, 400, "messages[1].content", messages=[USER[0], {"role": "assistant", "content": None, "tool_calls": None}, USER[0]])
    for message in {"role": "user", "tool_calls": None}, {"role": "assistant", "tool_calls": None}:
        status, _, answer = any_served.ask("/v1/chat/completions", {"messages": [message]})
        assert status == 400, answer
    refused(any_served, 400, "stop", stop=[None])  # an element is no field
    assert "logit_bias" in refused(any_served, 400, "logit_bias", logit_bias={})


def test_why_a_stop_text_is_refused_is_said(any_served):  # noqa: F811
    for stop in "a\0b", ["a", "b\0"], "", ["a", ""]:
        assert "none empty or with U+0000" in refused(any_served, 400, "stop", stop=stop)


def test_in_a_schema_null_is_a_value(any_served):  # noqa: F811
    for schema, text in ({"const": None}, "null"), ({"type": "object", "properties": {"a": {"const": None}}, "required": ["a"], "additionalProperties": False}, '{"a":null}'):
        answer = any_served.chat("hi", response_format={"type": "json_schema", "json_schema": {"name": "x", "description": None, "schema": schema}})
        assert answer["choices"][0]["message"]["content"] == text


def test_a_coding_or_an_expectation_that_is_not_kept_is_refused(any_served):  # noqa: F811
    body = json.dumps({"messages": USER, "max_tokens": 1}).encode()
    for headers, status in (({"Content-Encoding": "gzip"}, 415), ({"Expect": "nonsense"}, 417), ({"Content-Encoding": "identity"}, 200)):
        code, _, answer = any_served.ask("/v1/chat/completions", body, headers)
        assert code == status and (status == 200 or list(headers)[0] in answer["error"]["message"]), answer


def test_one_model_is_told_of_by_its_name(any_served):  # noqa: F811
    status, _, model = any_served.ask("/v1/models/hokku-builtin")
    assert status == 200 and model == any_served.ask("/v1/models")[2]["data"][0]
    for other in ("/v1/models/", "/v1/models/hokku", "/v1/models/hokku-builtin2"):
        assert any_served.ask(other)[0] == 404
    assert any_served.ask("/v1/models/hokku-builtin", {})[0] == 405


def test_a_path_does_not_end_at_a_nul(any_served):  # noqa: F811
    for path, code in ("/health%00", "unknown_path"), ("/health%00abc", "unknown_path"), ("/%68ealth%00", "unknown_path"), ("/v1/models%00/x", "unknown_path"), ("/v1/models/hokku-builtin%00zzz", "model_not_found"):
        status, _, answer = any_served.ask(path)
        assert status == 404 and answer["error"]["code"] == code and "%00" in answer["error"]["message"], (path, answer)
    assert any_served.ask("/tokenize%00", {"content": "hi"})[0] == 404
    for path in "/%68ealth", "/v1/models/hokku%2Dbuiltin", "/health?a=%00b":
        assert any_served.ask(path)[0] == 200, path


def test_a_server_is_known_by_the_address_that_it_says(home):
    with serving(home, listen="127.0.0.2:0") as s:
        assert s.host == "127.0.0.2" and s.ask("/v1/models", headers={"Host": f"127.0.0.2:{s.port}"})[0] == 200
        assert s.ask("/v1/models", headers={"Host": "127.0.0.3"})[0] == 403
        assert s.ask("/v1/models", headers={"Host": "evil.example"})[0] == 403


def test_an_inherited_socket_beside_an_address_is_wrong_usage(home):
    with socket.create_server(("127.0.0.1", 0)) as sock:
        p = subprocess.run([sys.executable, "-c", AS_SYSTEMD, str(sock.fileno()), HOKKU, "serve", *map(str, BUILTIN), "--listen", "127.0.0.1:0"], env=home,
                           pass_fds=[sock.fileno()], capture_output=True, timeout=20)
    assert p.returncode == 2 and b"--listen 127.0.0.1:0" in p.stderr and b"LISTEN_FDS" in p.stderr, p.stderr


NO_SYSTEM = ("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
             "<{{ m.role }}>{{ m.content }}{{ m.tool_call_id }}{% endfor %}")


def test_a_system_prompt_comes_before_a_tools_words_where_a_template_has_none(home, tmp_path):
    (tmp_path / "t.jinja").write_text(NO_SYSTEM)
    with serving(home, "--chat-template-file", tmp_path / "t.jinja") as s:
        system, tool = {"role": "system", "content": "Be brief."}, {"role": "tool", "content": "42", "tool_call_id": "c1"}
        prompt = s.ask("/apply-template", {"messages": [system, tool]})[2]["prompt"]
        assert prompt.endswith("<tool>Be brief.\n\n42c1"), prompt
        assert s.ask("/apply-template", {"messages": [system, *USER, tool]})[2]["prompt"].endswith("<user>Be brief.\n\nhi<tool>42c1")
        assert s.ask("/apply-template", {"messages": [tool]})[2]["prompt"].endswith("<tool>42c1")


def test_an_empty_prompt_is_the_clients_mistake(any_served, hokku):  # noqa: F811
    for prompt in ("", [""]):
        code, _, answer = any_served.ask("/v1/completions", {"prompt": prompt, "max_tokens": 2})
        assert code == 400 and "the prompt is empty" in answer["error"]["message"], answer
    r = hokku(*BUILTIN, "-no-cnv", "--lines", "--json", input='{"prompt":""}\n')
    assert r.returncode == 1 and json.loads(r.stdout)["error"]["code"] == 2, r


def test_a_prompt_may_be_an_array_of_one_text(any_served):  # noqa: F811
    """So send it clients that can ask for several; several are refused."""
    fields = {"max_tokens": 5, "seed": 2}
    text = [any_served.ask("/v1/completions", {"prompt": p, **fields})[2]["choices"][0]["text"] for p in ("The sea", ["The sea"])]
    assert text[0] == text[1]
    for wrong in ([], ["a", "b"], [1], [["a"]]):
        code, _, answer = any_served.ask("/v1/completions", {"prompt": wrong, **fields})
        assert code == 400 and answer["error"]["param"] == "prompt", answer
    for path in ("/tokenize", "/apply-template"):
        assert any_served.ask(path, {"content": ["a"], "messages": ["a"]})[0] == 400


def test_what_is_refused_says_what_would_do(any_served):  # noqa: F811
    code, _, answer = any_served.ask("/v1/models/other")
    assert code == 404 and answer["error"]["code"] == "model_not_found"
    assert answer["error"]["message"] == 'found the model "other", expected "hokku-builtin", the one that is served'
    code, _, answer = any_served.ask("/v1/models/hokku-builtin", method="DELETE")
    assert code == 405 and answer["error"]["message"] == "found DELETE /v1/models/hokku-builtin, expected GET"
    code, _, answer = any_served.ask("/health", headers={"Host": "elsewhere.example"})
    assert answer["error"]["message"].endswith("expected localhost, 127.0.0.1 or [::1]"), answer
    assert refused(any_served, 400, "temperature", temperature=-1).endswith("from 0 to 1000000")
    assert refused(any_served, 400, "top_k", top_k=-1).endswith("from 0 to 2147483647")


def test_a_path_that_is_taken_is_left_alone_and_said(home, hokku, tmp_path):
    path = tmp_path / "s"
    with serving(home, listen=f"unix:{path}") as s:
        r = hokku("serve", *BUILTIN, "--listen", f"unix:{path}")
        assert r.returncode == 1 and b"another program listens there; name another path\n" in r.stderr, r
        assert s.ask("/health")[0] == 200
        r = hokku("serve", *BUILTIN, "--listen", f"unix:{tmp_path}")
        assert r.returncode == 1 and b"what is there is no socket; remove it, or name another path\n" in r.stderr, r
    with serving(home) as s:
        r = hokku("serve", *BUILTIN, "--listen", f"{s.host}:{s.port}")
        assert r.returncode == 1 and b"another program listens there; port 0 finds a free one\n" in r.stderr, r


def test_a_server_stays_when_who_read_its_messages_has_gone(home, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    p = subprocess.Popen([HOKKU, "serve", *map(str, BUILTIN), "-v", "--listen", f"unix:{tmp_path}/s"], env=home, stdin=subprocess.DEVNULL, stderr=writer)
    os.close(writer)
    wait_until(lambda: p.poll() is not None or (tmp_path / "s").exists())
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(tmp_path / "s"))
        s.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert b"200" in s.recv(100)
    p.terminate()
    assert p.wait() == -signal.SIGTERM


def test_a_stream_for_which_there_is_no_memory_ends_with_an_error_and_never_in_half_an_event(home, shim):  # noqa: F811
    body, ends = {"messages": USER, "max_tokens": 2, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}, []
    for n in range(1, 8):
        with serving({**home, "LD_PRELOAD": shim, "TEST_JSON_LOST": str(n)}) as s:
            status, _, raw = s.ask("/v1/chat/completions", body)
            assert status == 200 and raw.endswith(b"\n\n")
            said = [e.removeprefix("data: ") for e in raw.decode().split("\n\n")[:-1]]
            ends.append("done" if said[-1] == "[DONE]" else json.loads(said[-1])["error"]["code"])
            assert all(e == "[DONE]" or json.loads(e) for e in said)
            assert ends[-1] == "done" or s.chat("hi", max_tokens=1, temperature=0)
    assert ends == ["out_of_memory"] * ends.index("done") + ["done"] * (7 - ends.index("done")) and 3 <= ends.index("done") < 7, ends
