// Splits a template into tokens with Jinja2's white space rules (trim_blocks, lstrip_blocks).
#ifndef HOKKU_JINJA_LEXER_H
#define HOKKU_JINJA_LEXER_H

#include "base/error.h"
#include "jinja/ast.h"

enum token_type {
    T_EOF,
    T_DATA,
    T_PRINT_BEGIN, // {{
    T_PRINT_END,
    T_BLOCK_BEGIN, // {%
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_ADD,
    T_SUB,
    T_MUL,
    T_DIV,
    T_FLOORDIV,
    T_MOD,
    T_POW,
    T_TILDE,
    T_EQ,
    T_NE,
    T_LT,
    T_LE,
    T_GT,
    T_GE,
    T_ASSIGN,
    T_DOT,
    T_COLON,
    T_PIPE,
    T_COMMA,
    T_SEMICOLON,
    T_LPAREN,
    T_RPAREN,
    T_LBRACKET,
    T_RBRACKET,
    T_LBRACE,
    T_RBRACE,
};

struct token {
    enum token_type type;
    uint32_t pos;     // byte offset in the source
    struct str *text; // T_DATA, T_NAME, T_STRING (unescaped)
    int64_t i;
    double f;
};

struct tokens {
    struct token *v; // the last one is T_EOF
    size_t n, cap;
};

// src: valid UTF-8, newlines \n, shorter than 4 GiB. All memory from the arena. Errors: ERR_FAIL
// with line, column and the line quoted; ERR_MEMORY.
bool lexer_run(struct arena *arena, const char *src, size_t n, struct tokens *out,
               struct error *err);

const char *token_name(enum token_type t); // for messages

#endif
