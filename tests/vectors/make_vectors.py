#!/usr/bin/env python3
"""Writes the reference vectors that the tests of a checkout compare with. usage: make_vectors.py FOLDER

README.md beside this file says what is in them. None of it comes from hokku: the models' answers from the NumPy
transformer, ids from the packages tokenizers and sentencepiece, text of templates from Jinja2.
"""
import datetime
import itertools
import json
import os
import pathlib
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small products, beside a compiler that wants the processors
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests"), str(ROOT / "tests/unit")]
try:
    import numpy as np

    import gguf
    import families
    import make_gguf
    import make_template_snippets
    import oracles
    import predictions
    from numpy_model import Model
except ImportError as e:
    venv = ROOT / ".venv"
    if (venv / "bin/python").exists() and pathlib.Path(sys.prefix).resolve() != venv.resolve():
        os.execv(venv / "bin/python", [venv / "bin/python", *sys.argv])
    sys.exit(f"hokku: {e.name} is missing for {sys.executable}: ./test.sh installs the packages of "
             "tests/requirements.txt in .venv; -Dtests=false builds without tests")

P1 = ("A kettle sings before the tea is made.\n"
      "for (i = 0; i < n; i++) sum += x[i]; // 98,765 times\n"
      "Grüße aus 京都!")
P2 = ("It rained for 3 days. The river came up to the second step, then to the door; nobody slept.\n\n"
      "\tOn the morning of the 4th day a boat passed the window, and in it sat a dog, a lamp and half a piano. "
      "\"Whose are these?\" we called. \"Nobody's,\" said the dog -- or so my sister told it, afterwards, in 1987. "
      "{\"lamp\": true, \"keys\": [1, 2, 3]} Привет, мир! 古池や蛙飛びこむ水の音. The water went down, as water does.")
STORY = "Once upon a time, Lily and"
N_GREEDY = 24
NEAR_TIE = 2e-3  # of a router's scores: float16 activations may choose another expert
CONTROL = oracles.CONTROL


# --- models ---------------------------------------------------------------------------------

TINY = dict(layers=2, embd=256, heads=4, kv_heads=2, ff=512, vocab=1056)
MODELS = {f"qwen2-tiny-{t.lower()}": dict(TINY, arch="qwen2", mix=t) for t in [*make_gguf.TYPES, "Q4_K_M"]
          if t != "Q2_0"}  # which the gguf package cannot read
MODELS["llama-tiny-q4_k_m"] = dict(TINY, arch="llama", mix="Q4_K_M", tied=False, rope_freqs=True, bos=True,
                                   pre="llama-bpe", rope_theta=5e5)
MODELS["qwen3-tiny-q4_k_m"] = dict(TINY, arch="qwen3", mix="Q4_K_M", head_dim=128)

WORDS = """a and ball bed big bird blue boy cake cat day dog every far friend friends garden girl go had happy hat he her him
home house in it kind lake little mom moon new night of old on once one park play red rain sad said saw sea ship she sky sleep
small smiled song star story sun the then there they time to too tree two very walk warm was water we went were wind with
you Lily Once One The Tom""".split()


def story_vocabulary():
    """A SentencePiece vocabulary: bytes, letters, and words with their beginnings, which lead to them merge by merge."""
    tokens, kinds = ["<unk>", "<s>", "</s>"], [2, CONTROL, CONTROL]
    tokens += [f"<0x{b:02X}>" for b in range(256)]
    kinds += [6] * 256
    words = ["\u2581" + w for w in WORDS]
    pieces = list(dict.fromkeys(w[:n] for w in words for n in range(2, len(w) + 1)))
    pieces += [*"\u2581etaoinshrdlucmfwypvbgkjqxzETAOINSHRDLUCMFWYPVBGKJQXZ.,!?'-"]
    tokens += pieces
    kinds += [1] * len(pieces)
    first = 3 + 256
    scores = [0.0] * first + [float(-i) for i in range(len(pieces))]
    return tokens, kinds, scores, [tokens.index(w) for w in [*words, ".", ","]]


def write_story_model(path, seed):
    """A model that tells something like a story: whole words, each of some likelihood, few of them certain.

    No training: random weights, and an output that wants words. Dimension 0 of what the layers hand on is always 4, and
    by it the output puts what is no word out of reach."""
    tokens, kinds, scores, words = story_vocabulary()
    embd, heads, kv_heads, head_dim, ff, layers = 64, 8, 4, 8, 172, 5
    rng = np.random.default_rng(seed)

    def matrix(name, rows, cols, std):
        data = rng.normal(0, std, (rows, cols))
        if name == "token_embd.weight":
            data[:, 0] = 4
        elif name == "output.weight":
            data[:, 0] = -16
            data[words, 0] = 0
        elif rows == embd:  # what a layer adds
            data[0] = 0
        return make_gguf.Tensor(name, [cols, rows], "F32", data.astype(np.float32).tobytes())

    def norm(name):
        return make_gguf.Tensor(name, [embd], "F32", rng.uniform(0.8, 1.2, embd).astype(np.float32).tobytes())

    tensors = [matrix("token_embd.weight", len(tokens), embd, 1), norm("output_norm.weight"),
               matrix("output.weight", len(tokens), embd, 0.3)]
    for i in range(layers):
        b = f"blk.{i}."
        tensors += [norm(b + "attn_norm.weight"), norm(b + "ffn_norm.weight"),
                    matrix(b + "attn_q.weight", heads * head_dim, embd, 0.3),
                    matrix(b + "attn_k.weight", kv_heads * head_dim, embd, 0.3),
                    matrix(b + "attn_v.weight", kv_heads * head_dim, embd, 0.15),
                    matrix(b + "attn_output.weight", embd, heads * head_dim, 0.15),
                    matrix(b + "ffn_gate.weight", ff, embd, 0.15), matrix(b + "ffn_up.weight", ff, embd, 0.15),
                    matrix(b + "ffn_down.weight", embd, ff, 0.1)]
    kvs = [("general.architecture", "llama"), ("general.name", "stories"), ("general.file_type", 0),
           ("llama.context_length", 128), ("llama.embedding_length", embd), ("llama.block_count", layers),
           ("llama.feed_forward_length", ff), ("llama.attention.head_count", heads),
           ("llama.attention.head_count_kv", kv_heads), ("llama.attention.layer_norm_rms_epsilon", 1e-5),
           ("llama.rope.dimension_count", head_dim), ("llama.vocab_size", len(tokens)),
           *spm_metadata(tokens, kinds, scores)]
    make_gguf.write(path, kvs, tensors)


def write_story(folder):
    """For tests that want a text: the model, how a story begins, and the words that follow when the likeliest is always
    taken, none of them by a hair."""
    path = folder / "stories.gguf"
    for seed in itertools.count(1):
        write_story_model(path, seed)
        if seed == 1:  # the vocabulary is the same each time
            get = oracles.vocabulary(path)
            begin = np.array([get("bos_token_id")] + oracles.spm(get)([STORY])[0])
        model = Model(path)
        model.logprobs(begin)
        ids, gaps = model.greedy(60)
        if min(gaps) > 0.03:
            break
    words = "".join(get("tokens")[i] for i in ids).replace("\u2581", " ")
    dump(folder / "stories.json", {"begin": STORY, "continues": words})


def spm_metadata(tokens, kinds, scores):
    return [("tokenizer.ggml.model", "llama"), ("tokenizer.ggml.tokens", tokens), ("tokenizer.ggml.scores", scores),
            ("tokenizer.ggml.token_type", make_gguf.Typed("array", ("i32", kinds))),
            ("tokenizer.ggml.bos_token_id", 1), ("tokenizer.ggml.eos_token_id", 2),
            ("tokenizer.ggml.unknown_token_id", 0)]


def gemma4_metadata(tokens, kinds, merges):
    return [("tokenizer.ggml.model", "gemma4"), ("tokenizer.ggml.tokens", tokens),
            ("tokenizer.ggml.token_type", make_gguf.Typed("array", ("i32", kinds))), ("tokenizer.ggml.merges", merges),
            ("tokenizer.ggml.bos_token_id", tokens.index("<bos>")), ("tokenizer.ggml.eos_token_id", tokens.index("<eos>")),
            ("tokenizer.ggml.unknown_token_id", tokens.index("<unk>")), ("tokenizer.ggml.add_space_prefix", False)]


def expected(model, ids):
    logp = model.logprobs(np.array(ids))
    positions, close = [], np.reshape(getattr(model, "close", []), (-1, len(ids)))
    for i, row in enumerate(logp):
        top = np.argsort(-row, kind="stable")[:10]
        positions.append({"top": [[int(t), round(float(row[t]), 6)] for t in top]})
        if close.size and close[:, i].min() < NEAR_TIE:
            positions[-1]["near_tie"] = True
        if i + 1 < len(ids):
            positions[-1]["next"] = round(float(row[ids[i + 1]]), 6)
    nll = -sum(p["next"] for p in positions[:-1]) / (len(ids) - 1)
    greedy, gaps = model.greedy(N_GREEDY)
    return {"tokens": list(map(int, ids)), "positions": positions, "nll_per_token": round(nll, 6), "greedy": greedy,
            "greedy_gap": [round(g, 4) for g in gaps]}


def dump(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n")


def write_families(folder):
    (folder / "expected").mkdir(parents=True, exist_ok=True)
    encode = None
    for number, (name, (family, options)) in enumerate(families.FAMILIES.items()):
        path = folder / f"{name}-f16.gguf"
        make_gguf.write(path, *families.model(**{"seed": number + 1, **options}))
        encode = encode or oracles.bpe(oracles.vocabulary(path), "qwen2")  # all have the same vocabulary
        model = family(path)
        for text_name, text in (("p1", P1), ("p2", P2))[:1 if name.endswith("-deep") else 2]:
            dump(folder / "expected" / f"{path.stem}.{text_name}.json", expected(model, encode([text])[0]))
        assert model.closest > 1e-5, f"{name} chooses among experts by {model.closest}, so that rounding decides: another seed="


def write_models(folder):
    (folder / "expected").mkdir(parents=True, exist_ok=True)
    texts = {"p1": P1, "p2": P2}
    write_story(folder)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    for number, (name, options) in enumerate([*MODELS.items(), ("stories", None)]):
        path = folder / f"{name}.gguf"
        if options:
            kvs, tensors = make_gguf.model(seed=number + 1, **options)
            make_gguf.write(path, kvs, tensors, seed=number + 1, std=0.1)
        get, model = oracles.vocabulary(path), Model(path)
        encode = oracles.bpe(get, options.get("pre", "qwen2")) if options else oracles.spm(get)
        bos = [get("bos_token_id")] if get("add_bos_token") is not False else []
        for text_name, text in texts.items():
            dump(folder / "expected" / f"{name}.{text_name}.json", expected(model, bos + encode([text])[0]))


# --- vocabularies ---------------------------------------------------------------------------

BPE_CONTROL = {"qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
               "llama-bpe": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                             "<|eom_id|>", "<|eot_id|>"],
               "gpt-2": ["<|endoftext|>"], "starcoder": ["<|endoftext|>", "<issue_start>"]}
# Of all families of tokenizers, how to get ids.
ENCODERS = {"llama-spm": oracles.spm, "gemma4": oracles.gemma4}
ENDS = {"llama-bpe": ("<|begin_of_text|>", "<|eot_id|>"), "qwen2": ("<|endoftext|>", "<|im_end|>")}
OWN = ["<tool_call>", "<think>"]  # user-defined: parsed wherever they stand


def corpus():
    """English from this checkout, and words of other writing systems."""
    text = "".join((ROOT / p).read_text() for p in ("README.md", "docs/security.md", "docs/architecture.md"))
    lines = [line for line in text.splitlines() if line]
    lines += ["Hello", "Hello world", "(Hello)", "if (x) {\n        return    y;\n}", *oracles.WORDS] * 20
    return lines + oracles.random_strings("corpus", 100)


def write_vocabularies(folder):
    folder.mkdir(parents=True, exist_ok=True)
    texts, separator = corpus(), "\n__ggml_vocab_test__\n"
    control = sorted({t for some in BPE_CONTROL.values() for t in some} | {"<s>", "</s>"})
    strings = oracles.random_strings("random", 150, control)
    (folder / "random.nul").write_bytes(b"".join(s.encode() + b"\0" for s in strings))
    # For patterns that no vocabulary here is trained with (test_tokenizer.py): merges that cross all borders.
    tokens, merges = oracles.train_bpe(texts + oracles.random_strings("joined", 200, oracles.BORDERS) + oracles.BORDERS * 9,
                                       "joined", 3000)
    dump(folder / "joined.json", {"tokens": tokens, "merges": merges})
    for name in [*BPE_CONTROL, *ENCODERS]:
        if name == "llama-spm":
            kvs = spm_metadata(*oracles.train_spm([t for t in texts if "\0" not in t], 2000))
        elif name == "gemma4":
            kvs = gemma4_metadata(*oracles.train_gemma4(texts + ["a\nb\n\nc\n\n\n\nd\n\n\n\n\n\n"] * 50, 2000))
        else:
            tokens, merges = oracles.train_bpe(texts, name, 2000)
            kinds = [1] * len(tokens) + [oracles.USER_DEFINED] * len(OWN) + [CONTROL] * len(BPE_CONTROL[name])
            tokens = tokens + OWN + BPE_CONTROL[name]
            bos, eos = ENDS.get(name, ("<|endoftext|>", "<|endoftext|>"))
            kvs = [("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", name), ("tokenizer.ggml.tokens", tokens),
                   ("tokenizer.ggml.token_type", make_gguf.Typed("array", ("i32", kinds))),
                   ("tokenizer.ggml.merges", merges), ("tokenizer.ggml.bos_token_id", tokens.index(bos)),
                   ("tokenizer.ggml.eos_token_id", tokens.index(eos))]
        path = folder / f"{name}.gguf"
        make_gguf.write(path, [("general.architecture", "llama")] + kvs, [])
        get = oracles.vocabulary(path)
        cases = WORDS + oracles.WORDS + oracles.random_strings(name, 100)
        (folder / f"{name}.inp").write_text(separator.join(cases), newline="")
        for suffix, what, special in ((".out", cases, False), (".random.out", strings, False),
                                      (".random-special.out", strings, True)):
            encode = ENCODERS[name](get, special) if name in ENCODERS else oracles.bpe(get, name, special)
            (folder / f"{name}{suffix}").write_text("".join(" ".join(map(str, i)) + "\n" for i in encode(what)))


# --- templates ------------------------------------------------------------------------------

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
TOOLS = [{"type": "function", "function": {
    "name": "tide", "description": "When the tide is \"high\" & <low>",
    "parameters": {"type": "object", "required": ["port"], "properties": {
        "port": {"type": "string", "description": "Où?"}, "days": {"type": "integer", "default": 1}}}}}]
CALL = {"id": "call00001", "type": "function", "function": {"name": "tide", "arguments": {"port": "Brest", "days": 2}}}


def conversations():
    """name -> variables."""
    def said(*turns):
        return [{"role": role, "content": text} for role, text in turns]

    question, answer = ("user", " What is 2 < 3?\n"), ("assistant", "True.  ")
    talks = {
        "one": said(question),
        "three": said(question, answer, ("user", "Why? \U0001F30A")),
        "system": said(("system", "  Be brief. "), question, answer),
        "system alone": said(("system", "Be brief.")),
        "thinking": said(question, ("assistant", "<think>\nTwo is less.\n</think>\n\nTrue."), ("user", "And 3 < 2?")),
        "twice the user": said(question, question),
        "assistant first": said(answer, question),
        "tool": said(("user", "Tide?")) + [{"role": "assistant", "content": "", "tool_calls": [CALL]},
                                           {"role": "tool", "tool_call_id": "call00001", "name": "tide", "content": "06:12"}],
        "nobody": [],
        "strange role": said(("narrator", "Once")),
    }
    for (name, messages), generate, tools in itertools.product(talks.items(), (False, True), (None, TOOLS)):
        context = {"messages": messages, "add_generation_prompt": generate, "bos_token": "<s>", "eos_token": "</s>"}
        if tools:
            context["tools"] = tools
        yield f"{name}, {'prompt' if generate else 'no prompt'}, {'tools' if tools else 'no tools'}", context
    yield "no thinking", {"messages": talks["three"], "add_generation_prompt": True, "enable_thinking": False,
                          "bos_token": "<s>", "eos_token": "</s>"}


def write_templates(folder):
    (folder / "files").mkdir(parents=True, exist_ok=True)
    env, cases = make_template_snippets.environment(), []
    env.globals["strftime_now"] = NOW.strftime
    for source in sorted((HERE / "templates").glob("*.jinja")):
        (folder / "files" / source.name).write_bytes(source.read_bytes())
        template = env.from_string(source.read_bytes().decode())
        for name, context in conversations():
            case = {"template": source.name, "case": name, "context": context, "now": NOW.isoformat()}
            answer = make_template_snippets.answer(env, template, json.loads(json.dumps(context)))
            if "error" in answer:
                sys.exit(f"{source.name}, {name}: {answer['error']}")
            case.update({"error": answer["raised"]} if "raised" in answer else {"expected": answer["text"]})
            cases.append(case)
    dump(folder / "cases.json", cases)


COARSE = 12  # steps of a weight


def write_drafts(folder):
    """The built-in model with coarser weights: it guesses what that says, often and not always."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "coarse.gguf"
    path.write_bytes((ROOT / "builtin/hokku-builtin.gguf").read_bytes())
    for t in gguf.GGUFReader(path, "r+").tensors:
        if t.tensor_type == gguf.GGMLQuantizationType.Q8_0:
            q = t.data.reshape(-1, 34)[:, 2:].view(np.int8)
            q[:] = np.clip(np.rint(q / COARSE) * COARSE, -127, 127)


def write_predictions(folder):
    """Models with prediction layers, and what those answer: int32 of how many tokens, the tokens, and float32 logits after each
    but the first; then models whose prediction layer is right."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (family, normed, options) in predictions.MODELS.items():
        path = folder / f"{name}.gguf"
        make_gguf.write(path, *families.model(**options))
        ids, logits = predictions.expected(family, path, normed)
        with open(folder / f"{name}.bin", "wb") as f:
            for a in (np.array([len(ids)], "<i4"), ids.astype("<i4"), logits.astype("<f4")):
                f.write(a.tobytes())
    for arch in ("glm4moe", "qwen35"):
        make_gguf.write(folder / f"count-{arch}.gguf", *predictions.counting(arch))
    make_gguf.write(folder / "twin-glm4moe.gguf", *predictions.twin())


def main():
    folder = pathlib.Path(sys.argv[1])
    write_models(folder / "models")
    write_families(folder / "families")
    write_vocabularies(folder / "tokenizers")
    write_templates(folder / "templates")
    write_drafts(folder / "drafts")
    write_predictions(folder / "predictions")
    (folder / "vectors.stamp").touch()


if __name__ == "__main__":
    main()
