"""One-shot and pipes: what goes to which stream, exit codes, signals. Driven on a small model."""
import collections
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import termios
import time

import gguf
import pytest
from conftest import HOKKU, STORY, folders

BEGIN = STORY["begin"]
GREEDY = ["-no-cnv", "--temp", "0"]
CONTINUES = " ".join(STORY["continues"].split(" ")[:12]).encode()


def test_the_answer_and_nothing_else_is_on_stdout(hokku, stories):
    r = hokku("-m", stories, *GREEDY, "-n", 40, BEGIN)
    assert r.returncode == 0, r.stderr
    assert r.stdout.startswith(CONTINUES)
    assert r.stderr == b""


def test_a_prompt_may_come_through_stdin_and_a_file(hokku, stories, tmp_path):
    want = hokku("-m", stories, *GREEDY, "-n", 20, BEGIN).stdout
    assert hokku("-m", stories, *GREEDY, "-n", 20, input=BEGIN + "\n").stdout == want
    (tmp_path / "p.txt").write_text(BEGIN + "\n")
    assert hokku("-m", stories, *GREEDY, "-n", 20, "-f", tmp_path / "p.txt").stdout == want
    assert hokku("-m", stories, *GREEDY, "-n", 20, "-p", BEGIN).stdout == want


def test_argument_file_and_stdin_are_joined_by_blank_lines(hokku, stories, tmp_path):
    (tmp_path / "f").write_text("and a file\n")
    want = hokku("-m", stories, *GREEDY, "-n", 20, "An argument\n\nand a file\n\nand a pipe").stdout
    assert hokku("-m", stories, *GREEDY, "-n", 20, "-f", tmp_path / "f", "An argument", input="and a pipe\n").stdout == want


def test_json_is_one_object_with_the_truth(hokku, stories):
    plain = hokku("-m", stories, *GREEDY, "-n", 20, BEGIN)
    r = hokku("-m", stories, *GREEDY, "-n", 20, "--json", "--logprobs", 3, BEGIN)
    j = json.loads(r.stdout)
    assert j["text"].encode() == plain.stdout
    assert len(j["tokens"]) == 20 and j["finish_reason"] == "length"
    assert j["cached_tokens"] == 0 and j["prompt_tokens"] > 5
    assert {"prefill_ms", "decode_ms", "first_token_ms"} <= set(j["timings"])
    assert [t["id"] for t in j["logprobs"]] == j["tokens"]
    for t in j["logprobs"]:  # greedy: the chosen one is the most likely one
        assert len(t["top"]) == 3 and t["top"][0]["id"] == t["id"] and t["logprob"] == t["top"][0]["logprob"] <= 0


def test_lines_are_answered_in_order_each_on_its_own(hokku, stories):
    prompts = [BEGIN, "The dog", "One day"]
    alone = [json.loads(hokku("-m", stories, *GREEDY, "-n", 8, "--json", p).stdout)["tokens"] for p in prompts]
    r = hokku("-m", stories, *GREEDY, "-n", 8, "--json", "--lines", input="\n".join(prompts))
    assert r.returncode == 0
    assert [json.loads(l)["tokens"] for l in r.stdout.splitlines()] == alone


def test_lines_go_on_after_a_failing_line_and_exit_1(hokku, stories):
    long = "word " * 400
    r = hokku("-m", stories, *GREEDY, "-n", 8, "--json", "--lines", input=f"The dog\n{long}\nOne day\n")
    lines = [json.loads(l) for l in r.stdout.splitlines()]
    assert r.returncode == 1
    assert "text" in lines[0] and lines[1]["error"]["code"] == 5 and lines[1]["line"] == 2 and "text" in lines[2]
    assert b"line 2" in r.stderr and b"1 of 3 lines failed" in r.stderr


def test_a_turn_that_fails_says_whether_others_come_behind_it(hokku, stories):
    more = b"hokku: what comes behind line 2 is not answered\n"
    for rest, there in (("", False), ("\n \n", False), ("\nbye\n", True), ("\n\n\nbye", True)):
        r = hokku("-m", stories, "-no-cnv", "-n", 2, "-c", 64, "--turns", input="Once\n" + "word " * 200 + rest)
        assert r.returncode == 5 and r.stdout and b"hokku: line 2: " in r.stderr and (more in r.stderr) == there, (rest, r)


def test_turns_continue_one_conversation(hokku, stories):
    r = hokku("-m", stories, *GREEDY, "-n", 6, "--json", "--turns", input="Lily had a\nThe dog was\n")
    first, second = (json.loads(l) for l in r.stdout.splitlines())
    assert second["cached_tokens"] >= first["prompt_tokens"] + len(first["tokens"]) - 1


@pytest.mark.parametrize("args,code,says", [
    (["--tmep", "1", "x"], 2, [b"--tmep", b"--temp"]),
    (["--temp"], 2, [b"--temp"]),
    (["--temp", "warm", "x"], 2, [b"warm", b"a number"]),
    (["-c", "-5", "x"], 2, [b"-5"]),
    (["one", "two"], 2, [b"quote"]),
    (["--device", "tpu", "x"], 2, [b"tpu", b"cpu"]),
    (["--lines", "--turns"], 2, [b"--lines"]),
    (["--color", "pink", "x"], 2, [b"pink", b"never"]),
    (["--top-p", "-1", "x"], 2, [b"--top-p", b"-1"]),
    (["--logit-bias", "7", "x"], 2, [b"--logit-bias"]),
    (["--samplers", "top_q", "x"], 2, [b"top_q"]),
    (["-sys", "@nobody", "x"], 2, [b"nobody"]),
    (["score"], 2, [b"FILE"]),
])
def test_wrong_usage_is_2_and_says_what_was_found_and_expected(hokku, stories, args, code, says):
    if args[0] == "score":
        r = hokku(*args, "-m", stories)
    else:
        r = hokku("-m", stories, *args)
    assert r.returncode == code and r.stdout == b""
    assert r.stderr.startswith(b"hokku: ") and r.stderr.count(b"\n") == 1
    for s in says:
        assert s in r.stderr


def test_a_model_that_cannot_be_loaded_is_3(hokku, stories, tmp_path):
    cut = tmp_path / "cut.gguf"
    whole = pathlib.Path(stories).read_bytes()
    cut.write_bytes(whole[:-100000])
    r = hokku("-m", cut, "x")
    assert r.returncode == 3 and b"truncated" in r.stderr and f"{len(whole) - 100000:,}".encode() in r.stderr
    for bad in (tmp_path / "missing.gguf", tmp_path, "/dev/null"):
        r = hokku("-m", bad, "x")
        assert r.returncode == 3 and str(bad).encode() in r.stderr and r.stdout == b""


def test_a_prompt_that_does_not_fit_is_5_with_both_lengths(hokku, stories):
    r = hokku("-m", stories, *GREEDY, "-c", 64, "word " * 100)
    assert r.returncode == 5 and b"64" in r.stderr and r.stdout == b""


def test_a_device_that_is_not_there_is_an_error_never_the_cpu(hokku, stories):
    if shutil.which("nvidia-smi"):
        pytest.skip("there may be a GPU")
    r = hokku("-m", stories, *GREEDY, "--device", "cuda", "x")
    assert r.returncode == 1 and b"--device cuda" in r.stderr and r.stdout == b""


def test_a_full_disk_is_an_error(hokku, stories):
    with open("/dev/full", "wb") as full:
        r = hokku("-m", stories, *GREEDY, "-n", 5, BEGIN, stdout=full, stderr=subprocess.PIPE)
    assert r.returncode == 1 and b"No space left" in r.stderr


@pytest.mark.parametrize("args", [["hi"], ["hi", "--json"], ["--help"], ["--version"], ["inspect"]])
def test_a_closed_stdout_is_an_error_and_no_lost_answer(home, args):
    r = subprocess.run(["/bin/sh", "-c", f'exec {HOKKU} "$@" >&-', "-", *args], env=home, capture_output=True, stdin=subprocess.DEVNULL)
    assert r.returncode == 1 and r.stderr == b"hokku: standard output: cannot be written: Bad file descriptor\n"


def test_a_closed_stderr_takes_nothing_from_the_answer(home, stories):
    command = f"exec {HOKKU} -m {stories} -no-cnv --temp 0 -n 3 hi"
    want = subprocess.run(["/bin/sh", "-c", command], env=home, capture_output=True, stdin=subprocess.DEVNULL)
    r = subprocess.run(["/bin/sh", "-c", command + " -v --stats 2>&-"], env=home, capture_output=True, stdin=subprocess.DEVNULL)
    assert r.returncode == 0 and r.stdout == want.stdout != b""


def test_a_pipe_that_does_not_block_loses_nothing_while_its_reader_is_slow(home, hokku):
    """Other programs make what they share with hokku so: a full pipe is then an error of write(), not a wait."""
    r, w = os.pipe()
    fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(w, False)
    p = subprocess.Popen([HOKKU, "inspect", "--json"], env=home, stdin=subprocess.DEVNULL, stdout=w, stderr=subprocess.PIPE)
    os.close(w)
    while p.poll() is None and fcntl.ioctl(r, termios.FIONREAD, bytes(4)) != (4096).to_bytes(4, "little"):
        time.sleep(0.01)  # until it is full
    while p.poll() is None and pathlib.Path(f"/proc/{p.pid}/stat").read_text().rsplit(") ")[1][0] != "S":
        time.sleep(0.01)  # and it has noticed
    with open(r, "rb") as f:
        got = f.read()
    assert p.stderr.read() == b"" and p.wait() == 0
    assert got == hokku("inspect", "--json").stdout


def test_the_line_of_a_terminal_ends_when_the_reader_of_the_pipe_has_the_answer(home):
    """`hokku hi | cat`: the newline on standard error is for what cat has shown."""
    def newline_comes_last():
        r, w = os.pipe()
        ours, theirs = os.openpty()
        p = subprocess.Popen([HOKKU, "-n", "4", "--temp", "0", "hi"], env=home, stdin=subprocess.DEVNULL, stdout=w, stderr=theirs)
        os.close(w)
        shown, early, text = b"", False, b"-"
        while text:
            select.select([r], [], [])
            time.sleep(0.02)
            while select.select([ours], [], [], 0)[0]:
                shown += os.read(ours, 100)
            text = os.read(r, 100)
            early |= text != b"" and b"\n" in shown
        assert p.wait() == 0
        while select.select([ours], [], [], 0)[0]:
            shown += os.read(ours, 100)
        for fd in (r, ours, theirs):
            os.close(fd)
        assert b"\n" in shown
        return not early
    assert any(newline_comes_last() for _ in range(5))  # (a busy machine may be late)


def test_a_broken_pipe_ends_quietly(home, stories):
    r = subprocess.run(["bash", "-c", '"$0" "$@" | head -c 5; echo "${PIPESTATUS[0]}"', HOKKU, "-m", stories, *GREEDY,
                        "-q", "-c", "4000", "--ignore-eos", BEGIN], capture_output=True, env=home, timeout=60)
    assert r.stdout == CONTINUES[:5] + b"141\n" and r.stderr == b""


def test_sigint_flushes_and_dies_of_sigint(home, stories):
    p = subprocess.Popen([HOKKU, "-m", stories, *GREEDY, "-c", "100000", "--ignore-eos", BEGIN], env=home,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout.read(len(CONTINUES)) == CONTINUES
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=10)
    assert p.returncode == -signal.SIGINT


def test_sigint_while_waiting_for_stdin(home, stories):
    p = subprocess.Popen([HOKKU, "-m", stories, *GREEDY], env=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    assert p.wait(timeout=10) == -signal.SIGINT


def test_empty_stdin_without_a_prompt_is_wrong_usage(hokku, stories):
    assert hokku("-m", stories).returncode == 2


def test_seeds(hokku, stories):
    go = lambda seed: hokku("-m", stories, "-no-cnv", "-s", seed, "-n", 40, BEGIN).stdout
    texts = [go(s) for s in range(6)]
    assert go(3) == texts[3]
    assert len(set(texts)) >= 5


def test_stop_text_across_tokens_is_left_out(hokku, stories):
    words = STORY["continues"].split(" ")
    stop = words[7][-2:] + " " + words[8][:2]  # the end of a token and the beginning of the next one
    before = STORY["continues"][:STORY["continues"].index(stop)]
    assert before.count(" ") > 3
    r = hokku("-m", stories, *GREEDY, "-n", 40, "--json", "-r", stop, BEGIN)
    j = json.loads(r.stdout)
    assert j["text"] == before and j["finish_reason"] == "stop_text"


def test_n_predict_zero_answers_nothing(hokku, stories):
    r = hokku("-m", stories, *GREEDY, "-n", 0, BEGIN)
    assert r.returncode == 0 and r.stdout == b""


def test_the_context_runs_full(hokku, stories):
    args = ["-m", stories, *GREEDY, "-c", 64, "--ignore-eos"]
    r = hokku(*args, "--json", BEGIN)
    j = json.loads(r.stdout)
    assert r.returncode == 0 and j["finish_reason"] == "context"
    assert j["prompt_tokens"] + len(j["tokens"]) == 64
    assert b"context" in r.stderr
    r = hokku(*args, "--json", "-n", 200, "--overflow", "shift", BEGIN)
    j = json.loads(r.stdout)
    assert r.returncode == 0 and j["finish_reason"] == "length" and len(j["tokens"]) == 200


def test_environment_and_configuration_give_way_to_the_command_line(hokku, stories, home):
    conf = pathlib.Path(home["XDG_CONFIG_HOME"]) / "hokku"
    conf.mkdir(parents=True)
    (conf / "config").write_text(f"# mine\nmodel = {stories}\n--no-cnv\ntemp 0\nn-predict 5\n")
    count = lambda *a, **env: len(json.loads(hokku("--json", *a, BEGIN, env=env).stdout)["tokens"])
    assert count() == 5
    assert count(HOKKU_N_PREDICT="6") == 6
    assert count("-n", "7", HOKKU_N_PREDICT="6") == 7
    # an option that may be given more than once: all that one of them has, and nothing of the others
    line = f"model = {stories}\n--no-cnv\ntemp 0\nn-predict 9\n"
    answer = lambda *a, **env: json.loads(hokku("--json", *a, BEGIN, env=env).stdout)
    (conf / "config").write_text(line)
    text, tokens = (answer()[k] for k in ("text", "tokens"))
    first, last = text.split()[1], text.split()[-1]
    for name, variable, option, two in (("reverse-prompt", "HOKKU_REVERSE_PROMPT", "-r", (first, last)),
                                        ("logit-bias", "HOKKU_LOGIT_BIAS", "-l", (f"{tokens[0]}-inf", f"{tokens[-1]}-inf"))):
        (conf / "config").write_text(line)
        wanted = answer(option, two[1])["text"]
        assert wanted not in (text, answer(option, two[0], option, two[1])["text"])
        (conf / "config").write_text(f"{line}{name} {two[0]}\n{name} {two[1]}\n")
        assert answer()["text"] == answer(option, two[0], option, two[1])["text"]
        assert answer(**{variable: two[1]})["text"] == wanted
        assert answer(option, two[1], **{variable: two[0]})["text"] == wanted
    (conf / "config").write_text("tmep 0\n")
    r = hokku("x")
    assert r.returncode == 2 and b"config:1" in r.stderr and b"temp" in r.stderr


def zeroed(path, names, to):
    """A copy of a model in which these tensors are zero."""
    data = bytearray(pathlib.Path(path).read_bytes())
    found = [t for t in gguf.GGUFReader(path).tensors if t.name in names]
    assert {t.name for t in found} == set(names)
    for t in found:
        data[t.data_offset:t.data_offset + t.n_bytes] = bytes(t.n_bytes)
    to.write_bytes(data)
    return to


def test_zeroing_any_one_tensor_changes_the_answer(hokku, stories, tmp_path):
    """Real inference: the text depends on the weights, and none of it is in the program."""
    want = hokku("-m", stories, *GREEDY, "-n", 40, BEGIN).stdout
    for name in ("token_embd.weight", "blk.0.attn_v.weight", "blk.2.ffn_down.weight", "blk.4.attn_output.weight",
                 "output_norm.weight"):
        other = zeroed(stories, [name], tmp_path / "z.gguf")
        assert hokku("-m", other, *GREEDY, "-n", 40, BEGIN).stdout != want, name
    assert want.strip() not in pathlib.Path(HOKKU).read_bytes()


def test_help_and_version(hokku):
    r = hokku("--help")
    assert r.returncode == 0 and b"--device" in r.stdout and r.stderr == b""
    assert max(len(l.decode()) for l in r.stdout.splitlines()) <= 80
    for tool in ("inspect", "tokenize", "render", "score", "perplexity", "bench", "replay", "pull"):
        r = hokku(tool, "--help")
        assert r.returncode == 0 and tool.encode() in r.stdout
    assert hokku("--version").stdout.startswith(b"hokku 0.")


def test_dry_keeps_a_sentence_from_coming_back(hokku, stories, tmp_path):
    """DRY ends repeats of more than two tokens, except across its breakers; they are found when it is used."""
    # Without attention a token depends on the one before alone: the greedy text goes round and round.
    parrot = zeroed(stories, [f"blk.{i}.attn_output.weight" for i in range(5)], tmp_path / "parrot.gguf")

    def most_often(*options):
        ids = json.loads(hokku("-m", parrot, *GREEDY, "-n", 90, "--json", *options, BEGIN).stdout)["tokens"]
        return max(collections.Counter(zip(ids, ids[1:], ids[2:], ids[3:])).values())

    assert most_often() > 3
    assert most_often("--dry-multiplier", 5) == 1


def test_far_too_much_context_is_4_and_says_what_would_fit(hokku, stories):
    r = hokku("-m", stories, *GREEDY, "-c", 2000000000, "x")
    assert r.returncode == 4 and b"-c" in r.stderr


@pytest.mark.parametrize("folder", folders())
def test_score_agrees_with_the_reference(hokku, folder):
    models = folder / "models"
    want = json.loads((models / "expected/qwen2-tiny-q4_k_m.p1.json").read_text())
    r = hokku("score", "-m", models / "qwen2-tiny-q4_k_m.gguf", "--top", 10, models / "p1.txt")
    got = json.loads(r.stdout)
    assert got["tokens"] == want["tokens"] and len(got["positions"]) == len(want["positions"])
    assert abs(got["nll_per_token"] - want["nll_per_token"]) < 0.01
    assert "next" not in got["positions"][-1]
