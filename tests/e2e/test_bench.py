"""hokku bench: what is in its report, and what it refuses. Times are its business, not a test's."""
import json
import re

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


def test_the_table_says_where_the_first_token_counts_from(hokku, stories):
    r = hokku("bench", "-m", stories, *SMALL)
    assert r.returncode == 0, r.stderr
    text = r.stdout.decode()
    assert re.search(r"^start to first token: \d+\.\d{3} s, once, from the beginning of main", text, re.M)
    assert "clocks:" not in text and "kernels of" not in text


def test_a_context_too_short_for_the_first_token_leaves_it_out(hokku, stories):
    r = hokku("bench", "-m", stories, "-p", 8, "-n", 4, "-r", 1, "-c", 20, "--device", "cpu", "-o", "json")
    assert r.returncode == 0, r.stderr
    j = json.loads(r.stdout)
    assert j["start_to_first_token_s"] is None and [x["test"] for x in j["results"]] == ["prefill", "decode"]


def test_kernels_of_an_engine_that_has_none_is_wrong_usage(hokku, stories):
    r = hokku("bench", "-m", stories, *SMALL, "--kernels")
    assert r.returncode == 2 and r.stdout == b""
    assert b"--kernels" in r.stderr and b"CPU" in r.stderr
