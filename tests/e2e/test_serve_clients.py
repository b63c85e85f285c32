"""hokku serve, driven by the clients that people use, and by many at once."""
import asyncio
import json
import random
import subprocess

import openai
import parrot
import pytest
from server import BUILTIN, serving
from test_serve_tools import BETWEEN, TOOL

USER = [{"role": "user", "content": "Write a haiku about the sea"}]


@pytest.fixture
def served(home):
    with serving(home) as s:
        yield s


@pytest.fixture
def client(served):
    with openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0) as c:
        yield c


def test_openai_chats_streams_and_counts(client, hokku):
    expected = hokku(*BUILTIN, "-s", 7, USER[0]["content"]).stdout.decode()
    name = client.models.list().data[0].id
    assert name == "hokku-builtin"
    whole = client.chat.completions.create(model=name, messages=USER, seed=7)
    assert whole.choices[0].message.content == expected and whole.choices[0].finish_reason == "stop"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(client.chat.completions.create(model=name, messages=USER, seed=7, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == expected
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert client.completions.create(model=name, prompt="The old pond", max_tokens=8, seed=1).choices[0].text
    # An answer as the client has it may be a message of the next request.
    again = client.chat.completions.create(model=name, messages=[*USER, whole.choices[0].message, {"role": "user", "content": "Another one"}], seed=1)
    assert again.choices[0].message.content


def test_openai_reads_log_probabilities(client):
    answer = client.chat.completions.create(model="hokku-builtin", messages=USER, seed=7, max_tokens=5, logprobs=True, top_logprobs=2)
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) == 5 and "".join(t.token for t in tokens) == answer.choices[0].message.content
    assert all(len(t.top_logprobs) == 2 and t.logprob <= 0 and bytes(t.bytes).decode() == t.token for t in tokens)


def test_openai_gets_answers_that_obey_a_schema(client):
    import pydantic

    class Poem(pydantic.BaseModel):
        title: str = pydantic.Field(max_length=20)
        lines: int = pydantic.Field(ge=1, le=9)
    answer = client.chat.completions.parse(model="hokku-builtin", messages=USER, seed=7, response_format=Poem)
    assert isinstance(answer.choices[0].message.parsed, Poem)


def test_openai_understands_what_is_refused(client, home, tmp_path):
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="hokku-builtin", messages=USER, n=2)
    assert e.value.param == "n" and "expected 1" in e.value.message
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-5", messages=USER)
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef\n")
    keys.chmod(0o600)
    with serving(home, "--api-key-file", keys) as s:
        for key, ok in (("0123456789abcdef", True), ("wrong", False)):
            with openai.OpenAI(base_url=s.url + "/v1", api_key=key, max_retries=0) as c:
                if ok:
                    assert c.models.list().data
                else:
                    with pytest.raises(openai.AuthenticationError):
                        c.models.list()


def test_openai_calls_tools(home, tmp_path):
    path = parrot.write(tmp_path / "parrot.gguf", ["Let me see.", "<tool_call>", '{"name": "weather", "arguments": {"place": "Ulm"}}', "</tool_call>"], BETWEEN)
    with serving(home, model=["-m", path, "-t", 1]) as s, openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0) as c:
        ask = {"model": "parrot", "messages": USER, "tools": [TOOL], "temperature": 0}
        choice = c.chat.completions.create(**ask).choices[0]
        call = choice.message.tool_calls[0]
        assert choice.finish_reason == "tool_calls" and call.function.name == "weather" and json.loads(call.function.arguments) == {"place": "Ulm"}
        chunks = [x.choices[0] for x in c.chat.completions.create(**ask, stream=True)]
        assert [t.function.name for x in chunks for t in x.delta.tool_calls or []] == ["weather"] and chunks[-1].finish_reason == "tool_calls"
        result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
        assert c.chat.completions.create(**{**ask, "messages": [*USER, choice.message, result]}).choices[0].message.content == "Let me see."


def test_a_stream_that_its_client_closes_ends(client, served):
    stream = client.chat.completions.create(model="hokku-builtin", messages=USER, seed=7, temperature=2, stream=True, extra_body={"min_p": 0, "top_k": 0, "top_p": 1})
    for _ in zip(range(3), stream):
        pass
    stream.close()
    served.wait_for(answers_running=0)


def test_curl_streams(served):
    body = json.dumps({"messages": USER, "seed": 7, "stream": True, "max_tokens": 5})
    r = subprocess.run(["curl", "-sSN", served.url + "/v1/chat/completions", "-H", "Content-Type: application/json", "-d", body], capture_output=True, timeout=60)
    assert r.returncode == 0 and r.stdout.count(b"data: ") == 8 and r.stdout.endswith(b"data: [DONE]\n\n"), r.stdout


# ---- many

N_CLIENTS = 64


async def one(s, i, prompt, cancel):
    """A request as raw bytes: what comes of it has the bytes that a program of its own gives, or it is left after some of them."""
    body = json.dumps({"messages": [{"role": "user", "content": prompt}], "seed": i, "stream": i % 2 == 0, "max_tokens": 5 + i % 40}).encode()
    r, w = await asyncio.open_connection(s.host, s.port)
    w.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    if cancel:
        await asyncio.sleep(random.Random(i).random() * 0.5)
        w.close()
        return None
    raw = await r.read()
    w.close()
    head, _, rest = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), raw[:300]
    if i % 2:
        return json.loads(rest)["choices"][0]["message"]["content"]
    text = b""
    while rest:  # chunks
        size, _, rest = rest.partition(b"\r\n")
        text, rest = text + rest[:int(size, 16)], rest[int(size, 16) + 2:]
    events = [e[6:] for e in text.decode().split("\n\n") if e.startswith("data: ")]
    assert events[-1] == "[DONE]"
    return "".join(json.loads(e)["choices"][0]["delta"].get("content", "") for e in events[:-1])


def test_64_clients_of_which_a_third_leave_each_get_the_bytes_of_a_program_of_its_own(home, hokku):
    prompts = [("Write a haiku about number %d. " % (i % 7)) * (1 + i % 5) + "x" * (i * 3 % 50) for i in range(N_CLIENTS)]
    lines = "".join(json.dumps({"prompt": p, "seed": i, "max_tokens": 5 + i % 40}) + "\n" for i, p in enumerate(prompts))
    expected = [json.loads(line)["text"] for line in hokku(*BUILTIN, "--lines", "--json", "-np", 1, input=lines).stdout.splitlines()]
    assert len(expected) == N_CLIENTS
    for i in (0, 17, 40):  # (and those are what a program gives for one alone)
        assert hokku(*BUILTIN, "-s", i, "-n", 5 + i % 40, input=prompts[i]).stdout.decode() == expected[i]
    with serving(home, "-np", 12, "-c", 2048) as s:  # (less memory than twelve need)
        async def all_of_them():
            return await asyncio.gather(*(one(s, i, p, i % 3 == 1) for i, p in enumerate(prompts)))
        got = asyncio.run(all_of_them())
        wrong = [i for i, text in enumerate(got) if text is not None and text != expected[i]]
        assert not wrong, [(got[i], expected[i]) for i in wrong[:2]]
        assert sum(text is not None for text in got) > N_CLIENTS // 2
        s.wait_for(answers_running=0, answers_waiting=0)
