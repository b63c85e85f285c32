// Large zeroed memory, and how much there is.
#ifndef HOKKU_BASE_MEMORY_H
#define HOKKU_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Bytes that this process can still take without swapping: the system's estimate, or less where a
// control group that it is in, or one around it, or a limit of its own (ulimit -v, -d), leaves less
// beside n_threads that are still to begin; UINT64_MAX when unknown. What is mapped of files counts
// as available.
uint64_t memory_available(int n_threads);
uint64_t memory_total(void);

// Zeroed, page-aligned, in huge pages where the system has them; NULL when refused.
void *memory_map(size_t n_bytes);
void memory_unmap(void *p, size_t n_bytes); // NULL is fine

#ifdef __cplusplus
}
#endif
#endif
