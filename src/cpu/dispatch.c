// Which kernels this machine can run.
#include "cpu/grids.h"
#include "cpu/kernels.h"

extern const struct cpu_kernels cpu_kernels_plain;
#ifdef HOKKU_CPU_X86
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avx512;

// F16C is not asked for by name, because clang 14 does not know it: every processor with AVX2 has
// it.
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

const struct cpu_kernels *cpu_kernels_get(enum cpu_isa isa)
{
    cpu_grids_expand();
#ifdef HOKKU_CPU_X86
    if ((isa == CPU_ISA_AUTO || isa == CPU_ISA_AVX512) && has_avx512())
        return &cpu_kernels_avx512;
    if ((isa == CPU_ISA_AUTO || isa == CPU_ISA_AVX2) && has_avx2())
        return &cpu_kernels_avx2;
#endif
    return isa == CPU_ISA_AUTO || isa == CPU_ISA_PLAIN ? &cpu_kernels_plain : NULL;
}
