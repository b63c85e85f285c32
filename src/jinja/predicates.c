// Tests: `value is name(arguments)`.
#include "jinja/runtime.h"

#define TEST(name)                                                                                 \
    static struct val name(struct run *r, struct val self, const struct val *v,                    \
                           const struct args *a)
#define UNUSED_ARGS (void)r, (void)self, (void)v, (void)a

static bool is_int(struct val v)
{
    return v.kind == V_INT;
}

static bool remainder_is(struct run *r, struct val v, struct val by, int64_t want)
{
    return val_equal(r, ops_binary(r, OP_MOD, v, by), val_int(want));
}

TEST(test_odd)
{
    UNUSED_ARGS;
    return val_bool(remainder_is(r, self, val_int(2), 1));
}

TEST(test_even)
{
    UNUSED_ARGS;
    return val_bool(remainder_is(r, self, val_int(2), 0));
}

TEST(test_divisibleby)
{
    UNUSED_ARGS;
    return val_bool(remainder_is(r, self, v[0], 0));
}

TEST(test_defined)
{
    UNUSED_ARGS;
    return val_bool(self.kind != V_UNDEF);
}

TEST(test_undefined)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_UNDEF);
}

TEST(test_filter)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_STR && filters_find(self.s));
}

TEST(test_test)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_STR && predicates_find(self.s));
}

TEST(test_none)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_NONE);
}

TEST(test_boolean)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_BOOL);
}

TEST(test_false)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_BOOL && !self.b);
}

TEST(test_true)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_BOOL && self.b);
}

TEST(test_integer)
{
    UNUSED_ARGS;
    return val_bool(is_int(self));
}

TEST(test_float)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_FLOAT);
}

TEST(test_number)
{
    UNUSED_ARGS;
    return val_bool(is_int(self) || self.kind == V_FLOAT || self.kind == V_BOOL);
}

static struct val str_test(struct run *r, struct val self, const char *method)
{
    struct val text = pytext_str(r, self);
    struct str name = {.p = method, .n = 7, .n_chars = 7};
    return eval_native_call(r, str_method_find(&name), text, &(struct args){0});
}

TEST(test_lower)
{
    UNUSED_ARGS;
    return str_test(r, self, "islower");
}

TEST(test_upper)
{
    UNUSED_ARGS;
    return str_test(r, self, "isupper");
}

TEST(test_string)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_STR);
}

TEST(test_mapping)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_DICT);
}

TEST(test_sequence)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_STR || self.kind == V_LIST || self.kind == V_TUPLE ||
                    self.kind == V_DICT || self.kind == V_RANGE || self.kind == V_UNDEF);
}

TEST(test_iterable)
{
    UNUSED_ARGS;
    return val_bool(val_iterable(self) || self.kind == V_LOOP);
}

TEST(test_callable)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_NATIVE || self.kind == V_MACRO || self.kind == V_LOOP ||
                    self.kind == V_UNDEF);
}

TEST(test_sameas)
{
    UNUSED_ARGS;
    return val_bool(val_same(r, self, v[0]));
}

TEST(test_escaped)
{
    UNUSED_ARGS;
    return val_bool(self.kind == V_STR && self.safe);
}

TEST(test_in)
{
    UNUSED_ARGS;
    return val_bool(ops_compare(r, OP_IN, self, v[0]));
}

TEST(test_eq)
{
    UNUSED_ARGS;
    return val_bool(ops_compare(r, OP_EQ, self, v[0]));
}

TEST(test_ne)
{
    UNUSED_ARGS;
    return val_bool(ops_compare(r, OP_NE, self, v[0]));
}

TEST(test_lt)
{
    UNUSED_ARGS;
    return val_bool(ops_compare(r, OP_LT, self, v[0]));
}

TEST(test_le)
{
    UNUSED_ARGS;
    return val_bool(ops_compare(r, OP_LE, self, v[0]));
}

TEST(test_gt)
{
    UNUSED_ARGS;
    return val_bool(ops_compare(r, OP_GT, self, v[0]));
}

TEST(test_ge)
{
    UNUSED_ARGS;
    return val_bool(ops_compare(r, OP_GE, self, v[0]));
}

static const struct native tests[] = {
    {"odd", test_odd, 0, ""},
    {"even", test_even, 0, ""},
    {"divisibleby", test_divisibleby, 1, "num"},
    {"defined", test_defined, 0, ""},
    {"undefined", test_undefined, 0, ""},
    {"filter", test_filter, 0, ""},
    {"test", test_test, 0, ""},
    {"none", test_none, 0, ""},
    {"boolean", test_boolean, 0, ""},
    {"false", test_false, 0, ""},
    {"true", test_true, 0, ""},
    {"integer", test_integer, 0, ""},
    {"float", test_float, 0, ""},
    {"number", test_number, 0, ""},
    {"lower", test_lower, 0, ""},
    {"upper", test_upper, 0, ""},
    {"string", test_string, 0, ""},
    {"mapping", test_mapping, 0, ""},
    {"sequence", test_sequence, 0, ""},
    {"iterable", test_iterable, 0, ""},
    {"callable", test_callable, 0, ""},
    {"sameas", test_sameas, 1, "other"},
    {"escaped", test_escaped, 0, ""},
    {"in", test_in, 1, "seq"},
    {"==", test_eq, 1, "other"},
    {"eq", test_eq, 1, "other"},
    {"equalto", test_eq, 1, "other"},
    {"!=", test_ne, 1, "other"},
    {"ne", test_ne, 1, "other"},
    {"<", test_lt, 1, "other"},
    {"lt", test_lt, 1, "other"},
    {"lessthan", test_lt, 1, "other"},
    {"<=", test_le, 1, "other"},
    {"le", test_le, 1, "other"},
    {">", test_gt, 1, "other"},
    {"gt", test_gt, 1, "other"},
    {"greaterthan", test_gt, 1, "other"},
    {">=", test_ge, 1, "other"},
    {"ge", test_ge, 1, "other"},
};

const struct native *predicates_find(const struct str *name)
{
    return eval_native_find(tests, sizeof tests / sizeof *tests, name->p, name->n);
}

bool predicates_call(struct run *r, const struct str *name, struct val v, const struct args *a)
{
    const struct native *fn = predicates_find(name);
    if (!fn)
        run_fail(r, "no test named '%.*s'", (int)(name->n < 80 ? name->n : 80), name->p);
    struct val result = eval_native_call(r, fn, v, a);
    return val_truth(&result);
}
