// How a weight matrix lies in device memory.
//
// The file stores blocks of 18, 22, 34, 144 or 210 bytes in which quants and scales alternate: no
// thread could load 16 aligned bytes of them. repack.cu splits every matrix, once, at load, into up
// to four planes:
//
//   Q  the low bits of the quants      (all types)
//   H  their high bits                 (Q3_K, Q5_0, Q5_1, Q5_K: 1 bit; Q6_K: 2 bits)
//   S  scales of sub-blocks            (K-quants, IQ4_XS), 6-bit ones widened to a byte each
//   D  the float16 scales of a block   (all but F32, F16, BF16; MXFP4: exponents, NVFP4: E4M3)
//
// Types that choose their weights from a grid, and those below 2 bits, are widened to codes of 2, 3
// or 4 bits of which each stands for a weight: see `planes` in gguf/blocks.h, and levels in
// quant.cuh.
//
// A row is cut into chunks: 32 weights of a quantised type, 16 bytes of a plain one. Eight rows
// form a tile, and the tile's chunks are stored column by column: chunk c of row r of tile t is
// unit (t * n_chunk + c) * 8 + r of each plane. So the 32 lanes of a warp (8 rows x 4 chunks)
// always load consecutive units, whatever the row length. The last tile is filled up with zeros.
//
// Inside a chunk (element e of 32, i = e / 4 names the four elements that one dp4a takes, b = e %
// 4):
//
//   Q, 4 bits  16 bytes  byte e % 16, low nibble for e < 16, high nibble above
//   Q, 2 bits   8 bytes  byte e % 8, bits 2 (e / 8) and up
//   Q, 8 bits  32 bytes  e < 16 in the first half, the rest in the second. The halves of eight rows
//                        lie together: 128 bytes of first halves, then 128 of second ones
//   H, 1 bit    4 bytes  bit 8 b + i
//   H, 2 bits   8 bytes  word i / 4, bits 8 b + 2 (i % 4) and up
//   S, 2 bytes           Q4_K, Q5_K: scale, minimum. Q2_K: bytes of (minimum << 4 | scale) for each
//                        half. Q3_K, Q6_K: a signed scale for each half; IQ1, IQ2: 2 scale + 1
//   S, 1 byte            IQ4_XS: the signed scale. IQ3: 2 scale + 1
//   D                    d, or d and the minimum's scale; per chunk, or per 8 chunks of a type with
//                        sub-blocks (there the unit is (t * n_chunk / 8 + c / 8) * 8 + r)
//
// Bytes moved / bytes in the file: at most 1.036 (Q3_K) but for the widened types, which have up to
// 4.5 bits per weight: see cuda_layout_bytes.
#ifndef HOKKU_CUDA_LAYOUT_H
#define HOKKU_CUDA_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/quant.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TILE_ROWS = 8,
    CUDA_ALIGN = 256, // of every plane and every buffer
};

struct quant_planes {
    uint32_t chunk_elems; // weights per chunk
    uint32_t q, h, s;     // bytes per chunk in planes Q, H, S
    uint32_t d;           // bytes per group of d_chunks chunks in plane D
    uint32_t d_chunks;    // 0: no plane D
};

// A matrix in device memory: y = W x. Passed by value to kernels.
struct wmat {
    const uint8_t *q, *h, *s, *d; // planes; NULL where the type has none
    uint32_t type;                // of the planes, see gguf/blocks.h: not always the file's
    uint32_t rows, n_cols;
    uint32_t n_chunk; // per row
    uint32_t n_tile;  // of TILE_ROWS rows
    // A power of two: times this the weights fill the range of float16, where they become that. 1
    // until cuda_measure_ranges has looked.
    float half_scale;
    float scale;         // its products are times this
    const float *scales; // (matrices) of stacked ones, each its own, in place of scale; NULL: none
};

// NULL for a type that has no layout.
const struct quant_planes *cuda_quant_planes(uint32_t type);

// Fills *w with planes that begin at base (device address, CUDA_ALIGN aligned; NULL to measure
// only) and returns the bytes they take; 0 for a shape or type that cannot be laid out.
uint64_t cuda_layout(uint32_t type, uint64_t rows, uint64_t n_cols, uint8_t *base, struct wmat *w);

// The same of n_stacked matrices of that shape, one behind the other, each from a tile of its own
// on (0: of a single one); *w has the rows and tiles of one.
uint64_t cuda_layout_stack(uint32_t type, uint64_t n_stacked, uint64_t rows, uint64_t n_cols,
                           uint8_t *base, struct wmat *w);

// Bytes that a product with this matrix reads: the planes without their alignment.
uint64_t cuda_layout_bytes(uint32_t type, uint64_t rows, uint64_t n_cols);

#ifdef __cplusplus
}
#endif
#endif
