#include "term/fence.h"

bool fence_line(const struct fence *f)
{
    if (f->at == FENCE_INDENT || f->at == FENCE_NO)
        return false;
    return f->n == 0 ? f->line_n >= 3 : f->line_mark == f->mark && f->line_n >= f->n;
}

static void end_line(struct fence *f)
{
    if (fence_line(f)) {
        f->mark = f->line_mark;
        f->n = f->n == 0 ? f->line_n : 0;
    }
    f->at = FENCE_INDENT;
    f->line_n = 0;
}

void fence_push(struct fence *f, char c)
{
    bool space = c == ' ' || c == '\t' || c == '\r';
    if (c == '\n') {
        end_line(f);
    } else if (f->at == FENCE_INDENT && (c == '`' || c == '~')) {
        f->at = FENCE_MARKS;
        f->line_mark = c;
        f->line_n = 1;
    } else if (f->at == FENCE_INDENT) {
        f->at = space ? FENCE_INDENT : FENCE_NO;
    } else if (f->at == FENCE_MARKS && c == f->line_mark) {
        f->line_n++;
    } else if (f->at != FENCE_NO) {
        // After the marks: the language of a block that opens, nothing where one closes. A line
        // with more backticks has a span of code.
        bool may = f->n > 0 ? space : f->line_mark != '`' || c != '`';
        f->at = may ? FENCE_REST : FENCE_NO;
    }
}
