"""`hokku models`: what was downloaded is listed, with what can run of it, and removed."""
import json
import os
import pathlib
import time

import pytest
from test_places import shim  # noqa: F401 (fixture)
from test_pull import Q4, Q8, REPO, cache, env, ggufs, hokku, hub, leave_part, ok, refused, server  # noqa: F401

from conftest import model


def test_models_are_listed_with_size_and_last_use(hokku, hub, leave_part):
    none = hokku("models")
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "no downloaded models\n") and json.loads(hokku("models", "--json").stdout) == []
    q4, q8 = ok(hokku("pull", REPO)), ok(hokku("pull", REPO + ":q8_0"))
    hub.add(REPO, files={"m-q6_k.gguf": Q8[:-1]})
    leave_part(300_000, REPO + ":q6_k")
    os.utime(q8, (time.time() - 3 * 86400,) * 2)
    rows = hokku("models").stdout.splitlines()
    assert hokku("models", "list").stdout.splitlines() == rows
    assert 'found "x", expected nothing, list or rm NAME' in hokku("models", "list", "x").stderr
    assert [r.split()[0] for r in rows[1:]] == [f"{REPO}:m-q6_k.gguf", f"{REPO}:Q4_K_M", f"{REPO}:Q8_0"]
    assert rows[1].endswith("(incomplete)") and "300.0 kB" in rows[1]
    assert "1.5 MB  just now (cannot run: " in rows[2] and "1.5 MB  3 days ago (cannot run: " in rows[3]
    j = {m["name"]: m for m in json.loads(hokku("models", "--json").stdout)}
    assert "GGUF" in j[f"{REPO}:Q4_K_M"].pop("why_not")
    assert j[f"{REPO}:Q4_K_M"] == {"name": f"{REPO}:Q4_K_M", "path": str(q4), "bytes": len(Q4), "complete": True, "runs": False,
                                   "last_use": int(max(q4.stat().st_atime, q4.stat().st_mtime))}
    ok(hokku("pull", "--offline", REPO + ":q8_0"))
    assert "days ago" not in hokku("models").stdout  # using it is a use


def test_models_are_listed_where_the_name_of_the_cache_is_no_text(hokku, hub, tmp_path):
    more = {"XDG_CACHE_HOME": os.fsdecode(bytes(tmp_path) + b"/\xff")}
    assert hokku("pull", REPO, more=more, errors="surrogateescape").returncode == 0
    (listed,) = json.loads(hokku("models", "--json", more=more).stdout)
    assert listed["path"].startswith(f"{tmp_path}/\ufffd/hokku/hub/{REPO}/") and "GGUF" in listed["why_not"]


def test_models_say_which_files_can_run_here(hokku, hub):
    good = pathlib.Path(model("stories")).read_bytes()
    at = good.index(b"general.architecture") + 20 + 4 + 8
    assert good[at:at + 5] == b"llama"
    hub.add(REPO, files={"some-model-q4_k_m.gguf": good, "some-model-q8_0.gguf": good[:at] + b"lumma" + good[at + 5:]})
    for quant in ("q4_k_m", "q8_0"):
        ok(hokku("pull", f"{REPO}:{quant}"))
    rows = hokku("models").stdout.splitlines()
    assert rows[1].endswith("just now") and rows[2].endswith('just now (cannot run: architecture "lumma" is not supported)')
    j = {m["name"]: m for m in json.loads(hokku("models", "--json").stdout)}
    assert j[f"{REPO}:Q4_K_M"]["runs"] is True and "why_not" not in j[f"{REPO}:Q4_K_M"]
    assert j[f"{REPO}:Q8_0"]["runs"] is False and "these are: llama" in j[f"{REPO}:Q8_0"]["why_not"]


@pytest.mark.parametrize("name, find, put, why", [
    ("stories", b"tokenizer.ggml.model\x08\0\0\0\x05\0\0\0\0\0\0\0llama", b"lluma", 'tokenizer.ggml.model is "lluma"'),
    ("stories", b"llama.attention.head_count\x04", b"head_caunt\x04", "llama.attention.head_count is missing"),
    ("stories", b"blk.0.attn_q.weight", b"x.weight", "tensor blk.0.attn_q.weight (64 x 64) is missing"),
    ("stories", b"\0\0\0output.weight", b"x.weight", "tensor outpux.weight is not one that architecture llama has"),
    ("stories", b"blk.1.ffn_up.weight\x02\0\0\0\x40\0\0\0\0\0\0\0\xac\0\0\0\0\0\0\0\0", b"\xc8", "type number 200, which is unknown"),
    ("qwen2-tiny-f16", b"tokenizer.ggml.pre\x08\0\0\0\x05\0\0\0\0\0\0\0qwen2", b"qwem2", 'tokenizer.ggml.pre is "qwem2"'),
])
def test_what_opening_refuses_is_listed_as_not_running(hokku, hub, name, find, put, why):
    """In the same words."""
    good = pathlib.Path(model(name)).read_bytes()
    assert good.count(find) == 1
    end = good.index(find) + len(find)
    hub.add(REPO, files={"some-model-q4_k_m.gguf": good[:end - len(put)] + put + good[end:]})
    path = ok(hokku("pull", REPO))
    (listed,) = json.loads(hokku("models", "--json").stdout)
    assert listed["runs"] is False and why in listed["why_not"]
    (path.parent / "text").write_text("Once")
    assert refused(hokku("score", "-m", str(path), str(path.parent / "text")), why, code=3).endswith(listed["why_not"])


def test_what_cannot_be_looked_at_is_not_taken_for_what_is_not_there(hokku, hub, cache, shim):  # noqa: F811
    name = ok(hokku("pull", REPO))
    for unseen, says in ("/" + REPO, "looked at"), ("/hub", "listed"), (name.name, "looked at"):
        more = {"LD_PRELOAD": shim, "TEST_UNSEEN": unseen}
        refused(hokku("models", more=more), f"cannot be {says}: Input/output error", code=1)
        refused(hokku("models", "rm", REPO, more=more), f"cannot be {says}: Input/output error", code=1)
        assert name.exists()


def test_models_rm_removes_what_it_names_and_nothing_else(hokku, hub, cache, leave_part):
    ok(hokku("pull", REPO))
    q8 = ok(hokku("pull", REPO + ":q8_0"))
    refused(hokku("models", "rm", "nobody/nothing"), "nobody/nothing", f"{REPO}:Q4_K_M", code=1)
    there = ggufs(cache)
    refused(hokku("models", "rm", f"{REPO}:q4_k_m", "--json"), "found --json, which is for the list", code=2)
    refused(hokku("models", "rm", f"{REPO}:q4_k_m", "nobody/nothing", f"{REPO}:q8_0"), "nothing is removed: ", "nobody/nothing", code=1)
    assert ggufs(cache) == there and len(there) == 2
    r = hokku("models", "rm", f"{REPO}:q4_k_m", f"{REPO}:Q4_K_M")  # twice the same
    assert r.returncode == 0 and r.stdout.count("1.5 MB") == 1
    assert ggufs(cache) == [str(q8.relative_to(cache))]
    hub.add(REPO, files={"x/m-q6_k-00001-of-00002.gguf": b"1" * 10, "x/m-q6_k-00002-of-00002.gguf": b"2" * 10})
    ok(hokku("pull", REPO + ":q6_k"))
    assert hokku("models", "rm", f"{REPO}:Q6_K").returncode == 0
    assert ggufs(cache) == [str(q8.relative_to(cache))]
    hub.add(REPO, files={"M-Q3_K_M.GGUF": b"3" * 10})
    named = ok(hokku("pull", REPO + ":q3_k_m"))
    assert hokku("models", "rm", f"{REPO}:Q3_K_M").returncode == 0 and not named.exists()
    leave_part(300_000)
    assert hokku("models", "rm", REPO).returncode == 0
    assert not list((cache / "hub").iterdir())
    for name in ("../..", "hub", "/", ".."):
        refused(hokku("models", "rm", name), code=1)
