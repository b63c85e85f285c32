#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenizer.h"

#include <assert.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/format.h"
#include "text/scan.h"

// White_Space of the Unicode character database, for use inside a class. PCRE2's own \s is wider
// (U+180E).
#define WS                                                                                         \
    "\\x09-\\x0D\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"        \
    "\\x{205F}\\x{3000}"

// English contractions. The models' patterns say (?i:...), which would also take U+017F for an s;
// the implementation that produced the reference vectors takes ASCII letters only, and so do we.
#define CONTRACTIONS "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"

// The patterns that most vocabularies share.
#define GPT2                                                                                       \
    "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "])"
#define LLAMA3_DIGITS(digits)                                                                      \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS                               \
                 "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
// Words in camel case fall apart. (The widely used implementation only tells a-z from A-Z here.)
#define CASED(upper, lower, suffix)                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower  \
    "*" suffix
#define REST(ends)                                                                                 \
    "| ?[^" WS "\\p{L}\\p{N}]+[" ends "]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"
#define TEKKEN CASED(UPPER, LOWER, "") "|\\p{N}" REST("\\r\\n/")
#define GPT4O  CASED(UPPER, LOWER, "(?:" CONTRACTIONS ")?") "|\\p{N}{1,3}" REST("\\r\\n/")
// Hangul, East Asian punctuation, bopomofo, and Chinese characters with kana, each by itself; then
// the rest is that of gpt-4o with single digits.
#define YOUTU_ASIAN                                                                                \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}"     \
    "\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|"       \
    "[\\x{3105}-\\x{312F}]+|[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}]+"
#define YOUTU CASED(UPPER, LOWER, "(?:" CONTRACTIONS ")?") "|\\p{N}" REST("\\r\\n/")
// Chinese characters by themselves. (PCRE2 has no intersection of classes.)
#define NO_HAN(letters) "(?:(?!\\p{sc:Han})" letters ")"
#define KIMI                                                                                       \
    "\\p{sc:Han}+|" CASED(NO_HAN(UPPER), NO_HAN(LOWER),                                            \
                          "(?:" CONTRACTIONS ")?") "|\\p{N}{1,3}" REST("\\r\\n")
#define QWEN35                                                                                     \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS                           \
                 "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS    \
                 "]+"
// Digits in threes from the right, where no letter follows: \\d{1,3}(?=(?:\\d{3})*\\b) in its file,
// which would take the square of a number's length. So: such numbers by themselves, then what
// precedes their threes; GPT4O does the rest.
#define WHOLE_NUMBER                                                                               \
    "(?<!\\p{Nd})\\p{Nd}++(?![\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xB2\\xB3\\xB9\\xBC-\\xBE])"
#define BEFORE_THREES "\\A\\p{Nd}{1,2}(?=(?:\\p{Nd}{3})++\\z)"
#define SEED_CODER                                                                                 \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|[" WS       \
                 "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"
#define BLOOM " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"

// DeepSeek. The first class is the cased letters of an older Unicode. Its file allows U+3000 among
// the punctuation and other spaces in the third class; the implementation that produced the
// reference vectors never takes a white-space character for either, and so do we.
#define DEEPSEEK_LETTERS                                                                           \
    "[" WS "]?[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"       \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}" \
    "\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}"         \
    "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}"  \
    "\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}"                 \
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}"                 \
    "\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}"         \
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"        \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}"                 \
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}"         \
    "\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}"                   \
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}"         \
    "\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}"                  \
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}"                 \
    "\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}"                 \
    "\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}"           \
    "\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+"
#define DEEPSEEK_PUNCT                                                                             \
    "[" WS "]?[!-/"                                                                                \
    ":-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3001}\\x{3002}]+"
// U+0800 to U+9FA5 and U+AC00 to U+D7FF.
#define DEEPSEEK_CJK                                                                               \
    "[\\x{800}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}"                 \
    "\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{9FA5}\\x{AC00}-\\x{D7FF}]+"
// White space at the very end, written so that a long run elsewhere is looked at only once.
#define SPACE_AT_END "(?<![" WS "])[" WS "]++\\z"
#define DEEPSEEK_V3                                                                                \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"      \
    "[\\r\\n]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"

// K-EXAONE. Words with single spaces between them are one; written so that no letter is looked at
// twice.
#define EXAONE_MOE                                                                                 \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}\\p{M}*+(?: ?\\p{L}\\p{M}*+)*+|\\p{N}| ?[^" WS      \
                 "\\p{L}\\p{N}]+[\\r\\n/]?|[" WS "]*[\\r\\n]|[" WS "]+(?![^" WS "])|[" WS "]+"
// Arcee Trinity. Digits in threes from the right; then Chinese characters with kana, Thai, Lao,
// Khmer, Burmese and Hangul, each by itself; then as DeepSeek V3.
#define AFMOE_SCRIPTS                                                                              \
    "[\\x{4E00}-\\x{9FFF}\\x{3040}-\\x{30FF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}"                \
    "\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}]+|[\\x{E00}-\\x{E7F}]+|[\\x{E80}-\\x{EFF}]+|"          \
    "[\\x{1780}-\\x{17FF}]+|[\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}]+|"         \
    "[\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+"

// Jais 2. As Llama 3, but white space comes in powers of two. That before a new line is looked for
// where a run of it begins, or behind a new line: elsewhere in a run there is none.
#define SPACES(n) "|[" WS "]{" n "}(?![^" WS "])"
#define JAIS2                                                                                      \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" WS                              \
                 "\\p{L}\\p{N}]+[\\r\\n]*|(?:(?<![" WS "])|(?<=[\\r\\n]))[" WS                     \
                 "]*[\\r\\n]+" SPACES("512") SPACES("256") SPACES("128") SPACES("64") SPACES("32") \
                     SPACES("16") SPACES("8") SPACES("4") SPACES("1,2") "|[" WS "]"

#define MAX_PATTERNS 6

// Patterns apply one after the other: each cuts every piece of the one before into its matches and
// what lies between them.
struct recipe {
    bool ignore_merges, add_bos;
    const char *patterns[MAX_PATTERNS];
    scan_fn *scan[MAX_PATTERNS]; // the same for ASCII text, faster; NULL: none
};

static const struct recipe recipe_default = {
    .patterns = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"},
    .scan = {[1] = scan_gpt2},
};
static const struct recipe recipe_gpt2 = {.patterns = {GPT2}, .scan = {scan_gpt2}};
static const struct recipe recipe_starcoder = {
    .patterns = {"\\p{N}", GPT2},
    .scan = {[1] = scan_gpt2},
};
static const struct recipe recipe_falcon = {
    .patterns = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"},
    .scan = {[1] = scan_gpt2},
};
static const struct recipe recipe_llama3 = {
    .ignore_merges = true,
    .add_bos = true,
    .patterns = {LLAMA3_DIGITS("\\p{N}{1,3}")},
    .scan = {scan_llama3},
};
static const struct recipe recipe_dbrx = {
    .patterns = {LLAMA3_DIGITS("\\p{N}{1,3}")},
    .scan = {scan_llama3},
};
static const struct recipe recipe_qwen2 = {
    .patterns = {LLAMA3_DIGITS("\\p{N}")},
    .scan = {scan_qwen2},
};
static const struct recipe recipe_tekken = {
    .ignore_merges = true,
    .add_bos = true,
    .patterns = {TEKKEN},
};
static const struct recipe recipe_qwen35 = {.patterns = {QWEN35}};
static const struct recipe recipe_kimi_k2 = {.patterns = {KIMI}};
static const struct recipe recipe_youtu = {
    .ignore_merges = true,
    .patterns = {YOUTU_ASIAN, YOUTU},
};
static const struct recipe recipe_tiny_aya = {.patterns = {WHOLE_NUMBER, BEFORE_THREES, GPT4O}};
static const struct recipe recipe_minicpm5 = {
    .ignore_merges = true,
    .patterns = {"\\p{N}{1,3}", GPT2},
    .scan = {[1] = scan_gpt2},
};
static const struct recipe recipe_gpt4o = {.patterns = {GPT4O}};
static const struct recipe recipe_seed_coder = {.patterns = {SEED_CODER}};
static const struct recipe recipe_bloom = {.patterns = {BLOOM}};
static const struct recipe recipe_viking = {.patterns = {BLOOM, "\\p{N}"}};
static const struct recipe recipe_deepseek_llm = {
    .patterns = {"[\\r\\n]", DEEPSEEK_LETTERS, DEEPSEEK_PUNCT, SPACE_AT_END, DEEPSEEK_CJK,
                 "\\p{N}+"},
};
static const struct recipe recipe_deepseek_coder = {
    .patterns = {"[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"},
};
static const struct recipe recipe_deepseek_v3 = {
    .patterns = {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}]+", DEEPSEEK_V3},
};

static const struct recipe recipe_exaone_moe = {.patterns = {EXAONE_MOE}};
static const struct recipe recipe_afmoe = {
    .patterns = {"\\p{Nd}+", BEFORE_THREES, "\\p{Nd}{3}", AFMOE_SCRIPTS, DEEPSEEK_V3},
};
static const struct recipe recipe_jais2 = {.patterns = {JAIS2}};

// tokenizer.ggml.pre -> recipe. One row each.
static const struct row {
    const char *name;
    const struct recipe *recipe;
} rows[] = {
    {"default", &recipe_default},
    {"llama-bpe", &recipe_llama3},
    {"llama3", &recipe_llama3},
    {"llama-v3", &recipe_llama3},
    {"smaug-bpe", &recipe_dbrx},
    {"dbrx", &recipe_dbrx},
    {"glm4", &recipe_dbrx},
    {"chatglm-bpe", &recipe_dbrx},
    {"falcon3", &recipe_llama3},
    {"pixtral", &recipe_llama3},
    {"midm-2.0", &recipe_llama3},
    {"falcon-h1", &recipe_llama3},
    {"lfm2", &recipe_llama3},
    {"qwen2", &recipe_qwen2},
    {"deepseek-r1-qwen", &recipe_qwen2},
    {"megrez", &recipe_qwen2},
    {"kormo", &recipe_qwen2},
    {"stablelm2", &recipe_qwen2},
    {"hunyuan", &recipe_qwen2},
    {"solar-open", &recipe_qwen2},
    {"grok-2", &recipe_qwen2},
    {"bailingmoe", &recipe_qwen2},
    {"bailingmoe2", &recipe_qwen2},
    {"llada-moe", &recipe_qwen2},
    {"qwen35", &recipe_qwen35},
    {"tekken", &recipe_tekken},
    {"smollm", &recipe_starcoder},
    {"starcoder", &recipe_starcoder},
    {"refact", &recipe_starcoder},
    {"codeshell", &recipe_starcoder},
    {"command-r", &recipe_starcoder},
    {"minerva-7b", &recipe_starcoder},
    {"exaone", &recipe_starcoder},
    {"mellum2", &recipe_starcoder},
    {"gpt-2", &recipe_gpt2},
    {"phi-2", &recipe_gpt2},
    {"mpt", &recipe_gpt2},
    {"olmo", &recipe_gpt2},
    {"gigachat", &recipe_gpt2},
    {"mellum", &recipe_gpt2},
    {"a.x-4.0", &recipe_gpt2},
    {"trillion", &recipe_gpt2},
    {"exaone4", &recipe_gpt2},
    {"jais", &recipe_gpt2},
    {"granite-docling", &recipe_gpt2},
    {"falcon", &recipe_falcon},
    {"deepseek-llm", &recipe_deepseek_llm},
    {"deepseek-coder", &recipe_deepseek_coder},
    {"deepseek-v3", &recipe_deepseek_v3},
    {"hunyuan-dense", &recipe_deepseek_v3},
    {"joyai-llm", &recipe_deepseek_v3},
    {"gpt-4o", &recipe_gpt4o},
    {"llama4", &recipe_gpt4o},
    {"kanana2", &recipe_gpt4o},
    {"minimax-m2", &recipe_gpt4o},
    {"kimi-k2", &recipe_kimi_k2},
    {"youtu", &recipe_youtu},
    {"tiny_aya", &recipe_tiny_aya},
    {"cohere2moe", &recipe_tiny_aya},
    {"minicpm5", &recipe_minicpm5},
    {"seed-coder", &recipe_seed_coder},
    {"poro-chat", &recipe_bloom},
    {"bloom", &recipe_bloom},
    {"gpt3-finnish", &recipe_bloom},
    {"viking", &recipe_viking},
    {"exaone-moe", &recipe_exaone_moe},
    {"afmoe", &recipe_afmoe},
    {"jais-2", &recipe_jais2},
};

const char *pretokenizer_row_name(size_t i)
{
    return i < sizeof rows / sizeof *rows ? rows[i].name : NULL;
}

struct pretokenizer {
    const struct row *row;
    pcre2_code *codes[MAX_PATTERNS];
    bool jit[MAX_PATTERNS];
    size_t n_patterns;
    bool shortcuts;
};

static const struct row *find_row(const char *name, size_t len, struct error *err)
{
    struct buf list = {0};
    char shown[FORMAT_TEXT];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strlen(rows[i].name) == len && !memcmp(rows[i].name, name, len)) {
            buf_release(&list);
            return &rows[i];
        }
        buf_printf(&list, "%s%s", i ? ", " : "", rows[i].name);
    }
    error_set(err, ERR_MODEL,
              "tokenizer.ggml.pre is \"%s\", a pre-tokenizer that hokku does not know; expected "
              "one of %s",
              format_text(shown, sizeof shown, name, len), buf_str(&list));
    buf_release(&list);
    return NULL;
}

bool pretokenizer_knows(const char *name, size_t len, struct error *err)
{
    return find_row(name, len, err) != NULL;
}

struct pretokenizer *pretokenizer_create(const char *name, size_t len, struct error *err)
{
    const struct row *row = find_row(name, len, err);
    if (!row)
        return NULL;
    struct pretokenizer *p = calloc(1, sizeof *p);
    if (!p) {
        error_oom(err, "the pre-tokenizer", sizeof *p);
        return NULL;
    }
    p->row = row;
    p->shortcuts = true;
    for (size_t i = 0; i < MAX_PATTERNS && row->recipe->patterns[i]; i++) {
        int code = 0;
        PCRE2_SIZE at = 0;
        p->codes[i] = pcre2_compile((PCRE2_SPTR)row->recipe->patterns[i], PCRE2_ZERO_TERMINATED,
                                    PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
        if (!p->codes[i]) {
            PCRE2_UCHAR why[128];
            pcre2_get_error_message(code, why, sizeof why);
            if (code == PCRE2_ERROR_HEAP_FAILED)
                error_oom(err, "a pattern of the pre-tokenizer", sizeof *p);
            else
                error_set(err, ERR_FAIL, "pattern %zu of pre-tokenizer %s: %s at byte %zu", i + 1,
                          row->name, (char *)why, at);
            pretokenizer_free(p);
            return NULL;
        }
        // Where the system forbids making code at run time, the interpreter does the same, slower.
        p->jit[i] = pcre2_jit_compile(p->codes[i], PCRE2_JIT_COMPLETE) == 0;
        p->n_patterns++;
    }
    return p;
}

void pretokenizer_free(struct pretokenizer *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_patterns; i++)
        pcre2_code_free(p->codes[i]);
    free(p);
}

const char *pretokenizer_name(const struct pretokenizer *p)
{
    return p->row->name;
}

bool pretokenizer_ignore_merges(const struct pretokenizer *p)
{
    return p->row->recipe->ignore_merges;
}

bool pretokenizer_add_bos(const struct pretokenizer *p)
{
    return p->row->recipe->add_bos;
}

void pretokenizer_set_shortcuts(struct pretokenizer *p, bool on)
{
    p->shortcuts = on;
}

struct split {
    const struct pretokenizer *p;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; // NULL until a text needs more than PCRE2's own
    pretokenizer_word *word;
    void *ctx;
    struct error *err;
};

// The next match in s[pos..n): 1 found, 0 none, -1 error set.
static int next_match(struct split *sp, size_t level, const char *s, size_t n, size_t pos)
{
    const struct pretokenizer *p = sp->p;
    int rc;
    if (p->jit[level]) {
        rc = pcre2_jit_match(p->codes[level], (PCRE2_SPTR)s, n, pos, 0, sp->match, sp->context);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !sp->stack) {
            sp->stack = pcre2_jit_stack_create(64 << 10, 256 << 20, NULL);
            pcre2_jit_stack_assign(sp->context, NULL, sp->stack);
            rc = pcre2_jit_match(p->codes[level], (PCRE2_SPTR)s, n, pos, 0, sp->match, sp->context);
        }
    } else {
        rc = pcre2_match(p->codes[level], (PCRE2_SPTR)s, n, pos, PCRE2_NO_UTF_CHECK, sp->match,
                         sp->context);
    }
    if (rc > 0)
        return 1;
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc == PCRE2_ERROR_NOMEMORY) {
        error_oom(sp->err, "splitting the text into words", n);
        return -1;
    }
    PCRE2_UCHAR why[128];
    pcre2_get_error_message(rc, why, sizeof why);
    error_set(sp->err, ERR_FAIL,
              "pattern %zu of pre-tokenizer %s cannot split a text of %zu bytes: %s", level + 1,
              p->row->name, n, (char *)why);
    return -1;
}

static bool split_level(struct split *sp, size_t level, const char *s, size_t n)
{
    if (level == sp->p->n_patterns)
        return sp->word(sp->ctx, s, n, sp->err);
    scan_fn *scan = sp->p->shortcuts ? sp->p->row->recipe->scan[level] : NULL;
    for (size_t pos = 0; pos < n;) {
        size_t k = scan ? scan(s + pos, n - pos) : 0;
        if (k) {
            if (!split_level(sp, level + 1, s + pos, k))
                return false;
            pos += k;
            continue;
        }
        int found = next_match(sp, level, s, n, pos);
        if (found < 0)
            return false;
        size_t begin = n, end = n;
        if (found) {
            const PCRE2_SIZE *at = pcre2_get_ovector_pointer(sp->match);
            begin = at[0];
            end = at[1];
            assert(begin >= pos && end > begin && end <= n); // no pattern matches the empty text
        }
        if (begin > pos && !split_level(sp, level + 1, s + pos, begin - pos))
            return false;
        if (end > begin && !split_level(sp, level + 1, s + begin, end - begin))
            return false;
        pos = end;
    }
    return true;
}

bool pretokenizer_split(const struct pretokenizer *p, const char *text, size_t n,
                        pretokenizer_word *word, void *ctx, struct error *err)
{
    struct split sp = {.p = p, .word = word, .ctx = ctx, .err = err};
    sp.match = pcre2_match_data_create(1, NULL);
    sp.context = pcre2_match_context_create(NULL);
    bool ok = sp.match && sp.context;
    if (!ok) {
        error_oom(err, "splitting the text into words", 256);
    } else {
        // Time is linear by the patterns' form, not by this limit, which long texts would meet.
        pcre2_set_match_limit(sp.context, UINT32_MAX);
        ok = split_level(&sp, 0, text, n);
    }
    pcre2_jit_stack_free(sp.stack);
    pcre2_match_context_free(sp.context);
    pcre2_match_data_free(sp.match);
    return ok;
}
