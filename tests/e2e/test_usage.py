"""What is typed is understood, or answered with what was found and expected."""
import json
import os
import pathlib
import re
import resource
import select
import signal
import subprocess
import sys

import pytest
from conftest import BY_ITSELF, HOKKU, OWN, ROOT, control_group, inside_of, model, wait_until
from test_places import shim  # noqa: F401 (fixture)

sys.path.insert(0, str(ROOT / "tests"))
import make_gguf  # noqa: E402

PLAIN = ["-no-cnv", "--temp", "0"]


@pytest.mark.parametrize("args", [["-n5"], ["-n=5"], ["-n", "5"], ["--n-predict=5"]])
def test_values_may_be_joined_to_their_option(hokku, stories, args):
    r = hokku("-m", stories, "-no-cnv", "--temp=0", "--json", *args, "Once")
    assert r.returncode == 0 and json.loads(r.stdout)["generated_tokens"] == 5, r


@pytest.mark.parametrize("args,says", [
    (["--temperature", "1"], b"unknown option --temperature, did you mean --temp?"[:-1]),
    (["--max-tokens", "5"], b"did you mean --n-predict"), (["--ctx", "5"], b"did you mean --ctx-size"),
    (["--stop", "x"], b"did you mean --reverse-prompt"), (["--lora", "x"], b"--lora is not needed, or not there: adapters"),
    (["-ngl", "99"], b"-ngl is not needed"), (["-ngl=99"], b"-ngl is not needed"), (["-dev=cpu"], b"unknown option -dev, did you mean --device;"), (["-fa"], b"-fa is not needed"), (["--mlock"], b"--mlock is not needed"),
    (["--no-mmap"], b"--no-mmap is not needed"), (["-i"], b"-i is not needed"), (["--repeat-penality", "1"], b"did you mean --repeat-penalty"),
    (["-n5x"], b'--n-predict: found "5x"'), (["inspct", "x"], b'unknown tool "inspct", did you mean hokku inspect?'),
    (["--jinja"], b"--jinja is not needed"), (["-dev", "cpu"], b"did you mean --device;"), (["--no-display-prompt"], b"never printed"),
    (["--mirostat", "2"], b"--samplers"), (["--port", "80"], b"hokku serve --listen"), (["-cb"], b"-cb is not needed"),
    (["--numa", "isolate"], b"numactl"), (["--prompt-cache", "x"], b"did you mean --session;"), (["-sm", "none"], b"--device cuda:N"),
    (["-ub", "5"], b"did you mean --batch-size;"), (["-nc"], b"unknown option -nc; hokku --help"), (["--format", "json"], b"did you mean --json-schema;"),
    (["-jf", "x.json"], b"-j @FILE"), (["--json-schema-file", "x.json"], b"-j @FILE"), (["--hf-token", "x"], b"HF_TOKEN has it"), (["--draft-model", "x"], b"did you mean --model-draft;"),
    (["--keepalive", "5m"], b"did you mean --keep;"), (["-bf", "x"], b"did you mean --file;"), (["--chat-template-kwargs", "{}"], b"did you mean --think;"),
    (["-q", "inspect", "x.gguf"], b"inspect is a tool, which stands first: hokku inspect"),
    (["run", "llama3"], b'hokku has no "run": '), (["show", "x.gguf"], b"hokku inspect FILE"), (["rm", "x"], b"hokku models rm NAME"),
    (["two", "words"], b'2 prompts given ("two", "words"): expected'), (["now", "three", "words"], b'("now", "three"...)'), ([""], b"no prompt: it is empty"), (["-Z"], b"unknown option -Z; hokku --help"),
    (["--save", "x"], b"did you mean --session;"), (["--schema", "{}"], b"did you mean --json-schema;"), (["--stream"], b"as it is sampled"),
    (["-5 plus 3"], b"unknown option -5 plus 3; hokku --help lists them (a prompt that begins with - is -p TEXT)\n"),
    (["--temp 0", "hi"], b'unknown option "--temp 0": --temp and its value are two arguments\n'), (["-c 9"], b'"-c 9": -c and its value')])
def test_what_others_have_is_answered_with_one_line(hokku, stories, args, says):
    r = hokku("-m", stories, *args) if args[0] not in ("inspct", "run", "show", "rm") else hokku(*args)
    assert r.returncode == 2 and says in r.stderr and r.stderr.count(b"\n") == 1 and r.stdout == b"", r


@pytest.mark.parametrize("word,says", [
    ("list", b'hokku has no "list": hokku models lists them'), ("ps", b"hokku models"), ("help", b"hokku --help"), ("show", b"hokku inspect FILE"), ("stop", b"--stop"),
    ("detokenize", b"POST /detokenize"), ("completion", b"hokku --print-completion bash"), ("tokenise", b'unknown tool "tokenise", did you mean hokku tokenize?'),
    ("model", b"did you mean hokku models?"), ("serv", b"did you mean hokku serve?")])
def test_a_word_alone_that_is_a_command_elsewhere_is_no_prompt(hokku, word, says):
    r = hokku(word)
    assert r.returncode == 2 and says in r.stderr and f"hokku -p {word} makes a prompt of it".encode() in r.stderr and r.stderr.count(b"\n") == 1 and not r.stdout, r
    r = hokku("-q", "inspect")
    assert r.returncode == 2 and b"inspect is a tool, which stands first" in r.stderr


@pytest.mark.parametrize("args,hint", [
    (["model.gguf"], b"hokku -p model.gguf makes a prompt of it"), (["sub/Model.GGUF"], b"-p sub/Model.GGUF"), (["-n", 1, "https://example.org/a.gguf"], b"makes a prompt of it"),
    (["model.gguf", "Hi"], b"a prompt of several words needs quotes")])
def test_a_models_file_without_m_is_no_prompt(hokku, args, hint):
    r = hokku(*args)
    name = str(next(a for a in args if "guf" in str(a).lower())).encode()
    assert r.returncode == 2 and name + b" is a model's name, found where the prompt is: hokku -m " + name in r.stderr and hint in r.stderr, r
    assert r.stderr.count(b"\n") == 1 and not r.stdout
    assert hokku("-n", 1, "-p", name.decode()).returncode == hokku("-n", 1, "what is model.gguf").returncode == 0


@pytest.mark.parametrize("args", [["-m", "Qwen/Qwen2.5-0.5B-Instruct-GGUF:q4_k_m", "hi"], ["inspect", "Qwen/Qwen2.5-0.5B-Instruct-GGUF"], ["tokenize", "-m", "a/b", "-"]])
def test_a_name_of_the_hub_that_is_no_file_is_said_to_be_one(hokku, tmp_path, args):
    name = next(a for a in args if "/" in a).encode()
    r = hokku(*args)
    assert r.returncode == 3 and name + b": no such file; of the Hugging Face Hub, hokku pull " + name + b" gets it" in r.stderr and not r.stdout, r
    for other in ("nothere", "a/b/c", "./a", "a/b.gguf", "/a"):
        r = hokku("-m", other, "hi")
        assert r.returncode == 3 and b"cannot open: No such file" in r.stderr, r
    r = hokku("-m", "hf.co/a/b:q4_0", "hi")
    assert r.returncode == 3 and r.stderr == b"hokku: hf.co/a/b:q4_0: no such file; of the Hugging Face Hub, hokku pull a/b:q4_0 gets it and prints the file\n", r


@pytest.mark.parametrize("name,word", [("llama3.2", True), ("qwen2.5:7b-instruct", True), ("nothere.gguf", False), ("./llama3.2", False), ("/llama3.2", False)])
def test_where_models_come_from_is_said_to_who_names_one_by_a_word(hokku, name, word):
    for args in ("-m", name, "hi"), ("inspect", name), ("-md", name, "hi"):
        r = hokku(*args)
        assert r.returncode == 3 and b"cannot open: No such file" in r.stderr and (b"hokku pull USER/REPO gets one" in r.stderr) == word, r


def test_any_word_can_be_a_prompt(hokku):
    for args in (["-p", "list"], ["--", "list"], ["--", "inspect"], ["full"], ["bend"], ["hello"], ["list them"]):
        assert hokku("-n", 1, *args).returncode == 0, args


def test_help_of_a_tool_is_the_tools_wherever_it_stands(hokku):
    want = hokku("inspect", "--help").stdout
    assert b"hokku inspect" in want and all(hokku(*args).stdout == want for args in (["-h", "inspect"], ["--help", "inspect"], ["inspect", "-h"]))
    assert hokku("-h", "hello").stdout == hokku("--help").stdout != want


@pytest.mark.parametrize("variable,says", [
    ("HOKKU_TMEP", b"HOKKU_TMEP is not read: did you mean HOKKU_TEMP?"), ("HOKKU_TOPK", b"did you mean HOKKU_TOP_K?"), ("HOKKU_MAX_TOKENS", b"did you mean HOKKU_N_PREDICT?"),
    ("HOKKU_NO_CNV", b"HOKKU_NO_CNV is not read: did you mean HOKKU_NO_CONVERSATION?"), ("HOKKU_CTK", b"did you mean HOKKU_CACHE_TYPE_K?"),
    ("HOKKU_LISTEN", b"HOKKU_LISTEN is not read: --listen is an option of hokku serve, on its command line"),
    ("HOKKU_DRY_RUN", b"HOKKU_DRY_RUN is not read: --dry-run is for the command line alone"), ("HOKKU_VERSION", b""), ("HOKKU_VERSIO", b""), ("HOKKU_HELPP", b""),
    ("HOKKU_TEST_KEPT", b""), ("HOKKU_QUICK", b""), ("HOKKU_BUILD", b""), ("HOKKU_TEST", b""), ("HOKKU_SOURCE", b""), ("HOKKU_PORT", b""), ("HOKKU_N", b""), ("HOKKU_", b"")])
def test_a_variable_that_is_a_slip_is_said_once_and_others_programs_are_left_alone(hokku, variable, says):
    r = hokku("-n", 1, "hi", env={variable: "1"})
    assert r.returncode == 0 and says in r.stderr and r.stderr.count(b"\n") == bool(says), r
    assert hokku("-q", "-n", 1, "hi", env={variable: "1"}).stderr == b""


def test_tools_have_the_suggestions_too(hokku, stories):
    for args, says in ((["bench", "--json"], b"unknown option --json, did you mean --output;"), (["models", "-Z"], b"unknown option -Z; hokku models"),
                       (["inspect", "--jsn", stories], b"did you mean --json;")):
        r = hokku(*args)
        assert r.returncode == 2 and says in r.stderr, r


@pytest.mark.parametrize("args,says", [
    (["inspect", "--temp", "1"], b"--temp is no option of hokku inspect; hokku inspect --help lists them"),
    (["models", "-f"], b"-f is no option of hokku models; hokku models --help"), (["serve", "--session", "x"], b"--session is no option of hokku serve;"),
    (["bench", "--listen", "x"], b"--listen is no option of hokku bench, but of hokku serve; hokku bench --help"),
    (["--listen", "x", "hi"], b"--listen is no option of hokku alone, but of hokku serve; hokku --help")])
def test_an_option_in_the_wrong_place_is_not_called_unknown(hokku, args, says):
    r = hokku(*args)
    assert r.returncode == 2 and says in r.stderr and r.stderr.count(b"\n") == 1, r


@pytest.mark.parametrize("args,says", [
    (["--json-indent", "2", "hi"], b"--json-indent is for --json-schema, which is not there"),
    (["--json-indent", "2", "--grammar", 'root ::= "a"', "hi"], b"--json-indent is for --json-schema, which is not there"),
    (["--json-close", "hi"], b"--json-close is for --json-schema, --grammar or --grammar-file, none of which is there"),
    (["-0", "hi"], b"--null is for --lines or --turns, neither of which is there")])
def test_what_belongs_to_another_option_is_not_ignored(hokku, stories, args, says):
    r = hokku("-m", stories, *args)
    assert r.returncode == 2 and says in r.stderr and r.stdout == b"", r
    env = {"HOKKU_JSON_INDENT": "2", "HOKKU_NULL": "1", "HOKKU_UNORDERED": "1", "HOKKU_SHARD": "1/2", "HOKKU_PARALLEL": "3"}  # there it waits for what it belongs to
    assert hokku("-m", stories, "-n", 1, "Once", env=env).returncode == 0


CHATML = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def test_without_a_template_special_names_are_control_tokens(hokku):
    """What the template would write gives the answer that it gives; also as a line, and further on in a session, which says so."""
    sampled = ["-s", 7, "--json", "-n", 20]
    plain = [*sampled, "-no-cnv", "--special"]
    told = lambda r: {k: v for k, v in json.loads(r.stdout).items() if k in ("tokens", "prompt_tokens")}
    want = told(hokku(*sampled, "Who are you?"))
    prompt = CHATML.format("Who are you?")
    assert told(hokku(*plain, prompt)) == want != told(hokku(*sampled, "-no-cnv", prompt))
    assert told(hokku(*plain, "--lines", input=json.dumps({"prompt": prompt}) + "\n")) == want
    assert told(hokku(*plain, "--session", "raw", prompt)) == want
    more = " <|im_end|>\n" + CHATML.format("And me?")  # (a blank: else a line break parts it from the answer)
    both = told(hokku(*sampled, "-no-cnv", "--session", "raw", more))
    n_more = told(hokku(*plain, more))["prompt_tokens"]
    assert both["prompt_tokens"] == want["prompt_tokens"] + len(want["tokens"]) - 1 + n_more, (both, want, n_more)
    assert b"all agree" in hokku("replay", "raw").stdout
    r = hokku("--special", "Who are you?")
    assert r.returncode == 2 and b"--special is for -no-cnv" in r.stderr
    assert hokku("-n", 1, "Who are you?", env={"HOKKU_SPECIAL": "on"}).returncode == 0
    assert hokku("-no-cnv", "-n", 1, "--session", "other", "Once").returncode == 0
    r = hokku("-no-cnv", "--special", "-n", 1, "--session", "other", "more")
    assert r.returncode == 2 and b"begun without it" in r.stderr


@pytest.mark.parametrize("option,label", [("-m", b"-m"), ("-md", b"--model-draft")])
@pytest.mark.parametrize("name,found", [("", b"an empty name, expected a GGUF file"), ("http://127.0.0.1/x", b"an http:// address, expected https://")])
def test_a_name_that_is_no_models_is_said_with_its_option_once(hokku, option, label, name, found):
    r = hokku(option, name, "hi")
    assert r.returncode == (3 if name else 2) and r.stderr.startswith(b"hokku: " + label + b": found " + found) and not r.stdout, r


@pytest.mark.parametrize("option", ["-f", "-sysf", "--chat-template-file", "--grammar-file"])
def test_an_empty_name_of_a_file_is_said_with_its_option(hokku, option):
    r = hokku(option, "", "hi")
    assert r.returncode == 2 and re.match(rb'hokku: --[a-z-]+: found "", expected a file\'s name\n$', r.stderr) and not r.stdout, r
    for args in (["-j", "@"], ["tokenize", ""]):
        r = hokku(*args)
        assert r.returncode in (1, 2) and b"found an empty name, expected a file's" in r.stderr, r


@pytest.mark.parametrize("option", ["--session", "-sys", "-p", "-r", "-m", "--prefill", "-f"])
def test_an_option_is_not_taken_for_the_value_of_the_one_before(hokku, tmp_path, option):
    r = hokku(option, "--json", "-n", 1, "hi")
    assert r.returncode == 2 and f"{option} needs a value, found the option --json: if that is the value, {option}=--json".encode() in r.stderr and not r.stdout, r
    assert not (tmp_path / "state/hokku/sessions/--json.session").exists()


def test_a_text_may_begin_as_an_option_does(hokku):
    for args in (["-p", "--no option", "-n", 1], ["-p=--json", "-n", 1], ["--prompt=-n", "-n", 1], ["-r", "--", "-n", 1, "hi"], ["-r", "-x", "-n", 1, "hi"]):
        assert hokku(*args).returncode == 0, args
    r = hokku("--session=--json", "-n", 1, "hi")
    assert r.returncode == 2 and b"does not begin with '-'" in r.stderr, r
    assert hokku("-n", 1, "--session", "a", "hi").returncode == 0 and b"begin with '-'" in hokku("sessions", "mv", "--", "a", "-a").stderr


def test_a_random_seed_can_be_asked_for(hokku, stories):
    """Where the environment or a session names another."""
    seed = lambda *a: re.search(rb" seed (\d+)", hokku("-v", "-m", stories, "-n", 1, "--session", "s", *a, "hi", env={"HOKKU_SEED": "7"}).stderr)[1]
    assert seed() == b"7" != seed("-s", "random") != seed("--seed=random")


def test_the_seed_that_is_said_is_the_one_that_a_session_brings(hokku, stories):
    def seeds(*a, **kw):
        r = hokku("-v", "-m", stories, "-n", 1, "--json", *a, "hi", **kw)
        said = re.findall(rb"\bseed (\d+)", r.stderr)
        assert len(said) == 1, r.stderr
        return int(said[0]), int(json.loads(r.stdout)["seed"])

    assert seeds("--session", "s", "-s", 42) == (42, 42)
    for args in (["--session", "s"], ["--base", "s"], ["--continue"]):
        assert seeds(*args) == (42, 42), args
    assert seeds("--base", "s", "-s", 7) == (7, 7)
    for args in (["--session", "new"], ["--session", "new"], []):
        said, used = seeds(*args)
        assert said == used, args


def test_a_stop_text_is_not_empty(hokku):
    r = hokku("-r", "", "hi")
    assert r.returncode == 2 and b'--reverse-prompt: found "", expected a text' in r.stderr, r


@pytest.mark.parametrize("text", ["", " \n\t\r\n"])
def test_a_template_of_blanks_is_refused(hokku, tmp_path, text):
    """A prompt that it makes has no message: an answer to it would be one to nothing."""
    path = tmp_path / "t.jinja"
    path.write_text(text)
    for tool in ([], ["serve", "--listen", "127.0.0.1:0"]):
        r = hokku(*tool, "--chat-template-file", path, *([] if tool else ["hi"]))
        assert r.returncode == 2 and f"--chat-template-file {path}: found nothing in it, expected a Jinja template".encode() in r.stderr and not r.stdout, r


def test_what_is_wrong_in_a_file_of_a_template_is_said_of_the_file(hokku, tmp_path):
    path = tmp_path / "t.jinja"
    path.write_text("{% if %}")
    for args in (["hi"], ["serve", "--listen", "127.0.0.1:0"]):
        r = hokku(*args, "--chat-template-file", path)
        assert r.returncode == 1 and r.stderr.startswith(f"hokku: --chat-template-file {path}: line 1, column 7: expected an expression".encode()), r


def test_render_names_the_file_that_is_wrong(hokku, tmp_path):
    good, bad, odd = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "odd.jinja"
    good.write_text("{}")
    bad.write_text("{\n]")
    odd.write_text("{% if %}")
    for template, context, wrong in ((odd, good, odd), ("chatml", bad, bad)):
        r = hokku("render", "--chat-template-file" if template == odd else "--chat-template", template, context)
        assert r.returncode == 1 and r.stderr.startswith(f"hokku: {wrong}: ".encode()) and b"line " in r.stderr, r
    r = hokku("render", "--chat-template", "chatml", input="[]")
    assert r.stderr == b"hokku: standard input: the template's variables must be a JSON object\n", r


@pytest.mark.parametrize("args", [["tokenize"], ["score"], ["perplexity"], ["bench"], ["hi"]], ids=lambda args: args[0])
def test_a_vocabulary_that_is_wrong_is_said_with_its_file(hokku, stories, tmp_path, args):
    path, text = tmp_path / "m.gguf", tmp_path / "text"
    key = b"tokenizer.ggml.model\x08\0\0\0\x05\0\0\0\0\0\0\0"
    path.write_bytes(pathlib.Path(stories).read_bytes().replace(key + b"llama", key + b"lluma"))
    text.write_text("Once")
    r = hokku(*args, "-m", path, *([text] if args[0] in ("tokenize", "score", "perplexity") else []))
    assert r.returncode == 3 and r.stderr.startswith(f'hokku: {path}: tokenizer.ggml.model is "lluma", expected one of '.encode()), r


@pytest.mark.parametrize("args", [["render"], ["serve"], []], ids=["render", "serve", "main"])
def test_two_templates_are_refused(hokku, stories, tmp_path, args):
    (tmp_path / "t").write_text("{{ messages[0].content }}")
    r = hokku(*args, "--chat-template", "llama2", "--chat-template-file", tmp_path / "t", input='{"messages":[]}')
    assert r.returncode == 2 and b"--chat-template and --chat-template-file cannot be combined: expected one of them" in r.stderr, r
    if args == ["render"]:  # what the environment says gives way
        r = hokku("render", "--chat-template-file", tmp_path / "t", input='{"messages":[{"content":"hi"}]}', env={"HOKKU_CHAT_TEMPLATE": "llama2"})
        assert (r.returncode, r.stdout) == (0, b"hi"), r


def test_render_takes_a_model_or_a_file(hokku, stories, tmp_path):
    """The file would be all that is read; what is said by default goes together in a chat, and is no mistake here."""
    (tmp_path / "t").write_text("{{ messages[0].content }}")
    file = ["--chat-template-file", tmp_path / "t"]
    render = lambda *args, **env: hokku("render", *args, input='{"messages": [{"role": "user", "content": "hi"}]}', env={f"HOKKU_{k}": str(v) for k, v in env.items()})
    for model_ in (stories, "/nonexist"):
        r = render("-m", model_, *file)
        assert r.returncode == 2 and b"-m and --chat-template-file cannot be combined: a model is read for its template alone, expected one of them" in r.stderr, r
        assert not r.stdout and r.stderr.count(b"\n") == 1
    for r in (render(*file), render(*file, MODEL="/nonexist"), render(MODEL="/nonexist", CHAT_TEMPLATE_FILE=file[1])):
        assert (r.returncode, r.stdout) == (0, b"hi"), r
    builtin = ["-m", ROOT / "builtin/hokku-builtin.gguf"]
    assert render(*builtin, CHAT_TEMPLATE_FILE="/nonexist").stdout == render(*builtin).stdout != b""
    assert render(*builtin, "--chat-template", "chatml").returncode == 0
    assert hokku("-m", stories, *file, "-n", 1, "hi").returncode == 0


def test_inspect_takes_one_model(hokku, stories):
    for more in (["-m", "/nonexist"], ["-m", stories], [stories]):
        assert hokku("inspect", stories, *more).returncode == 2
    assert b"as an argument and with -m: expected one of them" in hokku("inspect", stories, "-m", stories).stderr
    shown = hokku("inspect", stories).stdout
    assert shown == hokku("inspect", "-m", stories).stdout == hokku("inspect", stories, env={"HOKKU_MODEL": "/nonexist"}).stdout != b""
    assert b"found an http:// address, expected https:// or a file" in hokku("inspect", "http://localhost/m.gguf").stderr


def test_a_template_beside_plain_completion_is_refused(hokku, stories, tmp_path):
    (tmp_path / "t").write_text("{{ messages[0].content }}")
    for args in (["--chat-template", "chatml"], ["--chat-template-file", tmp_path / "t"]):
        r = hokku("-m", stories, "-no-cnv", *args, "hi")
        assert r.returncode == 2 and f"-no-cnv and {args[0]} cannot be combined".encode() in r.stderr, r
    assert hokku("-m", stories, "-no-cnv", "-n", 1, "hi", env={"HOKKU_CHAT_TEMPLATE": "chatml"}).returncode == 0


def test_the_plan_is_json_where_json_is_asked_for(hokku, stories):
    for options, code in ((["-c", 256], 0), (["-c", 1000000000], 4)):
        text = hokku("-m", stories, "--dry-run", *options)
        r = hokku("-m", stories, "--dry-run", "--json", *options)
        plan = json.loads(r.stdout)
        assert r.returncode == text.returncode == code and plan["fits"] is (code == 0) and plan["n_ctx"] == options[1], r
        said = re.match(r"weights (\d+) \+ KV (\d+) \+ scratch (\d+) \+ other (\d+) bytes", text.stdout.decode().replace(",", ""))
        assert [plan[k] for k in ("weights", "kv", "scratch", "other")] == [int(n) for n in said.groups()]
        up_to = b"the one asked for" if code else b"the model's own"
        most = re.search(rb"up to %s: (\d+) tokens, with -ctk q8_0 -ctv q8_0: (\d+)" % up_to, text.stdout)
        in_json, in_text = [plan["n_ctx_max"], plan["n_ctx_max_q8_0"]], [int(n) for n in most.groups()]
        if code:  # beyond the model's own it is memory that counts, which another process may take meanwhile
            assert min(in_json + in_text) > own, (plan, text)
        else:
            assert in_json == in_text
            own = max(in_json)


def test_who_asks_for_more_context_than_has_room_is_told_what_has(hokku, stories):
    """Also where that is more than the model was trained on."""
    call = ["-m", stories, "--device", "cpu", "-t", 2]
    trained = json.loads(hokku(*call, "--dry-run", "--json").stdout)["n_ctx"]
    r = hokku(*call, "-c", 1000000000, "hi")
    fits = int(re.search(rb" are available: -c (\d+) would fit", r.stderr)[1])
    assert r.returncode == 4 and 100 * trained < fits < 1000000000, r


def test_the_plan_says_what_host_memory_recurrent_states_may_take(hokku, tmp_path, stories, shim):  # noqa: F811
    memory = tmp_path / "meminfo"

    def plan(room, *args):
        memory.write_text(f"MemAvailable: {room // 1024} kB\n")
        return hokku("--dry-run", "--device", "cpu", *args, env={"LD_PRELOAD": shim, "TEST_MEMINFO": str(memory)}).stdout

    def states(room):
        return json.loads(plan(room, "--json", "-m", OWN / "families/qwen35-f16.gguf")).get("host_states", 0)

    whole = json.loads(plan(1 << 40, "--json", "-m", OWN / "families/qwen35-f16.gguf"))
    need = sum(whole[k] for k in ("weights", "kv", "scratch", "other"))
    assert (4 << 30) - need < states(1 << 40) < 4 << 30
    assert (8 << 30) / 4 - 2 * need < states(8 << 30) < (8 << 30) / 4
    assert states(need + 2048) == 0
    said = plan(1 << 40, "-m", OWN / "families/qwen35-f16.gguf").decode().replace(",", "")
    assert f"\nrecurrent states to go back to may take {states(1 << 40)} bytes of the host's memory besides" in said
    assert b"recurrent states" not in plan(1 << 40, "-m", stories)


@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_without_a_size_the_context_is_what_a_limit_of_the_process_leaves(hokku, tmp_path, limit):
    kvs, tensors = make_gguf.model(layers=2, embd=256, heads=4, ff=256, ctx=1 << 20)
    make_gguf.write(tmp_path / "long.gguf", kvs, tensors)
    args = ["-m", tmp_path / "long.gguf", "-t", 2, "--device", "cpu"]

    def limited(*more):
        return hokku(*args, *more, preexec_fn=lambda: resource.setrlimit(limit, (400 << 20, 400 << 20)))

    plan = json.loads(limited("--dry-run", "--json").stdout)
    assert plan["fits"] and 1 << 15 < plan["n_ctx"] < 1 << 20 and plan["available"] < 400 << 20
    r = limited("-v", "-n", 2, "hi")
    context = re.search(rb"context (\d+) of the model's 1048576, all that memory has room for", r.stderr)
    assert r.returncode == 0 and 1 << 15 < int(context[1]) < 1 << 20, r
    r = limited("-c", 1 << 20, "hi")
    assert r.returncode == 4 and b"would fit" in r.stderr, r
    (tmp_path / "text").write_text("hi " * (int(context[1]) + 9))
    r = limited("-f", tmp_path / "text")
    assert r.returncode == 5 and r.stderr.endswith(b"; shorten it: the context is all that memory has room for, as things are\n"), r
    r = limited("-c", 4096, "-f", tmp_path / "text")
    assert r.returncode == 5 and r.stderr.endswith(b"; shorten it or open a larger context with -c\n"), r
    assert b"of the model's" not in limited("-v", "-c", 4096, "-n", 2, "hi").stderr
    # nor where a tool has windows of its own
    (tmp_path / "few").write_text("hi " * 1500)
    r = hokku("perplexity", *args, "-v", "-f", tmp_path / "few")
    assert r.returncode == 0 and re.search(rb"context 512\n", r.stderr), r


def test_the_largest_context_leaves_room_for_as_many_lines_as_are_answered_together(hokku, tmp_path):
    kvs, tensors = make_gguf.model(layers=2, embd=256, heads=4, ff=256, ctx=1 << 20)
    make_gguf.write(tmp_path / "long.gguf", kvs, tensors)
    r = hokku("-m", tmp_path / "long.gguf", "-t", 2, "--device", "cpu", "--lines", "-n", 2, input="".join(f"line {i}\n" for i in range(100)),
              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20)))
    assert r.returncode == 0 and not r.stderr, r


def test_the_largest_context_leaves_room_for_a_grammar(hokku, tmp_path):
    kvs, tensors = make_gguf.model(layers=2, embd=64, heads=2, ff=64, ctx=1 << 20, vocab=151936)
    make_gguf.write(tmp_path / "words.gguf", kvs, tensors)
    args = ["-m", tmp_path / "words.gguf", "-t", 2, "--device", "cpu", "-j", '{"type": "boolean"}', "hi"]

    def limited(*more):
        return hokku(*args, *more, env=BY_ITSELF, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20)))

    plan, r = json.loads(limited("--dry-run", "--json").stdout), limited("-v")
    assert r.returncode == 0 and r.stdout in (b"true", b"false") and f"context {plan['n_ctx']} ".encode() in r.stderr, r
    assert 1 << 14 < plan["n_ctx"] < 1 << 20, plan


def test_a_control_groups_limit_is_for_the_groups_in_it(home, tmp_path):
    kvs, tensors = make_gguf.model(layers=2, embd=256, heads=4, ff=256, ctx=1 << 20)
    make_gguf.write(tmp_path / "long.gguf", kvs, tensors)
    with control_group("400M") as group:
        inner = group / "inner"
        inner.mkdir()
        try:
            def limited(*more):
                return subprocess.run([*inside_of(inner), HOKKU, "-m", tmp_path / "long.gguf", "-t", "2", "--device", "cpu", *more],
                                      env={**home, **BY_ITSELF}, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
            plan = json.loads(limited("--dry-run", "--json").stdout)
            assert plan["fits"] and 1 << 15 < plan["n_ctx"] < 1 << 20 and plan["available"] < 400 << 20
            r = limited("-v", "-n", "2", "hi")
            assert r.returncode == 0 and 1 << 15 < int(re.search(rb"context (\d+)", r.stderr)[1]) < 1 << 20, r
        finally:
            wait_until(lambda: not (inner / "cgroup.procs").read_text())
            inner.rmdir()


@pytest.mark.parametrize("args", [["-p", "a", "-p", "b"], ["-f", "a", "--file", "b"], ["--file=a", "-f=b"]])
def test_of_two_prompts_or_files_none_is_lost_without_a_word(hokku, stories, args):
    r = hokku("-m", stories, *args)
    assert r.returncode == 2 and b'given twice ("a", then "b"), expected once' in r.stderr and r.stdout == b"", r
    r = hokku("-m", stories, "-n", 1, "--temp", 1, "--temp", 0, "Once", env={"HOKKU_PROMPT": ""})  # others may be given anew
    assert r.returncode == 0, r


def test_a_dash_is_standard_input(hokku, stories, tmp_path):
    want = hokku("-m", stories, *PLAIN, "-n", 9, "Once").stdout
    (tmp_path / "-").write_text("not this")
    for args in (["-f", "-"], ["-"]):
        assert hokku("-m", stories, *PLAIN, "-n", 9, *args, input="Once\n", cwd=tmp_path).stdout == want
    want = hokku("-m", stories, *PLAIN, "-n", 9, "-p", "-").stdout  # a prompt for those who say that it is one
    assert hokku("-m", stories, *PLAIN, "-n", 9, "--", "-").stdout == want


def test_serve_knows_what_others_call_its_options(hokku):
    for args, says in ((["--port", "80"], b"did you mean --listen;"), (["--host", "x"], b"did you mean --listen;"),
                       (["--api-key", "x"], b"did you mean --api-key-file;")):
        r = hokku("serve", *args)
        assert r.returncode == 2 and says in r.stderr, r


def test_an_empty_prompt_is_the_same_however_it_is_empty(hokku, stories, tmp_path):
    (tmp_path / "empty").write_text("")
    for args, kw, what in (([""], {}, b"it is"), ([], {"input": ""}, b"standard input is"), (["-"], {"input": ""}, b"standard input is"),
                           (["-f", tmp_path / "empty"], {}, b"the file is"), (["-f", "-"], {}, b"standard input is"), (["-no-cnv", ""], {}, b"it is")):
        r = hokku("-m", stories, *args, **kw)
        assert r.returncode == 2 and b"no prompt: %s empty; " % what in r.stderr, r


@pytest.mark.parametrize("quiet", [False, True])
def test_who_waits_for_standard_input_says_so_on_a_terminal(home, stories, quiet):
    ours, theirs = os.openpty()
    args = [HOKKU, "-m", stories, "-no-cnv", "--temp", "0", "-n", "3", *["-q"] * quiet, "Once"]
    p = subprocess.Popen(args, env=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    said = select.select([ours], [], [], 4 if quiet else 20)[0]
    assert bool(said) != quiet
    if said:
        assert os.read(ours, 4096).startswith(b"hokku: waiting for standard input, which is part of the prompt, to end (with </dev/null there is none)")
    assert p.poll() is None
    answer = p.communicate(b"upon a time", timeout=60)[0]
    os.close(ours)
    assert p.returncode == 0 and answer


def test_a_closed_standard_input_is_an_empty_one(home, stories):
    r = subprocess.run(["/bin/sh", "-c", f"exec {HOKKU} -m {stories} -no-cnv --temp 0 -n 3 hi <&-"], env=home, capture_output=True)
    assert r.returncode == 0 and r.stdout, r


def test_a_standard_input_that_cannot_be_read_is_an_empty_one(hokku, stories):
    """nohup, on a terminal, gives programs one that is open for writing alone."""
    with open(os.devnull, "w") as unreadable:
        r = hokku("-m", stories, *PLAIN, "-n", 3, "hi", stdin=unreadable)
        assert r.returncode == 0 and r.stdout, r
        for way in ([], ["--lines"]):
            r = hokku("-m", stories, *way, stdin=unreadable)
            assert b"Bad file descriptor" not in r.stderr and r.returncode == (0 if way else 2), r


def test_there_are_as_many_threads_as_were_asked_for(hokku, stories):
    for n in (3, 1024):
        r = hokku("-m", stories, *PLAIN, "-n", 1, "-t", n, "-v", "hi")
        assert r.returncode == 0 and b", %d threads)" % n in r.stderr, r
    r = hokku("-m", stories, *PLAIN, "-n", 1, "-t", 1025, "hi")
    assert r.returncode == 2 and b'found "1025", expected a number from 0 to 1024' in r.stderr, r


def test_a_context_beyond_the_training_is_said(hokku, stories):
    r = hokku("-m", stories, *PLAIN, "-n", 1, "-c", 100000, "hi")
    assert r.returncode == 0 and b"a context of 100000 tokens: the model was trained on " in r.stderr
    assert hokku("-m", stories, *PLAIN, "-n", 1, "-c", 64, "hi").stderr == b""


@pytest.mark.parametrize("beyond, within", [
    (["perplexity", "-c", 1025, "-f"], ["perplexity", "-c", 1024, "-f"]),
    (["score", "-c", 1025], ["score"]),
    (["bench", "-p", 1025, "-n", 0, "-r", 1], ["bench", "-p", 1024, "-n", 0, "-r", 1]),
    (["bench", "-p", 1, "-n", 4, "-d", 1021, "-r", 1], ["bench", "-p", 1, "-n", 4, "-d", 1020, "-r", 1]),
    (["bench", "-p", 1, "-n", 4, "-c", 1025, "-r", 1], ["bench", "-p", 1, "-n", 4, "--batch", 5, "-r", 1]),  # (of 1,280, but not each)
    (["--dry-run", "-c", 1025], ["--dry-run", "-c", 1024]),
], ids=lambda a: "-".join(map(str, a)))
def test_tools_say_a_context_beyond_the_training_too(hokku, tmp_path, beyond, within):
    text = tmp_path / "text"
    text.write_text("Write a haiku about the sea. " * (1 if beyond[0] == "score" else 400))
    for args, said in (beyond, True), (within, False):
        r = hokku(*args, *([] if args[0] in ("bench", "--dry-run") else [text]), "-m", ROOT / "builtin/hokku-builtin.gguf", "--device", "cpu")
        assert (b"a context of 1025 tokens: the model was trained on 1024" in r.stderr) == said, r
        assert r.returncode == 0 and r.stdout, r


def test_answers_of_lines_can_be_told_apart_and_blank_lines_are_counted(hokku, stories):
    r = hokku("-m", stories, *PLAIN, "-n", 8, "--lines", "-0", input="Once\n\n \t\nThe dog\n")
    one = hokku("-m", stories, *PLAIN, "-n", 8, "Once").stdout
    two = hokku("-m", stories, *PLAIN, "-n", 8, "The dog").stdout
    assert r.stdout == one + b"\0" + two + b"\0" and b"2 blank lines skipped" in r.stderr
    r = hokku("-m", stories, *PLAIN, "-n", 8, "--lines", "--json", "-q", input="\nOnce\n\n")
    assert len(r.stdout.splitlines()) == 1 and r.stderr == b""


def test_one_line_of_statistics_everywhere_with_thousands_parted(hokku):
    m = model("qwen2-tiny-q8_0")
    r = hokku("-m", m, "-n", 2, "--stats", "word " * 500)
    line = r.stderr.decode()
    assert re.search(r"prefill \d,\d{3} tokens", line)
    assert " of 4,096" in line


def test_json_is_described_for_each_tool(hokku):
    helps = {t: hokku(t, "--help").stdout.decode().split("--json")[-1].split("\n")[0] for t in
             ("inspect", "models", "sessions", "replay", "perplexity")}
    assert len(set(helps.values())) == 5 and not any("finish_reason" in h for h in helps.values())


def test_inspect_tells_what_matters_first_and_tensors_when_asked(hokku, stories):
    short, long = (hokku("inspect", *a, stories).stdout.decode() for a in ((), ("-v",)))
    assert short.index("fingerprint") < short.index("metadata (") < short.index("-v lists them")
    assert "blk.0.attn_q.weight" in long and "blk.0.attn_q.weight" not in short


def test_a_session_that_is_not_there_is_named_once(hokku):
    r = hokku("replay", "nope.session")
    assert r.returncode == 1 and r.stderr.count(b"nope.session") == 1, r.stderr


@pytest.mark.parametrize("line,says", [
    ("temperature 1", b'unknown setting "temperature", did you mean temp\n'), ("max_tokens 5", b"did you mean n-predict\n"),
    ("repeat-penality 1", b"did you mean repeat-penalty\n"), ("\u00ff\u00fe", 'unknown setting "\u00ff\u00fe"\n'.encode())])
def test_an_unknown_setting_of_the_configuration_is_answered_like_an_option(hokku, stories, tmp_path, line, says):
    (tmp_path / "config/hokku").mkdir(parents=True)
    (tmp_path / "config/hokku/config").write_text(line + "\n")
    r = hokku("-m", stories, "hi")
    assert r.returncode == 2 and b"config:1: " in r.stderr and r.stderr.endswith(says), r


def test_a_file_without_its_at_sign_is_named(hokku, stories, tmp_path):
    (tmp_path / "person.json").write_text('{"type":"integer"}')
    r = hokku("-m", stories, "-j", tmp_path / "person.json", "hi")
    assert r.returncode == 2 and f"person.json is a file: --json-schema @{tmp_path}/person.json reads it".encode() in r.stderr, r
    r = hokku("-m", stories, "-j", "person.json", "hi")  # there is none of this name here
    assert r.returncode == 2 and b"is a file" not in r.stderr, r
    r = hokku("-m", stories, "--grammar", tmp_path / "person.json", "hi")
    assert r.returncode == 2 and f"--grammar-file {tmp_path}/person.json reads it".encode() in r.stderr, r
    r = hokku("-m", stories, "--grammar", f"@{tmp_path}/person.json", "hi")  # as a schema's is named
    assert r.returncode == 2 and f": {tmp_path}/person.json is a file: --grammar-file {tmp_path}/person.json reads it".encode() in r.stderr, r


def test_libraries_that_few_runs_need_are_opened_when_they_are_needed(hokku, tmp_path):
    needed = subprocess.run(["readelf", "-d", HOKKU], capture_output=True, text=True, check=True).stdout
    assert "libc.so" in needed and "libcurl" not in needed and "libmicrohttpd" not in needed
    for name in ("libcurl.so.4", "libmicrohttpd.so.12"):
        (tmp_path / name).write_text("no library")
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert hokku("--version", env=env).returncode == 0
    for args, package in ((["pull", "a/b"], "libcurl4"), (["serve", "--listen", "127.0.0.1:0"], "libmicrohttpd12")):
        r = hokku(*args, env=env)
        assert r.returncode == 1 and f"cannot be opened: {tmp_path}/lib".encode() in r.stderr and f"apt install {package}\n".encode() in r.stderr, r


@pytest.mark.parametrize("args,says", [
    (["-s", "-1"], b'--seed: found "-1", expected 0 to 18446744073709551615, or random'),
    (["--device", "cuda: 1"], b'--device: found "cuda: 1", expected auto, cuda, cuda:N'),
    (["--temp", "1e-50"], b'--temp: found "1e-50", expected 0, or a number that is not so near to it'),
    (["--temp", "1e-400"], b'--temp: found "1e-400", expected 0, or'),
    (["--min-p", "1e-60"], b'--min-p: found "1e-60", expected 0, or'),
    (["-j", '{"items": [{"minimum": 0.1}, 1.10]}'], b'(#/items): items is [{"minimum":0.1},1.1], expected one schema for all items: what has one for each is prefixItems'),
    (["-j", '{"items": [{"type": "string"}]}'], b'(#/items): items is [{"type":"string"}], expected one schema for all items: what has one for each is prefixItems')])
def test_what_other_programs_take_is_refused_with_what_to_do(hokku, args, says):
    r = hokku(*args, "hi")
    assert r.returncode == 2 and says in r.stderr and r.stdout == b"", r


def test_zero_in_other_words_is_zero(hokku):
    want = hokku("--temp", "0", "-n", 3, "hi").stdout
    assert all(hokku("--temp", x, "-n", 3, "hi").stdout == want for x in ("0.0", "-0", "0e5"))


def test_what_is_not_utf8_is_named(hokku, tmp_path):
    (tmp_path / "bad").write_bytes(b"Be \xff.")
    for args, what in ((["-sys", os.fsdecode(b"Be \xff."), "hi"], b"the system prompt"), (["-f", tmp_path / "bad"], b"the message")):
        r = hokku(*args)
        assert r.returncode == 2 and what + b" is not UTF-8: byte 4 is 0xFF; convert it" in r.stderr and r.stdout == b"", r


def test_a_system_prompt_that_a_template_passes_over_is_put_before_the_message_and_said(hokku, stories, tmp_path):
    (tmp_path / "t.jinja").write_text("{% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    call = ["-m", stories, "--chat-template-file", tmp_path / "t.jinja", "--temp", 0, "-n", 3, "--json"]
    given, said = hokku(*call, "-sys", "Be brief.", "Once"), hokku(*call, "Be brief.\n\nOnce")
    assert given.returncode == 0 and json.loads(given.stdout)["prompt_tokens"] == json.loads(said.stdout)["prompt_tokens"]
    assert given.stderr == b"hokku: the model's template knows no system prompt: it is put before the first message\n" and not said.stderr


def test_a_start_of_the_answer_that_is_no_utf8_is_refused_as_a_prompt_is(hokku, stories):
    r = hokku("-m", stories, "--chat-template", "chatml", "-n", 1, "-c", 256, "--prefill", "a\udcff", "hi")
    assert r.returncode == 2 and b"the start of the answer is not UTF-8: byte 2 is 0xFF" in r.stderr and r.stdout == b"", r
    assert hokku("-m", stories, "-no-cnv", "-n", 1, "--prefill", "a\udcff", "hi").returncode == 0


def test_a_byte_order_mark_at_the_beginning_of_a_file_is_no_part_of_it(hokku, stories, home, tmp_path):
    args = ["-m", stories, "--json", "--temp", 0, "-n", 3, "-c", 512]
    mark = b"\xef\xbb\xbf"
    (tmp_path / "t.jinja").write_text("{{ messages[-1].content }}")
    (tmp_path / "marked.jinja").write_bytes(mark + (tmp_path / "t.jinja").read_bytes())
    (tmp_path / "text").write_bytes(mark + b"Once upon\n")
    (tmp_path / "config/hokku/prompts").mkdir(parents=True)
    (tmp_path / "config/hokku/prompts/mine.txt").write_bytes(mark + b"Once upon {{input}}\n")
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    want = json.loads(hokku(*args, "--chat-template-file", tmp_path / "t.jinja", "Once upon").stdout)
    for more, kw in ((["-f", tmp_path / "text"], {}), ([], {"input": mark + b"Once upon\n"})):
        for template in ("t.jinja", "marked.jinja"):
            got = json.loads(hokku(*args, "--chat-template-file", tmp_path / template, *more, **kw).stdout)
            assert (got["prompt_tokens"], got["tokens"]) == (want["prompt_tokens"], want["tokens"]), more
    system = [json.loads(hokku("-m", stories, "--json", "--temp", 0, "-n", 3, "-c", 512, "--chat-template", "chatml", *way, "hi").stdout)
              for way in (["-sysf", tmp_path / "text"], ["-sys", "Once upon"])]
    assert system[0]["prompt_tokens"] == system[1]["prompt_tokens"] and system[0]["tokens"] == system[1]["tokens"]
    framed, plain = (json.loads(hokku(*args, "--chat-template-file", tmp_path / "t.jinja", *way, env=env).stdout)
                     for way in (["-sys", "@mine", "a time"], ["Once upon a time"]))
    assert framed["prompt_tokens"] == plain["prompt_tokens"]
    (tmp_path / "context.json").write_bytes(mark + b'{"messages": [{"content": "x"}]}')
    assert hokku("render", "--chat-template-file", tmp_path / "marked.jinja", tmp_path / "context.json").stdout == b"x"


@pytest.mark.parametrize("text", [b"Be brief.", b"Be brief.\n", b"Be brief.\r\n", b"Be brief.\n\n", b"Be brief.\r\n\r\n", b"Be brief.\r", b"\xef\xbb\xbfBe brief.\n\n\n", b"# Brief\n\nBe so.\n", b"# Brief"])
def test_of_every_text_of_a_file_one_final_newline_is_left_out(hokku, stories, tmp_path, text):
    args = ["-m", stories, "--json", "--temp", 0, "-n", 3, "-c", 512, "--chat-template", "chatml"]
    ask = lambda *more, **kw: [json.loads(hokku(*args, *more, **kw).stdout)[k] for k in ("prompt_tokens", "tokens")]  # noqa: E731
    (tmp_path / "text").write_bytes(text)
    (tmp_path / "config/hokku/prompts").mkdir(parents=True)
    (tmp_path / "config/hokku/prompts/mine.txt").write_bytes(text)
    want = text.removeprefix(b"\xef\xbb\xbf")
    want = (want.removesuffix(b"\r\n") if want.endswith(b"\r\n") else want.removesuffix(b"\n")).decode()
    assert ask("-f", tmp_path / "text") == ask(input=text) == ask("-p", want)
    assert ask("-sysf", tmp_path / "text", "hi") == ask("-sys", "@mine", "hi") == ask("-sys", want, "hi")


# What tells how to answer is a part of the command line; a text is what the command works on.
@pytest.mark.parametrize("code, args", [(2, ["-j", "@nofile"]), (2, ["--grammar-file", "nofile"]), (2, ["serve", "--api-key-file", "nofile"]), (2, ["bench", "--grammar", "nofile"]),
                                        (2, ["-j", "@/"]), (1, ["-f", "nofile"]), (1, ["-sysf", "nofile"]), (1, ["--chat-template-file", "nofile"]), (1, ["score", "nofile"]),
                                        (1, ["perplexity", "-f", "nofile"]), (1, ["tokenize", "nofile"]), (1, ["render", "--chat-template-file", "nofile"]), (1, ["-f", "/"])])
def test_a_file_that_cannot_be_opened_is_named(hokku, stories, code, args):
    tool = [args[0]] if args[0].isalpha() else []
    r = hokku(*tool, *([] if tool == ["render"] else ["-m", stories]), *args[len(tool):], *([] if tool else ["hi"]))
    assert r.returncode == code and args[-1].lstrip("@").encode() in r.stderr and r.stdout == b"", r


@pytest.mark.parametrize("limit, kilobytes", [(resource.RLIMIT_DATA, (1000, 1500, 2000, 3000, 5000, 8000, 15000, 30000, 34000, 38000, 46000)),
                                              (resource.RLIMIT_AS, (3000, 4000, 6000, 8000, 10000, 14000, 24000, 34000, 38000, 44000))])
@pytest.mark.parametrize("args", [["-t", 1, "-n", 2, "Hi"], ["-t", 3, "--lines", "-n", 2], ["-t", 2, "--dry-run"], ["bench", "-p", 8, "-n", 2]])
def test_too_little_memory_is_said_whatever_fails_first(hokku, limit, kilobytes, args):
    program = os.path.getsize(HOKKU) >> 10 if limit == resource.RLIMIT_AS else 0  # with less the system ends it
    for kb in [program + n for n in kilobytes]:
        def run(*args):
            return hokku(*args, input="Hi\n", env=BY_ITSELF, preexec_fn=lambda: resource.setrlimit(limit, (kb << 10, kb << 10)))  # noqa: B023
        r = run(*args)
        if run("--version").returncode in (127, -signal.SIGSEGV):  # no room for the libraries, or for what they do before main
            continue
        assert r.returncode in (0, 4), (kb, r)
        assert r.returncode == 0 or re.fullmatch(rb"hokku: [^\n]{20,}\n", r.stderr) and b"18,446" not in r.stderr and b"18446" not in r.stderr, (kb, r)


DEEP = json.dumps({"type": "string", "pattern": "^" + "(" * 60 + "a" + ")" * 60 + "$"})


@pytest.mark.parametrize("kilobytes", [1024, 64, 32])
@pytest.mark.parametrize("args", [["-n", 3, "Hi"], ["-t", 3, "-n", 3, "Hi"], ["--lines", "-n", 3], ["-n", 3, "-j", '{"enum": [1, 2]}', "Hi"], ["-n", 9, "-j", DEEP, "Hi"], ["--help"]])
def test_a_small_stack_is_enough(hokku, home, kilobytes, args):
    want = hokku("-s", 1, *args, input="Hi\n").stdout
    r = subprocess.run(["sh", "-c", f'ulimit -s {kilobytes} && exec "$@"', "-", HOKKU, "-s", "1", *map(str, args)], env=home, input=b"Hi\n", capture_output=True)
    assert (r.returncode, r.stdout) == (0, want) and want, r
