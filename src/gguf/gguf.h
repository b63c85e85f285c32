// An opened GGUF file (versions 2 and 3, little-endian), possibly split over several. The files are
// memory-mapped and borrowed: every pointer below points into the mapping and lives until
// gguf_free. Everything is checked at open: counts, lengths, offsets, dimensions, products,
// duplicate keys and names, overlaps, file sizes. What another process cuts off while the file is
// mapped reads as zeros (base/mapped.h).
#ifndef HOKKU_GGUF_GGUF_H
#define HOKKU_GGUF_GGUF_H

#include "base/error.h"
#include "gguf/quant.h"

#ifdef __cplusplus
extern "C" {
#endif

enum gguf_value_type {
    GGUF_UINT8 = 0,
    GGUF_INT8,
    GGUF_UINT16,
    GGUF_INT16,
    GGUF_UINT32,
    GGUF_INT32,
    GGUF_FLOAT32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_UINT64,
    GGUF_INT64,
    GGUF_FLOAT64,
};

struct gguf_str {
    const char *data; // not NUL-terminated, may hold any byte
    size_t len;
};

struct gguf_array {
    enum gguf_value_type type; // of the elements; GGUF_ARRAY when nested
    uint64_t count;
    const unsigned char *data; // the elements as stored (unaligned); n_bytes long, already checked
    size_t n_bytes;
};

struct gguf_kv {
    struct gguf_str key;
    enum gguf_value_type type;
    union {
        uint64_t u; // unsigned integers and bool
        int64_t i;  // signed integers
        double f;   // floats
        struct gguf_str s;
        struct gguf_array a;
    } v;
};

struct gguf_tensor {
    struct gguf_str name;
    uint32_t type;    // enum quant_type, always a supported one after gguf_open
    uint32_t n_dims;  // 1-4
    uint64_t ne[4];   // ne[0] = row length (contiguous); unused ones are 1
    const void *data; // n_bytes, within the mapping
    uint64_t n_bytes;
    uint32_t file;   // index into the split files
    uint64_t offset; // of data in that file
};

struct gguf; // opaque

// Opens path; for NAME-00001-of-0000N.gguf opens all N (any part may be named). Errors: ERR_MODEL
// (file, key or tensor, the value found, the value expected), ERR_MEMORY.
struct gguf *gguf_open(const char *path, struct error *err);
void gguf_free(struct gguf *g); // NULL is fine

// Opens a file to look at: like gguf_open, but weight types that hokku cannot compute with are let
// through. A type whose block size is not known either has n_bytes 0.
struct gguf *gguf_open_any_type(const char *path, struct error *err);

// Parses an image in memory (borrowed, must outlive the object): for tests and fuzzing.
struct gguf *gguf_open_memory(const void *data, size_t n_bytes, const char *label,
                              struct error *err);

uint32_t gguf_version(const struct gguf *g);
uint32_t gguf_alignment(const struct gguf *g);
size_t gguf_n_files(const struct gguf *g);
const char *gguf_file_path(const struct gguf *g, size_t i);
uint64_t gguf_file_bytes(const struct gguf *g, size_t i);
const void *gguf_file_map(const struct gguf *g, size_t i);
uint64_t gguf_header_bytes(const struct gguf *g, size_t i); // metadata and tensor table of file i
uint64_t gguf_data_offset(const struct gguf *g, size_t i);  // where the tensor data begins

size_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key); // NULL when absent

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g,
                                           const char *name); // NULL when absent

// Typed getters. `required`: absent is ERR_MODEL; otherwise absent leaves *out as it is and returns
// true. A value of another type, or outside the range of the result, is ERR_MODEL naming the key,
// the value and the expectation. Any integer type is accepted for u32 and i32, any float or integer
// type for f32.
bool gguf_get_u32(const struct gguf *g, const char *key, bool required, uint32_t *out,
                  struct error *err);
bool gguf_get_i32(const struct gguf *g, const char *key, bool required, int32_t *out,
                  struct error *err);
bool gguf_get_f32(const struct gguf *g, const char *key, bool required, float *out,
                  struct error *err);
bool gguf_get_bool(const struct gguf *g, const char *key, bool required, bool *out,
                   struct error *err);
bool gguf_get_str(const struct gguf *g, const char *key, bool required, struct gguf_str *out,
                  struct error *err);
// An array of the given element type, which must be there.
bool gguf_get_array(const struct gguf *g, const char *key, enum gguf_value_type elem,
                    struct gguf_array *out, struct error *err);

// Walks an array of strings: start with *cursor = 0; false at the end.
bool gguf_array_next_str(const struct gguf_array *a, size_t *cursor, struct gguf_str *out);
// Element i of an array of numbers or bools as a double / int64 (i < count).
double gguf_array_f64(const struct gguf_array *a, uint64_t i);
int64_t gguf_array_i64(const struct gguf_array *a, uint64_t i);

const char *gguf_value_type_name(uint32_t type);

#ifdef __cplusplus
}
#endif
#endif
