"""What the training never shows, so that the evaluation can ask for it."""
import zlib

NOUNS = ("umbrella telescope saxophone avocado tractor carpet submarine walnut microscope puppeteer "
         "thimble harpoon gazebo trombone escalator pelican chandelier cucumber blacksmith tambourine "
         "hedgehog parachute cobweb librarian marigold quarry sandal tadpole windmill zeppelin").split()
NAMES = ("Oluwaseun Margarethe Tobias Siobhan Anastasia Bartholomew Mei Leopold Wilhelmina Ezra "
         "Thandiwe Casper Rosalind Dmitri Philippa Giovanni Saoirse Benedikt Hadiza Cordelia "
         "Matthias Yevgenia Alasdair Noor Florian Jocasta Ragnar Ottilie Kwame Zebulon").split()
CITIES = ("Ljubljana Marrakesh Edinburgh Kathmandu Salzburg Winnipeg Bratislava Antananarivo Bergen Tampa "
          "Reykjavik Montevideo Gdansk Utrecht Brisbane").split()
COLORS = "mauve ochre vermilion chartreuse cerulean fuchsia khaki sepia burgundy aquamarine".split()
STRINGS = "blorpt zyx qwzk vexfulo gnarbit mivvoon troplax jeskwy ulpafid drozzek xanvoth pibblewick".split()
WORDS = set(w.lower() for w in NOUNS + NAMES + CITIES + COLORS + STRINGS)


def pair(a, op, b):
    """One sum in ten is never trained: decided by its digits, alike on every machine."""
    return zlib.crc32(f"{a}{op}{b}".encode()) % 10 == 0
