"""Multi-token prediction (DeepSeek-AI 2024, sec. 2.2), in NumPy and double precision, from the formula: a layer that is given
eh_proj (enorm(embedding of a token), hnorm(hidden state of the token before)) and guesses the token after both.

The hidden state: what the model's last layer leaves (GLM-4.5, DeepSeek-V3), or what its last norm makes of that (Qwen3-Next,
Qwen3.5); behind the text, the same of the prediction layer itself."""
import numpy as np

import families
import make_gguf
from families import DELTA, EPS, QKV
from forward_states import *  # noqa: F403

N_TOKENS, N_ALONE = 40, 4  # of these, given what the layer itself has left of those before

GLM = dict(arch="glm4moe", norms=("attn_norm", "post_attention_norm"), biases=QKV, qk="head", head_dim=12)
GLM_META = EPS | {"rope.dimension_count": 6, "expert_shared_count": 2, "expert_gating_func": 2, "expert_weights_norm": True,
                  "expert_weights_scale": 1.7, "leading_dense_block_count": 1}
QWEN = dict(arch="qwen35", head_dim=20, norms=("attn_norm", "post_attention_norm"), qk="head", delta=(6, 3, 14, 4, 3, False))
QWEN_META = EPS | DELTA | {"ssm.time_step_rank": 6, "ssm.group_count": 3, "ssm.state_size": 14, "ssm.inner_size": 84}
EVERYTHING = ("shared_head_norm", "embed_tokens", "shared_head_head")
# name: (class, whether the hidden state is normed, arguments of families.model)
MODELS = {
    "glm4moe": (Glm4Moe, False, dict(GLM, layers=3, seed=2, experts=dict(n=8, used=2, ff=24, shared=48, choice=True, layers=(1, 2)),
                                     predict=1, predict_own=EVERYTHING[:1], meta=GLM_META)),
    # Two prediction layers, of which the first is used, with an embedding and a head of their own.
    "glm4moe-own": (Glm4Moe, False, dict(GLM, layers=4, seed=4, tied=False, experts=dict(n=8, used=2, ff=24, shared=48, choice=True, layers=(1, 2, 3)),
                                         predict=2, predict_own=EVERYTHING, meta=GLM_META)),
    "qwen35": (Qwen35, True, dict(QWEN, layers=4, seed=3, predict=1, predict_own=EVERYTHING[:1], meta=QWEN_META)),
    "qwen35-shared": (Qwen35, True, dict(QWEN, layers=5, seed=5, predict=1, meta=QWEN_META)),
}


class Prediction:
    """The prediction layer of a model that is of a class of the other files."""

    def __init__(self, family, path, normed):
        self.model, self.layer, self.normed = family(path), family(path), normed
        self.block = f"blk.{self.layer.layers}."
        self.layer.cache.append(None)

    def own(self, name, shared):
        name = self.block + "nextn." + name
        return name if name + ".weight" in self.layer.w else shared

    def hidden(self, ids):
        """(n, width) of the model."""
        m, x = self.model, self.model.embed(ids)
        for l in range(m.layers):
            x = m.block(x, l)
        m.past += len(ids)
        return m.norm(x, "output_norm") if self.normed else x

    def forward(self, ids, hidden):
        """-> logits after each of the ids, and the layer's own hidden states; hidden: of the tokens before."""
        m, last = self.layer, self.own("shared_head_norm", "output_norm")
        e = m.w[self.own("embed_tokens", "token_embd") + ".weight"][ids]
        x = np.concatenate([m.norm(e, self.block + "nextn.enorm"), m.norm(hidden, self.block + "nextn.hnorm")], 1)
        x = m.block(m.linear(x, self.block + "nextn.eh_proj"), m.layers)
        m.past += len(ids)
        y = m.norm(x, last)
        head = m.w.get("output.weight", m.w["token_embd.weight"])
        return y @ m.w.get(self.block + "nextn.shared_head_head.weight", head).T, y if self.normed else x


def expected(family, path, normed):
    """-> random tokens, and the logits after each but the first."""
    p = Prediction(family, path, normed)
    ids = np.random.default_rng(23).integers(0, len(p.model.w["token_embd.weight"]), N_TOKENS)
    n = N_TOKENS - N_ALONE
    logits, own = p.forward(ids[1:n], p.hidden(ids[:n - 1]))
    rows = [logits]
    for i in range(n, N_TOKENS):
        logits, own = p.forward(ids[i:i + 1], own[-1:])
        rows.append(logits)
    assert p.model.closest > 1e-5 and p.layer.closest > 1e-5, f"{path} chooses among experts so closely that rounding decides"
    return ids, np.concatenate(rows)


def counting(arch):
    """A model that says the token with the next higher id, and whose prediction layer knows that from the hidden state alone:
    embeddings are points on circles, and eh_proj turns them by one token. Layers add nothing."""
    options = dict(GLM, biases=(), experts=dict(n=8, used=2, layers=()), meta=EPS | {"rope.dimension_count": 6, "leading_dense_block_count": 3}) if arch == "glm4moe" else dict(QWEN, meta=QWEN_META)
    kvs, tensors = families.model(**options | dict(layers=3, seed=1, tied=False, predict=1, predict_own=EVERYTHING[:1]))
    vocab, embd = 640, 48
    turns = np.random.default_rng(7).permutation(np.arange(1, vocab // 2))[:embd // 2] * 2 * np.pi / vocab
    point = lambda t: np.stack([np.cos(t * turns), np.sin(t * turns)], 1).reshape(embd)
    turn = np.zeros((embd, 2 * embd))  # of (enorm(embedding), hnorm(hidden state)): the second
    for i, a in enumerate(turns):
        turn[2 * i:2 * i + 2, embd + 2 * i:embd + 2 * i + 2] = [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]
    new = {"token_embd.weight": np.stack([point(t) for t in range(vocab)]), "blk.2.nextn.eh_proj.weight": turn,
           "output.weight": np.stack([point(t - 1) for t in range(vocab)])}

    return replaced(kvs, tensors, new | {t.name: np.zeros(t.ne[::-1]) for t in tensors if t.name.endswith(
        ("attn_output.weight", "ffn_down.weight", "ssm_out.weight"))})


def replaced(kvs, tensors, new):
    """The same with other numbers, and with norms that have no weights."""
    new |= {t.name: np.ones(t.ne) for t in tensors if t.name not in new and t.name.endswith("norm.weight")}
    return kvs, [make_gguf.Tensor(t.name, t.ne, "F32", new[t.name].astype(np.float32).tobytes()) if t.name in new else t for t in tensors]


def twin():
    """A model of one layer, and a prediction layer that is the same: it is given embeddings alone."""
    kvs, tensors = families.model(**GLM | dict(biases=(), layers=2, seed=1, tied=False, predict=1, experts=dict(n=8, used=2, layers=()),
                                               meta=EPS | {"rope.dimension_count": 6, "leading_dense_block_count": 2}))
    by_name, embd = {t.name: t for t in tensors}, 48
    for name, t in by_name.items():
        if name.startswith("blk.0."):
            by_name[name.replace("blk.0.", "blk.1.")].data = t.data
    points = np.random.default_rng(3).normal(size=(640, embd))
    points /= np.sqrt((points * points).mean(1, keepdims=True))  # as enorm leaves them
    return replaced(kvs, tensors, {
        "token_embd.weight": points, "blk.1.nextn.eh_proj.weight": np.eye(embd, 2 * embd),
        "blk.1.nextn.enorm.weight": np.full(embd, np.sqrt(1 + EPS["attention.layer_norm_rms_epsilon"]))})
