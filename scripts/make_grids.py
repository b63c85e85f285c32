#!/usr/bin/env python3
"""Writes src/gguf/grids.h: the grids that the IQ types choose their weights from.

    make_grids.py > src/gguf/grids.h

They are facts of the format, taken from the `gguf` Python package. tests/conformance/test_dequant.py compares.
"""
import gguf.quants
import numpy as np

HEAD = """\
// The grids that the IQ types choose their weights from: written by scripts/make_grids.py from the
// gguf Python package. An entry is a few weights, each as its place among the values that the grid
// is made of, the first in the lowest bits.
#ifndef HOKKU_GGUF_GRIDS_H
#define HOKKU_GGUF_GRIDS_H

#include <stdint.h>

#ifdef __CUDACC__
#define GRID static __device__ const uint16_t
#else
#define GRID static const uint16_t
#endif
"""

# name in C, class, bits of a weight's place
GRIDS = [("iq2_xxs", "IQ2_XXS", 2), ("iq2_xs", "IQ2_XS", 2), ("iq2_s", "IQ2_S", 2), ("iq3_xxs", "IQ3_XXS", 4),
         ("iq3_s", "IQ3_S", 4), ("iq1", "IQ1_S", 2)]


def places(cls):
    """(entries, weights): the place of every weight among the values."""
    cls.init_grid()
    grid = np.asarray(cls.grid).reshape(cls.grid_shape)
    return np.searchsorted(np.array(cls.grid_map, dtype=grid.dtype), grid), cls.grid_map


def main():
    print(HEAD)
    for name, cls, bits in GRIDS:
        at, values = places(getattr(gguf.quants, cls))
        entries, weights = at.shape
        packed = (at.astype(np.uint32) << (bits * np.arange(weights, dtype=np.uint32))).sum(axis=1)
        print(f"// {weights} weights of {bits} bits: {', '.join(str(v) for v in values)}")
        print(f"GRID grid_{name}[{entries}] = {{")
        for i in range(0, entries, 12):
            print("    " + " ".join(f"0x{v:04x}," for v in packed[i:i + 12]))
        print("};\n")
    print("#undef GRID\n\n#endif")


if __name__ == "__main__":
    main()
