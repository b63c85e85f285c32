// Arithmetic and comparison as Python does them, but with integers of 64 bits: what does not fit
// is an error, never a wrong number.
#include "jinja/runtime.h"

#include <math.h>

static const char *const op_text[] = {
    "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

static bool is_int(struct val v)
{
    return v.kind == V_INT || v.kind == V_BOOL;
}

static bool is_number(struct val v)
{
    return is_int(v) || v.kind == V_FLOAT;
}

static int64_t int_of(struct val v)
{
    return v.kind == V_BOOL ? v.b : v.i;
}

static double float_of(struct val v)
{
    return v.kind == V_FLOAT ? v.f : (double)int_of(v);
}

_Noreturn static void overflow(struct run *r, enum op op, int64_t a, int64_t b)
{
    run_fail(r, "integer overflow: %lld %s %lld exceeds 64 bits", (long long)a, op_text[op],
             (long long)b);
}

static int64_t int_pow(struct run *r, int64_t base, int64_t exponent)
{
    int64_t result = 1, square = base;
    for (int64_t e = exponent; e; e >>= 1) {
        if ((e & 1) && __builtin_mul_overflow(result, square, &result))
            overflow(r, OP_POW, base, exponent);
        if (e > 1 && __builtin_mul_overflow(square, square, &square))
            overflow(r, OP_POW, base, exponent);
    }
    return result;
}

static double float_mod(double a, double b)
{
    double m = fmod(a, b);
    if (m && (m < 0) != (b < 0))
        m += b;
    else if (!m)
        m = copysign(0.0, b);
    return m;
}

static double float_floordiv(double a, double b)
{
    double m = fmod(a, b), div = (a - m) / b;
    if (m && (m < 0) != (b < 0))
        div -= 1.0;
    if (!div)
        return copysign(0.0, a / b);
    double whole = floor(div);
    return div - whole > 0.5 ? whole + 1.0 : whole;
}

static struct val int_op(struct run *r, enum op op, int64_t a, int64_t b)
{
    int64_t v;
    switch (op) {
    case OP_ADD:
        if (__builtin_add_overflow(a, b, &v))
            overflow(r, op, a, b);
        return val_int(v);
    case OP_SUB:
        if (__builtin_sub_overflow(a, b, &v))
            overflow(r, op, a, b);
        return val_int(v);
    case OP_MUL:
        if (__builtin_mul_overflow(a, b, &v))
            overflow(r, op, a, b);
        return val_int(v);
    case OP_DIV: // long double holds every 64-bit integer
        if (!b)
            run_fail(r, "division by zero");
        return val_float((double)((long double)a / (long double)b));
    case OP_FLOORDIV:
        if (!b)
            run_fail(r, "integer division or modulo by zero");
        if (a == INT64_MIN && b == -1)
            overflow(r, op, a, b);
        return val_int(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));
    case OP_MOD:
        if (!b)
            run_fail(r, "integer modulo by zero");
        if (b == -1)
            return val_int(0);
        v = a % b;
        return val_int(v && (v < 0) != (b < 0) ? v + b : v);
    default:
        if (b >= 0)
            return val_int(int_pow(r, a, b));
        if (!a)
            run_fail(r, "0.0 cannot be raised to a negative power");
        return val_float(pow((double)a, (double)b));
    }
}

static struct val float_op(struct run *r, enum op op, double a, double b)
{
    switch (op) {
    case OP_ADD:
        return val_float(a + b);
    case OP_SUB:
        return val_float(a - b);
    case OP_MUL:
        return val_float(a * b);
    case OP_DIV:
        if (!b)
            run_fail(r, "float division by zero");
        return val_float(a / b);
    case OP_FLOORDIV:
        if (!b)
            run_fail(r, "float floor division by zero");
        return val_float(float_floordiv(a, b));
    case OP_MOD:
        if (!b)
            run_fail(r, "float modulo");
        return val_float(float_mod(a, b));
    default: {
        if (!a && b < 0)
            run_fail(r, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(b) && b != floor(b))
            run_fail(r,
                     "a negative number to a fractional power is complex, which is not supported");
        double v = pow(a, b);
        if (isinf(v) && isfinite(a) && isfinite(b))
            run_fail(r, "numerical result out of range");
        return val_float(v);
    }
    }
}

static struct val repeat(struct run *r, struct val seq, struct val times)
{
    int64_t n = int_of(times);
    if (seq.kind == V_STR) {
        struct sb b = {0};
        if (n > 0)
            sb_fill(r, &b, seq.s, (size_t)n);
        struct val v = sb_val(r, &b);
        v.safe = seq.safe;
        return v;
    }
    struct val out = seq.kind == V_LIST ? val_list(r, 0) : val_tuple(r, 0);
    for (; n > 0 && seq.l->n; n--) {
        for (size_t i = 0, end = seq.l->n; i < end; i++)
            list_push(r, out.l, seq.l->v[i]);
    }
    return out;
}

static struct val add_strings(struct run *r, struct val a, struct val b)
{
    if (!a.safe && !b.safe)
        return str_concat(r, a, b);
    struct val v = str_concat(r, pyformat_html(r, a), pyformat_html(r, b));
    v.safe = true;
    return v;
}

static bool is_seq(struct val v)
{
    return v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE;
}

struct val ops_binary(struct run *r, enum op op, struct val a, struct val b)
{
    if (is_number(a) && is_number(b)) {
        struct val v = is_int(a) && is_int(b) ? int_op(r, op, int_of(a), int_of(b))
                                              : float_op(r, op, float_of(a), float_of(b));
        return val_with_origin(v, str_origin_merge(a.origin, b.origin));
    }
    if (op == OP_MOD && a.kind == V_STR)
        return pyformat_percent(r, a, b);
    if (op == OP_ADD && a.kind == V_STR && b.kind == V_STR)
        return add_strings(r, a, b);
    if (op == OP_ADD && a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE)) {
        size_t n = a.l->n + b.l->n;
        struct val out = a.kind == V_LIST ? val_list(r, n) : val_tuple(r, n);
        for (size_t i = 0; i < a.l->n; i++)
            list_push(r, out.l, a.l->v[i]);
        for (size_t i = 0; i < b.l->n; i++)
            list_push(r, out.l, b.l->v[i]);
        return out;
    }
    if (op == OP_MUL && is_seq(a) && is_int(b))
        return repeat(r, a, b);
    if (op == OP_MUL && is_int(a) && is_seq(b))
        return repeat(r, b, a);
    if (a.kind == V_UNDEF)
        run_fail_undef(r, &a);
    if (b.kind == V_UNDEF)
        run_fail_undef(r, &b);
    if (op == OP_ADD && is_seq(a))
        run_fail(r, "can only concatenate %s (not \"%s\") to %s", val_type(a), val_type(b),
                 val_type(a));
    if (op == OP_MUL && (is_seq(a) || is_seq(b)))
        run_fail(r, "can't multiply sequence by non-int of type '%s'", val_type(is_seq(a) ? b : a));
    run_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", op_text[op], val_type(a),
             val_type(b));
}

struct val ops_negate(struct run *r, struct val a, bool negative)
{
    if (a.kind == V_UNDEF)
        run_fail_undef(r, &a);
    if (!is_number(a))
        run_fail(r, "bad operand type for unary %s: '%s'", negative ? "-" : "+", val_type(a));
    if (a.kind == V_FLOAT)
        return val_with_origin(val_float(negative ? -a.f : a.f), a.origin);
    if (negative && int_of(a) == INT64_MIN)
        overflow(r, OP_SUB, 0, int_of(a));
    return val_with_origin(val_int(negative ? -int_of(a) : int_of(a)), a.origin);
}

bool ops_compare(struct run *r, enum op op, struct val a, struct val b)
{
    switch (op) {
    case OP_EQ:
        return val_equal(r, a, b);
    case OP_NE:
        return !val_equal(r, a, b);
    case OP_IN:
        return val_contains(r, a, b);
    case OP_NOT_IN:
        return !val_contains(r, a, b);
    default:
        break;
    }
    int c = val_compare(r, a, b, op_text[op]);
    if (c == 2) // NaN
        return false;
    return op == OP_LT ? c < 0 : op == OP_LE ? c <= 0 : op == OP_GT ? c > 0 : c >= 0;
}
