// Shadows the toolkit's <cuda_runtime.h>: the part of CUDA that cuda/ uses, on the host.
// A test tool: never installed, never timed. See README.md.
#ifndef HOKKU_EMU_CUDA_RUNTIME_H
#define HOKKU_EMU_CUDA_RUNTIME_H

#ifndef HOKKU_CUDA_ON_CPU
#error "tests/cuda_on_cpu is in the include path, but HOKKU_CUDA_ON_CPU is not defined"
#endif

#include "emu_types.h"
#include "emu_host.h"
#include "emu_device.h"

#endif
