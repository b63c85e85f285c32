// The table of this instruction set's kernels.
#include "cpu/kernels_isa.h"

const struct cpu_kernels CPU_NAME(cpu_kernels) = {
#if defined(KERNELS_AVX512)
    .name = "AVX-512 VNNI",
#elif defined(KERNELS_AVX2)
    .name = "AVX2",
#else
    .name = "plain C",
#endif
    .matmul = CPU_NAME(matmul),
    .quantize = CPU_NAME(quantize),
    .pack = CPU_NAME(pack),
    .rms_norm = CPU_NAME(rms_norm),
    .layer_norm = CPU_NAME(layer_norm),
    .activate = CPU_NAME(activate),
    .softcap = CPU_NAME(softcap),
    .remember = CPU_NAME(remember),
    .rope = CPU_NAME(rope),
    .kv_store = CPU_NAME(kv_store),
    .attend = CPU_NAME(attend),
    .attn_merge = CPU_NAME(attn_merge),
    .read = CPU_NAME(read),
};
