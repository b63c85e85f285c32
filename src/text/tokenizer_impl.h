// What a tokenizer is made of; private to text/.
#ifndef HOKKU_TEXT_TOKENIZER_IMPL_H
#define HOKKU_TEXT_TOKENIZER_IMPL_H

#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/special.h"
#include "text/spm.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

#define SPM_SPACE "\xE2\x96\x81" // U+2581

struct tokenizer {
    struct vocab vocab;
    struct special special;
    bool is_spm, has_merges;  // SentencePiece, with merges in the place of scores (Gemma 4)
    struct bpe bpe;           // is_spm: of it only the merges; without any, zeroed
    struct pretokenizer *pre; // is_spm: NULL
    struct spm spm;           // !is_spm: zeroed
    int32_t bos, eos, unk;    // -1: none
    bool add_bos, add_eos;
    bool add_space_prefix; // SentencePiece: a text begins with a space
    unsigned char *is_end; // (vocab.n)
    unsigned char
        *is_mark;          // (vocab.n) control tokens that decoding shows: the structure of answers
    struct ids ends;       // those of is_end as a list, ascending
    struct ids suppressed; // ascending
};

#endif
