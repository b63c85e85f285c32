"""Every number from the command line, the environment, the configuration and a session passes one check."""
import json
import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests"))
import make_gguf
import session_format

MODEL = ROOT / "builtin/hokku-builtin.gguf"
WRONG = [("--top-p", "2"), ("--top-p", "-0.1"), ("--temp", "-1"), ("--temp", "nan"), ("--temp", "inf"), ("--temp", "1e39"),
         ("--temp", ""), ("--temp", "1,5"), ("--top-k", "-1"), ("--min-p", "1.01"), ("--typical", "7"), ("--top-nsigma", "-2"),
         ("--xtc-probability", "1.5"), ("--xtc-threshold", "-1"), ("--repeat-penalty", "0"), ("--repeat-last-n", "-2"),
         ("--presence-penalty", "nan"), ("--frequency-penalty", "inf"), ("--dry-multiplier", "-1"), ("--dry-base", "0"),
         ("--dry-allowed-length", "0"), ("--dry-penalty-last-n", "-2"), ("--n-predict", "-5"), ("--n-predict", "1e3"),
         ("--ctx-size", "-1"), ("--batch-size", "0"), ("--batch-size", "65537"), ("--threads", "-1"), ("--threads", "100000"), ("--logprobs", "65"),
         ("--seed", "-1"), ("--temp", "0x1"), ("--temp", " 1"), ("--n-predict", " 5"), ("--ctx-size", "0x80"), ("--top-k", "5 "), ("--seed", " 7"),
         ("--logit-bias", " 5+1"), ("--logit-bias", "5+0x1"),  ("--logit-bias", "5+nan"), ("--logit-bias", "5+inf"), ("--logit-bias", "-1+1")]


@pytest.mark.parametrize("name,value", WRONG)
def test_a_number_out_of_range_is_wrong_usage_whoever_says_it(hokku, home, tmp_path, name, value):
    says = f'{name}: found "{value}", expected '.encode()
    r = hokku("-m", MODEL, f"{name}={value}", "hi")
    assert r.returncode == 2 and says in r.stderr and r.stdout == b"", r
    if not value:  # an empty variable is one that is not set
        return
    variable = "HOKKU_" + name[2:].replace("-", "_").upper()
    r = hokku("-m", MODEL, "hi", env={variable: value})
    assert r.returncode == 2 and says in r.stderr and variable.encode() in r.stderr, r
    if value != value.strip():  # there blanks are around it anyway
        return
    (tmp_path / "config/hokku").mkdir(parents=True)
    (tmp_path / "config/hokku/config").write_text(f"{name[2:]} {value}\n")
    r = hokku("-m", MODEL, "hi")
    assert r.returncode == 2 and says in r.stderr and b"config:1" in r.stderr, r


@pytest.mark.parametrize("name,least", [("--top-k", 0), ("--repeat-last-n", -1), ("--dry-allowed-length", 1)])
@pytest.mark.parametrize("value", [2**31, 99999999999, -2])
def test_a_whole_number_out_of_range_is_told_both_ends(hokku, name, least, value):
    r = hokku("-m", MODEL, f"{name}={value}", "hi")
    assert r.returncode == 2 and r.stderr == f'hokku: {name}: found "{value}", expected a whole number from {least} to 2147483647\n'.encode(), r


def test_a_byte_order_mark_is_no_part_of_the_first_setting(hokku, tmp_path):
    (tmp_path / "config/hokku").mkdir(parents=True)
    (tmp_path / "config/hokku/config").write_bytes(b"\xef\xbb\xbftemp x\n")
    r = hokku("-m", MODEL, "hi")
    assert r.returncode == 2 and b"config:1: --temp" in r.stderr, r


def test_a_tilde_in_the_configuration_is_the_home_and_elsewhere_is_refused_by_name(hokku, tmp_path):
    (tmp_path / "m.gguf").symlink_to(MODEL)
    (tmp_path / "s.json").write_text('{"const": 7}')
    (tmp_path / "config/hokku").mkdir(parents=True)
    config = tmp_path / "config/hokku/config"
    config.write_text("model = ~/no.gguf\nmodel = ~/m.gguf\njson-schema @~/s.json\n")
    r = hokku("hi")
    assert r.returncode == 0 and r.stdout == b"7", r
    config.write_text("model ~/no.gguf\n")
    r = hokku("hi")
    assert r.returncode == 3 and f"{tmp_path}/no.gguf: ".encode() in r.stderr, r
    config.unlink()
    said = b'found "%s", expected a file (a shell takes ~ for the home only where a word begins with it: write $HOME)'
    for args, env, found in [(["--model=~/m.gguf"], {}, b"~/m.gguf"), ([], {"HOKKU_MODEL": "~/m.gguf"}, b"~/m.gguf"),
                             (["-m", MODEL, "-j", "@~/s.json"], {}, b"@~/s.json")]:
        r = hokku(*args, "hi", env=env)
        assert r.returncode == 2 and said % found in r.stderr, r
    (tmp_path / "~").mkdir()  # may be meant
    (tmp_path / "~/m.gguf").symlink_to(MODEL)
    assert hokku("--model=~/m.gguf", "-n", 1, "hi", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("line", ["version", "help", "dry-run", "print-completion bash"])
def test_what_is_no_setting_has_no_place_in_the_configuration(hokku, tmp_path, line):
    (tmp_path / "config/hokku").mkdir(parents=True)
    (tmp_path / "config/hokku/config").write_text(f"temp 0\n{line}\n")
    r = hokku("-m", MODEL, "-n", 1, "hi")
    assert r.returncode == 2 and f"config:2: --{line.split()[0]} is for the command line alone".encode() in r.stderr and r.stdout == b"", r
    (tmp_path / "config/hokku/config").unlink()
    plain = hokku("-m", MODEL, "-n", 1, "--temp", 0, "hi")
    r = hokku("-m", MODEL, "-n", 1, "--temp", 0, "hi", env={f"HOKKU_{line.split()[0].upper().replace('-', '_')}": "1"})
    said = b"hokku: HOKKU_DRY_RUN is not read: --dry-run is for the command line alone\n" if line == "dry-run" else b""
    assert (r.returncode, r.stdout, r.stderr) == (0, plain.stdout, said + plain.stderr)


@pytest.mark.parametrize("line,says", [
    ("listen 127.0.0.1:1", b"config:1: --listen is an option of hokku serve, on its command line"), ("n_gen = 3", b"config:1: --n-gen is an option of hokku bench,"),
    ("stop x", b'config:1: unknown setting "stop", did you mean reverse-prompt'), ("tmep 1", b'config:1: unknown setting "tmep", did you mean temp')])
def test_an_option_of_a_tool_is_not_called_unknown_in_the_configuration(hokku, tmp_path, line, says):
    (tmp_path / "config/hokku").mkdir(parents=True)
    (tmp_path / "config/hokku/config").write_text(line + "\n")
    for args in (["-m", MODEL, "-n", 1, "hi"], ["bench", "-m", MODEL]):
        r = hokku(*args)
        assert r.returncode == 2 and says in r.stderr and r.stderr.count(b"\n") == 1 and r.stdout == b"", r


def test_a_token_outside_the_vocabulary_is_wrong_usage(hokku):
    r = hokku("-m", MODEL, "-l", "99999999+1", "hi")
    assert r.returncode == 2 and b"token id 99999999, expected 0 to " in r.stderr, r


def change(path, function):
    """The session file with its description changed by a function, its checksums right."""
    new = []
    for tag, begin, end, payload in session_format.parts(path.read_bytes()):
        if tag == "META":
            meta = json.loads(payload)
            function(meta)
            payload = json.dumps(meta).encode()
        new.append((tag, begin, end, payload))
    path.write_bytes(session_format.file(new))


@pytest.mark.parametrize("name,value,says", [
    ("logit-bias", "99999999+1", b"token id 99999999"), ("top-p", "2", b"--top-p"), ("n-predict", "-5", b"--n-predict")])
def test_a_session_cannot_say_what_the_command_line_cannot(hokku, tmp_path, name, value, says):
    assert hokku("-m", MODEL, "-n", 2, "--session", "s", "hi").returncode == 0
    path = tmp_path / "state/hokku/sessions/s.session"
    change(path, lambda meta: meta["settings"].update({name: value}))
    before = path.read_bytes()
    r = hokku("-m", MODEL, "--session", "s", "more")
    assert r.returncode == 1 and says in r.stderr and b"a setting of the session" in r.stderr and r.stdout == b"", r
    assert path.read_bytes() == before


def recommending(path, **settings):
    kvs, tensors = make_gguf.model(arch="llama", layers=1, embd=32, heads=1, kv_heads=1, ff=32, vocab=300, mix=["F16"])
    make_gguf.write(path, kvs + [("general.sampling." + k, make_gguf.Typed(*v)) for k, v in settings.items()], tensors)
    return path


@pytest.mark.parametrize("key,kind,value,says,option", [
    ("top_p", "f32", 2.0, "is 2, expected a number from 0 to 1", "--top-p=.5"), ("temp", "f32", 1e-38, "is 1e-38, expected 0, or 1e-30 at least", "--temp=.5"),
    ("temp", "f32", float("nan"), "is nan, expected a finite", "--temp=.5"), ("top_k", "u32", 2**31, "is 2147483648, expected ", "--top-k=5"),
    ("top_k", "i32", -1, "is -1, expected a whole number from 0 to 2147483647", "--top-k=5"), ("top_k", "i64", -2**40, "is -1099511627776, expected ", "--top-k=5"),
    ("min_p", "str", "x", "is of type string", "--min-p=.5"), ("penalty_repeat", "f32", 0.0, "is 0, expected a number from 1e-06", "--repeat-penalty=2"),
    ("mirostat", "i32", 2, "is 2, expected 0: that sampler is not there", "--samplers=top_k"), ("sequence", "str", "top_k;infill", 'is "top_k;infill", expected any of penalties;', "--samplers=top_k"),
    ("sequence", "str", "top_k;" * 16, 'is "top_k;top_k', "--samplers=top_k"), ("sequence", "str", "a\0b\n", 'is "a\\x00b\\x0A"', "--samplers=top_k"),
    ("sequence", "u32", 3, "is of type uint32", "--samplers=top_k")])
def test_a_model_cannot_recommend_what_the_command_line_cannot(hokku, tmp_path, key, kind, value, says, option):
    m = recommending(tmp_path / "m.gguf", **{key: (kind, value)})
    r = hokku("-m", m, "-n", 1, "hi")
    assert r.returncode == 3 and f"m.gguf recommends what is no setting (the option given overrides it): metadata key general.sampling.{key} {says}" in r.stderr.decode(), r
    assert hokku("-m", m, "-n", 1, option, "hi").returncode == 0


def test_a_model_recommends_what_the_options_set(hokku, tmp_path):
    """Each on its own changes the answer as the option of its name does."""
    always = {"penalty_repeat": ("f32", 100.0)}
    for settings, options in (({"xtc_probability": ("f32", 1.0), "xtc_threshold": ("f32", 0.0)}, ["--xtc-probability=1", "--xtc-threshold=0"]),
                              ({"penalty_last_n": ("i32", -1)}, ["--repeat-last-n=-1"]), ({"penalty_last_n": ("u32", 0)}, ["--repeat-last-n=0"]),
                              ({"sequence": ("str", "temperature;typ_p")}, ["--samplers=temperature;typ_p"]), ({"sequence": ("str", ""), "mirostat": ("i32", 0), "penalty_last_n": ("i32", 3)}, ["--repeat-last-n=3"])):
        answer = lambda model, *more: hokku("-m", model, "-n", 200, "-s", 1, "-no-cnv", "--ignore-eos", *more, "hi").stdout
        plain, model = recommending(tmp_path / "plain.gguf", **always), recommending(tmp_path / "m.gguf", **always | settings)
        assert answer(plain) != answer(model) == answer(plain, *options), (settings, options)


# ---------------------------------------------------------------------------------------------- replay


@pytest.mark.parametrize("model", ["https://127.0.0.1:1/m.gguf", "http://127.0.0.1:1/m.gguf", "hf.co/user/repo", "user/repo:Q4_K_M", ""])
def test_replay_opens_local_files_only(hokku, tmp_path, model):
    assert hokku("-m", MODEL, "-n", 2, "--session", "s", "hi").returncode == 0
    path = tmp_path / "state/hokku/sessions/s.session"
    change(path, lambda meta: meta.update(model_path=model))
    r = hokku("replay", "s")
    assert r.returncode == 1 and r.stdout == b"" and b"-m" in r.stderr and b"no local file" in r.stderr, r
    assert not (tmp_path / "cache").exists()
    assert hokku("replay", "-m", MODEL, "s").returncode == 0
