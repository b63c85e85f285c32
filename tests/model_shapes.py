"""The shapes of models that people run, as arguments of make_gguf.model()."""
SHAPES = {
    "qwen2.5-0.5b": dict(arch="qwen2", layers=24, embd=896, ff=4864, heads=14, kv_heads=2,
                         head_dim=64, vocab=151936, tied=True, rope_theta=1e6, ctx=32768),
    "qwen2.5-7b": dict(arch="qwen2", layers=28, embd=3584, ff=18944, heads=28, kv_heads=4,
                       head_dim=128, vocab=151936, tied=False, rope_theta=1e6, ctx=32768),
    "llama3.1-8b": dict(arch="llama", layers=32, embd=4096, ff=14336, heads=32, kv_heads=8,
                        head_dim=128, vocab=128256, tied=False, rope_theta=5e5, ctx=131072,
                        rope_freqs=True),
    "llama3.1-70b": dict(arch="llama", layers=80, embd=8192, ff=28672, heads=64, kv_heads=8, head_dim=128, vocab=128256, tied=False,
                         rope_theta=5e5, ctx=131072, rope_freqs=True),
    "qwen3-0.6b": dict(arch="qwen3", layers=28, embd=1024, ff=3072, heads=16, kv_heads=8,
                       head_dim=128, vocab=151936, tied=True, rope_theta=1e6, ctx=40960),
    "qwen3-30b-a3b": dict(arch="qwen3moe", layers=48, embd=2048, ff=6144, heads=32, kv_heads=4, head_dim=128, vocab=151936,
                          tied=False, rope_theta=1e6, ctx=40960, experts=128, experts_used=8, expert_ff=768),
    "mixtral-8x7b": dict(arch="llama", layers=32, embd=4096, ff=14336, heads=32, kv_heads=8, head_dim=128, vocab=32000,
                         tied=False, rope_theta=1e6, ctx=32768, experts=8, experts_used=2),
    "gpt-oss-20b": dict(arch="gpt-oss", layers=24, embd=2880, ff=2880, heads=64, kv_heads=8, head_dim=64, vocab=201088,
                        tied=False, rope_theta=1.5e5, ctx=131072, experts=32, experts_used=4, expert_ff=2880, swa=128,
                        rope_scaling={"type": "yarn", "factor": 32, "orig_ctx": 4096}),
    "gpt-oss-120b": dict(arch="gpt-oss", layers=36, embd=2880, ff=2880, heads=64, kv_heads=8, head_dim=64, vocab=201088,
                         tied=False, rope_theta=1.5e5, ctx=131072, experts=128, experts_used=4, expert_ff=2880, swa=128,
                         rope_scaling={"type": "yarn", "factor": 32, "orig_ctx": 4096}),
    **{f"gemma3-{name}": dict(arch="gemma3", layers=layers, embd=embd, ff=4 * embd, heads=heads, kv_heads=heads // 2, head_dim=head_dim,
                              vocab=262144, tied=True, rope_theta=1e6, ctx=131072, swa=1024, post_norms=True,
                              rope_scaling={"type": "linear", "factor": 8})
       for name, layers, embd, heads, head_dim in (("4b", 34, 2560, 8, 256), ("12b", 48, 3840, 16, 256), ("27b", 62, 5376, 32, 128))},
    # what is said of heads is of full layers; windowed: (KV heads, numbers of a head, theta, a layer of so many is full)
    **{f"gemma4-{name}": dict(arch="gemma4", head_dim=512, vocab=262144, rope_theta=1e6, softcap=30.0, post_norms=True, **shape)
       for name, shape in {
           "26b-a4b": dict(layers=30, embd=2816, ff=2112, heads=16, kv_heads=2, windowed=(8, 256, 1e4, 6), swa=1024, ctx=262144,
                           k_is_v=True, experts=128, experts_used=8, expert_ff=704),
           "31b": dict(layers=60, embd=5376, ff=21504, heads=32, kv_heads=4, windowed=(16, 256, 1e4, 6), swa=1024, ctx=262144, k_is_v=True),
           "e4b": dict(layers=42, embd=2560, ff=10240, heads=8, kv_heads=2, windowed=(2, 256, 1e4, 6), swa=512, ctx=131072, shared_kv=18,
                       told=256)}.items()},
    # sparse: so many layers cut gates off
    **{f"gemma3n-{name}": dict(arch="gemma3n", layers=layers, embd=2048, ff=ff, heads=8, kv_heads=2, head_dim=256, vocab=262144,
                               rope_theta=1e6, softcap=30.0, post_norms=True, windowed=(2, 256, 1e4, 5), swa=512, ctx=32768, shared_kv=shared,
                               told=256, streams=4, sparse=10)
       for name, layers, ff, shared in (("e2b", 30, 8192, 10), ("e4b", 35, 16384, 15))},
    "phi-4": dict(arch="phi3", layers=40, embd=5120, ff=17920, heads=40, kv_heads=10, head_dim=128, rope_dim=128, vocab=100352, tied=False,
                  rope_theta=250000.0, ctx=16384, fused=("qkv", "gate_up")),
    "mistral-small-24b": dict(arch="llama", layers=40, embd=5120, ff=32768, heads=32, kv_heads=8, head_dim=128, vocab=131072, tied=False,
                              rope_theta=1e8, ctx=32768),
    "glm4-9b": dict(arch="glm4", layers=40, embd=4096, ff=13696, heads=32, kv_heads=2, head_dim=128, rope_dim=64, vocab=151552, tied=False,
                    rope_theta=1e4, ctx=32768, biases=True, post_norms=True, fused=("gate_up",)),
    # delta: (heads, heads of keys, numbers of a head, taps, a layer of so many attends)
    "qwen3.5-9b": dict(arch="qwen35", layers=32, embd=4096, ff=12288, heads=16, kv_heads=4, head_dim=256, rope_dim=64, vocab=248320,
                       tied=False, rope_theta=1e7, ctx=262144, delta=(32, 16, 128, 4, 4)),
    "qwen3.5-27b": dict(arch="qwen35", layers=64, embd=5120, ff=17408, heads=24, kv_heads=4, head_dim=256, rope_dim=64, vocab=248320,
                        tied=False, rope_theta=1e7, ctx=262144, delta=(48, 16, 128, 4, 4)),
    "qwen3.5-35b-a3b": dict(arch="qwen35moe", layers=40, embd=2048, ff=512, heads=16, kv_heads=2, head_dim=256, rope_dim=64,
                            vocab=248320, tied=False, rope_theta=1e7, ctx=262144, delta=(32, 16, 128, 4, 4), experts=256,
                            experts_used=8, expert_ff=512, shared_ff=512),
    # conv: (taps, the layers that attend)
    "lfm2-1.2b": dict(arch="lfm2", layers=16, embd=2048, ff=8192, heads=32, kv_heads=8, head_dim=64, vocab=65536, rope_theta=1e6,
                      ctx=128000, conv=(3, (2, 5, 8, 10, 12, 14))),
    # latent: (numbers that queries come from, of the latent, of a head's key, of what is rotated of it, of its value)
    "glm-4.7-flash": dict(arch="deepseek2", layers=47, embd=2048, ff=10240, heads=20, kv_heads=1, rope_dim=64, vocab=154880, tied=False,
                          rope_theta=1e6, ctx=202752, latent=(768, 512, 192, 64, 256), dense=1, experts=64, experts_used=4, expert_ff=1536,
                          shared_ff=1536, gating=2),
    "deepseek-v2-lite": dict(arch="deepseek2", layers=27, embd=2048, ff=10944, heads=16, kv_heads=1, rope_dim=64, vocab=102400, tied=False,
                             rope_theta=1e4, ctx=163840, latent=(0, 512, 128, 64, 128), dense=1, experts=64, experts_used=6,
                             expert_ff=1408, shared_ff=2816, gating=1),
    # ssm: (numbers of all heads, heads, groups, numbers of a state, taps, the layers that attend; None: all, beside)
    "mamba-codestral-7b": dict(arch="mamba2", layers=64, embd=4096, ff=0, heads=0, vocab=32768, tied=False, ctx=262144,
                               ssm=(8192, 128, 8, 128, 4, ())),
    "falcon-h1-7b": dict(arch="falcon-h1", layers=44, embd=3072, ff=12288, heads=12, kv_heads=2, head_dim=128, rope_dim=128, vocab=130048,
                         tied=False, rope_theta=1e11, ctx=262144, ssm=(3072, 24, 1, 256, 4, None)),
    **{f"granite-4.0-h-{name}": dict(arch="granitehybrid", layers=40, vocab=100352, tied=True, ctx=131072, scales=True, **shape)
       for name, shape in {
           "micro": dict(embd=2048, ff=8192, heads=32, kv_heads=8, head_dim=64, ssm=(4096, 64, 1, 128, 4, (5, 15, 25, 35))),
           "tiny": dict(embd=1536, ff=512, heads=12, kv_heads=4, head_dim=128, experts=64, experts_used=6, expert_ff=512, shared_ff=1024,
                        ssm=(3072, 48, 1, 128, 4, (5, 15, 25, 35))),
           "small": dict(embd=4096, ff=768, heads=32, kv_heads=8, head_dim=128, experts=72, experts_used=10, expert_ff=768, shared_ff=1536,
                         ssm=(8192, 128, 1, 128, 4, (5, 15, 25, 35)))}.items()},
}
