"""Files of families with something else in them than tests/vectors/families.py says."""
import math
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", ROOT / "build"))
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/vectors"), str(ROOT / "tests/e2e")]
import make_gguf  # noqa: E402
from families import FAMILIES, model  # noqa: E402

W, P = "attention.sliding_window", "attention.sliding_window_pattern"
LONGER = 1 + 0.1 * math.log(4)  # what YaRN multiplies by with the factor of families.YARN
R, S = "attention.recurrent_layers", "tokenizer.ggml.suppress_tokens"
SSM = {"ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 1, "ssm.inner_size": 96, "ssm.time_step_rank": 48}
MISSING = object()
JOINED_QKV = {f"blk.0.attn_{name}.weight": MISSING for name in "qkv"}


def write(path, family, edits, **options):
    kvs, tensors = model(**FAMILIES[family][1] | options)
    arch = kvs[0][1]
    values = dict(kvs)
    for name, value in edits.items():
        is_tensor = name.endswith((".weight", ".bias", "embd.scale", ".input_scale")) or name.startswith("blk.")
        key = name if is_tensor or name.startswith(("xielu", "tokenizer.")) else f"{arch}.{name}"
        if is_tensor:
            tensors = [t for t in tensors if t.name != name]
            if value is not MISSING:
                tensors.append(value if isinstance(value, make_gguf.Tensor) else make_gguf.Tensor(name, value, "F32"))
        elif value is MISSING:
            values.pop(key)
        else:
            values[key] = value
    make_gguf.write(path, list(values.items()), tensors)
