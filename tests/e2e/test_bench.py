"""hokku bench: what is in its report, and what it refuses. Times are its business, not a test's."""
import json
import re

import pytest
from conftest import OWN

SMALL = ["-p", 16, "-n", 4, "-r", 3, "--device", "cpu"]


def test_json_has_every_run_with_its_spread_and_the_first_token(hokku, stories):
    r = hokku("bench", "-m", stories, *SMALL, "-d", "0,8", "-o", "json")
    assert r.returncode == 0, r.stderr
    j = json.loads(r.stdout)
    assert [(x["test"], x["depth"], x["tokens"]) for x in j["results"]] == [
        ("prefill", 0, 16), ("decode", 0, 4), ("prefill", 8, 16), ("decode", 8, 4), ("first token", 0, 1)]
    for x in j["results"]:
        assert 0 < x["min_ms"] <= x["median_ms"] <= x["max_ms"]
    assert j["start_to_first_token_s"] > j["open_s"]  # opening is part of it
    assert j["clocks"] is None and "kernels" not in j  # a CPU: neither is known


def test_a_model_without_its_option_is_told_the_option(hokku, stories):
    r = hokku("bench", stories)
    assert r.returncode == 2 and b"found 1 argument, expected none: -m FILE" in r.stderr, r


def test_the_table_says_where_the_first_token_counts_from(hokku, stories):
    r = hokku("bench", "-m", stories, *SMALL)
    assert r.returncode == 0, r.stderr
    text = r.stdout.decode()
    assert re.search(r" · [1-9][\d.]* [kM]B · batch 512\n", text), text  # not 0.0 GB
    assert re.search(r"^start to first token: \d+\.\d{3} s, once, from the beginning of main", text, re.M)
    assert "clocks:" not in text and "kernels of" not in text


def test_a_context_too_short_for_the_first_token_leaves_it_out(hokku, stories):
    r = hokku("bench", "-m", stories, "-p", 8, "-n", 4, "-r", 1, "-c", 20, "--device", "cpu", "-o", "json")
    assert r.returncode == 0, r.stderr
    j = json.loads(r.stdout)
    assert j["start_to_first_token_s"] is None and [x["test"] for x in j["results"]] == ["prefill", "decode"]


def test_kernels_share_out_the_time_of_a_token_and_of_a_chunk(hokku, stories):
    r = hokku("bench", "-m", stories, *SMALL, "--kernels", "-o", "json")
    assert r.returncode == 0, r.stderr
    token, chunk = sorted(json.loads(r.stdout)["kernels"], key=lambda k: k["of"])
    assert (token["of"], token["tokens"], chunk["of"], chunk["tokens"]) == ("decode", 1, "prefill", 16)
    for k in token, chunk:
        assert abs(sum(x["us"] for x in k["kernels"]) / k["sum_us"] - 1) < 1e-6 and k["real_us"] > 0
        assert {x["of"] for x in k["kernels"]} >= {"attn_q+attn_k+attn_v", "kv", "attn_output", "ffn_down", "output"}
    # the weights of the file, once: those of the embedding are the head's, too
    gguf = json.loads(hokku("inspect", stories, "--json").stdout)
    size = {t["name"]: t["bytes"] for t in gguf["tensors"]}
    down = sum(n for name, n in size.items() if name.endswith("ffn_down.weight"))
    assert {x["of"]: x["bytes"] for x in token["kernels"] if x["kernel"] == "matmul"}["ffn_down"] == down
    table = hokku("bench", "-m", stories, *SMALL, "--kernels").stdout.decode()
    assert "kernels of a decoded token at position 3" in table and "\n| matmul | ffn_gate+ffn_up | " in table


def test_kernels_of_a_batch_are_those_of_a_pass(hokku, stories):
    r = hokku("bench", "-m", stories, *SMALL, "--kernels", "-o", "json")
    assert r.returncode == 0, r.stderr
    alone = next(k for k in json.loads(r.stdout)["kernels"] if k["of"] == "decode")
    r = hokku("bench", "-m", stories, *SMALL, "--kernels", "--batch", "1,3", "-o", "json")
    assert r.returncode == 0, r.stderr
    tables = [k for k in json.loads(r.stdout)["kernels"] if k["of"] == "decode"]
    assert [(k["batch"], k["tokens"]) for k in tables] == [(1, 1), (3, 3)]  # the batch of 1 is the decode row's
    # weights are read once, the cache and the logits three times
    one, three = ({x["of"]: x["bytes"] for x in k["kernels"] if x["bytes"]} for k in (alone, tables[1]))
    assert {of: three[of] / one[of] for of in ("ffn_down", "output", "kv", "logits")} == {
        "ffn_down": 1, "output": 1, "kv": 3, "logits": 3}
    table = hokku("bench", "-m", stories, *SMALL, "--kernels", "--batch", 3).stdout.decode()
    assert "kernels of a pass of 3 sequences at position 3" in table and "of the decode row above of 3: " in table


@pytest.mark.parametrize("family", ["lfm2", "qwen35", "gemma3", "gemma3n"])
@pytest.mark.parametrize("depth", [0, 200])
def test_kernels_of_models_that_cannot_simply_forget(hokku, family, depth):
    """Going back in a state, or to what a window has dropped, evaluates tokens again: not in the part that is timed."""
    model = OWN / f"families/{family}-f16.gguf"
    r = hokku("bench", "-m", model, "-p", 20, "-n", 64, "-d", depth, "-r", 1, "--device", "cpu", "--batch", 2, "--kernels", "-o", "json")
    assert r.returncode == 0, r.stderr
    base = max(depth, 1)
    assert sorted((k["of"], k["batch"], k["position"]) for k in json.loads(r.stdout)["kernels"]) == [
        ("decode", 1, base + 32), ("decode", 2, base + 32), ("prefill", 1, depth)]


def test_more_depths_than_bench_can_take_are_refused(hokku):
    r = hokku("bench", "-d", ",".join("0" * 64), "-d", "0", "--plan")
    assert r.returncode == 2 and b"more than 64 depths" in r.stderr, r


@pytest.mark.parametrize("args", [["--plan", "--grammar", "s.json"], ["--plan", "--kernels"], ["--grammar", "s.json", "--kernels"], ["--kernels", "--plan"]])
def test_what_bench_shows_is_one_thing(hokku, args):
    r = hokku("bench", *args)
    a, b = sorted((a for a in args if a[0] == "-"), key=["--plan", "--kernels", "--grammar"].index)
    assert r.returncode == 2 and f"{a} and {b} cannot be combined: each shows something else, expected one of them".encode() in r.stderr and not r.stdout, r


@pytest.mark.parametrize("shows", [["--plan"], ["--grammar", "s.json"]])
@pytest.mark.parametrize("option", ["--n-prompt", "--n-gen", "--repetitions", "--batch", "--n-depth"])
def test_what_runs_nothing_does_not_take_what_to_run(hokku, shows, option):
    r = hokku("bench", *shows, option, 1)
    if (shows, option) == (["--plan"], "--n-depth"):
        assert b"n-depth" not in r.stderr
    else:
        assert r.returncode == 2 and f"{shows[0]} runs nothing that {option} is for: leave one of them out".encode() in r.stderr and not r.stdout, r


def test_a_grammar_of_the_configuration_is_not_what_bench_shows(hokku, stories, tmp_path):
    (tmp_path / "mine.gbnf").write_text('root ::= "a"')
    for env in ({"HOKKU_GRAMMAR_FILE": "/nonexist"}, {"HOKKU_GRAMMAR": "root ::= x"}):
        r = hokku("bench", "-m", stories, *SMALL, "-o", "json", env=env)
        assert r.returncode == 0 and json.loads(r.stdout)["results"], r
        r = hokku("bench", "-m", stories, "--grammar", tmp_path / "mine.gbnf", env=env)
        assert r.returncode == 0 and b"decode" not in r.stdout, r


def test_batches_count_the_tokens_of_all_their_sequences(hokku, stories):
    """Weights are shared by a batch, keys and values are not."""
    r = hokku("bench", "-m", stories, *SMALL, "-d", "0,9", "--batch", "1,3", "--batch", 20, "-o", "json")
    assert r.returncode == 0, r.stderr
    rows = [x for x in json.loads(r.stdout)["results"] if x["test"] == "decode"]
    assert [(x["depth"], x["batch"], x["tokens"]) for x in rows] == [
        (d, b, 4 * b) for d in (0, 9) for b in (1, 1, 3, 20)]
    for d in (0, 9):
        of = {x["batch"]: x["bytes_per_token"] for x in rows if x["depth"] == d}
        # w + kv, w / 3 + kv, w / 20 + kv (half a byte: the shares are no whole numbers)
        weights = (of[1] - of[3]) * 1.5
        assert abs(of[20] - (of[1] - weights * 19 / 20)) < 1 and 0 < of[20] < of[3] < of[1]
    table = hokku("bench", "-m", stories, *SMALL, "--batch", "2").stdout.decode()
    assert re.search(r"^\| decode of 2 \| 0 \| [\d.]+ \|", table, re.M) and "experts" not in table


def test_a_step_is_held_against_both_peaks(hokku, stories):
    """Its milliseconds, bytes and operations, by counting the file's matrices."""
    r = hokku("bench", "-m", stories, *SMALL, "-d", "8", "--batch", "1,3", "-o", "json")
    assert r.returncode == 0, r.stderr
    prefill, alone, one, three, first = json.loads(r.stdout)["results"]
    shape = {t["name"]: t["shape"] for t in json.loads(hokku("inspect", stories, "--json").stdout)["tensors"]}
    products = {name: 2 * s[0] * s[1] for name, s in shape.items() if len(s) == 2 and not name.startswith("token_embd")}
    head = products.pop("output.weight", None) or 2 * shape["token_embd.weight"][0] * shape["token_embd.weight"][1]
    layers = sum(products.values())
    pair = 4 * 64 * 5  # of a token and one that it sees, in all layers
    assert prefill["flops_per_step"] == 16 * layers + head + pair * sum(range(9, 25))
    assert first["flops_per_step"] == 32 * layers + head + pair * sum(range(1, 33))
    for row, n in (alone, 1), (one, 1), (three, 3):
        assert (row["steps"], row["flops_per_step"]) == (4, n * (layers + head + pair * (8 + 2 + 1)))
        assert abs(row["step_ms"] * 4 / row["median_ms"] - 1) < 1e-9
        assert abs(row["bytes_per_step"] / row["bytes_per_token"] / n - 1) < 1e-9
        for what in "bytes", "flops":
            assert abs(row[what + "_per_second"] / row[what + "_per_step"] * row["step_ms"] * 1e-3 - 1) < 1e-9
        assert row["expected_experts"] is None and row["share_of_matrix_peak"] is None  # nothing measures that of a CPU
    assert one["bytes_per_step"] == alone["bytes_per_step"] and prefill["bytes_per_step"] == 0 and prefill["steps"] == 1


def test_a_step_of_several_rows_reads_the_experts_that_they_are_expected_to_use(hokku):
    path = OWN / "families/qwen3moe-f16.gguf"  # 3 of 9, of 40 by 48, in 3 layers
    r = hokku("bench", "-m", path, *SMALL, "-d", 8, "--batch", "1,3,200", "-o", "json")
    assert r.returncode == 0, r.stderr
    rows = [x for x in json.loads(r.stdout)["results"] if x["test"] == "decode"]
    assert [x["batch"] for x in rows] == [1, 1, 3, 200]
    for x in rows:
        assert abs(x["expected_experts"] - 9 * (1 - (2 / 3) ** x["batch"])) < 1e-9
    alone, one, three, many = (x["bytes_per_step"] for x in rows)
    experts = lambda n: 3 * 3 * n * 48 * 40 * 2  # layers, matrices, experts, F16
    assert alone == one
    for n, step in (3, three), (200, many):  # a row of the embedding, and keys and values, are each row's own
        shared = experts(9 * (1 - (2 / 3) ** n) - 3)
        assert 0 < (step - one - shared) / (n - 1) < 10000
    assert abs((many - one - experts(6)) / 199 - (three - one - experts(9 * (1 - (2 / 3) ** 3) - 3)) / 2) < 1
    table = hokku("bench", "-m", path, *SMALL, "--batch", 3).stdout.decode()
    assert "of 9 experts, of which each row uses 3, " in table and "(6.3 for 3 rows)" in table


def test_batches_that_cannot_be_are_refused(hokku, stories):
    for value in ("0", "257", "-1", "2x", ",", ",1", "1,", "1,,2"):
        r = hokku("bench", "-m", stories, *SMALL, "--batch", value)
        assert (r.returncode, r.stdout) == (2, b"") and b"--batch: found" in r.stderr and b"1 to 256" in r.stderr, (value, r)
    r = hokku("bench", "-m", stories, *SMALL, "--batch", 3, "-c", 767)
    assert r.returncode == 5 and b"use -c 768" in r.stderr, r
    assert hokku("bench", "-m", stories, *SMALL, "--batch", 3, "-c", 768).returncode == 0
    r = hokku("bench", "-m", OWN / "families/qwen35-f16.gguf", *SMALL, "--batch", "2,200")  # 256 states, of which a pass needs two each
    assert r.returncode == 5 and b"--batch 200: " in r.stderr and b"evaluates 128 sequences" in r.stderr, r


def test_a_depth_beyond_the_context_is_refused_before_the_model_is_opened(hokku):
    r = hokku("bench", "-m", "/nowhere.gguf", *SMALL, "-d", "0,1000", "-c", 512)
    assert (r.returncode, r.stderr) == (5, b"hokku: depth 1000 and 16 tokens do not fit the context of 512: use -c 1016\n")
