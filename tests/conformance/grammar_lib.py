"""The grammar engine (grammar_lib.c) from Python."""
import ctypes
import os
import pathlib

import numpy as np

BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))
LIB = ctypes.CDLL(str(BUILD / "tests/conformance/libgrammar_for_tests.so"))
for name in ("hokku_vocab", "hokku_vocab_of", "hokku_grammar", "hokku_state"):
    getattr(LIB, name).restype = ctypes.c_void_p
for name in ("hokku_grammar_states", "hokku_forced"):
    getattr(LIB, name).restype = ctypes.c_size_t
for name in ("hokku_vocab_size", "hokku_distance"):
    getattr(LIB, name).restype = ctypes.c_uint32


class Refused(Exception):
    """A grammar that is refused: the message and the exit code."""
    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


class Vocab:
    def __init__(self, texts=None, end_ids=(), path=None):
        if path:
            message = ctypes.create_string_buffer(1024)
            self.p = LIB.hokku_vocab_of(os.fsencode(path), message, ctypes.c_size_t(1024))
            assert self.p, message.value.decode()
        else:
            self.texts = list(texts)
            begin = np.cumsum([0] + [len(t) for t in self.texts]).astype(np.uint32)
            ends = np.array(list(end_ids), np.int32)
            self.p = LIB.hokku_vocab(b"".join(self.texts), begin.ctypes.data_as(ctypes.c_void_p),
                                     ctypes.c_uint32(len(self.texts)), ends.ctypes.data_as(ctypes.c_void_p),
                                     ctypes.c_size_t(len(ends)))
        self.n = LIB.hokku_vocab_size(ctypes.c_void_p(self.p))
        self.end_ids = list(end_ids)

    def __del__(self):
        if getattr(self, "p", None):
            LIB.hokku_vocab_free(ctypes.c_void_p(self.p))


BYTES = Vocab([bytes([c]) for c in range(256)] + [b""], [256])


class Grammar:
    def __init__(self, text, vocab=BYTES, schema=False, indent=0):
        text = text.encode() if isinstance(text, str) else text
        code, message = ctypes.c_int(0), ctypes.create_string_buffer(1024)
        self.vocab = vocab
        self.p = LIB.hokku_grammar(ctypes.c_bool(schema), text, ctypes.c_size_t(len(text)), ctypes.c_uint(indent),
                                   ctypes.c_void_p(vocab.p), ctypes.byref(code), message, ctypes.c_size_t(1024))
        if not self.p:
            raise Refused(message.value.decode(errors="replace"), code.value)

    def __del__(self):
        if getattr(self, "p", None):
            LIB.hokku_grammar_free(ctypes.c_void_p(self.p))

    def n_states(self):
        return LIB.hokku_grammar_states(ctypes.c_void_p(self.p))

    def accepts(self, text):
        text = text.encode() if isinstance(text, str) else text
        s = State(self)
        return s.take(text) == len(text) and s.may_end()


class State:
    def __init__(self, grammar, other=None):
        self.grammar = grammar
        self.p = ctypes.c_void_p(LIB.hokku_state(ctypes.c_void_p(grammar.p), other.p if other else None))

    def __del__(self):
        if getattr(self, "p", None):
            LIB.hokku_state_free(self.p)

    def copy(self):
        return State(self.grammar, self)

    def take(self, text):
        """Goes on by as many of the bytes as can follow; how many that were."""
        n = ctypes.c_size_t()
        LIB.hokku_take(self.p, text, ctypes.c_size_t(len(text)), ctypes.byref(n))
        return n.value

    def accept(self, token):
        return bool(LIB.hokku_accept(self.p, ctypes.c_int32(token)))

    def may_end(self):
        return bool(LIB.hokku_may_end(self.p))

    def distance(self):
        return LIB.hokku_distance(self.p)

    def closing(self):
        return LIB.hokku_closing(self.p)

    def forced(self, most=1000):
        out = ctypes.create_string_buffer(most + 1)
        n = LIB.hokku_forced(self.p, out, ctypes.c_size_t(most))
        return out.raw[:n]

    def words(self, by_walk=False):
        words = np.zeros((self.grammar.vocab.n + 31) // 32, np.uint32)
        f = LIB.hokku_mask_by_walk if by_walk else LIB.hokku_mask
        ok = f(self.p, words.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(len(words)))
        return words if ok else None

    def allowed(self, by_walk=False):
        """The ids that the mask allows, ascending; None: a failure."""
        words = self.words(by_walk)
        if words is None:
            return None
        return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
