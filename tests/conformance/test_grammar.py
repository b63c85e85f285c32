"""GBNF against an independent recogniser, masks against every token tried one by one."""
import os
import random
import string

import numpy as np
import pytest

from grammar_lib import BYTES, Grammar, Refused, State, Vocab

SLOW = bool(os.environ.get("HOKKU_SLOW_TESTS"))


# --- the reference: sets of positions, straight from the definition of each expression ---
# An expression is ("text", str) | ("class", set of characters) | ("seq", [..]) | ("alt", [..]) | ("repeat", x, m, n)
# | ("rule", name). ends(x, text, at) are the places where it may end when it begins at `at`.

class Reference:
    def __init__(self, rules):
        self.rules = rules

    def recognises(self, text):
        self.memo = {}
        return len(text) in self.ends(("rule", "root"), text, 0)

    def ends(self, x, text, at):
        kind = x[0]
        if kind == "text":
            return {at + len(x[1])} if text.startswith(x[1], at) else set()
        if kind == "class":
            return {at + 1} if at < len(text) and text[at] in x[1] else set()
        if kind == "seq":
            now = {at}
            for y in x[1]:
                now = set().union(*[self.ends(y, text, p) for p in now])
            return now
        if kind == "alt":
            return set().union(*[self.ends(y, text, at) for y in x[1]])
        if kind == "repeat":
            _, y, least, most = x
            found, now, seen, n = set(), {at}, {at}, 0
            if least == 0:
                found |= now
            while now and (most is None or n < most):
                n += 1
                now = set().union(*[self.ends(y, text, p) for p in now])
                if n >= least:
                    if most is None and n > least:
                        now -= seen
                    seen |= now
                    found |= now
            return found
        key = (x[1], at)
        if key not in self.memo:
            self.memo[key] = set()  # no left recursion: never read before it is known
            self.memo[key] = self.ends(self.rules[x[1]], text, at)
        return self.memo[key]


ALPHABET = "ab\"\\[]-^é€😀\n"


def written(x, rng):
    """An expression as GBNF, with the escapes and blanks that people use."""
    def char(c, special):
        if c == "\n":
            return rng.choice(["\\n", "\\x0A", "\\u000a"])
        if c in special:
            return "\\" + c
        if rng.random() < .1:
            return f"\\U{ord(c):08x}" if ord(c) > 0xFFFF or rng.random() < .5 else f"\\u{ord(c):04X}"
        return c
    kind = x[0]
    if kind == "text":
        return '"' + "".join(char(c, '"\\') for c in x[1]) + '"'
    if kind == "class":
        if len(x) > 2:  # negated
            return "[^" + "".join(char(c, "\\]-^[") for c in x[2]) + "]"
        return "[" + "".join(char(c, "\\]-^[") for c in sorted(x[1])) + "]"
    if kind == "seq":
        return " ".join(written(y, rng) for y in x[1]) if x[1] else '""'
    if kind == "alt":
        return "(" + rng.choice([" | ", "|", "\n  | ", " # why\n | "]).join(written(y, rng) for y in x[1]) + ")"
    if kind == "repeat":
        _, y, least, most = x
        inner = "(" + written(y, rng) + ")"
        simple = {(0, None): "*", (1, None): "+", (0, 1): "?"}
        if (least, most) in simple and rng.random() < .8:
            return inner + simple[least, most]
        return inner + ("{%d,}" % least if most is None else "{%d}" % least if least == most else "{%d,%d}" % (least, most))
    return x[1]


def expression(rng, depth, names):
    kind = rng.choice(["text", "text", "class", "class", "rule"] + (["seq", "seq", "alt", "repeat"] if depth else []))
    if kind == "text":
        return ("text", "".join(rng.choices(ALPHABET, k=rng.randint(0 if rng.random() < .1 else 1, 3))))
    if kind == "class":
        chars = set(rng.sample(ALPHABET, rng.randint(1, 4)))
        if rng.random() < .3:
            return ("class", set(ALPHABET) - chars, sorted(chars))
        return ("class", chars)
    if kind == "rule":
        return ("rule", rng.choice(names)) if names else ("text", "b")
    if kind == "alt":
        return ("alt", [expression(rng, depth - 1, names) for _ in range(rng.randint(1, 3))])
    if kind == "repeat":
        least = rng.choice([0, 0, 1, 2])
        most = rng.choice([None, None, least, least + 1, least + 3])
        return ("repeat", expression(rng, depth - 1, names), least, most if most != 0 else 1)
    return ("seq", [expression(rng, depth - 1, names) for _ in range(rng.randint(1, 3))])


def random_grammar(rng):
    """Rules whose recursion comes behind a text of their own, so that it is never left recursion."""
    names = ["root", "x", "some-rule", "y2"]
    rules = {}
    for name in names:
        lower = names[names.index(name) + 1:]
        body = [expression(rng, 2, lower)]
        if rng.random() < .6:
            body.append(("seq", [("text", rng.choice(ALPHABET)), expression(rng, 1, names), ("rule", rng.choice(names))]))
        body.append(expression(rng, 1, lower))
        rules[name] = ("alt", body)
    lines = [f"{name} ::= {written(body, rng)}" for name, body in rules.items()]
    rng.shuffle(lines)
    return rules, "# random\n" + "\n\n".join(lines) + "\n"


def random_text(rng, grammar):
    """Along the grammar, mostly: a text that it takes, or one that it nearly takes."""
    s, out = State(grammar), b""
    for _ in range(rng.randint(0, 25)):
        if s.may_end() and rng.random() < .2:
            break
        ids = s.allowed()
        if ids is None or len(ids) == 0 or ids[0] == 256:
            break
        c = bytes([int(rng.choice(ids[ids < 256]))])
        s.take(c)
        out += c
    text = out.decode(errors="ignore")
    if rng.random() < .4 and text:
        i = rng.randrange(len(text))
        text = text[:i] + rng.choice(["", rng.choice(ALPHABET)]) + text[i + 1:]
    return text


@pytest.mark.parametrize("seed", range(400 if SLOW else 8))
def test_gbnf_takes_what_the_reference_takes(seed):
    rng = random.Random(seed)
    n = {True: 0, False: 0}
    for _ in range(20):
        rules, text = random_grammar(rng)
        grammar, reference = Grammar(text), Reference(rules)
        tried = {random_text(rng, grammar) for _ in range(30)}
        tried |= {"".join(rng.choices(ALPHABET, k=rng.randint(0, 4))) for _ in range(30)}
        for t in sorted(tried):
            if not set(t) <= set(ALPHABET):
                continue  # a negated class takes more than the reference's alphabet
            want = reference.recognises(t)
            n[want] += 1
            assert grammar.accepts(t) == want, (text, t)
    assert min(n.values()) > 20


def byte_vocab(rng, n):
    """Tokens that cut words and characters anywhere, some of them twice; two end tokens, one without text."""
    corpus = ('{"name":"Ann \\"é€😀\\" x","age":12.5e3,"ok":[true,false,null],"s":"ab ba\\n"} \n\t[]-^aabbab ' * 3).encode()
    texts = [bytes([c]) for c in range(256)]
    while len(texts) < n - 3:
        i = rng.randrange(len(corpus))
        texts.append(corpus[i:i + rng.choice([2, 2, 3, 3, 4, 5, 6, 8, 12, 40])])
    return Vocab(texts + [b"<end>", b"<stop>", b""], [])  # the end tokens are given by the caller below


JSON = r'''
root   ::= value
value  ::= "{" (pair ("," pair)*)? "}" | "[" (value ("," value)*)? "]" | string | number | "true" | "false" | "null"
pair   ::= string ":" value
string ::= "\"" ([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
'''
COUNTED = r'''root ::= "{\"a\":\"" [^"\\\n]{2,9} "\",\"b\":\"" ([^"\\] | "\\" ["\\])* "\"}" | [a-zA-Z é€]{0,40} "." | [^x]{3} [^y]*'''
WORDS = r'''root ::= (word " ")* word
word ::= [a-z]+ | [a-zé😀]+ "-" | "\"" [^"]{0,5} "\""'''


@pytest.mark.parametrize("text", [JSON, COUNTED, WORDS])
@pytest.mark.parametrize("seed", range(12 if SLOW else 2))
def test_a_mask_is_every_token_that_can_follow_and_no_other(text, seed):
    rng = random.Random(seed)
    texts = byte_vocab(rng, 1500).texts
    ends = [len(texts) - 3, len(texts) - 1]
    vocab = Vocab([b"" if i in ends else t for i, t in enumerate(texts)], ends)
    grammar = Grammar(text, vocab)
    for _ in range(12 if SLOW else 3):
        s = State(grammar)
        for _ in range(40):
            allowed = s.allowed()
            if s.distance() == 0 and allowed is None:
                break
            want = [i for i, t in enumerate(vocab.texts) if (t and s.copy().take(t) == len(t)) or (i in ends and s.may_end())]
            assert list(allowed) == want
            assert list(s.allowed(by_walk=True)) == want
            choice = [i for i in want if i not in ends]
            if not choice:
                assert s.may_end()
                break
            long = [i for i in choice if len(vocab.texts[i]) > 1]
            assert s.accept(rng.choice(long if long and rng.random() < .7 else choice))
            for other in set(range(len(texts))) - set(want):
                if rng.random() < .002:
                    assert not s.copy().accept(other) or other in s.allowed()


def test_an_end_token_is_allowed_where_the_answer_may_end_and_nowhere_else():
    vocab = Vocab([b"a", b"b", b"", b"ab"], [2])
    s = State(Grammar('root ::= "a" "b"?', vocab))
    assert list(s.allowed()) == [0, 3] and not s.copy().accept(2)
    assert s.accept(0) and list(s.allowed()) == [1, 2]
    assert s.copy().accept(1)
    assert s.accept(2) and s.allowed() is None and not s.accept(1)


def test_what_is_forced_and_the_shortest_way_to_the_end():
    g = Grammar(r'root ::= "begin:" [ab]{2,4} (":" "end" | " and so on")')
    s = State(g)
    assert s.forced() == b"begin:" and s.distance() == len("begin:aa:end")
    out = b""
    while s.distance():
        token = s.closing()
        out += bytes([token])
        assert s.accept(token)
    assert out[6:8].strip(b"ab") == b"" and out[8:] == b":end"
    assert s.closing() == 256


def test_the_shortest_way_takes_the_longest_token():
    s = State(Grammar(r'root ::= "abcd" [0-9]*', Vocab([b"a", b"ab", b"abc", b"b", b"c", b"d", b"cd", b""], [7])))
    path = []
    while s.distance():
        path.append(s.closing())
        assert s.accept(path[-1])
    assert path == [2, 5]


def test_characters_come_in_pieces():
    s = State(Grammar('root ::= [é-ü] "€"'))
    assert list(s.allowed()) == [0xC3]
    assert s.take(b"\xc3") == 1 and list(s.allowed()) == list(range(0xA9, 0xBD))
    assert s.take(b"\xa9\xe2\x82") == 3 and list(s.allowed()) == [0xAC]


def test_deep_recursion_costs_no_more_than_its_depth():
    g = Grammar('root ::= "(" root ")" root | ""')
    s = State(g)
    assert s.take(b"(" * 100000 + b")" * 99999) == 199999
    assert not s.may_end() and s.take(b")") == 1 and s.may_end()


def test_ambiguity_does_not_multiply():
    g = Grammar('root ::= a\na ::= "x" a b | "x" a c | "x"\nb ::= "y"?\nc ::= "y"?')
    s = State(g)
    assert s.take(b"x" * 200 + b"y" * 199) == 399 and s.may_end() and s.take(b"y") == 0


@pytest.mark.parametrize("text,where,what", [
    ("", "", 'no rule "root"'),
    ("x ::= y", "", 'no rule "root"'),
    ('root ::= "a" other', "line 1, column 14", "defined nowhere"),
    ('root ::= "a\n', "line 1, column 12", 'the " that ends the text'),
    ('root ::= "a\\q"', "line 1, column 12", "\\uHHHH"), ('root ::= "a\\q"', "", '\\n or \\r or \\t or \\\\ or \\" or \\[ or \\] or \\- or \\^ or \\/ or \\xHH or'),
    ("root ::= [a-", "line 1, column 13", "the ] that ends the class"),
    ("root ::= [z-a]", "line 1, column 11", "a range"),
    ('root ::= ("a"', "line 1, column 14", "an item, | or )"),
    ('root ::= "a" )', "line 1, column 14", "the end of the line"),
    ('root ::= "a"{3,2}', "line 1, column 13", "m <= n"),
    ('root ::= "a"{,}', "line 1, column 15", "{m,n}"),
    ('root ::= "a"{1000000}', "line 1, column 14", "at most 100000"),
    ('root = "a"', "line 1, column 6", "::="),
    ('root ::= "a"\nroot ::= "b"', "line 2, column 1", "defined in line 1"),
    ('root ::= "\\uD800"', "line 1, column 11", "surrogate"),
    ('é ::= "a"', "line 1, column 1", "name of a rule"),
    ("root ::= <think>", "line 1, column 10", "tokens cannot be named"),
    ('# one\nroot ::= root "a" | "b"', "line 2, column 1", "left recursion"),
    ('root ::= x\nx ::= y "a"\ny ::= "b"? x | "c"', "line 2, column 1", "left recursion"),
    ('root ::= "a" root', "line 1, column 1", "comes to an end"),
    ('root ::= "a" | x\nx ::= "b" x', "line 2, column 1", "comes to an end"),
    ("root ::= []", "line 1, column 1", "comes to an end"),
    ('root ::= (((("a"{1,9000} "b"){1,9000} "c"){1,9000} "d"){1,90000} "e"){1,90000} "f"', "", ""),
    ("root ::= " + "(" * 300 + '"a"' + ")" * 300, "line 1, column 210", "200 deep"),
    ("root ::= " + '("a" "b"){90000} ' * 6, "", "524288 states"),
])
def test_a_wrong_grammar_is_refused_with_its_place(text, where, what):
    if not what:
        Grammar(text)  # nested repetitions add up, they do not multiply
        return
    with pytest.raises(Refused) as e:
        Grammar(text)
    assert e.value.code == 2 and where in str(e.value) and what in str(e.value), str(e.value)


def test_a_chain_of_rules_as_long_as_the_text_is_no_deep_recursion():
    n = 20000
    text = "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} | \"a\"\n" for i in range(n)) + f'r{n} ::= "b"\n'
    assert Grammar(text).accepts("b")


def chain(n):
    """Rules that begin with each other, each of which may be read in one more way than the one before."""
    return "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} | r{i + 1} r{i + 1}\n" for i in range(n)) + f'r{n} ::= "a"\n'


def test_what_a_chain_of_rules_keeps_is_bounded():
    """It was the square of its length: 20,000 rules kept 1.5 GB."""
    Grammar(chain(2000))
    with pytest.raises(Refused) as e:
        Grammar(chain(20000))
    assert "too ambiguous" in str(e.value)


def counts(n):
    """Alternatives of which each takes texts with an even number of other letters: which of them can end differs for every text."""
    rng, letters = random.Random(1), string.ascii_lowercase
    odd = ["".join(c for c in letters if rng.random() < .5) for _ in range(n)]
    return ("root ::= " + " | ".join(f"r{i}" for i in range(n)) + "\n" +
            "".join(f"r{i} ::= [^{s}]* ([{s}] [^{s}]* [{s}] [^{s}]*)*\n" for i, s in enumerate(odd)))


def test_how_long_is_looked_for_what_may_come_next_is_bounded():
    """A mask took many seconds, in which no Ctrl-C was heard; and as many as eight were made before the answer began."""
    words = [a + b + c for a in string.ascii_lowercase for b in ["", *string.ascii_lowercase] for c in ("", *string.ascii_lowercase) if b or not c]
    vocab = Vocab([w.encode() for w in words] + [b""], [len(words)])
    assert len(State(Grammar(counts(10), vocab)).allowed()) == len(words) + 1
    s = State(Grammar(counts(1500), vocab))
    assert s.allowed() is None
    assert s.take(b"ab") == 2  # which is a short look
