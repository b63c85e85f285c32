"""Word lists of the built-in model's data, all written for hokku. No outside text.

Nouns are grouped by scene so that a haiku stays in one place; the syllable counts
in SYLLABLES override the estimate where the estimate is wrong.
"""
import re

SCENES = {
    "sea": "sea wave tide shore sand boat sail gull foam salt shell harbor ocean island "
           "anchor lighthouse seaweed pebble horizon fisherman net reef",
    "sky": "sky cloud wind storm thunder lightning rainbow swallow kite heron feather "
           "breeze rain drizzle crane goose",
    "night": "night moon star dark owl moth lantern candle shadow dream silence "
             "firefly midnight lamp window dusk cricket",
    "mountain": "mountain hill peak stone cliff eagle valley cave pine trail goat summit "
                "waterfall echo stream boulder",
    "forest": "forest tree leaf oak fern moss deer fox root branch bark mushroom path "
              "birch squirrel acorn clearing",
    "winter": "winter snow frost ice chimney blanket scarf icicle snowflake snowman "
              "fire ember sled",
    "spring": "spring blossom petal bee seed nest sparrow cherry meadow rain puddle tulip "
              "lamb bud",
    "summer": "summer sun heat dragonfly butterfly peach melon hammock cicada field wheat "
              "noon daisy ant",
    "autumn": "autumn maple harvest crow scarecrow apple fog rust geese pumpkin rake "
              "barn orchard",
    "garden": "garden rose lily willow pond frog carp bamboo gate bench ivy fountain "
              "snail spider web grass",
    "river": "river bridge reed ferry water fish current bank duck mill rain otter "
             "rowboat turtle",
    "home": "home kitchen teacup door chair clock mirror stairs bread soup key book "
            "letter table pillow",
    "city": "city street train bus rooftop tower taxi neon subway market sidewalk corner "
            "pigeon station",
    "temple": "temple bell monk incense prayer drum shrine step pilgrim robe lantern bowl",
    "animals": "cat dog horse cow rabbit mouse sheep whale bear wolf tiger elephant "
               "kitten puppy hen",
    "machine": "screen cursor keyboard terminal kernel core thread memory cache byte "
               "token wire fan chip silicon matrix server code prompt",
}
SCENES = {k: v.split() for k, v in SCENES.items()}

# What people ask for that is no plain noun of a scene: phrase -> scene.
SUBJECTS = {
    "GPUs": "machine", "a GPU": "machine", "the GPU": "machine", "computers": "machine",
    "a computer": "machine", "programming": "machine", "software": "machine",
    "artificial intelligence": "machine", "language models": "machine", "robots": "machine",
    "a robot": "machine", "Linux": "machine", "C programming": "machine", "bugs": "machine",
    "graphics cards": "machine", "the command line": "machine", "debugging": "machine",
    "love": "night", "loneliness": "night", "sleep": "night", "time": "temple",
    "peace": "temple", "friendship": "home", "family": "home", "coffee": "home", "tea": "home",
    "music": "night", "old age": "autumn", "childhood": "summer", "hope": "spring",
    "rainy days": "spring", "the weather": "sky", "nature": "forest", "a walk": "forest",
    "the seasons": "autumn", "a cold morning": "winter", "the morning": "spring",
    "an evening at home": "home", "the clock": "home", "a long journey": "mountain",
    "fishing": "river", "cats": "animals", "dogs": "animals", "birds": "sky", "fish": "river",
    "flowers": "garden", "trees": "forest", "stars": "night", "the moon": "night",
    "the sun": "summer", "the sea": "sea", "the ocean": "sea", "the beach": "sea",
    "snow": "winter", "rain": "sky", "the wind": "sky", "fire": "winter", "dreams": "night",
    "work": "city", "traffic": "city", "a big city": "city", "food": "home", "bread": "home",
    "death": "autumn", "life": "spring", "silence": "temple", "memory": "machine",
}

ADJECTIVES = (
    "cold bright still soft deep pale old dark slow lone warm white gray thin small long "
    "clear faint wild calm low green blue red black young sweet shy bare blind tall proud "
    "silent quiet golden silver hollow distant empty gentle frozen tiny patient sleepy "
    "ancient hidden lonely heavy narrow wooden broken early yellow crooked nameless "
    "restless secret simple sudden weary humble forgotten familiar enormous "
).split()

# third person singular; the plural is made by plural_verb()
VERBS = (
    "sleeps waits falls sings drifts glows fades wakes shines turns dreams rests floats "
    "bends breathes hums stirs grows rides calls burns leans hides stays melts rolls climbs "
    "whispers listens glimmers wanders trembles shimmers lingers flickers returns "
    "gathers settles scatters shivers ripens opens answers remembers disappears"
).split()

GERUNDS = (
    "waiting falling singing drifting glowing fading turning dreaming resting floating "
    "sleeping hiding rolling leaning burning calling breathing wandering listening "
    "trembling flickering whispering gathering remembering disappearing"
).split()

PREPOSITIONS = "in on by near past through under over above behind beside beyond below".split()

TIMES = ("tonight", "at dawn", "at dusk", "at noon", "again", "once more", "all day", "all night",
         "in spring", "in autumn", "this morning", "before dawn", "after rain", "until dawn",
         "for a while", "long ago", "one more time", "in the dark", "without a sound")

SYLLABLES = {
    "rose": 1, "fire": 1, "fires": 1, "ocean": 2, "seaweed": 2, "lighthouse": 2, "moves": 1,
    "silence": 2, "trees": 1, "the": 1, "being": 2, "idea": 3, "cicada": 3, "ice": 1,
    "chimney": 2, "icicle": 3, "snowflake": 2, "firefly": 2, "scarecrow": 2, "forgotten": 3,
    "waterfall": 3, "lonely": 2, "nameless": 2, "breathes": 1, "shines": 1, "glows": 1,
    "fades": 1, "wakes": 1, "bridge": 1, "melts": 1, "hides": 1, "rides": 1, "gathers": 2,
    "someone": 2, "something": 2, "everything": 3, "sometimes": 2, "rowboat": 2, "geese": 1,
    "goose": 1, "bee": 1, "bees": 1, "cherry": 2, "lily": 2, "ivy": 2, "quiet": 2, "carp": 1,
    "neon": 2, "silicon": 3, "cache": 1, "byte": 1, "firelight": 2, "before": 2, "once": 1,
    "more": 1, "there": 1, "where": 1, "here": 1, "whole": 1, "alone": 2, "nobody": 3, "tide": 1,
    "cave": 1, "wave": 1, "lake": 1, "eagle": 2, "table": 2, "mirror": 2, "people": 2,
    "simple": 2, "gentle": 2, "temple": 2, "maple": 2, "apple": 2, "turtle": 2, "pebble": 2,
    "puddle": 2, "candle": 2, "melon": 2, "gate": 1, "stone": 1, "pine": 1, "rake": 1, "mouse": 1,
    "horse": 1, "whale": 1, "core": 1, "wire": 1, "code": 1, "robe": 1, "breeze": 1, "kite": 1,
    "crane": 1, "lone": 1, "pale": 1, "white": 1, "blue": 1, "bare": 1, "have": 1, "one": 1,
    "none": 1, "are": 1, "gone": 1, "these": 1, "time": 1, "above": 2, "beside": 2, "life": 1,
    "hungry": 2, "fisherman": 3, "pilgrim": 2, "bus": 1, "taxi": 2, "piano": 3, "every": 2,
    "people's": 2, "name": 1, "like": 1, "gpus": 3, "gpu": 3, "linux": 2, "area": 3,
}


def syllables(word):
    """Syllables of one word; hyphens and apostrophes split or join as in speech."""
    total = 0
    for part in re.findall(r"[a-z']+", word.lower()):
        if part in SYLLABLES:
            total += SYLLABLES[part]
            continue
        count = len(re.findall(r"[aeiouy]+", part))
        if part.endswith("e") and not part.endswith(("le", "ee", "ie")) and count > 1:
            count -= 1
        elif part.endswith("es") and count > 1 and not part.endswith(
                ("ses", "ces", "shes", "ches", "xes", "zes", "ges", "ies", "les", "ees")):
            count -= 1
        elif part.endswith("ed") and count > 1 and not part.endswith(("ted", "ded", "eed")):
            count -= 1
        total += max(1, count)
    return total


def line_syllables(line):
    return sum(syllables(w) for w in line.split())


def plural(noun):
    irregular = {"leaf": "leaves", "mouse": "mice", "goose": "geese", "geese": "geese", "fish": "fish",
                 "sheep": "sheep", "deer": "deer", "wolf": "wolves", "stairs": "stairs",
                 "fisherman": "fishermen", "snowman": "snowmen", "bus": "buses",
                 "matrix": "matrices"}
    if noun in irregular:
        return irregular[noun]
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


UNCOUNTED = set("sand foam salt seaweed thunder lightning rain drizzle dark silence midnight dusk moss bark "
                "winter snow frost ice fire spring summer heat noon autumn harvest fog rust bamboo ivy "
                "grass water home bread soup neon incense memory silicon code stairs sea sky".split())


def plural_verb(verb):
    if verb.endswith(("ches", "shes", "sses")):
        return verb[:-2]
    return verb[:-1]


UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen " \
        "sixteen seventeen eighteen nineteen".split()
TENS = {20: "twenty", 30: "thirty", 40: "forty", 50: "fifty"}


def number_word(n):
    if n < 20:
        return UNITS[n]
    return TENS[n // 10 * 10] + ("-" + UNITS[n % 10] if n % 10 else "")


NUMBER_WORDS = [number_word(n) for n in range(60)]

# Plain nouns for "with the word X": everyday things that belong to no scene.
PLAIN_NOUNS = (
    "hammer ladder basket button bottle paper pencil ribbon thread needle wheel engine rocket "
    "planet desert jungle camel lizard parrot penguin monkey dolphin salmon lobster onion carrot "
    "tomato lemon orange banana pepper sugar honey butter cheese coffee pocket jacket shoe hat glove "
    "ring crown castle palace prince queen soldier doctor teacher farmer sailor baker painter "
    "singer dancer brother sister mother father child baby friend stranger neighbor music song "
    "guitar trumpet whistle ball doll puzzle card dice coin wallet ticket passport map compass "
    "camera radio telephone battery magnet glass iron copper diamond pearl marble brick wall floor "
    "roof cellar attic corridor elevator hospital school church library museum theater factory "
    "office bakery prison hotel airport highway tunnel canal mirror soap towel comb razor bucket "
    "broom shovel hammock tent rope chain hook knife fork spoon plate kettlebell oven stove sink "
    "happiness sorrow anger courage wisdom beauty truth freedom justice patience memory hunger "
    "thirst laughter tear smile kiss heart bone skin hand finger shoulder elbow knee eye ear nose "
    "mouth tongue voice word sentence story poem novel chapter page secret promise gift party "
    "wedding birthday holiday journey adventure mistake answer question problem idea thought "
    "number circle square triangle corner center edge surface color sound smell taste touch "
    "yesterday tomorrow monday week month year hour minute second moment season century "
    "volcano earthquake comet galaxy rocket satellite asteroid atom electron molecule oxygen "
    "pirate dragon unicorn wizard witch ghost zombie vampire angel giant dwarf knight shield sword "
    "arrow cannon flag parade circus clown juggler magician rabbit turnip cabbage potato noodle "
    "pancake cookie chocolate vanilla cinnamon ginger garlic mustard vinegar pickle sandwich pizza"
).split()

NAMES = (
    "Anna Ben Clara David Emma Felix Greta Henry Iris Jack Karen Leo Maria Nina Oscar Paul Quinn Rosa "
    "Simon Tina Uma Victor Wendy Xavier Yara Zoe Alice Bruno Carol Daniel Eva Frank Gina Hugo Ida James "
    "Kate Liam Mona Noah Olga Peter Rita Sam Tom Ursula Vera Walter Yusuf Zara Ahmed Bianca Chen Diego "
    "Elif Fatima George Hannah Ivan Julia Kenji Laura Marco Nadia Omar Priya Ravi Sofia Thomas Lily Max "
    "Amir Yuki Hiro Sakura Lena Jonas Lukas Mia Lea Finn Paula Anton Marta Pedro Ines Carlos Lucia Pablo "
    "Elena Igor Boris Olena Taras Jan Piet Sven Astrid Lars Freya Erik Ingrid Nils Aoife Sean Fiona Ewan "
    "Rachel Sarah Adam Aaron Naomi Ruth Esther Isaac Jacob John Mary Mark Luke Joseph Robert Linda Susan "
    "Michael William Jennifer Jessica Ashley Amanda Brian Kevin Jason Eric Steve Alan Grace Ada Dennis Ken"
).split()

COLORS = "red blue green yellow orange purple pink brown black white gray gold silver violet turquoise " \
         "indigo crimson teal beige maroon navy olive cyan magenta lavender scarlet amber coral".split()

CITIES = (
    "Paris London Berlin Madrid Rome Vienna Lisbon Dublin Prague Athens Oslo Helsinki Stockholm Warsaw "
    "Budapest Tokyo Kyoto Osaka Seoul Beijing Shanghai Delhi Mumbai Cairo Lagos Nairobi Accra Tunis "
    "Boston Chicago Denver Dallas Houston Seattle Toronto Montreal Vancouver Lima Bogota Santiago Quito "
    "Sydney Melbourne Perth Auckland Zurich Geneva Basel Munich Hamburg Cologne Milan Naples Turin "
    "Lyon Nice Porto Seville Valencia Bristol Leeds Glasgow Cardiff Kiev Riga Vilnius Tallinn Ankara"
).split()

ANIMALS = "cat dog rabbit hamster parrot turtle goldfish horse pony mouse snake lizard ferret canary pig " \
          "goat hen duck kitten puppy".split()

OPPOSITES = [p.split("/") for p in (
    "hot/cold big/small up/down left/right day/night black/white good/bad fast/slow old/new high/low "
    "hard/soft long/short light/dark open/closed happy/sad rich/poor wet/dry full/empty early/late "
    "near/far strong/weak thick/thin wide/narrow loud/quiet clean/dirty true/false first/last "
    "inside/outside above/below before/after always/never everything/nothing love/hate war/peace "
    "begin/end push/pull buy/sell win/lose give/take come/go rise/fall sweet/bitter sharp/blunt "
    "smooth/rough deep/shallow alive/dead asleep/awake cheap/expensive safe/dangerous simple/complex "
    "young/aged tall/short heavy/weightless front/back top/bottom north/south east/west yes/no "
    "on/off in/out more/less many/few summer/winter sunrise/sunset friend/enemy question/answer "
    "remember/forget find/lose laugh/cry brave/cowardly polite/rude"
).split()]

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
