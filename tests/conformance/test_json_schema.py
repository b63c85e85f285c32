"""JSON Schemas as grammars: what a walk through the masks writes is held against PyPI's jsonschema, and what an independent
generator writes must be allowed."""
import ipaddress
import json
import math
import os
import random
import re
from decimal import Decimal

import jsonschema
import pytest

from grammar_lib import Grammar, Refused, State, Vocab

SLOW = bool(os.environ.get("HOKKU_SLOW_TESTS"))
FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4", "uri", "ipv6", "hostname", "duration"]
PATTERNS = [r"^[a-z]{2,5}$", r"^\d{3}-\d{4}$", "a.b", r"^(foo|bar)+$", r"^[A-Z]\w*$", "[^a-c]$", r"^$", r"^\S+ \S+$", "é|😀", r'^"\\?',
            r"^(?:[01]\d|2[0-3]):[0-5]\d$", r"x{2}", r"\W", r"^[\s\S]{1,4}$", r"[\u00e0-\u00ff]"]
NAMES = ["a", "b", "age", "name", "na", "n", "é", 'q"', "a b", "\\", "tag\n", ""]


def dumps(v):
    return json.dumps(v, separators=(",", ":"), ensure_ascii=False)


def token_vocab():
    """Bytes, and what tokenizers make of JSON: pieces that cross the ends of strings and values."""
    texts = [bytes([c]) for c in range(256)]
    for t in ('"', '":', '","', '":"', '"}', '"]', '},', '}', '],', '[{"', '{"', '[[', ']]', '}]', '":[', '":{', '",', '0.', '00', '12', '-1', '1e', '.5',
              'true', 'false', 'null', 'nul', 'ab', 'abc', 'foo', 'name', 'age', ' a', '  ', 'é', '😀', 'a"', 'b",', '\\n', '\\"', '\\u00', '\\ud83d',
              '20', '2024', '-0', '-02-', '-29', 'T', ':5', 'Z', '@', '.com', 'http', '://', 'e9', 'é"', 'xx', '\\', '\\\\', '99', 'x' * 20):
        texts.append(t.encode())
    texts += [b"\xf0\x9f", b"\x98\x80", b"\xe2\x82", b'\xac"', b"\xc3"]
    return Vocab(texts + [b""], [len(texts)])


VOCAB = token_vocab()


# --- random schemas ---

def number_schema(rng):
    s = {"type": rng.choice(["integer", "number"])}
    r = rng.random()
    lo = rng.choice([-1000, -37, -1, 0, 1, 5, 99, 100, 12345, -0.5, 0.25, 2.5, 1e-3, -123.456])
    if r < .7:
        s[rng.choice(["minimum", "exclusiveMinimum"])] = lo
    if r > .3:
        s[rng.choice(["maximum", "exclusiveMaximum"])] = lo + rng.choice([2, 3, 9, 10, 100, 1000.5, 7.25, 99999])
    if rng.random() < .25:
        s["multipleOf"] = rng.choice([1, 2, 3, 7, 10, 25])
    return s


def string_schema(rng, plain=False):
    s = {"type": "string"}
    r = rng.random()
    if r < .25:
        s["pattern"] = rng.choice([p for p in PATTERNS if not (plain and "\\W" in p)])  # \\W: ASCII only
    elif r < .45:
        s["format"] = rng.choice(FORMATS)
    if rng.random() < .4 and "format" not in s:
        s["minLength"] = rng.randint(0, 4)
        if rng.random() < .7:
            s["maxLength"] = s["minLength"] + rng.choice([0, 1, 3, 8, 30])
    return s


def values(rng):
    return rng.sample([None, True, False, 0, 1, -2, 2.5, "a", "é\n", 'q"\\', "", [], [1, "x"], {}, {"a": 1, "b": [None]}, 1e20, "name"], rng.randint(1, 5))


def schema(rng, depth, defs, plain=False):
    """plain: no keywords beside each other whose values an instance generator would have to search for."""
    kinds = ["string", "string", "number", "number", "enum", "const", "types", "true"]
    if depth:
        kinds += ["object"] * 4 + ["array"] * 3 + ["anyOf", "oneOf", "ref"] + ([] if plain else ["allOf", "siblings", "unique"])
    kind = rng.choice(kinds)
    sub = lambda: schema(rng, depth - 1, defs, plain)
    if kind == "string":
        return string_schema(rng, plain)
    if kind == "number":
        return number_schema(rng)
    if kind == "enum":
        return {"enum": values(rng)}
    if kind == "const":
        return {"const": values(rng)[0]}
    if kind == "types":
        return {"type": rng.sample(["null", "boolean", "integer", "number", "string"], rng.randint(1, 3))}
    if kind == "true":
        return rng.choice([True, {}, {"description": "anything", "default": 3}, {"type": "boolean"}])
    if kind == "object":
        names = rng.sample(NAMES, rng.randint(0, 5))
        s = {"type": "object", "properties": {n: sub() for n in names}, "required": [n for n in names if rng.random() < .5]}
        r = rng.random()
        if r < .5:
            s["additionalProperties"] = False
        elif r < .7:
            s["additionalProperties"] = sub()
        return s
    if kind == "array":
        s = {"type": "array"}
        if rng.random() < .4:
            s["prefixItems"] = [sub() for _ in range(rng.randint(1, 3))]
        if rng.random() < .8:
            s["items"] = sub()
        if rng.random() < .6:
            s["minItems"] = rng.randint(0, 3)
        if rng.random() < .6:
            s["maxItems"] = s.get("minItems", 0) + rng.randint(0, 4)
        return s
    if kind == "unique":
        return {"type": "array", "items": rng.choice([{"enum": [1, 2, "a", None]}, {"type": "boolean"}]), "uniqueItems": True, "minItems": rng.randint(0, 2)}
    if kind == "anyOf":
        return {"anyOf": [sub() for _ in range(rng.randint(1, 3))]}
    if kind == "oneOf":
        return {"oneOf": [{"type": "object", "properties": {"kind": {"const": "p"}, "x": sub()}, "required": ["kind"]},
                          {"type": "object", "properties": {"kind": {"const": "q"}, "y": sub()}, "required": ["kind"], "additionalProperties": False},
                          {"type": "null"}]}
    if kind == "ref":
        name = f"d{rng.randint(0, 3)}"
        if name not in defs:
            defs[name] = {"type": "object", "properties": {"v": number_schema(rng)}}  # stands in for itself while it is made
            defs[name] = {"type": "object", "properties": {"v": schema(rng, 0, defs, plain), "next": {"$ref": f"#/$defs/{name}"}}, "required": ["v"]}
        return {"$ref": f"#/$defs/{name}"}
    if kind == "allOf":
        s = {"allOf": [sub() for _ in range(2)]}
        if rng.random() < .5:
            s = {"allOf": [{"type": "object", "properties": {n: sub() for n in rng.sample(NAMES, 2)}, "required": rng.sample(NAMES, 1)} for _ in range(2)]}
        return s
    return {**string_schema(rng), **number_schema(rng), **values_of(rng), "anyOf": [sub(), sub(), True][:rng.randint(1, 3)]}


def values_of(rng):
    return {"type": ["string", "integer", "array", "null"], "minItems": 1, "items": {"type": "string"}} if rng.random() < .5 else {}


def random_schema(rng, plain=False):
    defs = {}
    s = schema(rng, 3, defs, plain)
    if defs:
        s = {**s, "$defs": defs} if isinstance(s, dict) else s
    return s


def walk(grammar, rng, limit):
    """Tokens at random, from the mask; then the shortest way to the end."""
    s, out = State(grammar), b""
    for step in range(4000):
        if step < limit:
            ids = s.allowed()
            assert ids is not None and len(ids), out
            long = ids[ids >= 256]
            token = int(rng.choice(long if len(long) and rng.random() < .6 else ids))
        else:
            token = s.closing()
        assert s.accept(token), (out, token)
        if token in VOCAB.end_ids:
            return out.decode()
        out += VOCAB.texts[token]
    raise AssertionError("no end")


CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER


@CHECKER.checks("uri")  # which it leaves unchecked without another package: the characters of RFC 3986 behind a scheme
def is_uri(value):
    return not isinstance(value, str) or re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*", value) is not None


def check(schema_, text):
    value = json.loads(text)  # what jq reads, Python reads
    jsonschema.Draft202012Validator(schema_, format_checker=CHECKER).validate(value)
    return value


def count(default, slow):
    return range(slow if SLOW else default)


def test_the_checker_knows_the_formats():
    assert {"date", "date-time", "time", "uuid", "email", "ipv4", "ipv6", "hostname", "duration"} <= set(CHECKER.checkers)


@pytest.mark.parametrize("part", range(10))
def test_what_the_masks_lead_to_is_valid(part):
    n = 0
    for seed in range(part, 10000 if SLOW else 300, 10):
        rng = random.Random(seed)
        s = random_schema(rng)
        try:
            grammar = Grammar(json.dumps(s), VOCAB, schema=True, indent=rng.choice([0, 0, 0, 2]))
        except Refused as e:
            assert e.code == 2
            # (uniqueItems: of what allOf has merged; states: repetitions of repetitions)
            why = ("no text at all", "at once", "multiples", "/uniqueItems): hokku enforces", "states: make its")
            assert any(w in str(e) for w in why), (str(e), s)
            continue
        n += 1
        for _ in range(4):
            text = walk(grammar, rng, rng.choice([0, 5, 30, 80]))
            try:
                check(s, text)
            except Exception as e:
                raise AssertionError(f"{json.dumps(s)}\n{text}") from e
    assert n > (800 if SLOW else 10)  # of a thousand, or of thirty


# --- an independent generator of instances: in the order of the schema, without blanks ---

def resolve(s, root):
    while isinstance(s, dict) and "$ref" in s:
        s = root["$defs"][s["$ref"].split("/")[-1]]
    return s


def instance(s, root, rng, depth=0):
    """A value of a plain schema, or None with ok = False."""
    s = resolve(s, root)
    if s is True or s == {} or s.get("default") == 3:
        return rng.choice([None, True, 0, -5, 2.5, 1e3, "x\té\"", [1, [2]], {"k": {"z": ""}}, "\x01", "😀"])
    if "enum" in s:
        return rng.choice(s["enum"])
    if "const" in s:
        return s["const"]
    for key in ("anyOf", "oneOf"):
        if key in s:
            return instance(rng.choice(s[key]), root, rng, depth)
    kind = s["type"] if isinstance(s["type"], str) else rng.choice(s["type"])
    if kind == "null":
        return None
    if kind == "boolean":
        return rng.random() < .5
    if kind in ("integer", "number"):
        lo = s.get("minimum", s.get("exclusiveMinimum", -10**6))
        hi = s.get("maximum", s.get("exclusiveMaximum", max(lo, 0) + 10**6))
        v = rng.choice([lo, hi, rng.uniform(lo, hi), (lo + hi) / 2, math.ceil(lo), math.floor(hi), math.ceil(lo) + 1])
        if kind == "integer" or s.get("multipleOf"):
            m = s.get("multipleOf", 1)
            return int(v // m) * m
        return v if isinstance(v, int) else round(v, rng.choice([1, 2, 5, 9]))
    if kind == "string":
        if "format" in s:
            return {"date": lambda: f"{rng.randint(1, 9999):04}-{rng.randint(1, 12):02}-{rng.randint(1, 31):02}",
                    "time": lambda: f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}" + rng.choice(["Z", "+02:00", ".25Z"]),
                    "date-time": lambda: f"{rng.choice([1996, 2000, 1900, 2024])}-02-{rng.randint(27, 29)}T23:59:59" + rng.choice(["Z", "-11:30"]),
                    "uuid": lambda: "-".join("%0*x" % (n, rng.getrandbits(4 * n)) for n in (8, 4, 4, 4, 12)),
                    "email": lambda: rng.choice(["a@b.org", "first.last+tag@mail.example.co.uk", "x_y-z@h-1.net"]),
                    "ipv4": lambda: ".".join(str(rng.randint(0, 255)) for _ in range(4)),
                    "ipv6": lambda: str(ipaddress.IPv6Address(rng.getrandbits(128) & rng.choice([2**128 - 1, 0xffff0000ffff, 1, 0, 0xffff << 112, 0xffff << 48]))),
                    "hostname": lambda: rng.choice(["localhost", "www.example.org", "a-b.c1.net", "3com.com", "x" * 32]),
                    "duration": lambda: rng.choice(["P1Y2M3D", "PT36H", "P1DT12H30M5S", "P4W", "PT1S", "P20Y", "P3MT1M"]),
                    "uri": lambda: rng.choice(["https://example.org/a/b?c=d&e#f", "urn:isbn:123", "http://u:p@h:80/", "mailto:a@b.c"])}[s["format"]]()
        if "pattern" in s:
            text = rng.choice(["abc", "123-4567", "xaxb", "a b", "foobar", "Xyz_1", "é", "😀", '"\\', "23:59", "axx", "", "d", "-", "À à"])
        else:
            text = "".join(rng.choices("abé😀\"\\\n\x7f ü", k=rng.randint(0, 12)))
        return text
    if kind == "array":
        n = rng.randint(s.get("minItems", 0), min(s.get("maxItems", 4), s.get("minItems", 0) + 3))
        prefix = s.get("prefixItems", [])
        return [instance(prefix[i] if i < len(prefix) else s.get("items", True), root, rng, depth + 1) for i in range(n)]
    out = {}
    for name, of in s.get("properties", {}).items():
        if name in s.get("required", []) or (rng.random() < .5 and depth < 6):
            out[name] = instance(of, root, rng, depth + 1)
    others = s.get("additionalProperties", True)
    if others is not False and rng.random() < .5:
        for name in rng.sample(["agf", "naME", "zz", "é2", "nam", "q", "\"", "aa"], 2):
            if name not in s.get("properties", {}):
                out[name] = instance(others, root, rng, depth + 1)
    return out


@pytest.mark.parametrize("part", range(5))
def test_what_is_valid_is_allowed(part):
    n = 0
    for seed in range(part, 5000 if SLOW else 300, 5):
        rng = random.Random(seed + 10**6)
        s = random_schema(rng, plain=True)
        try:
            grammar = Grammar(json.dumps(s), VOCAB, schema=True)
        except Refused:
            continue
        for _ in range(8):
            v = instance(s, s, rng)
            try:
                jsonschema.Draft202012Validator(s, format_checker=CHECKER).validate(v)
                text = dumps(v)
                check(s, text)
            except jsonschema.ValidationError:
                assert not grammar.accepts(dumps(v)), (s, v)
                continue
            if "e" in text.replace("true", "").replace("false", "") and any(isinstance(x, float) for x in numbers(v)):
                continue  # an exponent, which numbers with bounds do without
            n += 1
            assert grammar.accepts(text), (json.dumps(s), text)
    assert n > 50


def numbers(v):
    if isinstance(v, dict):
        v = list(v.values())
    if isinstance(v, list):
        return [x for y in v for x in numbers(y)]
    return [v]


def accepted(s, *texts, **kw):
    g = Grammar(json.dumps(s) if not isinstance(s, str) else s, schema=True, **kw)
    return [g.accepts(t) for t in texts]


def test_strings_in_all_their_spellings():
    assert all(accepted({"type": "string", "minLength": 1, "maxLength": 1}, '"a"', '"é"', '"😀"', '"\\n"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\/"'))
    assert not any(accepted({"type": "string", "maxLength": 1}, '"ab"', '"\\ud83d"', '"\\ude00"', '"\n"', '"\\x"', '"\x1f"', "'a'"))


@pytest.mark.parametrize("listed,text", [("1e2", "100"), ("120.0", "120"), ("-3.0E1", "-30"), ("1e20", "1" + "0" * 20), ("1.5e39", str(int(1.5e39))), ("2.5", "2.5"),
                                         ("1e-7", "1e-07"), ("1e40", "1e+40")])
def test_an_integer_is_listed_without_a_point_or_an_exponent_however_it_is_written_there(listed, text):
    for s in (f'{{"const": {listed}}}', f'{{"enum": [{listed}]}}', f'{{"const": [{{"a": {listed}}}]}}'):
        whole = text if "[{" not in s else f'[{{"a":{text}}}]'
        assert accepted(s, whole) == [True], s
        assert json.loads(whole) == json.loads(s).get("const", json.loads(s).get("enum", [0])[0])
    if float(listed).is_integer() and len(text) <= 40:
        assert accepted(f'{{"type": "integer", "const": {listed}}}', text, listed) == [True, False]


def test_numbers_in_the_spellings_that_the_document_names():
    """docs/grammar.md: which values have more than one."""
    assert accepted({"type": "integer"}, "0", "-0", "5", "05", "5.0", "5e0", "+5") == [True, True, True, False, False, False, False]
    assert accepted({"type": "integer", "minimum": -9, "maximum": 9}, "0", "-0", "5", "05", "5.0", "5e0") == [True, False, True, False, False, False]
    free, bound = {"type": "number"}, {"type": "number", "minimum": -9, "maximum": 9}
    assert all(accepted(free, "0", "-0", "-0.5", "-0.50", "5e-1", "0.5E+00", "0e90", "9" * 40 + "." + "9" * 40))
    assert not any(accepted(free, "1e100", "9" * 41, "." + "5", "5.", "1e"))
    assert accepted(bound, "0", "-0", "-0.5", "-0.50", "5e-1", "0e90") == [True, False, True, True, False, False]


def test_a_negated_class_leaves_out_all_that_its_shorthands_may_be():
    """Beyond ASCII, too: what is no digit is not in [^\\D], and a blank, whoever calls it one, is not in [^\\s]."""
    for inside, yes, no in [(r"\D", "7", "aé٣"), (r"\W", "a_7", "-é—"), (r"\W\d_", "aZ", "_7-é—"), (r"\S", " \t", "aé\x85\ufeff"),
                            (r"\s", "aé日", " \xa0\u2003\u3000\ufeff"), (r"\s\d", "aé", "7 \u3000"), (r"\d", "aé日", "7"), (r"\w", "-—", "a7")]:
        got = accepted({"type": "string", "pattern": f"^[^{inside}]$"}, *(dumps(c) for c in yes + no))
        assert got == [c in yes for c in yes + no], inside
        assert all(re.search(f"^[^{inside}]$", c) for c in yes)
    for nothing in (r"\s\S", r"\d\D", r"\w\W"):
        with pytest.raises(Refused, match="no text at all obeys it"):
            accepted({"type": "string", "pattern": f"[^{nothing}]"})


def test_a_class_of_a_shorthand_and_its_opposite_has_all_characters():
    """What programs disagree about is in one of the two, whoever asks."""
    for all_of in (r"\s\S", r"\S\s", r"\d\D", r"\w\W", r"a\w_\W-"):
        assert all(accepted({"type": "string", "pattern": f"^[{all_of}]$"}, *(dumps(c) for c in "a7 -é٣—日😀\xa0\u2028\u3000\ufeff\n\0"))), all_of
    assert accepted({"type": "string", "pattern": r"^[\s\D]$"}, '"7"', '"é"', '"\u3000"') == [False, False, False]


def test_control_letters_of_a_pattern_are_their_characters():
    assert accepted({"type": "string", "pattern": "^\\cJ\\ci$"}, '"\\n\\t"', '"\\u000a\\u0009"', '"Ji"', '"\\t\\n"') == [True, True, False, False]


def test_a_declared_name_cannot_come_again_in_disguise():
    s = {"properties": {"age": {"type": "integer"}, "a": {"const": 1}}, "type": "object"}
    assert accepted(s, '{"age":1,"a":1,"x":null}', '{"b":1}', '{"agf":1}', '{"ag":1}', '{"":1}') == [True] * 5
    assert not any(accepted(s, '{"age":1,"age":"x"}', '{"a":1,"age":2}', '{"\\u0061ge":"x"}', '{"age":"x"}', '{"a":2}'))


def allowed_of(schema_, values):
    """Of the values those whose text a schema's grammar takes; none where it is refused as one without any text."""
    try:
        return [v for v, ok in zip(values, accepted(schema_, *map(dumps, values))) if ok]
    except Refused as e:
        if "no text at all" not in str(e):
            raise
        return []


def valid_of(schema_, values):
    v = jsonschema.Draft202012Validator(schema_, format_checker=CHECKER)
    return [x for x in values if v.is_valid(x)]


VALUES = [None, True, False, 0, 1, 5, -5, 7, 10, 2.5, -0.5, 1000000, "", "a", "b", "ab", "ba", "c", "z{", "aé", "éa", "😀", "2024-02-29", "2023-02-29",
          "23:59:00Z", [], [1], [1, 1], [1, 2], [1, 2, 3], ["a", 1], ["a", 1, None], {}, {"a": 1}, {"a": "x"}, {"a": 1, "b": 2}, {"b": 1}, {"c": []}]
OTHERS = [{"type": t} for t in ("null", "boolean", "integer", "number", "string", "array", "object")] + [
    {"minimum": 5}, {"exclusiveMinimum": 5}, {"maximum": 5}, {"exclusiveMaximum": 5}, {"multipleOf": 5}, {"minimum": 2.5, "maximum": 7},
    {"minLength": 1}, {"minLength": 2}, {"maxLength": 1}, {"maxLength": 0}, {"pattern": "^a"}, {"pattern": "b$"}, {"pattern": "^[b-c]$"}, {"pattern": "^[^a]"},
    {"pattern": "é"}, {"pattern": "[x-z]"}, {"format": "date"}, {"format": "time"}, {"minItems": 1}, {"minItems": 2}, {"maxItems": 1}, {"maxItems": 2},
    {"items": {"type": "integer"}}, {"items": {"minimum": 2}}, {"prefixItems": [{"type": "string"}]}, {"prefixItems": [{}, {"const": 1}], "items": False},
    {"required": ["a"]}, {"required": ["a", "b"]}, {"properties": {"a": {"type": "integer"}}}, {"additionalProperties": False},
    {"properties": {"a": {}}, "additionalProperties": False}, {"properties": {"a": {}}, "additionalProperties": {"type": "array"}},
    {"minProperties": 1}, {"maxProperties": 1}, {"minProperties": 0}, {"minProperties": 1, "required": ["a"]}, {"minProperties": 2.0, "required": ["b", "a"]},
    {"maxProperties": 1, "properties": {"a": {}}, "additionalProperties": False}, {"maxProperties": 0, "additionalProperties": False}, {"not": False},
    {"anyOf": [{"not": {}}, {"minimum": 1}]}, {"items": {"not": True}}, {"properties": {"a": {"not": {}}}}, {"additionalProperties": {"not": {}}}, {"anyOf": [{"type": "string"}, {"minimum": 6}]}, {"allOf": [{"minimum": 1}, {"maximum": 5}]},
    {"const": 5}, {"const": {"a": 1}}, {"const": [1, 2]}, {"const": ""}]


@pytest.mark.parametrize("other", OTHERS, ids=dumps)
def test_of_listed_values_those_are_allowed_that_the_rest_of_the_schema_allows(other):
    try:
        got = allowed_of({**other, "enum": VALUES}, VALUES)
    except Refused as e:
        assert "does not enforce" in str(e) or other in ({"minProperties": 1}, {"maxProperties": 1}) and "others are not enforced" in str(e), str(e)
        return
    assert list(map(dumps, got)) == list(map(dumps, valid_of({**other, "enum": VALUES}, VALUES)))


def test_numbers_between_any_bounds():
    numbers_ = [n / 2 for n in range(-25, 26)] + [*range(-13, 14), 19, 20, 98, 99, 100, 101, 999, 1000, 0.25, 0.05, -0.05, 5.001, 4.999, 99.5]
    bounds = [-10, -1, -0.5, 0, 0.25, 5, 9, 10, 99.5, 100]
    for low in ("minimum", "exclusiveMinimum"):
        for high in ("maximum", "exclusiveMaximum"):
            for lo in bounds:
                for hi in (b for b in bounds if lo - 6 <= b):
                    for kind in ("integer", "number"):
                        s = {"type": kind, low: lo, high: hi}
                        of = [n for n in numbers_ if kind == "number" or isinstance(n, int)]
                        assert allowed_of(s, of) == valid_of(s, of), s


@pytest.mark.parametrize("bound", [1, -1, 0.2, -0.3, 0.1, 100, 123.456, 1e-7, -1e15, 2**53, 1e39])
def test_no_number_is_read_as_the_bound_that_excludes_it(bound):
    for key, inside in (("exclusiveMinimum", math.inf), ("exclusiveMaximum", -math.inf)):
        s = {"type": "number", key: bound}
        at, nearest = (Decimal(repr(float(x))) for x in (bound, math.nextafter(bound, inside)))
        for n in range(12):  # from the next double to ever nearer to the bound
            text = f"{at + (nearest - at) / 2**n:.40f}"
            allowed = accepted(s, text)[0]
            assert not allowed or jsonschema.Draft202012Validator(s).is_valid(json.loads(text)), (s, text)
            assert allowed or n > 0, (s, text)


def test_zeros_behind_the_point_are_no_end():
    for s in ({"minimum": 0}, {"exclusiveMinimum": 0}, {"maximum": 1}, {"minimum": 0, "maximum": 1}):
        assert accepted({"type": "number"} | s, "0.00000000000000000001", f"0.{'0' * 39}1", f"0.{'0' * 40}1") == [True, True, False], s
    assert accepted({"type": "number", "minimum": 2.5}, f"2.5{'0' * 38}1", "2.5000000000000004") == [True, True]


def test_hundreds_of_numbers_between_bounds_are_no_large_grammar():
    s = {"type": "object", "properties": {str(i): {"type": "number", "exclusiveMinimum": 0, "maximum": i + 1} for i in range(600)}, "additionalProperties": False}
    assert accepted(s, '{"0":0.5,"599":600}', '{"599":600.1}') == [True, False]


def test_indentation():
    s = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {"const": {"x": []}}}, "required": ["a", "b"],
         "additionalProperties": False}
    v = {"a": [1, 2], "b": {"x": []}}
    assert accepted(s, json.dumps(v, indent=2), dumps(v), indent=2) == [True, False]
    assert accepted({"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}, json.dumps([[], [[]]], indent=4), indent=4) == [True]


def test_a_long_list_of_items_is_not_looked_through_once_for_each():
    for n_least in (0, 9000):
        Grammar(json.dumps({"type": "array", "prefixItems": [{"type": "integer"}] * 9000, "items": False, "minItems": n_least}), schema=True)
    names = [f"p{i}" for i in range(2000)]
    Grammar(json.dumps({"type": "object", "properties": {n: {"type": "null"} for n in names}, "required": names, "additionalProperties": False}), schema=True)


def test_properties_come_in_the_order_of_the_schema():
    s = {"type": "object", "properties": {"z": True, "a": True}}
    assert accepted(s, '{"z":1,"a":2}', '{"a":2,"z":1}') == [True, False]


def test_unions_that_say_which_property_tells_them_apart():
    """As pydantic writes them; in OpenAPI a discriminator must not change what is valid."""
    def pet(kind, more):
        return {"type": "object", "properties": {"kind": {"const": kind, "type": "string"}, **more}, "required": ["kind", *more], "additionalProperties": False}
    s = {"discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}, "propertyName": "kind"}, "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
         "$defs": {"Cat": pet("cat", {"n": {"type": "integer"}}), "Dog": pet("dog", {"s": {"type": "string"}})}}
    assert accepted(s, '{"kind":"cat","n":1}', '{"kind":"dog","s":"a"}', '{"kind":"dog","n":1}', '{"kind":"cow"}') == [True, True, False, False]


@pytest.mark.parametrize("names", [{"type": "string"}, {}, True])
def test_names_of_properties_that_may_be_any_are_any(names):
    """As zod writes a record."""
    s = {"type": "object", "propertyNames": names, "additionalProperties": {"type": "number"}}
    assert accepted(s, '{"a":1,"é":2.5}', '{}', '{"a":"b"}') == [True, True, False]


@pytest.mark.parametrize("alternatives", [
    [{"const": 1}, {"type": "integer", "minimum": 1, "maximum": 1}],
    [{"enum": ["auto"]}, {"type": "string", "pattern": "^(auto|on)$"}],
    [{"const": "auto"}, {"type": "string"}],
    [{"type": "string"}, {"anyOf": [{"const": 1}, {"$ref": "#/$defs/a"}]}],
    [{"const": {"k": 1}}, {"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"], "additionalProperties": False}],
    [{"enum": [[None]]}, {"type": "array"}],
])
def test_a_listed_value_that_another_alternative_of_oneof_has_by_its_type_is_refused(alternatives):
    for around in (lambda s: s, lambda s: {"anyOf": [s]}, lambda s: {"allOf": [s]}, lambda s: {"items": s}, lambda s: {"oneOf": [s, {"const": 7}]},
                   lambda s: {"$ref": "#/$defs/s"}):
        s = {"oneOf": alternatives}
        with pytest.raises(Refused) as e:
            Grammar(dumps({**around(s), "$defs": {"a": {"const": "a"}, "s": s}}), schema=True)
        assert e.value.code == 2 and "at once" in str(e.value), str(e.value)


def test_values_that_two_alternatives_of_oneof_list_are_left_out_of_both():
    assert accepted({"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, "1", "2", "3") == [True, False, True]
    assert accepted({"oneOf": [{"type": ["null", "string"]}, {"type": ["null", "integer"]}]}, "null", '"a"', "1") == [False, True, True]
    assert accepted({"oneOf": [{"type": "boolean"}, {"const": True}]}, "true", "false") == [False, True]
    assert accepted({"oneOf": [{"$ref": "#/$defs/a"}, {"anyOf": [{"const": 2}, {"enum": [3, 4]}]}], "$defs": {"a": {"enum": [2, 3, 5]}}},
                    "2", "3", "4", "5") == [False, False, True, True]
    assert accepted({"oneOf": [{"enum": [1, 2]}, {"type": "integer", "minimum": 3}]}, "1", "2", "3") == [True, True, True]
    with pytest.raises(Refused):  # nothing is left
        Grammar('{"oneOf": [{"const": null}, {"type": "null"}]}', schema=True)


def test_values_that_two_alternatives_list_are_left_out_of_both_wherever_they_are_listed():
    a = {"oneOf": [{"enum": [1, 2]}, {"type": "string"}]}  # lists some of its values, not all
    for inside in (a, {"anyOf": a["oneOf"]}, {"$ref": "#/$defs/a"}, {"allOf": [a]}):
        for s in ([inside, {"enum": [2, 3]}], [{"enum": [2, 3]}, inside], [inside, {"anyOf": [{"const": 2}, {"const": 3}, {"type": "array"}]}]):
            assert accepted({"oneOf": s, "$defs": {"a": a}}, "1", "2", "3", '"a"') == [True, False, True, True], s
        with pytest.raises(Refused) as e:
            Grammar(dumps({"oneOf": [inside, {"type": "integer"}], "$defs": {"a": a}}), schema=True)
        assert "at once" in str(e.value)
    assert accepted({"enum": [1, 2, "a"], "oneOf": [{"oneOf": [{"type": "integer"}, {"type": "array"}]}, {"minimum": 2}]}, "1", "2", '"a"') == [True, False, True]


def test_a_length_that_all_texts_of_a_pattern_keep_to_takes_no_states():
    longest = f"{'a' * 20}.{'b' * 20}.{'c' * 20}@{'.'.join(5 * ['d' * 32])}"
    for more in {"maxLength": 254}, {"maxLength": 320, "minLength": 1}, {"maxLength": len(longest)}:
        assert accepted({"type": "string", "format": "email", **more}, dumps("a@b.c"), dumps(longest), dumps("a@" + longest), '""') == [True, True, False, False]
    assert accepted({"type": "string", "pattern": "^(ab?){60}$|^c?$", "minLength": 1, "maxLength": 5000}, '"c"', '""', dumps("ab" * 60)) == [True, False, True]
    short = {"type": "string", "format": "email", "minLength": 20, "maxLength": 320}  # of which the first is a bound
    assert accepted(short, dumps("a@b.c"), dumps("a@" + 3 * "bcdefg." + "h"), dumps(longest)) == [False, True, True]
    assert accepted({"type": "string", "format": "uri", "maxLength": 244}, dumps("a:" + "b" * 242), dumps("a:" + "b" * 243)) == [True, False]  # as its refusal says
    s = {"type": "string", "pattern": "^(a|b){0,400}$", "minLength": 2, "maxLength": 3}  # a bound that is none
    assert accepted(s, '"a"', '"ab"', '"abb"', '"abba"') == [False, True, True, False]


MANY = 4000
LISTED = {  # what a value is held against, or how often, beyond what may be asked for
    "what are no numbers of one kind": {"const": [i + .5 if i % 2 else i for i in range(MANY)], "uniqueItems": True},
    "objects that differ at their end": {"const": [{**{f"k{j}": 1.5 for j in range(8)}, f"u{i:05}": 1} for i in range(2 * MANY)], "uniqueItems": True},
    "texts that differ at their end": {"const": ["x" * 1000 + f"{i:05}" for i in range(MANY)], "uniqueItems": True},
    "a list in many enums": {"const": list(range(40000)), "anyOf": [{"enum": [i]} for i in range(MANY)] + [True]},
    "a long list": {"const": list(range(40000)), "anyOf": [{"minItems": i} for i in range(MANY)] + [True]},
    "a large object": {"const": {f"k{i}": 1 for i in range(40000)}, "anyOf": [{"minItems": i} for i in range(MANY)] + [True]},
    "a long text": {"const": "a" * 2000000, "anyOf": [{"minLength": i} for i in range(MANY)] + [True]},
    "a long text and patterns": {"const": "a" * 400000, "anyOf": [{"pattern": "b" + "c" * (i % 50)} for i in range(MANY)] + [True]},
}


LONG = "n" * 100000
LISTED |= {  # what is long itself, and is read again for each of many
    "a long reference": {"$defs": {LONG: {}}, "enum": list(range(MANY)), "$ref": f"#/$defs/{LONG}"},
    "a long name that is required": {"enum": [{"a": i} for i in range(12 * MANY)], "required": [LONG]},
    "a long pattern": {"enum": ["b" + str(i) for i in range(MANY)], "pattern": f"^[{LONG}]*$"},
    "a long class that is repeated": {"pattern": f"^[{LONG}]{{900}}$"},
    "a group that is repeated": {"pattern": "^(?:[" + "abc" * 1000 + "]){5000}$"},
    "a long text in many places": {"$defs": {"x": {"const": LONG}}, "properties": {f"p{i}": {"allOf": [{"$ref": "#/$defs/x"}, {"title": ""}]} for i in range(MANY)}},
    "long names in many objects": {"$defs": {"x": {"properties": {LONG[:9000] + str(i): {} for i in range(100)}, "additionalProperties": False}},
                                   "properties": {f"p{i}": {"allOf": [{"$ref": "#/$defs/x"}, {"title": ""}]} for i in range(1000)}},
    "bounds of many digits in many places": {"$defs": {"x": {"allOf": [{"type": "integer", "maximum": 1.2345678901234567e30 + i * 1e20} for i in range(100)]}},
                                             "properties": {f"p{i}": {"allOf": [{"$ref": "#/$defs/x"}, {"title": ""}]} for i in range(MANY)}},
}


@pytest.mark.parametrize("what", LISTED)
def test_what_listed_values_are_held_against_is_paid_for(what):
    with pytest.raises(Refused) as e:
        Grammar(dumps(LISTED[what]), schema=True)
    assert "steps" in str(e.value)


def test_many_numbers_are_held_against_many_bounds_as_numbers():
    """As text each took 17 microseconds a time: half a minute for this."""
    bounds = [{"minimum": -1.23456789012345e300, "exclusiveMaximum": 1.2345678901234567e300 + i * 1e290} for i in range(500)]
    s = {"enum": [i + 0.123456789012345 for i in range(1000)], "allOf": bounds}
    assert accepted(s, "0.123456789012345", repr(999 + 0.123456789012345), repr(1000 + 0.123456789012345)) == [True, True, False]


def test_integers_and_fractions_are_compared_by_their_digits():
    s = {"enum": [9007199254740992, 9007199254740993, 9007199254740992.0, 1e3, 1000, 0.5], "maximum": 9007199254740992.0}
    assert accepted(s, "9007199254740992", "9007199254740993", "1000", "0.5") == [True, False, True, True]
    s = {"enum": [1, 2.5, -2.5, -3, 4.0], "minimum": -2.5, "exclusiveMaximum": 4}
    assert accepted(s, "1", "2.5", "-2.5", "-3", "4", "4.0") == [True, True, True, False, False, False]


def test_objects_of_an_enum_are_told_apart_by_their_names():
    objects = [{**{f"k{j}": 1.5 for j in range(8)}, f"u{i:05}": 1} for i in range(12000)]
    assert accepted({"allOf": [{"enum": objects[:2]}, {"enum": objects[1:]}]}, dumps(objects[0]), dumps(objects[1]), dumps(objects[2])) == [False, True, False]
    assert accepted({"allOf": [{"enum": [{"a": 1, "b": 2.0}]}, {"enum": [{"b": 2, "a": 1.0}]}]}, '{"a":1,"b":2}', '{"a":2,"b":1}') == [True, False]


def test_large_listed_integers_are_multiples_or_not_to_the_last_digit():
    assert accepted({"enum": [9007199254740993, 9007199254740995], "multipleOf": 3}, "9007199254740993", "9007199254740995") == [True, False]
    with pytest.raises(Refused):
        Grammar(dumps({"const": 9007199254740995, "multipleOf": 4}), schema=True)
    with pytest.raises(Refused):  # it obeys both
        Grammar(dumps({"oneOf": [{"const": 9007199254740993}, {"type": "integer", "multipleOf": 3}]}), schema=True)


def test_what_an_alternative_with_a_oneof_leaves_out_another_one_may_have():
    a = {"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}  # 2 obeys both, and so not a
    two = {"type": "integer", "minimum": 2, "maximum": 2}
    assert accepted({"oneOf": [a, two]}, "1", "2", "3") == [True, True, True]
    assert accepted({"oneOf": [{"items": two, "type": "array", "maxItems": 1}, a, two]}, "[2]", "2", "[1]") == [True, True, False]
    for refused in ({"oneOf": [{"const": 1}, {"const": 1}, {"oneOf": [{"enum": [1]}, {"type": "integer"}]}]}, {"oneOf": [{"anyOf": [a, {"const": 2}]}, two]}):
        with pytest.raises(Refused) as e:
            Grammar(dumps(refused), schema=True)
        assert "at once" in str(e.value)


def test_what_oneof_lets_through_jsonschema_does_too():
    some = [None, True, False, 0, 1, 2, "a", "b", [1], {"k": 1}]
    rng = random.Random(5)

    def of(depth):
        kind = rng.randint(0, 9 if depth else 4)
        if kind <= 2:
            return rng.choice([{"const": rng.choice(some)}, {"enum": rng.sample(some, 3)}])
        if kind <= 4:
            return rng.choice([{"type": rng.sample(["null", "boolean", "integer", "string", "array"], rng.randint(1, 2))}, {"minimum": 1, "type": "integer"},
                               {"minimum": 2, "maximum": 2, "type": "integer"},
                               {"type": "string", "pattern": "^[ac]$"}, {"type": "object", "properties": {"k": of(0)}}])
        if kind <= 7:
            return {"oneOf": [of(depth - 1) for _ in range(2)]}
        return {rng.choice(["anyOf", "allOf"]): [of(depth - 1) for _ in range(2)]}

    n_taken = 0
    for i in range(3000):
        s = of(2 + i % 2)
        if "oneOf" not in dumps(s):
            continue
        try:
            g = Grammar(dumps(s), schema=True)
        except Refused:
            continue
        n_taken += 1
        for v in some:
            assert g.accepts(dumps(v)) == jsonschema.Draft202012Validator(s).is_valid(v), (s, v)
    assert n_taken > 300


@pytest.mark.parametrize("s,where,what", [
    ("{", "line 1, column 1", "cannot be read as JSON"),
    ("", "", "found an empty text, expected a JSON Schema"),
    ('{"enum": [18446744073709551616]}', "line 1, column", "cannot be read as JSON: too big integer"),
    ('{"type": "object",\n "properties": {"a": {"minLength": -1}}}', "line 2, column 23 (#/properties/a/minLength)", "minLength is -1"),
    ('{"type": "strin"}', "line 1, column 2 (#/type)", "found strin, expected null"),
    ('[1]', "line 1, column 1", "no schema"),
    ('{"patternProperties": {}}', "#/patternProperties", 'the keyword "patternProperties", which hokku does not enforce'),
    ('{"items": {"not": {"type": "null"}}}', "#/items/not", 'not is {"type":"null"}, expected {}, true or false: others are not enforced'),
    ('{"not": {}}', "(#)", "no text at all obeys it: what it needs has the schema false"),
    ('{"type": "nul", "not": {}}', "(#/type)", "found nul"),
    ('{"properties": {"a": {"not": {}}}, "required": ["a"], "type": "object"}', "#/properties/a", "the schema false"),
    ('{"minProperties": 1}', "#/minProperties", "minProperties is 1, expected at most the number of those in required: others are not enforced"),
    ('{"minProperties": 2, "required": ["a", "a"]}', "#/minProperties", "minProperties is 2, expected at most"),
    ('{"minProperties": -1}', "#/minProperties", "minProperties is -1, expected at most"),
    ('{"maxProperties": 1, "properties": {"a": {}, "b": {}}, "additionalProperties": false}', "#/maxProperties", "maxProperties is 1, expected at least the number of those in properties"),
    ('{"maxProperties": 1, "properties": {"a": {}}}', "#/maxProperties", "beside additionalProperties false"),
    ('{"propertyNames": {"enum": ["a"]}}', "#/propertyNames", 'propertyNames is {"enum":["a"]}, expected {"type": "string"}'),
    ('{"propertyNames": {"type": "string", "minLength": 1}}', "#/propertyNames", "which all names obey"),
    ('{"propertyNames": {"type": "integer"}}', "#/propertyNames", "which all names obey"),
    ('{"propertyNames": false}', "#/propertyNames", "propertyNames is false"),
    ('{"anyOf": [{"if": {}}]}', "#/anyOf/0/if", '"if"'),
    ('{"format": "json-pointer"}', "#/format", "date-time"),
    ('{"pattern": "a(?=b)"}', "(#/pattern)", "column 2 of the pattern"),
    ('{"pattern": "\\\\c1"}', "(#/pattern)", "expected a letter behind \\c"),
    ('{"pattern": "(a)\\\\1"}', "(#/pattern)", "back reference"),
    ('{"allOf": [{"pattern": "a"}, {"type": "string",\n "pattern": "b("}]}', "line 2, column 2 (#/allOf/1/pattern)", "a group that ends with )"),
    ('{"properties": {"a": {"pattern": "^(?i)a"}}}', "(#/properties/a/pattern)", "expected (, (?: or (?<name>: flags and the like"),
    ('{"pattern": "(?P<year>a)"}', "(#/pattern)", "expected (, (?: or (?<name>"),
    ('{"pattern": "(?<!a)b"}', "(#/pattern)", "looking ahead or behind"),
    ('{"pattern": "^(a{100}){100}$"}', "(#/pattern)", "more than 20000 states"),
    ('{"pattern": "^a{10000}$"}', "(#/pattern)", "more than 20000 states"),
    ('{"pattern": "^((a|b){100}){100}(a|b){5}$"}', "(#/pattern)", "more than 20000 states"),
    ('{"const": "a", "pattern": "^a{10000}$"}', "(#/pattern)", "more than 20000 states"),
    ('{"pattern": "^a{10001}$"}', "(#/pattern)", "a repetition of at most 10000"),
    ('{"type": "string", "format": "uri", "maxLength": 2083}', "(#)", "20000 states, up to 49 for each character of maxLength: one of at most 244 fits, or none"),
    ('{"type": "string", "pattern": "^a*b*c*d*$", "minLength": 9000}', "(#)", "for each character of minLength: one of at most 3332 fits, or none"),
    ('{"multipleOf": 0.01}', "#/multipleOf", "an integer above 0"),
    ('{"type": "integer", "multipleOf": 123456}', "(#)", "can be enforced"),
    ('{"uniqueItems": true}', "#/uniqueItems", "enum of at most 8"),
    ('{"oneOf": [{"type": "integer"}, {"type": "number"}]}', "#/oneOf", "alternatives 1 and 2"),
    ('{"$ref": "other.json"}', "#/$ref", "no other file"),
    ('{"$ref": "#/$defs/x"}', "#/$ref", "place of a schema"),
    ('{"$ref": "#"}', "(#)", "back to itself"),
    ('{"anyOf": [{"$ref": "#"}, {"type": "null"}]}', "(#)", "back to itself"),
    ('{"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, true]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}, "items": {"$ref": "#/$defs/a"}}',
     "#/$defs/a", "back to itself"),
    ('{"enum": [{"b": 1}], "properties": {"b": {"$ref": "#/properties/b"}}}', "#/properties/b", "back to itself"),
    ('{"type": "string", "minLength": 3, "maxLength": 2}', "line 1, column 1 (#)", "no text at all obeys it: its parts contradict each other"),
    ('{"$defs": {"t": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}', "(#/$defs/t/items)", "without end"),
    ('{"properties": {"a": {"$ref": "#"}},\n "required": ["a"], "type": "object"}', "line 1, column 17 (#/properties/a)", "without end"),
    ('{"type": "number", "minimum": 1e50}', "(#)", "at most 40 digits"),
    ('{"type": "array", "minItems": 1, "items": {"minimum": 1e-50, "maximum": 2e-50, "type": "number"}}', "(#/items)", "at most 40 digits"),
    ('{"type": "array", "minItems": 1, "items": {"minimum": 2, "maximum": 1, "type": "number"}}', "(#/items)", "contradict"),
    ('{"type": []}', "(#/type)", "a list of one at least"),
    ('{"type": "object", "additionalProperties": false, "properties": {"b": {"type": "string", "enum": [1]}, "a": false, "c": {"const": 1, "minimum": 2}},'
     ' "required": ["c"]}', "(#/properties/c)", "contradict"),
    ('{"type": "object", "additionalProperties": false, "properties": {"a": false}, "required": ["a"]}', "(#)", "has the schema false"),
    ('{"anyOf": [{"type": "string", "enum": [1]}, {"allOf": [{"type": "string"}, {"type": "null"}]}]}', "(#/anyOf/1)", "contradict"),
    ('{"oneOf": [{"const": null}, {"type": "null"}]}', "(#/oneOf/1)", "contradict"),
    ("false", "(#)", "has the schema false"),
    ('{"type": "string", "maxLength": 9000000}', "", "524288 states"),
    ('{"enum": []}', "#/enum", "one value at least"),
    ('{"a": 1, "a": 2}', "line 1", "duplicate"),
    ("[" * 5000, "line 1", "cannot be read as JSON"),
    ('{"const": 1e400}', "line 1, column 15", "near '1e400', expected whole numbers from -2^63 to 2^63 - 1, others up to 1.8e308"),
    ('{"enum": [9223372036854775808]}', "line 1, column 29", "near '9223372036854775808', expected whole numbers from -2^63"),
    ('{"items":' * 1500 + "true" + "}" * 1500, "", ""),
])
def test_a_schema_that_cannot_be_enforced_is_refused_by_name(s, where, what):
    if not what:
        Grammar(s, schema=True)
        return
    with pytest.raises(Refused) as e:
        Grammar(s, schema=True)
    assert e.value.code == 2 and where in str(e.value) and what in str(e.value), str(e.value)
