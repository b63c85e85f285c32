// The texts of a vocabulary as a tree over bytes, in one array: a node is followed by what is below
// it, so that a walk reads memory in order and leaves out what it does not want.
#ifndef HOKKU_GRAMMAR_TRIE_H
#define HOKKU_GRAMMAR_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trie_text {
    const char *s; // borrowed
    uint32_t n;    // > 0, <= TRIE_MAX_DEPTH
    int32_t id;
    uint32_t tag; // of the caller's
};

enum { TRIE_MAX_DEPTH = 0xFFFF };

struct trie_node {
    uint32_t end;   // the first node that is not below this one
    uint32_t first; // entries[first..first of the next node) have this node's text
    uint16_t depth; // bytes of its text
    unsigned char byte;
};

struct trie_entry {
    int32_t id;
    uint32_t tag;
};

struct trie {
    struct trie_node *nodes; // (n_nodes + 1): the last one only ends the entries
    uint32_t n_nodes;
    struct trie_entry *entries; // in the order of the texts
    uint32_t n_entries, max_depth;
};

// Sorts texts[0..n). False: out of memory.
bool trie_init(struct trie *t, struct trie_text *texts, size_t n);
void trie_release(struct trie *t); // zeroed is fine

#endif
