"""hokku serve: tools as the model's template renders them, calls read back from what it writes; answers held to a schema."""
import json

import jsonschema
import parrot
import pytest
from server import BUILTIN, serving, streamed
from test_serve import any_served  # noqa: F401 (fixture)

TOOL = {"type": "function", "function": {"name": "weather", "description": "Of a place", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}
ASKED = [{"role": "user", "content": "How is the weather in Ulm?"}]
BEGIN, END = "<|im_start|>", "<|im_end|>"

TURNS = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}
{%- for c in m.tool_calls or [] %}{{ '\\n<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson + '}\\n</tool_call>' }}{% endfor %}
{{- '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}"""
BETWEEN = "{%- if tools %}{{ 'Tools: ' + tools | tojson + '\\nCall: <tool_call>{\"name\", \"arguments\"}</tool_call>\\n' }}{% endif %}" + TURNS
LIST = "{%- if tools %}{{ '[AVAILABLE_TOOLS]' + tools | tojson }}{% endif %}{#- [TOOL_CALLS] tool_calls #}" + TURNS.replace("tool_call>", "x>")
NAMED = LIST.replace("{#-", "{#- [ARGS]")
BARE = "{%- if tools %}{{ '{\"name\": ..., \"parameters\": ...} ipython' + tools | tojson }}{% endif %}" + TURNS.replace("tool_call>", "x>")

ULM, BONN = '{"place": "Ulm"}', '{"place":"Bonn"}'
# Arguments that are JSON and that no double, no 64 bits and no other writer of JSON would give back as they stand.
EXACT = {
    "decimals": '{"a": 0.1, "b": 1.10,  "c": [1e-31, 1E5, -0, -0.0, 123456789.123456789]}',
    "large numbers": '{"n": 123456789012345678901234567890, "m": [-9223372036854775809], "x": 1e999}',
    "escapes": '{"t": "\\u0000 \\u00e9 \\/ \\ud83d\\ude00 \\\\ \\" é😀", "\\u006b": null}',
    "space": '{ \n "a" :\t[ ] , "b":{ } }',
    "a key twice": '{"a": 1, "a": 2}',
    "marks": '{"t": "use </tool_call> to end, or <tool_call> or [TOOL_CALLS] or [ARGS] or [CALL_ID]", "u": "}"}',
    "keys of calls": '{"name": "x", "arguments": {"name": []}, "parameters": 1}',
}
FORMS = {
    "between": (BETWEEN, ["Let", " me see. ", "<tool", "_call>\n{\"name\": \"wea", "ther\", \"arguments\": {\"place\": \"Ulm\"}}\n</tool_call>", "\n<tool_call>{\"name\":\"weather\",",
                          "\"arguments\": {\"place\":\"Bonn\"}}</tool_call>"], [], "Let me see.", [ULM, BONN]),
    "between, cut off": (BETWEEN, ["<tool_call>", '{"name": "weather", "arguments": {"place": "Ulm"}}'], [], None, [ULM]),
    "between, a name with escapes": (BETWEEN, ['<tool_call>{"arguments": {"place": "Ulm"}, "n\\u0061me": "we\\u0061ther", "more": [1]}</tool_call>'], [], None, [ULM]),
    "list": (LIST, ["[TOOL_CALLS]", '[{"name": "weather", "arguments": ', '{"place": "Ulm"}}, {"name": "weather", "arguments": {"place":"Bonn"}}]'], ["[TOOL_CALLS]"], None, [ULM, BONN]),
    "list, as text": (LIST, ["Hm. [TOOL", "_CALLS]", '[{"name": "weather", "arguments": {"place": "Ulm"}}]'], [], "Hm.", [ULM]),
    "named": (NAMED, ["[TOOL_CALLS]", "wea", "ther", "[ARGS]", '{"place": "Ulm"}'], ["[TOOL_CALLS]", "[ARGS]"], None, [ULM]),
    "named, with an id": (NAMED, ["[TOOL_CALLS]", "weather", "[CALL_ID]", "abc", "[ARGS]", '{"place": "Ulm"}'], ["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"], None, [ULM]),
    "bare": (BARE, ['{"name": "weather", ', '"parameters": {"place": "Ulm"}}'], [], None, [ULM]),
    "bare, marked": (BARE, ["<|python_tag|>", '{"name": "weather", "parameters": {"place": "Ulm"}}'], ["<|python_tag|>"], None, [ULM]),
    "text": (BETWEEN, ["It is", " sunny; a < b, <tool", "s> and <tool_cal", "."], [], "It is sunny; a < b, <tools> and <tool_cal.", None),
    "text in braces": (BARE, ['{"x": 1', "} it is"], [], '{"x": 1} it is', None),
    "no JSON": (BETWEEN, ["Well <tool_call>{\"name\": ", "weather}</tool_call>"], [], 'Well <tool_call>{"name": weather}</tool_call>', None),
    "no name": (BETWEEN, ["<tool_call>{\"arguments\": {}}</tool_call>"], [], '<tool_call>{"arguments": {}}</tool_call>', None),
    "a name twice": (BETWEEN, ['<tool_call>{"name": "weather", "name": "other", "arguments": {}}</tool_call>'], [], '<tool_call>{"name": "weather", "name": "other", "arguments": {}}</tool_call>', None),
    "arguments that are none": (LIST, ['[TOOL_CALLS]', '[{"name": "weather", "arguments": [1]}]'], [], '[TOOL_CALLS][{"name": "weather", "arguments": [1]}]', None),
    "an empty list": (LIST, ["[TOOL_CALLS]", "[]"], [], "[TOOL_CALLS][]", None),
    "cut off in a text": (BETWEEN, ['<tool_call>{"name": "weather", "arguments": {"a": "</tool_call>'], [], '<tool_call>{"name": "weather", "arguments": {"a": "</tool_call>', None),
    "text behind": (BETWEEN, ['<tool_call>{"name": "weather", "arguments": {}}</tool_call> so'], [], '<tool_call>{"name": "weather", "arguments": {}}</tool_call> so', None),
}


@pytest.fixture
def parroting(home, tmp_path):
    def start(pieces, template, control=(), *args):
        path = parrot.write(tmp_path / "parrot.gguf", pieces, template, control)
        return serving(home, *args, model=["-m", path, "-t", 1])
    return start


@pytest.mark.parametrize("form", FORMS)
def test_calls_are_read_back_and_what_is_none_stays_text(parroting, form):
    template, pieces, control, text, arguments = FORMS[form]
    with parroting(pieces, template, control) as s:
        body = {"messages": ASKED, "tools": [TOOL], "temperature": 0}
        choice = s.ask("/v1/chat/completions", body)[2]["choices"][0]
        message = choice["message"]
        assert message["content"] == text
        assert choice["finish_reason"] == ("tool_calls" if arguments else "stop")
        calls = message.get("tool_calls", [])
        assert [(c["type"], c["function"]) for c in calls] == [("function", {"name": "weather", "arguments": a}) for a in arguments or []]
        assert len({c["id"] for c in calls}) == len(calls) and all(len(c["id"]) == 9 and c["id"].isalnum() for c in calls)
        chunks = [c["choices"][0] for c in streamed(s.ask("/v1/chat/completions", {**body, "stream": True})[2])]
        assert "".join(c["delta"].get("content") or "" for c in chunks) == (text or "")
        streamed_calls = [c for chunk in chunks for c in chunk["delta"].get("tool_calls", [])]
        assert [c["function"] for c in streamed_calls] == [c["function"] for c in calls] and [c["index"] for c in streamed_calls] == list(range(len(calls)))
        assert chunks[-1]["finish_reason"] == choice["finish_reason"]
        # Without tools, or told not to call them, all of it is text.
        for fields in ({}, {"tools": [TOOL], "tool_choice": "none"}, {"tools": []}):
            message = s.ask("/v1/chat/completions", {"messages": ASKED, "temperature": 0, **fields})[2]["choices"][0]["message"]
            assert "tool_calls" not in message and message["content"] == "".join(p for p in pieces if p not in control)


@pytest.mark.parametrize("form", ["between", "list", "named", "bare"])
@pytest.mark.parametrize("written", EXACT)
def test_the_arguments_of_a_call_are_what_the_model_wrote_to_the_letter(parroting, written, form):
    a = EXACT[written]
    template, pieces, control = {
        "between": (BETWEEN, ["<tool_call>\n", '{"name": "weather", "arguments": ' + a + "}", "\n</tool_call>"], []),
        "list": (LIST, ["[TOOL_CALLS]", '[{"name": "weather", "arguments": ' + a + "}]"], ["[TOOL_CALLS]"]),
        "named": (NAMED, ["[TOOL_CALLS]", "weather", "[ARGS]", a], ["[TOOL_CALLS]", "[ARGS]"]),
        "bare": (BARE, ['{"name": "weather", "parameters": ' + a + "}"], []),
    }[form]
    with parroting(pieces, template, control) as s:
        message = s.ask("/v1/chat/completions", {"messages": ASKED, "tools": [TOOL], "temperature": 0})[2]["choices"][0]["message"]
        assert [c["function"] for c in message.get("tool_calls", [])] == [{"name": "weather", "arguments": a}], message
        # What came goes back, as a client's conversation does.
        status, _, answer = s.ask("/apply-template", {"messages": [*ASKED, message, {"role": "tool", "tool_call_id": "x", "content": "rain"}], "tools": [TOOL]})
        assert status == (400 if written == "large numbers" else 200), answer


def test_tools_calls_and_results_are_rendered_by_the_template_and_are_never_markup(parroting):
    with parroting(["ok"], BETWEEN) as s:
        call = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": ULM}}
        tool = json.loads(json.dumps(TOOL).replace("Of a place", "Of a <|im_end|> place"))
        messages = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "abcdefghi", "content": "rain<|im_end|>"}]
        prompt = s.ask("/apply-template", {"messages": messages, "tools": [tool]})[2]["prompt"]
        assert prompt == ("Tools: " + json.dumps([tool]) + '\nCall: <tool_call>{"name", "arguments"}</tool_call>\n' + f"{BEGIN}user\n{ASKED[0]['content']}{END}\n"
                          + f'{BEGIN}assistant\n\n<tool_call>\n{{"name": "weather", "arguments": {{"place": "Ulm"}}}}\n</tool_call>{END}\n'
                          + f"{BEGIN}tool\nrain<|im_end|>{END}\n{BEGIN}assistant\n")
        answer = s.ask("/v1/chat/completions", {"messages": messages, "tools": [tool], "temperature": 0})[2]
        plain = s.ask("/apply-template", {"messages": ASKED})[2]["prompt"]
        assert answer["choices"][0]["message"]["content"] == "ok" and plain == f"{BEGIN}user\n{ASKED[0]['content']}{END}\n{BEGIN}assistant\n"
        untold, told = ({"messages": ASKED, "temperature": 0}, {"messages": ASKED, "temperature": 0, "tools": [TOOL], "tool_choice": "none"})
        assert len({s.ask("/v1/chat/completions", body)[2]["usage"]["prompt_tokens"] for body in (untold, told)}) == 1
        # What looks like markup is as many tokens as its letters, in tools and results alike.
        count = answer["usage"]["prompt_tokens"]
        shorter = s.ask("/v1/chat/completions", {"messages": [*messages[:-1], {**messages[-1], "content": "rain"}], "tools": [TOOL], "temperature": 0})[2]
        assert count - shorter["usage"]["prompt_tokens"] == len("<|im_end|>") + len("<|im_end|> ")


BAD_TOOLS = [
    ("tools", {"tools": {}}), ("tools", {"tools": [{"type": "retrieval"}]}), ("tools", {"tools": [{"type": "function", "function": {"parameters": {}}}]}),
    ("tools", {"tools": [{"type": "function", "function": {"name": ""}}]}),
    ("tools", {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}), ("tools", {"tools": [{"type": "function", "function": {"name": "f", "x": 1}}]}),
    ("tool_choice", {"tools": [TOOL], "tool_choice": "required"}), ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ("parallel_tool_calls", {"tools": [TOOL], "parallel_tool_calls": False}), ("response_format", {"tools": [TOOL], "response_format": {"type": "json_object"}}),
    ("messages[1].tool_calls", {"messages": [*ASKED, {"role": "assistant", "content": "", "tool_calls": [{"id": "x"}]}]}),
    ("messages[1].tool_calls", {"messages": [*ASKED, {"role": "assistant", "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "no JSON"}}]}]}),
    ("messages[0].tool_calls", {"messages": [{"role": "user", "content": "", "tool_calls": []}]}),
    ("response_format", {"response_format": {"type": "yaml"}}), ("response_format", {"response_format": {"type": "json_schema"}}),
    ("response_format", {"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}}), ("response_format", {"response_format": {"type": "text", "x": 1}}),
    ("json_schema", {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "x": 1}}}),
]


def test_arguments_are_json_of_a_body_within_its_limits(home, parroting):
    """Read without them, eight requests took 3 GB."""
    def ask(s, *arguments):
        calls = [{"id": "x", "type": "function", "function": {"name": "f", "arguments": a}} for a in arguments]
        status, _, answer = s.ask("/v1/chat/completions", {"messages": [*ASKED, {"role": "assistant", "tool_calls": calls}, *ASKED], "max_tokens": 1})
        return status if status == 200 else (status, answer["error"]["param"], answer["error"]["message"])

    with parroting(["ok"], BETWEEN.replace("c.function.arguments | tojson", "(c.function.arguments | tojson | length) | string")) as s:
        many, deep = '{"a": [' + "1," * 120000 + "1]}", '{"a": ' + 63 * "[" + 63 * "]" + "}"
        assert ask(s, many) == 200 and ask(s, deep) == 200
        status, param, message = ask(s, many, many)
        assert status == 400 and param == "messages[1].tool_calls" and "up to call 1's have 240008 values: expected at most 200000" in message, message
        status, param, message = ask(s, "{}", deep.replace("[]", "[[]]"))
        assert status == 400 and param == "messages[1].tool_calls" and "call 1's arguments is nested more than 64 deep" in message, message


def test_what_is_not_supported_of_tools_and_formats_is_refused_by_name(home, parroting):
    with parroting(["ok"], BETWEEN) as s:
        for param, fields in BAD_TOOLS:
            status, _, answer = s.ask("/v1/chat/completions", {"messages": ASKED, **fields})
            assert status == 400 and answer["error"]["param"] == param, (param, answer)
        status, _, answer = s.ask("/v1/chat/completions", {"messages": ASKED, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "frog"}}}})
        assert status == 400 and "frog" in answer["error"]["message"]
    with serving(home) as s:  # its template knows no tools
        status, _, answer = s.ask("/v1/chat/completions", {"messages": ASKED, "tools": [TOOL]})
        assert status == 400 and "tools" in answer["error"]["message"]
        # A call that it does not show would leave an empty message.
        call = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        messages = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "abcdefghi", "content": "rain"}]
        for path in ("/v1/chat/completions", "/apply-template"):
            status, _, answer = s.ask(path, {"messages": messages})
            assert status == 400 and answer["error"]["param"] == "messages" and 'messages[1] has "tool_calls"' in answer["error"]["message"], answer


def test_a_result_that_a_template_passes_over_is_refused(parroting):
    users = "{%- for m in messages if m.role != 'tool' %}{{ m.role }}: {{ m.content }}\n{% endfor %}{#- tool_calls #}"  # (as the first Phi-3's)
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [*ASKED, {"role": "assistant", "content": "Well", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "abcdefghi", "content": "rain"}]
    for template, shown in (users, False), (users.replace(" if m.role != 'tool'", ""), True):
        with parroting(["ok"], template) as s:
            for path in ("/v1/chat/completions", "/apply-template"):
                status, _, answer = s.ask(path, {"messages": messages, **({"max_tokens": 1} if "chat" in path else {})})
                assert status == (200 if shown else 400), answer
                assert shown or (answer["error"]["param"] == "messages" and "shows nothing of message 3, a tool's" in answer["error"]["message"]), answer


def test_a_tool_is_told_without_its_nulls_but_with_those_of_its_schema(parroting):
    place = {"type": "string", "default": None}
    with parroting(["ok"], BETWEEN) as s:
        def told(**function):
            tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"place": place}}, **function}}
            status, _, answer = s.ask("/apply-template", {"messages": ASKED, "tools": [tool]})
            assert status == 200, answer
            return answer["prompt"]
        assert told(strict=None, description=None) == told() and '"default": null' in told()


def test_every_answer_obeys_its_schema_whoever_is_beside_it(home, hokku):
    person = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0, "maximum": 120}}, "required": ["name", "age"],
              "additionalProperties": False}
    with serving(home) as s:
        for i in range(12):  # more than are kept
            schema = {**person, "title": f"t{i % 10}"}
            answer = s.chat("Who are you?", seed=i, temperature=1.5, response_format={"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}})
            assert answer["choices"][0]["finish_reason"] == "stop"
            jsonschema.validate(json.loads(answer["choices"][0]["message"]["content"]), person)
        expected = hokku(*BUILTIN, "-s", 11, "--temp", 1.5, "-j", json.dumps({**person, "title": "t1"}), "Who are you?").stdout.decode()
        assert answer["choices"][0]["message"]["content"] == expected
        for seed in range(4):
            choice = s.chat("Who?", seed=seed, max_tokens=200, response_format={"type": "json_object"})["choices"][0]
            assert choice["message"]["content"].startswith("{")
            assert choice["finish_reason"] == "length" or isinstance(json.loads(choice["message"]["content"]), dict)
        assert s.chat("Who are you?", seed=1, response_format={"type": "text"})["choices"][0]["message"]["content"]


def read(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return "no JSON"


ANN = {"name": "ann"}


@pytest.mark.parametrize("value, fields, content, finish, left", [
    (ANN, {}, '{"name":"ann"}', "stop", ANN), (ANN, {"stop": "bob"}, '{"name":"ann"}', "stop", ANN),
    (ANN, {"stop": "ann"}, '{"name":"', "stop", "no JSON"), (ANN, {"stop": ["bob", "}"]}, '{"name":"ann"', "stop", "no JSON"),
    ([1, 2], {"stop": ","}, "[1", "stop", "no JSON"), ("one two", {"stop": "tw"}, '"one ', "stop", "no JSON"), (1234, {"stop": "3"}, "12", "stop", 12),
    (ANN, {"max_tokens": 2}, None, "length", "no JSON"),
])
def test_what_cuts_off_an_answer_that_is_held_to_a_schema_is_told_as_the_manual_says(any_served, value, fields, content, finish, left):  # noqa: F811
    body = {"messages": ASKED, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": value}}}, **fields}
    status, _, answer = any_served.ask("/v1/chat/completions", body)
    assert status == 200, answer
    choice = answer["choices"][0]
    text = choice["message"]["content"]
    assert (choice["finish_reason"], read(text)) == (finish, left) and content in (None, text), choice
    chunks = [c["choices"][0] for c in streamed(any_served.ask("/v1/chat/completions", {**body, "stream": True})[2])]
    assert chunks[-1]["finish_reason"] == finish and "".join(c["delta"].get("content", "") for c in chunks) == text


@pytest.mark.parametrize("field", ["reasoning_content", "thinking"])
def test_earlier_thinking_is_told_by_the_name_that_the_template_has_for_it(parroting, field):
    template = "{%- for m in messages %}{% if m." + field + " %}{{ '(' + m." + field + " + ')' }}{% endif %}{{ m.content + '\\n' }}{% endfor %}"
    with parroting(["okay!"], template) as s:
        messages = [*ASKED, {"role": "assistant", "content": "Rain.", "reasoning_content": "hm"}, {"role": "user", "content": "And now?"}]
        assert s.ask("/apply-template", {"messages": messages})[2]["prompt"] == ASKED[0]["content"] + "\n(hm)Rain.\nAnd now?\n"


def test_bytes_of_a_character_are_sent_together_and_what_is_none_is_replaced(parroting):
    with parroting(["a", b"\xf0\x9f", b"\x90", b"\xb8", "b", b"\xff", b"\xe2\x82"], TURNS) as s:
        chunks = streamed(s.ask("/v1/chat/completions", {"messages": ASKED, "stream": True, "temperature": 0})[2])
        texts = [c["choices"][0]["delta"].get("content") for c in chunks]
        assert "\U0001f438" in texts and "".join(t or "" for t in texts) == "a\U0001f438b\ufffd\ufffd\ufffd", texts


def test_thinking_is_told_apart(parroting):
    template = TURNS.replace("{{ '<|im_start|>assistant\\n' }}", "{#- <think> </think> #}{{ '<|im_start|>assistant\\n' }}")
    pieces = ["<think>", "hm, ", "rain?", "</think>", "\n\nIt ", "rains."]
    for args, thought in (((), "hm, rain?"), (("--think", "hide"), None)):
        with parroting(pieces, template, (), *args) as s:
            message = s.ask("/v1/chat/completions", {"messages": ASKED, "temperature": 0})[2]["choices"][0]["message"]
            assert message["content"] == "It rains." and message.get("reasoning_content") == thought
            chunks = [c["choices"][0]["delta"] for c in streamed(s.ask("/v1/chat/completions", {"messages": ASKED, "stream": True, "temperature": 0})[2])]
            assert "".join(d.get("content", "") for d in chunks) == "It rains." and "".join(d.get("reasoning_content", "") for d in chunks) == (thought or "")
            tokens = s.ask("/v1/chat/completions", {"messages": ASKED, "temperature": 0, "logprobs": True})[2]["choices"][0]["logprobs"]["content"]
            assert [t["token"] for t in tokens] == pieces
