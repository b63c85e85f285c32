"""Haiku by grammar: three lines meant as 5-7-5 in one scene, with a wished word inside."""
from words import (ADJECTIVES, GERUNDS, NUMBER_WORDS, PREPOSITIONS, SCENES, SUBJECTS, TIMES,
                   UNCOUNTED, VERBS, line_syllables, plural, plural_verb, syllables)

NUMBERS = set(NUMBER_WORDS)

# Slots: N noun, P plural noun, A adjective, V verb (sings), W plural verb (sing),
# G gerund, R preposition, T time. '=' is the wished word.
FREE = """
the A N V|the N V R the N|A N, A N|A P W R the N|G R the N|a A N V|P W R the A N|even the N V|
G, the A N V|R the A N|the N and the N|one A N V T|the A N V T|a N R the N|no one sees the N|
I hear the A N|A and A, the N V|the N is A|the P are A T|who wakes the A N|N by N, T|the N V T|
a A N, G|slowly the N V|still the A N V|the N G T|only the N V|between P, a N|my A N V|
T, the N V|so A, the N|so many P W|a N and its N|here the N V|a A N for each N|not one N V|
the last N V T|the first N of the N|I wait R the N|we walk R the N|nobody G|all the P W T|
a N V R a N|as A as the N|without the N, a N|N and N, G|T the P W|the N V, the N V|
the color of P|the N of the A N|some P W, some P W|let the A N V|how A the N|
where the N V, a N|a A A N V|A A N|the N, T|G like a N|more P R the N
""".replace("\n", "").split("|")

# The wished word as a noun of any kind ...
WITH_WORD = """
the = V|the = V R the N|= R the N|= and the N|a N, a =|the N and the =|I think of =|= V T|
the word = V|only = V|A =, A N|G of =|my = R the N|the A = V|the A = V R the N|someone whispers =|
where is = T|R the N, =|the N says =|= R the A N|T, =|here comes =|=, and then the N|the N V: =|
there is = T|G R =|= for the A N|nothing but =|the N dreams of =|the N remembers =|= again, T|
a = R the A N|the P whisper =|= like a A N|once more, =|=, G|the = of the N|the N of =|
all I have is =|it was = T|=, =, the N V|I write = R the N|no more =, no N|we call it =
""".replace("\n", "").split("|")

# ... and number words, which can count.
WITH_NUMBER = """
= P W|= A P W|= P R the N|= A P|= P, one A N|the N counts to =|I count =, the N V|= steps R the N|
= times the N V|after = the N V|= P G|= P W T|= small P W R the N|the N V = times|= A P W R the N|
page =, the A N|= P and one N|I have = P|the = P W|there are = P T|room =, the N V|= days R the N
""".replace("\n", "").split("|")

FREE_COMMON = [p for p in FREE if p]
SCENE_NAMES = list(SCENES)


class Haiku:
    def __init__(self, rng, held_out=()):
        self.rng = rng
        out = set(held_out)
        self.scenes = {k: [w for w in v if w not in out] for k, v in SCENES.items()}

    def fill(self, pattern, scene, word, used):
        rng, out = self.rng, []
        for item in pattern.split(" "):
            core = item.strip(",:")
            tail = item[len(core):]
            nouns = self.scenes[scene]
            if core == "=":
                text = word
            elif core == "N":
                text = rng.choice(nouns)
                if text in used:
                    text = rng.choice(nouns)
                used.add(text)
            elif core == "P":
                text = rng.choice(nouns)
                for _ in range(4):
                    if text not in UNCOUNTED:
                        break
                    text = rng.choice(nouns)
                text = plural(text)
            elif core == "A":
                text = rng.choice(ADJECTIVES)
            elif core == "V":
                text = rng.choice(VERBS)
            elif core == "W":
                text = plural_verb(rng.choice(VERBS))
            elif core == "G":
                text = rng.choice(GERUNDS)
            elif core == "R":
                text = rng.choice(PREPOSITIONS)
            elif core == "T":
                text = rng.choice(TIMES)
            else:
                text = core
            out.append(text + tail)
        for i, text in enumerate(out[:-1]):
            if text == "a" and out[i + 1][0] in "aeio":
                out[i] = "an"
        return " ".join(out)

    def line(self, target, scene, patterns, word, used):
        best, distance = None, 99
        for _ in range(14):
            text = self.fill(self.rng.choice(patterns), scene, word, used)
            away = abs(line_syllables(text) - target)
            if away < distance:
                best, distance = text, away
            if away == 0:
                break
        return best

    def write(self, words=(), scene=None):
        """Three lines; each of `words` (two at most) in a line of its own."""
        rng = self.rng
        scene = scene or rng.choice(SCENE_NAMES)
        places = rng.sample(range(3), len(words))
        if len(words) == 2:
            places = sorted(places)
        lines, used = [], set()
        for i, target in enumerate((5, 7, 5)):
            word, patterns = None, FREE_COMMON
            if i in places:
                word = words[places.index(i)]
                patterns = WITH_WORD
                if word in NUMBERS and rng.random() < 0.7:
                    patterns = WITH_NUMBER
                if syllables(word) > 3 or " " in word:
                    patterns = [p for p in patterns if p.count(" ") < 4]
            lines.append(self.line(target, scene, patterns, word, used))
        # a capital begins the poem, unless that would change the wished word
        if not (0 in places and lines[0].startswith(words[places.index(0)])):
            lines[0] = lines[0][0].upper() + lines[0][1:]
        return "\n".join(lines)


def scene_of(subject):
    if subject in SUBJECTS:
        return SUBJECTS[subject]
    bare = subject.split(" ")[-1]
    for name, nouns in SCENES.items():
        if bare in nouns:
            return name
    return None


if __name__ == "__main__":
    import random
    h = Haiku(random.Random(1))
    for words in ((), ("forty-two",), ("blorpt",), ("umbrella", "seventeen")):
        for _ in range(3):
            print(h.write(words), "\n")
