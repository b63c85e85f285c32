"""The weights of make_gguf.py's files: random blocks of every type, and what is made of them."""
import sys

import numpy as np

# name: (number in the file, weights per block, bytes per block)
TYPES = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2),
    "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24),
    "Q8_0": (8, 32, 34),
    "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210),
    "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136),
    "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36),
    "IQ1_S": (19, 256, 50), "IQ1_M": (29, 256, 56),
    "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74), "IQ2_S": (22, 256, 82),
    "IQ3_XXS": (18, 256, 98), "IQ3_S": (21, 256, 110),
    "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18), "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66),
}
# What weights of the types with grids have as root mean square when d is 1 and all else random.
GRID_RMS = {"IQ1_S": 7.197, "IQ2_XXS": 53.45, "IQ2_XS": 55.9, "IQ2_S": 56.35, "IQ3_XXS": 142.6, "IQ3_S": 140.2}
STD = 0.02


class Tensor:
    """name, ne (row length first), a type's name, and bytes or None for random blocks; their standard
    deviation, if it is not that of the other tensors."""

    def __init__(self, name, ne, type_name, data=None):
        self.name, self.ne, self.type, self.data, self.std = name, list(ne), type_name, data, None

    @property
    def n_bytes(self):
        _, elems, size = TYPES[self.type]
        assert self.ne[0] % elems == 0, (self.name, self.ne, self.type)
        return int(np.prod([int(n) for n in self.ne], dtype=object)) // elems * size


def halves(x):
    return np.asarray(x, dtype=np.float16).view(np.uint8).reshape(-1, 2)


def pack_scale_min(scales, mins):
    """Eight 6-bit scales and minima per block, as Q4_K and Q5_K store them. -> (n, 12)"""
    out = np.zeros((len(scales), 12), dtype=np.uint8)
    out[:, 0:4] = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    out[:, 4:8] = mins[:, :4] | (mins[:, 4:] >> 4) << 6
    out[:, 8:12] = (scales[:, 4:] & 15) | (mins[:, 4:] & 15) << 4
    return out


def draw_blocks(type_name, n, rng, std=STD):
    """n random blocks whose weights have mean 0 and standard deviation std. -> bytes"""
    def floats():
        return (rng.standard_normal(n) * std).astype(np.float32)

    if type_name == "F32":
        return floats().tobytes()
    if type_name == "F16":
        return floats().astype(np.float16).tobytes()
    if type_name == "BF16":
        return (floats().view(np.uint32) >> 16).astype(np.uint16).tobytes()

    size = TYPES[type_name][2]
    b = rng.integers(0, 256, (n, size), dtype=np.uint8)
    # d: the block's scale for integers of root mean square rms; of either sign, so that types
    # whose integers have a mean other than 0 do not give the weights one.
    spread, sign = rng.uniform(0.7, 1.3, n), rng.choice([-1.0, 1.0], n)

    def d(rms):
        return halves(std / rms / 1.015 * spread * sign)

    def d_min(rms, centre):
        """scale, and the minimum that puts the centre of the integers at 0"""
        scale = std / rms / 1.015 * spread
        return halves(scale), halves(centre * scale)

    if type_name == "Q8_0":
        b[:, 0:2] = d(73.9)
    elif type_name == "Q4_0":
        b[:, 0:2] = d(4.64)
    elif type_name == "Q5_0":
        b[:, 0:2] = d(9.25)
    elif type_name == "Q4_1":
        b[:, 0:2], b[:, 2:4] = d_min(4.61, -7.5)
    elif type_name == "Q5_1":
        b[:, 0:2], b[:, 2:4] = d_min(9.23, -15.5)
    elif type_name == "Q2_K":
        sub = rng.integers(8, 16, (n, 16), dtype=np.uint8)
        b[:, 0:16] = sub | sub << 4
        b[:, 80:82], b[:, 82:84] = d_min(1.118 * 11.73, 1.5)
    elif type_name == "Q3_K":
        b[:, 108:110] = d(2.345 * 18.48)
    elif type_name in ("Q4_K", "Q5_K"):
        sub = rng.integers(32, 64, (n, 8), dtype=np.uint8)
        b[:, 4:16] = pack_scale_min(sub, sub)
        rms, centre = (4.61, 7.5) if type_name == "Q4_K" else (9.23, 15.5)
        b[:, 0:2], b[:, 2:4] = d_min(rms * 48.4, centre)
    elif type_name == "Q6_K":
        b[:, 208:210] = d(18.48 * 73.9)
    elif type_name == "IQ4_NL":
        b[:, 0:2] = d(68.3)
    elif type_name == "IQ4_XS":
        b[:, 0:2] = d(68.3 * 18.48)
    elif type_name == "MXFP4":  # E2M1's root mean square; powers of two that have the right mean square
        at = np.log2(std / 2.926) + 127
        b[:, 0] = np.floor(at) + (rng.random(n) < (4 ** (at % 1) - 1) / 3)
    elif type_name == "NVFP4":
        scale = std / 2.926 / 1.015 * rng.uniform(0.7, 1.3, (n, 4))
        power = np.maximum(np.floor(np.log2(scale)), -6)  # below 2^-6 are subnormals
        normal = scale >= 2.0 ** -6
        b[:, 0:4] = np.round(scale / 2 ** power * 8) + np.where(normal, 8 * (power + 6), 0)
    elif type_name == "IQ1_M":  # d lies in the top of each of the four scales
        bits = d(7.208).copy().view(np.uint16).reshape(-1)
        for i in range(4):
            b[:, 49 + 2 * i] = b[:, 49 + 2 * i] & 15 | (bits >> 4 * i & 15) << 4
    elif type_name in GRID_RMS:
        b[:, 0:2] = d(GRID_RMS[type_name])
    elif type_name in ("Q1_0", "Q2_0"):
        b[:, 0:2] = d(1 if type_name == "Q1_0" else 1.2247)
    elif type_name == "TQ1_0":
        b[:, 52:54] = d(0.8174)
    elif type_name == "TQ2_0":
        b[:, 64:66] = d(1.2247)
    else:
        raise ValueError(type_name)
    return b.tobytes()


class Tiles:
    """Random blocks of every type, drawn once, then read round and round."""
    TILE_BYTES = 4 << 20

    def __init__(self, seed, std=STD):
        self.seed, self.std, self.tiles = seed, std, {}

    def chunks(self, tensor, index):
        """The bytes of a tensor, in pieces."""
        number, _, size = TYPES[tensor.type]
        std = tensor.std or self.std
        # An odd number of blocks: rows do not repeat after a power of two.
        n = self.TILE_BYTES // size | 1
        if tensor.n_bytes < self.TILE_BYTES // 8:
            n = tensor.n_bytes // size
            yield draw_blocks(tensor.type, n, np.random.default_rng([self.seed, 1, index]), std)
            return
        if (tensor.type, std) not in self.tiles:
            self.tiles[tensor.type, std] = memoryview(
                draw_blocks(tensor.type, n, np.random.default_rng([self.seed, 0, number]), std))
        tile = self.tiles[tensor.type, std]
        at = int(np.random.default_rng([self.seed, 1, index]).integers(n)) * size
        left = tensor.n_bytes
        while left:
            piece = tile[at:at + left]
            yield piece
            left -= len(piece)
            at = 0


# --- weights with a meaning

SCALES = {"F16": (0, 1), "Q8_0": (0, 1), "Q6_K": (104, 1)}  # where a block has its scale, in halves; how many


def tell_tokens_apart(tensors):
    """What a mixture's tokens see together, attention's means, a tenth as large as in other models, and embeddings as large as what
    is normed, unless they are the head's, too. Else tokens become alike from layer to layer, and all choose the same few experts."""
    by_name = {t.name: t for t in tensors}
    if not any("ffn_gate_inp." in name for name in by_name):
        return
    if "output.weight" in by_name:
        by_name["token_embd.weight"].std = 1.0
    for name, tensor in by_name.items():
        if name.endswith("attn_output.weight"):
            tensor.std = STD / 10
        if name.endswith("post_attention_norm.weight") and name.replace("post_attention_norm", "post_ffw_norm") in by_name:
            weights = np.frombuffer(tensor.data, {"F32": "<f4", "F16": "<f2"}[tensor.type])
            tensor.data = (weights * np.float32(0.1)).astype(weights.dtype).tobytes()


def chain(tensors, cycle, coin, seed):
    """What comes after a token is known: the next of the half vocabulary's cycles of `cycle` tokens, each with one of the other half
    that is as likely where its number is a multiple of `coin`, and goes on alike. So greedy text is new for `cycle` tokens and
    repeats itself from there on, and a sampled one has another token at half of the coins, as an edit of what was said.
    All weights keep their shapes; the embedding is a thousand times larger, so that layers change little."""
    by_name = {t.name: t for t in tensors}
    embedding, head = by_name["token_embd.weight"], by_name.get("output.weight")
    if head is None or head.type not in SCALES:
        sys.exit(f"--chain needs a head of its own (--no-tied) of {', '.join(SCALES)}")
    n_embd, n = head.ne
    half, size = n // 2 // cycle * cycle, TYPES[head.type][2]
    if half == 0 or n_embd % TYPES[head.type][1]:
        sys.exit(f"--chain {cycle}: more than half of the {n} tokens")
    rng, n_blocks = np.random.default_rng([seed, 3]), n_embd // TYPES[head.type][1]
    rows = np.empty((n, n_blocks, size), np.uint8)
    for i, n_tile in enumerate((509, 521, 523, 541)):  # a row's parts are drawn from these: all of them would take minutes
        part = slice(n_blocks * i // 4, n_blocks * (i + 1) // 4)
        width = part.stop - part.start
        tile = np.frombuffer(draw_blocks(head.type, n_tile * width, rng), np.uint8).reshape(n_tile, width, size)
        rows[:, part] = tile[np.arange(n) % n_tile]
    at = np.arange(half)
    coins = at[at % coin == 0] if coin else at[:0]
    rows[half + coins] = rows[coins]
    head.data = rows.tobytes()
    following = at // cycle * cycle + (at + 1) % cycle
    embedded = rows.copy()
    embedded[:half] = embedded[half:2 * half] = rows[following]
    where, n_scales = SCALES[head.type]
    scales = np.ascontiguousarray(embedded).view(np.float16)[:, :, where:where + n_scales]
    scales *= np.float16(1000)
    embedding.type, embedding.data = head.type, embedded.tobytes()
