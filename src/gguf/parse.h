// Private to gguf/: reading the header of one file.
#ifndef HOKKU_GGUF_PARSE_H
#define HOKKU_GGUF_PARSE_H

#include "gguf/gguf.h"

struct gguf_part {
    char *path;      // owned
    const void *map; // the whole file
    size_t size;
    uint32_t version, alignment;
    struct gguf_kv *kv; // owned
    size_t n_kv;
    size_t header_bytes;  // end of the tensor table
    uint64_t data_offset; // header_bytes rounded up to the alignment
};

enum gguf_types { GGUF_TYPES_SUPPORTED, GGUF_TYPES_ANY };

// Parses part->map and fills the rest of *part; appends its tensors (owned array *tensors of
// *n_tensors, grown as needed), marked with file. What was allocated stays reachable on failure.
bool gguf_parse_part(struct gguf_part *part, uint32_t file, enum gguf_types types,
                     struct gguf_tensor **tensors, size_t *n_tensors, size_t *cap_tensors,
                     struct error *err);

// The value of kv as an unsigned integer of at most max; ERR_MODEL when it is of another kind or
// out of range. As a text; ERR_MODEL when it is none.
bool gguf_kv_uint(const struct gguf_kv *kv, uint64_t max, uint64_t *out, struct error *err);
bool gguf_kv_str(const struct gguf_kv *kv, struct gguf_str *out, struct error *err);

#endif
