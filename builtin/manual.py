"""The small manual of hokku that the model learns by heart. `python3 manual.py [n]` prints samples.

The facts and their wordings are in manual_facts.py, questions worded one by one in manual_asked.txt.
A fact is drawn; nearly half of the questions then come from manual_asked.txt, the others are put
together here, a third each

    asks for it by a name   "what does {} do?"    frames by the kind of the name (option, key, ...)
    says what one wants     "how do I {c}?"       HOW_FRAMES, or "is there something for {g}?"
    is a whole question     "where is the exit?"  ASK_FRAMES, or TAILS after a statement

and the text gets a greeting and the carelessness of people who type. The network knows no English
but this, so a wording that nobody draws here is a wording that it does not understand.
"""
import os
import re

from manual_facts import FACTS as TABLE, MACROS
from phrasings import HELD_OUT, plain

HOW_FRAMES = """
(how|so how|and how) (do|can|could|would|should|might|must|shall|may) (I|I|I|we|you|one) {c}?
how (do|can|could|would) I {c} (in hokku|with hokku|here|with this program|with this tool|now|then|please|exactly|again)?
how to {c}? ; how to {c} ; how to {c} (in hokku|with hokku)? ; how does (one|a person|a beginner|someone) {c}? ; how am I (to|supposed to) {c}? ; in hokku, how do I {c}? ; how is it possible to {c}?
can I {c}? ; could I {c}? ; can (one|we|you) {c}? ; may I {c}? ; am I able to {c}? ; can I {c} (somehow|here|with hokku|in hokku|too)? ; can hokku help me {c}? ; can you help me (|to) {c}?
is it (possible|easy|hard|allowed|difficult) to {c}? ; is it possible to {c} (in hokku|with hokku|here|somehow)? ; would it be possible to {c}? ; is there any (chance|possibility|way) to {c}? ; any way to {c}? ; is there a (way|trick|method|means|possibility) to {c}? ; are there ways to {c}?
is there (a command|an option|a flag|a switch|a parameter|something|anything|a key|a setting|a button|a function) to {c}? ; is there (a command|an option|a flag|something) (that lets me|with which I can|I can use to) {c}? ; does hokku (let me|allow me to|have a way to|offer a way to) {c}?
which (command|option|flag|switch|parameter|setting|function|key) (lets me|allows me to|do I need to|do I use to|should I use to|is there to|helps me|would I use to|can I use to) {c}?
what (lets me|would let me|helps me|allows me to|makes it possible to|can I use to|would I use to|do I use to|should I use to|do I need to|is needed to|is required to|does it take to) {c}?
what (command|option|flag|switch|parameter|setting) (lets me|do I use to|should I use to|is there to|do I need to) {c}? ; what (is|would be) the (way|best way|easiest way|right way|quickest way|simplest way|usual way|correct way) to {c}?
what's the (command|option|flag|switch|trick|parameter|way|syntax|key|secret|right way|easiest way) to {c}? ; what is the (command|option|flag|switch|trick|parameter|syntax|procedure|recipe) to {c}?
what (do|must|should|can|would|could) I (type|do|write|enter|say|give|press|use) (to|in order to|if I want to|so that I can|when I want to) {c}? ; what do I have to (type|do|write|enter|know|press) to {c}? ; what are the steps to {c}? ; what has to be done to {c}?
where (can|do|could|would) I {c}? ; where is (the option|the command|the switch|the flag|something) to {c}? ; where's (the option|the command|the switch|the flag) to {c}? ; what if I (want|need|have|wish|would like|wanted) to {c}? ; suppose I want to {c}, what (then|do I do)?
I (want|need|wish|would like|have|'d like|'d love|must find a way|am trying|'m trying|am looking for a way|hope|tried|plan|intend|'d prefer) to {c}.
I want to {c}, (how|how do I do that|what do I do|is that possible|can I|what do I type|help|please|how does that work|which option is that|which command is that)? ; I (want|would like|need) to {c}. (How|How do I do that|Is that possible|What do I do|How does that work|Any idea)?
I (don't|do not) (know|see|understand|remember|get) how (to|I can|I could) {c}. ; I (can't|cannot|couldn't) (find out|figure out|see|remember) how to {c}. ; I forgot how to {c}. ; I have no idea how to {c}. ; I'd like to know how to {c}. ; I wonder how to {c}. ; I'm looking for (a way|the option|the command|something|the flag) to {c}.
I can't {c}. ; I cannot {c}. ; I never managed to {c}. ; I find no way to {c}. ; I was asked to {c}. ; my (boss|friend|teacher|colleague) wants me to {c}. ; I'm not sure how to {c}. ; it would be nice to {c}. ; it would help to {c}. ; let me {c}. ; let me {c}, please. ; allow me to {c}.
(tell|show|teach|explain to|remind) me how to {c}. ; (please|kindly) (tell|show) me how to {c}. ; explain how (to|I can|I could|one can) {c}. ; show me (the way|a way) to {c}. ; give me (the command|the option|a way|a hint how) to {c}. ; help me (|to) {c}. ; I need help to {c}. ; name the (command|option|flag) to {c}.
(can|could|would|will) you (tell|show|teach|explain to|remind) me how (to|I can|one can) {c}? ; can you explain how to {c}? ; do you know how (to|I can|one can) {c}? ; could you please tell me how to {c}? ; would you know how to {c}?
{c}? ; {c} ; {c}, please. ; {c}, how? ; {c}: how? ; to {c}? ; please {c}. ; {c} how? ; way to {c} ; command to {c} ; option to {c} ; (flag|switch) to {c} ; trying to {c} ; want to {c} ; need to {c} ; {c} with hokku ; {c} in hokku ; and if I want to {c}? ; (what|how) about a way to {c}? ; I want to {c} now. ; time to {c}.
"""
GERUND_FRAMES = """
is there (something|anything|a command|an option|a way|a flag|a switch|a setting) for {g}? ; what is there for {g}? ; what (command|option|flag|switch) is (there |)for {g}? ; which (command|option|flag) is for {g}? ; {g}? ; {g} ; {g}: how? ; {g} in hokku ; {g} with hokku
what about {g}? ; how about {g}? ; any help with {g}? ; help with {g} ; help me with {g} ; how does {g} work? ; is {g} possible? ; does hokku support {g}? ; I (have trouble|need help|struggle|have a problem) with {g}. ; I'm (thinking of|interested in|having trouble with) {g}.
what's the (command|option|flag|switch|way|trick|parameter) for {g}? ; what is the (command|option|flag|switch|way|parameter) (for|of) {g}? ; where's the (switch|option|flag|command) for {g}? ; where is the (switch|option|flag|command) for {g}? ; what do I (use|type|need) for {g}? ; what can I do about {g}?
is there a way of {g}? ; what's the way of {g}? ; what's the best way of {g}? ; can hokku help with {g}? ; tell me about {g}. ; how do I go about {g}? ; I'd like some help with {g}. ; I know nothing about {g}. ; instructions for {g} ; explain {g} ; show me {g}. ; how would I go about {g}?
"""
ASK_FRAMES = """
{q} ; {q} ; {q} ; {q} ; {q} ; {q} ; {q} ; {q} ; {q} ; {q} ; {q} ; {q} ; tell me: {q} ; a question: {q} ; please tell me, {q} ; and {q} ; hokku: {q} ; so, {q} ; so {q} ; I wonder, {q} ; one question: {q} ; tell me, {q} ; I ask myself: {q}
do you know: {q} ; can you tell me: {q} ; could you tell me, {q} ; what I want to know: {q} ; I have a question: {q} ; I'd like to know: {q} ; but {q} ; well, {q} ; now, {q} ; my question is: {q} ; question: {q} ; say, {q} ; by the way, {q} ; in hokku, {q} ; please: {q} ; then {q} ; also, {q} ; let me ask: {q}
"""
TAILS = """
{q} ; {q} ; {q} ; {q} ; {q} ; {q} What (now|can I do|do I do|should I do|then|can be done|helps|do you suggest|must I do|is the way)? ; {q} How? ; {q} (Can|Could) you help? ; {q} Can you help me? ; {q} Help! ; {q} Any idea? ; {q} Any hint? ; {q} Is that possible? ; {q} Please help. ; {q} How does that work?
{q} Is there (something|an option|a command|a way|a switch|anything|a setting) for that? ; {q} How do I (do that|go about it|do it|get that|manage that)? ; {q} Tell me how. ; {q} What do I (type|use|need|write)? ; {q} Which (command|option|switch|flag) (is that|do I need|helps|is it|do I use)? ; {q} Can (that|this|it) be done?
"""
KEYWORD_FRAMES = "{q} ; {q} ; {q} ; {q}? ; {q}? ; {q}? ; {q}, how?"

# By name: {} is the thing, <n> what it is called. COMMON goes with everything but plain words and codes.
COMMON = """
what does {} do? ; what does {} do? ; what does {} do? ; what does {} (do exactly|really do|do in hokku|do here|mean|stand for|change|give me|help with)? ; what would {} do? ; what will {} do? ; what did {} do (again|)?
what is {}? ; what's {}? ; what is {} (for|good for|used for|about|there for|meant for|all about)? ; what's {} (for|good for|used for|about|all about)? ; what (is|was) {} again? ; what can (I do with {}|{} do) (for me|)? ; what are the effects of {}? ; what is it that {} does?
what (is|'s) the (meaning|purpose|use|point|effect|function|job|idea|sense|role|aim) of {}? ; what's the (meaning|purpose|use|point|effect|function|job|idea|sense|role) of {}? ; what happens with {}? ; what do you (use|need) {} for? ; what do I (use|need|do with) {} (for|)? ; what about {}? ; how about {}?
explain {} ; please explain {} ; explain {}, please. ; explain what {} (does|is|means|is for|is good for) ; can you explain {}? ; can you explain what {} (does|is|means)? ; could you (describe|explain) {}? ; describe {} ; describe what {} does ; would you explain {} (to me|)? ; explain {} to me
tell me about {} ; tell me (what|more about what) {} (does|is|is for|means|is good for) ; tell me something about {} ; can you tell me what {} (is|does)? ; I'd like to know what {} (does|is|is for). ; I want to know what {} (does|is|means). ; I wonder what {} (does|is for|is|means) ; do you know what {} (does|is|means)? ; do you know {}?
I saw {} (somewhere|in a script|in an example|in the list), what (is it|does it do|is that)? ; I (don't|do not) (understand|know|get) {}. ; I don't (know|understand) what {} (does|is|means|is for). ; I forgot what {} (does|is|means|is for). ; I (read|heard) (about|of) {}, what is it? ; someone told me to (use|try) {}, what (is it|does it do)? ; I don't remember what {} does.
and {}? ; {} ; {}? ; {}? ; {} ? ; {}, what (is it|is that|does it do|does that do)? ; {}: what (is it|does it do|does that do)? ; {} explained ; {} meaning ; so what does {} do? ; and what does {} do? ; help with {} ; help {} ; (about|info on|information about|details of|meaning of|use of) {} ; remind me what {} does ; what, then, is {}?
when (would|do|should|must|can|could) I use {}? ; why (would|should|do) I use {}? ; why is there {}? ; why does hokku have {}? ; what is the reason for {}? ; how does {} work? ; how do I use {}? ; how is {} used? ; how (would|can|should) I use {}? ; is {} (useful|important|good for anything|of any use)? ; do I need {}? ; should I use {}?
what (happens|changes|will happen|would happen) (when|if) I (use|add|try) {}? ; what if I (use|try) {}? ; what do I get (with|from) {}? ; what is {} doing? ; which effect has {}? ; what effect does {} have? ; what exactly (does {} do|is {})? ; who needs {}? ; how can {} help me? ; show me what {} does ; teach me {} ; give me a hint about {}
"""
WITH_NOUN = """
what does the <n> {} do? ; what does the {} <n> do? ; what's the <n> {} (for|good for|about|)? ; what is the <n> {} (for|good for|used for|)? ; what's the {} <n> (for|good for|about|)? ; what is the {} <n> (for|good for|used for|)? ; the <n> {}, what (does it do|is it for|is that)? ; what does the <n> {} mean? ; what does the {} <n> mean?
explain the <n> {} ; explain the {} <n> ; tell me about the <n> {} ; tell me about the {} <n> ; tell me what the <n> {} does ; describe the <n> {} ; I don't understand the <n> {}. ; I don't understand the {} <n>. ; can you explain the <n> {}? ; can you explain the {} <n>? ; the {} <n> ; the <n> {} ; the {} <n>? ; <n> {} ; <n> {}? ; {} <n>
when do I use the <n> {}? ; when would I use the {} <n>? ; why is there a <n> called {}? ; there is a <n> {}, what does it do? ; what is the (purpose|use|meaning|effect|point) of the <n> {}? ; what's the (purpose|use|meaning|effect|point) of the {} <n>? ; how does the {} <n> work? ; how do I use the <n> {}? ; do I need the {} <n>? ; I saw the <n> {}, what is it?
"""
NOUNS = {
    "option": ["option", "option", "flag", "switch", "parameter", "argument", "setting", "command line option"],
    "command": ["command", "command", "command", "slash command", "chat command"],
    "variable": ["variable", "environment variable"],
    "key": ["key", "keys", "shortcut", "key combination", "keyboard shortcut"],
    "tool": ["tool", "tool", "subcommand", "command"],
}
BY_KIND = {
    "option": """what happens (if|when) I (give|pass|set|start hokku with|run hokku with|put|write|add) {}? ; what does hokku {} do? ; hokku {} ; what does hokku do with {}? ; what if I (leave out|give|pass) {}? ; what comes after {}? ; what do I (give|write) after {}? ; why do people (give|write|pass) {}? ; hokku with {}? ; what (value|values) does {} take? ; what does {} set?""",
    "command": """what happens (if|when) I (type|enter|give|write|say|run) {}? ; what if I type {}? ; when do I type {}? ; what does typing {} do? ; I typed {}, what (happened|did it do|did that do)? ; what does hokku do (on|with|when I type) {}? ; why would I type {}? ; {} in the chat? ; can I type {} (here|in the chat|)? ; what does it do when I say {}? ; what will happen after {}?""",
    "variable": """what happens (if|when) I set {}? ; what should I set {} to? ; what (value|values) does {} take? ; what does hokku do with {}? ; what does setting {} do? ; I set {}, what (happens|changes) (now|)? ; who reads {}? ; why would I set {}? ; what is {} set to? ; where is {} used? ; what goes into {}? ; what is in {}?""",
    "key": """what happens (if|when) I (press|hit|type|push|use) {}? ; what if I press {}? ; when do I press {}? ; what does pressing {} do? ; I pressed {}, what (happened|did that do|did it do)? ; can I press {} (here|)? ; what does hokku do (on|when I press) {}? ; why would I press {}? ; is {} safe? ; pressing {} ; press {}?""",
    "tool": """what happens (if|when) I (run|call|start|use|type) {}? ; what does {} (print|show|tell me|give me|output)? ; when do I run {}? ; why would I run {}? ; what comes out of {}? ; how do I (run|call|start) {}? ; what does running {} do? ; what is the output of {}? ; what do I get when I run {}? ; run {}? ; what can {} show me?""",
    "sign": """what happens (if|when) I (type|write|enter|use) {}? ; what if I type {}? ; why would I type {}? ; what does typing {} do? ; when do I type {}?""",
}
WORD = """
what is {}? ; what is {}? ; what's {}? ; what does {} mean? ; what does {} do? ; what is {} (for|good for|used for|about)? ; what's {} (for|about|good for)? ; what is meant by {}? ; what do you mean by {}? ; what is the meaning of {}? ; what's the (meaning|purpose|point|use) of {}? ; what (exactly|actually) is {}? ; why is there {}?
explain {} ; explain {}, please. ; please explain {} ; can you explain {}? ; could you (explain|describe) {}? ; describe {} ; tell me about {} ; tell me more about {} ; tell me what {} (is|means) ; tell me something about {} ; explain what {} (is|means) ; explain {} to me ; do you know what {} (is|means)? ; can you tell me what {} is? ; define {}
{} ; {}? ; {} ; {}? ; what about {}? ; and {}? ; {}, what is (that|it)? ; {}: what is (that|it)? ; I (don't|do not) (understand|know) {}. ; I don't know what {} (is|means). ; I'd like to know what {} (is|means). ; I read about {}, what is (it|that)? ; I want to know about {}. ; about {} ; information about {} ; help with {} ; I have a question about {}. ; I've heard of {}, what is it? ; how does {} work? ; hokku and {}? ; what should I know about {}?
"""
CODE = """
what does {} mean? ; what does {} mean? ; what does {} mean (in hokku|here|for hokku|exactly)? ; what is {}? ; what's {}? ; what is (the meaning of |){} (in hokku|)? ; what's the meaning of {}? ; what does {} (stand for|tell me|say|indicate|signal)? ; explain {} ; can you explain {}? ; tell me what {} means ; I don't understand {}. ; {} ; {}? ; {} meaning
I (got|get|see|saw|have got|received) {}, (why|what is that|what does it mean|what happened|what went wrong|what now)? ; (hokku|it|the program) (returned|gave me|ended with|exits with|stopped with|gives|ended with a message about) {}, (why|what does it mean|what is that|what happened)? ; why (do|did) I get {}? ; when (do I get|does hokku return|does hokku give|does it give|is there) {}?
what happens (when I get|if I see|with) {}? ; what is {} (for|about|supposed to mean)? ; why {}? ; what about {}? ; and {}? ; my script (got|sees|saw|gets|stops with) {} (from hokku|). ; my shell (shows|says|reports) {}. ; hokku {} ; hokku {}? ; describe {} ; meaning of {} ; what causes {}? ; what's behind {}? ; what does it mean when hokku returns {}? ; I wonder what {} means
"""

GREETINGS = ["please, ", "hey, ", "hi, ", "ok, ", "hm, ", "Hi, ", "Hello, ", "Hi! ", "Hello! ", "Sorry, ", "Quick question: ", "Hey hokku, ", "Hi hokku, ",
             "One more thing: ", "I'm new here. ", "Oops, ", "Hmm. ", "Excuse me, ", "Another question: ", "I'm a beginner. ", "Thanks. ", "Great, ",
             "Please help: ", "Ah, ", "Oh, ", "Um, ", "Okay, ", "Good. ", "Right, ", "Dear hokku, ", "Well, ", "Next question: ", "First question: ",
             "Thank you. ", "Wait, ", "Nice. ", "Stupid question: ", "I have to ask: ", "Just curious: ", "Good morning. ", "Sorry to ask, "]
AFTERWORDS = [", please", " please", ", hokku", " exactly", " again", " then", ", by the way", " in hokku", " here", " now", ", I wonder", " anyway"]
SHORTER = [(r"^(what|where|how|who|that|it) is (?=\w)", r"\1's "), (r"\bI am ", "I'm "), (r"\bI would like", "I'd like"), (r"\bdo not\b", "don't"),
           (r"\bcannot\b", "can't"), (r"\bdoes not\b", "doesn't"), (r"\bis not\b", "isn't"), (r"\bI have (?=got|heard|read|seen|used|typed)", "I've "),
           (r"\bI want to\b", "I wanna"), (r"\bthere is\b", "there's"), (r"\byou are\b", "you're"), (r"\bdid not\b", "didn't")]
LONGER = [(r"^(what|where)'s\b", r"\1 is"), (r"\bI'm\b", "I am"), (r"\bI'd\b", "I would"), (r"n't\b", " not"), (r"\bI've\b", "I have")]

TOOLS = {"inspect", "tokenize", "render", "score", "perplexity", "bench"}
DOUBLED = set("stop get set run put cut begin quit let drop cap plan forget log ban tap swap trim omit shut dim permit submit wrap skip rid "
              "control debug emit fit format forbid grab input output rerun reset split program chat hit pin plug scan sit step spot strip tip win rub nod refer prefer bid dig beg clip chop".split())


def expand(text, rng):
    """Choose one alternative of every innermost "(a|b)", then the next ones out."""
    while "(" in text:
        close = text.index(")")
        start = text.rindex("(", 0, close)
        if "|" not in text[start:close]:
            raise ValueError("no choice in " + text)
        text = text[:start] + rng.choice(text[start + 1:close].split("|")) + text[close + 1:]
    return " ".join(text.split()).replace(" ?", "?").replace(" .", ".").replace(" ,", ",")


def wordings(text):
    """How many texts expand() can make of this one."""
    total = 1
    for alternatives in re.findall(r"\(([^()]*)\)", text):
        total *= alternatives.count("|") + 1
    return total


class Phrases:
    """Phrases to draw from; those with many alternatives come more often, but not much more."""

    def __init__(self, text):
        for name, choice in MACROS.items():
            text = text.replace(f"<{name}>", choice)
        self.phrases = [p.strip() for line in text.split("\n") for p in line.split(" ; ") if p.strip()]
        self.sums, total = [], 0.0
        for phrase in self.phrases:
            total += min(wordings(phrase), 40) ** 0.5
            self.sums.append(total)

    def draw(self, rng):
        return expand(rng.choices(self.phrases, cum_weights=self.sums)[0], rng)


def read_facts(table):
    """[(answer, names, wishes, questions)]; a fact may lack names or wishes."""
    facts = []
    for block in table.strip().split("\n\n"):
        lines = block.split("\n")
        parts = ["\n".join(line[2:] for line in lines if line[0] == mark) for mark in "=@+?"]
        if not all(line[:2] in ("= ", "@ ", "+ ", "? ") for line in lines) or "\n" in parts[0]:
            raise ValueError("not a fact: " + block)
        facts.append((parts[0], *(Phrases(part) if part else None for part in parts[1:])))
    return facts


FACTS = read_facts(TABLE)
HOW, GERUND, ASK, TAIL, KEYWORD = (Phrases(t) for t in (HOW_FRAMES, GERUND_FRAMES, ASK_FRAMES, TAILS, KEYWORD_FRAMES))
COMMON, WITH_NOUN, WORD, CODE = (Phrases(t) for t in (COMMON, WITH_NOUN, WORD, CODE))
BY_KIND = {kind: Phrases(t) for kind, t in BY_KIND.items()}


def kind_of(name):
    first = name.split()[0]
    if re.match(r"(hokku )?-", name):
        return "option"
    if first.startswith("/"):
        return "command"
    if re.match(r"\$?[A-Z]+_[A-Z_]+$", name):
        return "variable"
    if re.match(r"(Ctrl|Control|ctrl|Alt|alt|\^|Tab)", name):
        return "key"
    if name.replace("hokku ", "").split()[0] in TOOLS:
        return "tool"
    if re.search(r" (\d|zero|one|two|three|four|five)$", name):
        return "code"
    return "sign" if '"""' in name or "\\" in name else "word"


def by_name(name, rng):
    kind = kind_of(name)
    if kind == "code":
        frame = CODE.draw(rng)
    elif kind == "word":
        frame = WORD.draw(rng)
    else:
        r = rng.random()
        frame = (BY_KIND[kind] if r < 0.15 else WITH_NOUN if r < 0.35 and kind in NOUNS else COMMON).draw(rng)
        if "<n>" in frame:
            frame = frame.replace("<n>", rng.choice(NOUNS[kind]))
            frame = re.sub(r"\ba (?=[aeo])", "an ", frame)
    return frame.replace("{}", name)


def gerund(phrase):
    """"save the chat" -> "saving the chat"; None where a second verb would have to change too."""
    verb, _, rest = phrase.partition(" ")
    if not verb.isalpha() or not verb.islower() or verb in ("not", "always", "never") or " and " in phrase:
        return None
    if verb in DOUBLED:
        verb += verb[-1]
    elif verb.endswith("ie"):
        verb = verb[:-2] + "y"
    elif verb.endswith("e") and not verb.endswith(("ee", "be")):
        verb = verb[:-1]
    return f"{verb}ing {rest}".strip()


def by_wish(wish, rng):
    thing = gerund(wish) if rng.random() < 0.15 else None
    if thing:
        return GERUND.draw(rng).replace("{g}", thing)
    return HOW.draw(rng).replace("{c}", wish).replace("I '", "I'")


def by_question(q, rng):
    frames = ASK if q[-1] == "?" else TAIL if q[-1] == "." else KEYWORD
    return frames.draw(rng).replace("{q}", q)


def careless(text, rng):
    """Contractions and their opposite, lost articles, apostrophes and commas, a word before or after."""
    r = rng.random()
    if r < 0.3:
        for pattern, short in SHORTER:
            text = re.sub(pattern, short, text)
    elif r < 0.4:
        text = re.sub(r"\bcan't\b", "cannot", text)
        for pattern, long in LONGER:
            text = re.sub(pattern, long, text)
    r = rng.random()
    if r < 0.05:
        text = re.sub(r" (the|a|an) ", " ", text)
    elif r < 0.08:
        text = text.replace("'", "")
    elif r < 0.11:
        text = text.replace(",", "")
    elif r < 0.13 and text[-1] == "?":
        text = text[:-1] + rng.choice(AFTERWORDS) + "?"
    elif r < 0.15 and text[-1] == "?":
        text = text[:-1] + rng.choice(("??", "?!", " ?", "???", "."))
    return text


def loosen(text, rng):
    """The small carelessness of people who type."""
    r = rng.random()
    if r < 0.45 and text[0].islower():
        text = text[0].upper() + text[1:]
    elif r < 0.55:
        text = text.lower() if not any(c in text for c in "-$/\"") else text
    if rng.random() < 0.2 and text[-1] in "?.":
        text = text[:-1]
    if rng.random() < 0.04 and len(text) > 12:
        i = rng.randrange(3, len(text) - 2)
        if text[i].isalpha() and text[i + 1].isalpha():
            text = text[:i] + text[i + 1] + text[i] + text[i + 2:]
    if rng.random() < 0.05:
        text = rng.choice(["please, ", "hey, ", "hi, ", "ok, ", "hm, "]) + text
    return text


def read_asked(path=os.path.join(os.path.dirname(os.path.abspath(__file__)), "manual_asked.txt")):
    """manual_asked.txt: answer -> questions."""
    asked, answer = {}, None
    with open(path, encoding="utf-8") as f:
        for line in f.read().splitlines():
            if line.startswith("= "):
                answer = line[2:]
                asked[answer] = []
            elif line and not line.startswith("#"):
                asked[answer].append(line)
    if set(asked) != {fact[0] for fact in FACTS}:
        raise ValueError("manual_asked.txt and the facts of the manual differ")
    return asked


ASKED = read_asked()


def ask(rng):
    """One question and the answer of the manual."""
    answer, *parts = rng.choice(FACTS)
    if rng.random() < 0.45:
        text = rng.choice(ASKED[answer])
    else:
        way = rng.choice([i for i, part in enumerate(parts) if part])
        text = (by_name, by_wish, by_question)[way](parts[way].draw(rng), rng)
    text = loosen(careless(text, rng), rng)
    if rng.random() < 0.08:
        text = rng.choice(GREETINGS) + text
    return ask(rng) if plain(text) in HELD_OUT else (text, answer)


if __name__ == "__main__":
    import random
    import sys
    r = random.Random(3)
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 30):
        print(*ask(r), sep="\n    ")
    print(len(FACTS))
