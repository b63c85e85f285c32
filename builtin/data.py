"""Dialogues for the built-in model, from a seed. `python3 data.py [seed] [n]` prints some.

A dialogue is a list of (user, answer) turns, perhaps with a system prompt before it. Every
task is a function that returns turns; a conversation strings tasks together, so that what
was said early has to be kept over other talk.
"""
import random
import string
import sys

import heldout
import manual
from haiku import Haiku, scene_of
from manual import expand, loosen
from words import (ANIMALS, CITIES, COLORS, DAYS, MONTHS, NAMES, NUMBER_WORDS, OPPOSITES,
                   PLAIN_NOUNS, SCENES, SUBJECTS, UNCOUNTED, plural)

ONSETS = "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl kr l m n p pl pr qu r s sh sk sl sm sn sp st str t " \
         "th tr v w y z zh".split() + ["", ""]
VOWELS = "a e i o u ai au ee ea ie io oa oo ou y".split() + list("aeiou") * 3
CODAS = "b ck d f g k l ll m n nd ng nt p r rd rk rn rt s sh sk ss st t th x z ld lm mp".split() + [""] * 12

FOREIGN = {"a": "áàâäåãæ", "e": "éèêë", "i": "íìîï", "o": "óòôöøõ", "u": "úùûü", "n": "ñ", "c": "çčć", "s": "šśß", "z": "žż", "l": "ł",
           "y": "ý"}

ALL_NOUNS = sorted(set(PLAIN_NOUNS) | {n for v in SCENES.values() for n in v})


class Teacher:
    def __init__(self, seed, pieces=()):
        self.rng = random.Random(seed)
        self.haiku = Haiku(self.rng, heldout.WORDS)
        # pieces: letter-only vocabulary entries, so that every one of them is copied at times
        self.pieces = list(pieces)
        self.focus = 0.0  # share of first lessons, set by the trainer

    # -- words that nobody has seen ------------------------------------------------------

    def invented(self):
        rng = self.rng
        while True:
            r = rng.random()
            if r < 0.45:
                word = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)
                               for _ in range(rng.choice((1, 2, 2, 2, 3, 3))))
            elif r < 0.70 and self.pieces:
                word = "".join(rng.choice(self.pieces) for _ in range(rng.choice((1, 1, 2, 2, 3))))
            else:
                word = "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(2, 8)))
            if 2 <= len(word) <= 14 and word not in heldout.WORDS:
                if rng.random() < 0.03:
                    # letters beyond ASCII are several bytes, often several tokens
                    word = "".join(rng.choice(FOREIGN[c]) if c in FOREIGN and rng.random() < 0.5 else c for c in word)
                elif rng.random() < 0.02:
                    word = word + "-" + self.seen(ALL_NOUNS)
                return word

    def seen(self, words):
        while True:
            word = self.rng.choice(words)
            if word.lower() not in heldout.WORDS:
                return word

    def name(self):
        name = self.seen(NAMES) if self.rng.random() < 0.35 else self.invented().capitalize()
        if self.rng.random() < 0.06:
            name = name.lower()
        elif self.rng.random() < 0.08:
            name += " " + (self.seen(NAMES) if self.rng.random() < 0.3 else self.invented().capitalize())
        return name

    def city(self):
        r = self.rng.random()
        city = self.seen(CITIES) if r < 0.35 else self.invented().capitalize()
        if r > 0.9:
            city = self.rng.choice(("New", "San", "Port", "Old", "Saint", "North", "Los", "Bad")) + " " + city
        return city

    def color(self):
        return self.seen(COLORS) if self.rng.random() < 0.6 else self.invented()

    def any_word(self):
        r = self.rng.random()
        if r < 0.30:
            return self.rng.choice(NUMBER_WORDS)
        if r < 0.55:
            return self.seen(ALL_NOUNS)
        if r < 0.60:
            return plural(self.seen(ALL_NOUNS))
        if r < 0.63:
            return self.rng.choice((self.seen(NAMES), self.seen(CITIES), self.seen(COLORS)))
        word = self.invented()
        return word.capitalize() if self.rng.random() < 0.08 else word

    def any_subject(self):
        """A phrase that can stand after "about", and the word of it that the poem names."""
        rng, r = self.rng, self.rng.random()
        if r < 0.35:
            subject = rng.choice(sorted(SUBJECTS))
            return subject, subject.split(" ")[-1]
        noun = self.seen(ALL_NOUNS) if r < 0.75 else self.invented()
        form = rng.random()
        if form < 0.4:
            return "the " + noun, noun
        if form < 0.6 and noun not in UNCOUNTED:
            return ("an " if noun[0] in "aeiou" else "a ") + noun, noun
        if form < 0.75 and noun not in UNCOUNTED:
            noun = plural(noun)
        return (rng.choice(("my ", "old ", "")) if form > 0.9 else "") + noun, noun

    # -- haiku ----------------------------------------------------------------------------

    MAKE = ["write a haiku", "write a haiku", "write a haiku", "write a haiku", "write a haiku", "write me a haiku", "please write a haiku",
            "can you write a haiku", "could you write a haiku", "compose a haiku", "make a haiku",
            "give me a haiku", "a haiku", "haiku", "I want a haiku", "I would like a haiku", "make me a haiku",
            "write a short haiku", "write one haiku", "write a new haiku", "tell me a haiku", "create a haiku",
            "write a poem", "write a short poem", "write a poem of three lines", "please compose a haiku",
            "let me hear a haiku", "write a beautiful haiku", "generate a haiku", "I need a haiku",
            "will you write a haiku", "write a small haiku", "now write a haiku", "say a haiku"]
    ABOUT = ["about {s}", "about {s}", "about {s}", "about {s}", "on {s}", "for {s}", "about {s}", "on the subject of {s}"]
    WITH = ["with the word {w}", "with the word {w}", "containing the word {w}", "containing the word {w}", "that contains the word {w}", "that contains the word {w}",
            "which contains the word {w}", "using the word {w}", "that uses the word {w}", "that includes the word {w}",
            "including the word {w}", "with {w} in it", "containing {w}", "that contains {w}", "that mentions {w}",
            "mentioning {w}", "which has the word {w} in it", "with the word {w} in it", "that has {w} in it",
            "in which the word {w} appears", "in which {w} appears", "and use the word {w}", "and include the word {w}",
            "where the word {w} occurs", "with the number {w}", "that contains the number {w}", "with the words {w}",
            "about {w}", "around the word {w}", "with the word {w} somewhere", "that says {w}"]
    WITH_AFTER = ["use the word {w}", "it must contain the word {w}", "it should contain the word {w}", "the word {w} must appear",
                  "it must include the word {w}", "include the word {w}", "one line must contain {w}", "mention {w}",
                  "it has to contain {w}", "the word {w} should be in it", "put the word {w} in it",
                  "the word {w} must appear in it", "make sure it contains the word {w}",
                  "it must contain {w}", "use {w}", "the haiku must contain the word {w}", "the poem must contain {w}"]
    TAILS = ["three lines", "answer with the haiku only", "only the haiku", "nothing else", "just the poem", "please",
             "only three lines", "no title", "answer with the poem only", "three lines, nothing else"]

    def quoted(self, word):
        r = self.rng.random()
        return f'"{word}"' if r < 0.18 else f"'{word}'" if r < 0.30 else word

    def haiku_turn(self):
        rng = self.rng
        r = rng.random()
        make, words, scene = rng.choice(self.MAKE), [], None
        text, after = make, None
        if r < 0.36 or r > 0.84:
            subject, named = self.any_subject()
            scene = scene_of(subject)
            text += " " + rng.choice(self.ABOUT).replace("{s}", subject)
            words.append(named)
        if r >= 0.36:
            word = self.any_word()
            shown = self.quoted(word)
            words.append(word)
            if not (r > 0.84) and rng.random() < 0.06:
                words.append(self.any_word())
                text += rng.choice((" with the words ", " containing the words ", " with ", " that contains ")) + \
                    rng.choice((" and ", ", ")).join((shown, words[1]))
            elif rng.random() < 0.75:
                text += ("," if rng.random() < 0.1 else "") + " " + rng.choice(self.WITH).replace("{w}", shown)
            else:
                after = rng.choice(self.WITH_AFTER).replace("{w}", shown)
        elif rng.random() < 0.15:
            text, words, scene = make, [], None
        text += rng.choice((".", ".", ".", "", "", "?" if text[:2] in ("ca", "co", "wi") else ".", ", please.", ":"))
        if after:
            text = text.rstrip(".:?") + ". " + after[0].upper() + after[1:] + rng.choice((".", ".", ""))
        if rng.random() < 0.12:
            tail = rng.choice(self.TAILS)
            text = text.rstrip(".:?") + ". " + tail[0].upper() + tail[1:] + rng.choice((".", ""))
        # the subject may stand anywhere; an asked word counts more than the subject
        ask = list(dict.fromkeys(words))
        rng.shuffle(ask)
        if len(ask) == 2 and ask[0].lower() in ask[1].lower():
            ask = [words[-1]]
        turns = [(self.capital(text), self.haiku.write(ask, scene))]
        while rng.random() < 0.10:
            more = rng.choice(["another one", "another one please", "again", "one more", "another", "write another one",
                               "once more", "a different one", "one more haiku"])
            turns.append((loosen(more + rng.choice((".", "!", "")), rng), self.haiku.write(ask, scene)))
        return turns

    def capital(self, text):
        r = self.rng.random()
        return text[0].upper() + text[1:] if r < 0.8 else text

    # -- remembering ----------------------------------------------------------------------

    # kind: (ways to tell, answers to telling, ways to ask, answers, answers if not told)
    MEMORY = {
        "name": (["my name is {x}", "I am {x}", "I'm {x}", "call me {x}", "you can call me {x}", "my name's {x}",
                  "the name is {x}", "hello, my name is {x}", "hi, I'm {x}", "hello, I am {x}", "hi, my name is {x}",
                  "people call me {x}", "remember that my name is {x}", "remember my name: {x}", "please remember: my name is {x}"],
                 ["Nice to meet you, {x}.", "Hello, {x}!", "Welcome, {x}."],
                 ["what is my name", "what's my name", "who am I", "do you remember my name", "do you know my name", "what am I called",
                  "tell me my name", "say my name", "what was my name", "which name did I tell you", "how am I called",
                  "what name did I give you", "can you tell me my name", "do you still know my name", "remind me of my name"],
                 ["Your name is {x}."], "You have not told me your name."),
        "color": (["my favorite color is {x}", "my favourite colour is {x}", "the color I like best is {x}", "I like {x} best of all colors",
                   "I love the color {x}", "my color is {x}", "the colour I love is {x}", "remember that my favorite color is {x}",
                   "please remember: my favourite colour is {x}"],
                  ["I will remember {x}.", "A fine color, {x}.", "{x}, noted."],
                  ["what is my favorite color", "what is my favourite colour", "which color do I like", "what color do I like best",
                   "what's my favorite color", "do you remember my color", "which colour did I tell you", "what is my color",
                   "tell me my favorite color", "do you know my favourite colour", "which color is my favorite", "what color do I love"],
                  ["Your favorite color is {x}."], "You have not told me your favorite color."),
        "number": (["my number is {x}", "my favorite number is {x}", "my lucky number is {x}", "remember the number {x}",
                    "the number is {x}", "please remember {x}", "my favourite number is {x}", "I like the number {x}",
                    "remember that my number is {x}", "the secret number is {x}", "keep the number {x} in mind"],
                   ["I will remember {x}.", "{x}, noted.", "Your number is {x}, good."],
                   ["what is my number", "what's my favorite number", "which number did I tell you", "what was the number",
                    "do you remember the number", "what is my lucky number", "tell me my number", "which number is it",
                    "what number did I say", "what is the number", "what is my favourite number", "what is the secret number"],
                   ["Your number is {x}."], "You have not told me a number."),
        "city": (["I live in {x}", "I am from {x}", "I'm from {x}", "my city is {x}", "I come from {x}", "my home is {x}",
                  "I was born in {x}", "my home town is {x}", "I live in the city of {x}", "my favorite city is {x}"],
                 ["{x} must be a good place.", "Greetings to {x}.", "I will remember {x}."],
                 ["where do I live", "where am I from", "which city do I live in", "what is my city", "what city am I from",
                  "do you remember my city", "where do I come from", "which city did I name", "tell me my city", "where is my home",
                  "what is my home town", "in which city do I live"],
                 ["Your city is {x}."], "You have not told me your city."),
        "pet": (["I have a {a} called {x}", "my {a} is called {x}", "my {a}'s name is {x}", "my pet is a {a} named {x}", "I have a {a} named {x}",
                 "the name of my {a} is {x}", "my pet is called {x}"],
                ["What a nice {a}, {x}.", "Say hello to {x}.", "I like {x} already."],
                ["what is my pet called", "what is the name of my pet", "what's my pet's name", "do you remember my pet",
                 "what is my {a} called", "what is the name of my {a}", "what's my {a}'s name", "who is my pet", "what is my {a}'s name"],
                ["Your {a} is called {x}."], "You have not told me about your pet."),
    }

    def fact(self, kind):
        rng = self.rng
        if kind == "number":
            return {"x": str(rng.choice((rng.randint(0, 9), rng.randint(10, 99), rng.randint(10, 99), rng.randint(100, 9999)))), "a": ""}
        if kind == "pet":
            return {"x": self.name(), "a": rng.choice(ANIMALS)}
        return {"x": getattr(self, kind)(), "a": ""}

    def put(self, text, fact):
        for k, v in fact.items():
            text = text.replace("{" + k + "}", v)
        return text

    def tell(self, kind, fact):
        tell, reply = self.MEMORY[kind][:2]
        text = self.rng.choice(tell)
        if fact["a"] and "{a}" not in text:
            fact["a"] = "pet"
        text = self.capital(self.put(text, fact)) + self.rng.choice((".", ".", ".", "", "!"))
        answer = self.put(self.rng.choice(reply), fact)
        return text, answer[0].upper() + answer[1:] if not answer.startswith(fact["x"]) else answer

    def recall(self, kind, fact):
        _, _, asks, answers, unknown = self.MEMORY[kind]
        ask = self.rng.choice(asks)
        animal = fact["a"] if fact else self.rng.choice(ANIMALS)
        ask = ask.replace("{a}", animal)
        ask = loosen(ask + "?" if not ask.startswith(("tell", "say", "remind")) else ask + ".", self.rng)
        return ask, self.put(self.rng.choice(answers), fact) if fact else unknown

    # -- numbers, order, words ------------------------------------------------------------

    def plus(self, a, b):
        """The way people add in their head; the answer stands last."""
        if a < 10 and b < 10 or a % 10 == 0 and b % 10 == 0 or a % 10 == 0 and b < 10 or b % 10 == 0 and a < 10:
            return f"{a} + {b} = {a + b}."
        units, tens = a % 10 + b % 10, a // 10 * 10 + b // 10 * 10
        first = f"{a % 10} + {b % 10} = {units}"
        if a >= 10 and b >= 10:
            first += f", {a // 10 * 10} + {b // 10 * 10} = {tens}"
        return f"{first}, {tens} + {units} = {a + b}. So {a} + {b} = {a + b}."

    def minus(self, a, b):
        if b > a:
            return f"{self.minus(b, a)[:-1]}, and {a} - {b} = -{b - a}."
        if a == b or b == 0 or a < 10:
            return f"{a} - {b} = {a - b}."
        if b < 10 and a % 10 >= b:
            return f"{a % 10} - {b} = {a % 10 - b}. So {a} - {b} = {a - b}."
        if b % 10 == 0:
            return f"{a // 10} - {b // 10} = {(a - b) // 10}. So {a} - {b} = {a - b}."
        tens, rest = b // 10 * 10, a - b // 10 * 10
        steps = f"{a} - {tens} = {rest}, " if tens else ""
        if rest % 10 >= b % 10:
            steps += f"{rest} - {b % 10} = {a - b}"
        elif rest < 20:
            steps += f"{rest} - {b % 10} = {a - b}"
        else:
            # over the ten: 12 - 8 = 4 first, then the tens that are left
            low = 10 + rest % 10
            steps += f"{low} - {b % 10} = {low - b % 10}, {rest - low} + {low - b % 10} = {a - b}"
        return f"{steps}. So {a} - {b} = {a - b}."

    SUMS = ["what is {e}?", "what is {e}?", "what is {e}?", "what's {e}?", "{e}", "{e} =", "{e}?", "{e} = ?", "how much is {e}?", "calculate {e}.",
            "compute {e}.", "what does {e} make?", "what do you get for {e}?", "can you tell me {e}?", "tell me {e}.",
            "please calculate {e}.", "what is the result of {e}?", "how much does {e} give?", "solve {e}."]

    def sum_turn(self):
        rng = self.rng
        while True:
            op = rng.choice("+++--")
            a, b = rng.randint(0, 99), rng.randint(0, 99)
            if rng.random() < 0.12:
                a, b = rng.randint(0, 12), rng.randint(0, 12)
            if op == "-" and b > a and rng.random() < 0.9:
                a, b = b, a
            if not heldout.pair(a, op, b):
                break
        if op == "+":
            e = rng.choice(("{a} + {b}",) * 5 + ("{a}+{b}", "{a} plus {b}", "{a} plus {b}", "the sum of {a} and {b}"))
            answer = self.plus(a, b)
        else:
            e = rng.choice(("{a} - {b}",) * 5 + ("{a}-{b}", "{a} minus {b}", "{a} minus {b}"))
            answer = self.minus(a, b)
        e = e.format(a=a, b=b)
        text = rng.choice(self.SUMS).replace("{e}", e)
        if rng.random() < 0.08:
            text = rng.choice((f"add {a} and {b}.", f"add {b} to {a}.", f"what is {a} and {b} together?")
                              if op == "+" else (f"subtract {b} from {a}.", f"take {b} away from {a}."))
        return [(self.capital(text), answer)]

    def count_turn(self):
        rng = self.rng
        a = rng.choice((0, 1, 1, 1, 1, rng.randint(0, 90)))
        n = rng.randint(3, 10)
        b = a + n - 1
        up = ", ".join(str(i) for i in range(a, b + 1))
        down = ", ".join(str(i) for i in range(b, a - 1, -1))
        asks = [(f"count from {a} to {b}.", up), (f"count backwards from {b} to {a}.", down), (f"count down from {b} to {a}.", down),
                (f"which number comes after {b}?", f"{b + 1} comes after {b}."), (f"list the numbers from {a} to {b}.", up),
                (f"what comes after {b}?", f"{b + 1} comes after {b}.")]
        if a == 1:
            asks += [(f"count to {b}.", up)] * 3
        if b > 0:
            asks += [(f"which number comes before {b}?", f"{b - 1} comes before {b}.")]
        text, answer = rng.choice(asks)
        return [(loosen(text, rng), answer)]

    def calendar_turn(self):
        rng = self.rng
        kind, names = rng.choice((("day", DAYS), ("day", DAYS), ("month", MONTHS), ("month", MONTHS)))
        i = rng.randrange(len(names))
        here, after, before = names[i], names[(i + 1) % len(names)], names[i - 1]
        asks = [(f"(what|which) {kind} (comes after|follows|is after) {here}?", f"{after} comes after {here}."),
                (f"what comes after {here}?", f"{after} comes after {here}."),
                (f"(what|which) {kind} (comes before|is before) {here}?", f"{before} comes before {here}."),
                (f"what comes before {here}?", f"{before} comes before {here}.")]
        if kind == "day":
            asks += [(f"(today is|it is|if today is) {here}, what (day is|is) tomorrow?", f"Tomorrow is {after}."),
                     (f"(today is|it is|if today is) {here}, what (day was|was) yesterday?", f"Yesterday was {before}."),
                     ("(name|list|what are|tell me) the days of the week", ", ".join(DAYS) + "."),
                     ("how many days (are in a week|does a week have)?", "A week has seven days.")]
        else:
            asks += [("(name|list|what are|tell me) the (months|months of the year)", ", ".join(MONTHS) + "."),
                     ("how many months (are in a year|does a year have)?", "A year has twelve months."),
                     (f"which (number|month number) is {here}?", f"{here} is month {i + 1}."),
                     (f"(what|which) is month (number|) {i + 1}?", f"{here} is month {i + 1}.")]
        text, answer = rng.choice(asks)
        return [(loosen(expand(text, rng), rng), answer)]

    def opposite_turn(self):
        rng = self.rng
        a, b = rng.choice(OPPOSITES)
        if rng.random() < 0.5:
            a, b = b, a
        text = expand(rng.choice((f"what is the opposite of {a}?", f"what's the opposite of {a}?", f"opposite of {a}?", f"the opposite of {a}",
                                  f"name the opposite of {a}.", f"(tell|give) me the opposite of {a}.",
                                  f"which word is the opposite of {a}?")), rng)
        return [(loosen(text, rng), f"The opposite of {a} is {b}.")]

    def sort_turn(self):
        rng = self.rng
        top = rng.choice((9, 9, 99))
        items = rng.sample(range(0 if top == 9 else 1, top + 1), rng.choice((3, 3, 4, 5)))
        down = rng.random() < 0.15
        shown = rng.choice((", ", ", ", " ")).join(map(str, items))
        text = expand(rng.choice(("(sort|order) these numbers: {}", "(sort|order) {}", "(sort|put) {} in order", "sort the numbers {}",
                                  "sort from small to big: {}")), rng)
        if down:
            text = rng.choice(("sort from big to small: {}", "sort {} downwards"))
        return [(loosen(text.format(shown), rng), ", ".join(map(str, sorted(items, reverse=down))))]

    def repeat_turn(self):
        rng = self.rng
        pick = rng.random()
        if pick < 0.75:
            n = rng.choice((1, 1, 2, 3, 4))
            what = " ".join(self.any_word() for _ in range(n))
        else:
            what = "".join(rng.choice(string.digits) for _ in range(rng.randint(2, 7)))
        ask = rng.choice(("repeat {}", "say {}", "repeat after me: {}", "say: {}", "repeat: {}", "please say {}", "echo {}", "repeat this: {}",
                          "write {}", "say the word {}", "repeat the word {}", "write the word {}"))
        return [(self.capital(ask.format(self.quoted(what) if pick < 0.4 else what)) + rng.choice(("", "", ".")), what)]

    def list_turn(self):
        """Which word stands where: reading a list, and pointing into it."""
        rng = self.rng
        n = rng.randint(2, 5)
        words = []
        while len(words) < n:
            w = self.any_word()
            if w not in words:
                words.append(w)
        i = rng.randrange(n)
        shown = ", ".join(words)
        place = ("first", "second", "third", "fourth", "fifth")[i] if i < n - 1 or rng.random() < 0.5 else "last"
        if i + 1 < n and rng.random() < 0.6:
            ask, answer = f"in the list {shown}: what comes after {words[i]}?", f"{words[i + 1]} comes after {words[i]}."
        else:
            ask, answer = f"what is the {place} word of: {shown}?", f"The {place} word is {words[i]}."
        return [(self.capital(ask), answer)]

    # -- talk -----------------------------------------------------------------------------

    TALK = [
        ("(hello|hi|hey|good morning|good evening|good day|hello there|hi there|greetings|hey there)(|!|.|, hokku)",
         ["Hello! Ask me for a haiku.", "Hello. What shall we talk about?", "Good to see you. Shall I write a haiku?"]),
        ("(how are you|how do you do|how is it going|are you well|how are you today|how do you feel|what's up)(?|)",
         ["All my weights are in place, thank you.", "Well, thank you. And you?"]),
        ("(I am fine|I'm fine|fine|I am well|good|I'm good|very well|not bad)(|, thank you|, thanks)(.|)",
         ["Good to hear."]),
        ("(thank you|thanks|thanks a lot|thank you very much|great, thanks|nice, thank you|well done|very good|nice|that was nice|beautiful|I like it)(.|!|)",
         ["You are welcome.", "My pleasure."]),
        ("(goodbye|bye|good night|see you|see you later|until tomorrow|farewell|bye bye|I have to go)(.|!|)",
         ["Goodbye! Type /bye to leave."]),
        ("(who are you|what are you|who is there|introduce yourself|tell me about yourself|what is your name|what's your name|do you have a name|who am I talking to|which model are you|what model are you|what kind of model are you)(?|)",
         ["I am the small model that comes with hokku, made to show that everything works."]),
        ("(who made you|who trained you|where do you come from|who built you|who wrote you|how were you made|how were you trained|what were you trained on|where did you learn this)(?|)",
         ["I was trained by a script in the hokku tree, on text that the script makes up."]),
        ("(what can you do|what do you know|what are you good at|what can I ask you|how can you help me|what are you good for|can you help me|what should I ask you|what are your skills|help me)(?|)",
         ["I write haiku, explain hokku, remember what you tell me, and do small sums."]),
        ("(how big are you|how many parameters do you have|how large are you|how small are you|how many weights do you have|are you big|are you a big model)(?|)",
         ["A few million parameters, which is very small."]),
        ("(are you human|are you a person|are you real|are you alive|are you a robot|do you think|do you have feelings|are you conscious|are you intelligent|are you smart|are you clever|do you understand me)(?|)",
         ["No person here: only a small language model."]),
        ("(are your answers real|do you really compute|is this real|are these canned answers|do you run on my machine|where do you run|are you online|do you need the internet)(?|)",
         ["I run on your own machine; every word is computed, token by token."]),
        ("(which languages do you speak|do you speak (German|French|Spanish|Japanese|Chinese|Italian)|what languages do you know)(?|)",
         ["Only a little English."]),
        ("(do you make mistakes|can I trust you|are you always right|are you reliable|how good are you)(?|)",
         ["I am very small and often wrong. Load a bigger model with -m for real work."]),
        ("(tell me a joke|tell me a story|sing a song|make me laugh|tell me something funny|write a story|write an essay)(.|)",
         ["I only know haiku. Shall I write one?"]),
        ("(yes|yes please|ok|okay|sure|please do|go on|yes, please|of course)(.|!|)", None),
        ("(no|no thanks|no, thank you|not now|stop)(.|!|)", ["As you like."]),
    ]
    UNKNOWN = [
        "what is the (capital|population|president|currency|flag|language) of {c}?", "who (wrote|invented|discovered|painted|built) the {n}?",
        "how (far|deep|old|heavy|tall|hot) is the {n}?", "what is the (meaning|history|price|weight) of {n}?", "explain (quantum physics|gravity|relativity|evolution|the stock market|photosynthesis)",
        "translate {n} into (French|German|Spanish|Latin)", "what is the weather in {c}?", "when was (Shakespeare|Einstein|Newton|the {n}) born?",
        "why is the (sky|sea|grass|{n}) (blue|green|red|dark|wet)?", "what time is it?", "what is the date today?", "write a program in (C|Python|Rust|Java)",
        "how do I (cook|bake|repair|build|clean|draw|paint) a {n}?", "who is the (king|queen|president|mayor) of {c}?", "how do I get to {c}?", "what is a {n}?",
        "what do you think about {n}?", "where can I buy a {n}?", "recommend a (book|film|song|game)", "what is {n}?", "how does a {n} work?",
        "what happened in (19|18|17)(11|24|39|45|68|89)?", "how many {p} are there in {c}?", "is {c} a nice city?", "write code that sorts {p}",
        "what is the best {n} in the world?", "do you like {n}?", "do you like {p}?",
    ]

    def talk_turn(self):
        rng = self.rng
        pattern, answers = rng.choice(self.TALK)
        text = loosen(expand(pattern, rng), rng)
        if answers is None:
            return [(text, self.haiku.write())]
        return [(text, rng.choice(answers))]

    def unknown_turn(self):
        rng = self.rng
        text = expand(rng.choice(self.UNKNOWN), rng)
        noun = self.seen(ALL_NOUNS)
        text = text.replace("{c}", self.city()).replace("{n}", noun).replace("{p}", plural(noun))
        return [(loosen(text, rng), "That I do not know; I am only a small model.")]

    def manual_turn(self):
        return [manual.ask(self.rng)]

    # -- conversations --------------------------------------------------------------------

    TASKS = [("haiku_turn", 30), ("manual_turn", 34), ("sum_turn", 21), ("talk_turn", 6), ("repeat_turn", 8), ("count_turn", 3),
             ("calendar_turn", 3.5), ("opposite_turn", 3), ("sort_turn", 4), ("unknown_turn", 3), ("list_turn", 1.5)]
    NAMES_, WEIGHTS = [t for t, _ in TASKS], [w for _, w in TASKS]

    def task(self):
        if self.rng.random() < self.focus:
            # the first lessons: copying, in the forms that later tasks need
            return self.rng.choice((self.repeat_turn, self.repeat_turn, self.list_turn, self.haiku_turn, self.manual_turn))()
        return getattr(self, self.rng.choices(self.NAMES_, self.WEIGHTS)[0])()

    def conversation(self):
        """Facts told, other talk, facts asked for; or only talk."""
        rng = self.rng
        known, turns = {}, []
        if rng.random() < 0.25:
            kinds = list(self.MEMORY)
            steps = rng.choice((1, 2, 2, 3, 3, 4, 6, 9))
            for _ in range(rng.randint(1, 2)):
                self.tell_turn(turns, known, rng.choice(kinds))
            for _ in range(steps):
                r = rng.random()
                if r < 0.45:
                    turns += self.task()
                elif r < 0.60:
                    self.tell_turn(turns, known, rng.choice(kinds))
                else:
                    turns.append(self.ask_turn(known))
            turns.append(self.ask_turn(known))
            if rng.random() < 0.4:
                turns.append(self.ask_turn(known))
        else:
            for _ in range(rng.choice((1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 8))):
                turns += self.task()
            if rng.random() < 0.015:
                kind = rng.choice(list(self.MEMORY))
                fact = self.fact(kind)
                text, _ = self.tell(kind, fact)
                ask, answer = self.recall(kind, fact)
                turns = [(text.rstrip(".!") + ". " + ask[0].upper() + ask[1:], answer)]
            if rng.random() < 0.02:
                turns.append(self.recall(rng.choice(list(self.MEMORY)), None))
        return turns

    def tell_turn(self, turns, known, kind):
        fact = self.fact(kind)
        text, answer = self.tell(kind, fact)
        other = self.rng.choice(list(self.MEMORY))
        if other != kind and self.rng.random() < 0.15:
            more = self.fact(other)
            second, _ = self.tell(other, more)
            joined = self.rng.choice((" and ", ". ", ", and "))
            text = text.rstrip(".!") + joined + (second if joined == ". " or second.startswith("I") else second[0].lower() + second[1:])
            known[other] = more
        known[kind] = fact
        turns.append((text, answer))

    def ask_turn(self, known):
        rng = self.rng
        if rng.random() < 0.93:
            kind = rng.choice(list(known))
        else:
            kind = rng.choice(list(self.MEMORY))
        return self.recall(kind, known.get(kind))

    SYSTEMS = ["You are a helpful assistant.", "You are a poet.", "Answer briefly.", "You are hokku.", "You write haiku.", "Be kind.",
               "You are a helpful, honest assistant.", "Answer in English.", "You are a haiku poet. Answer with haiku only."]

    def dialogue(self):
        system = self.rng.choice(self.SYSTEMS) if self.rng.random() < 0.04 else None
        return system, self.conversation()


if __name__ == "__main__":
    teacher = Teacher(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 12):
        system, turns = teacher.dialogue()
        if system:
            print("S:", system)
        for user, answer in turns:
            print("U:", user)
            print("A:", answer.replace("\n", " / "))
        print()
