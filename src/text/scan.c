#include "text/scan.h"

#include <stdbool.h>

enum { OTHER, LETTER, DIGIT, SPACE, BEYOND };

static inline int kind(char ch)
{
    unsigned char c = (unsigned char)ch;
    if (c >= 0x80)
        return BEYOND;
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
        return LETTER;
    if (c >= '0' && c <= '9')
        return DIGIT;
    return c == ' ' || (c >= '\t' && c <= '\r') ? SPACE : OTHER;
}

// End of the run of characters of kind k that starts at i; 0 when it meets a character beyond
// ASCII, which may belong to it.
static inline size_t run(const char *s, size_t n, size_t i, int k)
{
    while (i < n && kind(s[i]) == k)
        i++;
    return i < n && kind(s[i]) == BEYOND ? 0 : i;
}

static inline bool newline(char c)
{
    return c == '\r' || c == '\n';
}

// Length of the contraction at s ("'s", "'re" ...), 0 when there is none.
static inline size_t contraction(const char *s, size_t n, char case_bit)
{
    if (n < 2 || s[0] != '\'')
        return 0;
    char a = (char)(s[1] | case_bit), b = n > 2 ? (char)(s[2] | case_bit) : '\0';
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

// '(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)
size_t scan_gpt2(const char *s, size_t n)
{
    size_t len = contraction(s, n, 0);
    if (len)
        return len;
    size_t start = s[0] == ' ' && n > 1 && kind(s[1]) != SPACE;
    int k = kind(s[start]);
    if (k == BEYOND)
        return 0;
    size_t end = run(s, n, start, k);
    if (k != SPACE || end == 0)
        return end;
    // White space before something else leaves its last character to it; alone, a character that is
    // no space matches nothing and stands for itself.
    return end == n || end == 1 ? end : end - 1;
}

// '(?i:[stmd]|re|ve|ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max}| ?[^\s\p{L}\p{N}]+[\r\n]*
// |\s*[\r\n]+|\s+(?!\S)|\s+
static inline size_t scan_groups(const char *s, size_t n, size_t max_digits)
{
    size_t len = contraction(s, n, 0x20);
    if (len)
        return len;
    int k = kind(s[0]);
    if (k == BEYOND)
        return 0;
    if (k == LETTER)
        return run(s, n, 0, LETTER);
    if (k == DIGIT) {
        size_t i = 1;
        while (i < max_digits && i < n && kind(s[i]) == DIGIT)
            i++;
        return i < max_digits && i < n && kind(s[i]) == BEYOND ? 0 : i;
    }
    int k1 = n > 1 ? kind(s[1]) : SPACE;
    if (!newline(s[0]) && k1 == LETTER)
        return run(s, n, 1, LETTER);
    if (k == OTHER || (s[0] == ' ' && k1 == OTHER)) {
        size_t i = run(s, n, k != OTHER, OTHER);
        while (i && i < n && newline(s[i]))
            i++;
        return i;
    }
    size_t end = run(s, n, 0, SPACE);
    if (!end)
        return 0;
    for (size_t i = end; i > 0; i--)
        if (newline(s[i - 1]))
            return i;
    return end == n || end == 1 ? end : end - 1;
}

size_t scan_llama3(const char *s, size_t n)
{
    return scan_groups(s, n, 3);
}

size_t scan_qwen2(const char *s, size_t n)
{
    return scan_groups(s, n, 1);
}
