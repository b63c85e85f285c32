"""Draws the table of many sequences in docs/performance.md.

    python3 docs/picture/plot_batch.py     # writes docs/picture/batch.svg; a test compares it with the table
"""
import html
import math
import pathlib

HERE = pathlib.Path(__file__).parent
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 460, 70, 250, 20, 50
COLORS = ["#2f7fd1", "#c8553d", "#3c9a5f", "#8e5bb5"]


def table(text):
    """[(name, [(rows, tokens per second)])] of the table under the heading, "the same, X" named after the line above."""
    lines = iter(text[text.index("### Many sequences"):].splitlines())
    head = next(l for l in lines if l.startswith("| rows |"))
    rows = [int(c) for c in head.strip("|").split("|")[1:]]
    out = []
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            return out
        name, *cells = [c.strip() for c in line.strip("|").split("|")]
        points = [(r, float(c.replace(",", ""))) for r, c in zip(rows, cells) if c]
        out.append((name.replace("the same", out[-1][0]) if name.startswith("the same") else name, points))


def draw(lines):
    x_most = max(r for _, p in lines for r, _ in p)
    low = 10 ** math.floor(math.log10(min(v for _, p in lines for _, v in p)))
    high = 10 ** math.ceil(math.log10(max(v for _, p in lines for _, v in p)))
    x = lambda r: LEFT + (WIDTH - LEFT - RIGHT) * math.log2(r) / math.log2(x_most)
    y = lambda v: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(v / low) / math.log(high / low)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    text = lambda px, py, s, anchor="start", fill="#444": out.append(
        f'<text x="{px:.1f}" y="{py:.1f}" text-anchor="{anchor}" fill="{fill}">{html.escape(s)}</text>')
    line = lambda x0, y0, x1, y1: out.append(f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="#ddd"/>')
    r = 1
    while r <= x_most:
        line(x(r), TOP, x(r), HEIGHT - BOTTOM)
        text(x(r), HEIGHT - BOTTOM + 18, str(r), "middle")
        r *= 2
    v = low
    while v <= high:
        line(LEFT, y(v), WIDTH - RIGHT, y(v))
        text(LEFT - 8, y(v) + 4, f"{v:,.0f}", "end")
        v *= 10
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "rows in a step", "middle")
    text(LEFT, TOP - 6, "tokens/s together")
    ends, color = [], -1
    for name, points in lines:
        other = ", " in name  # of another program, with the same file
        color += not other
        d = "".join(f'{"L" if i else "M"}{x(r):.1f} {y(v):.1f}' for i, (r, v) in enumerate(points))
        dash = ' stroke-dasharray="5 4"' if other else ""
        out.append(f'<path d="{d}" fill="none" stroke="{COLORS[color]}" stroke-width="2"{dash}/>')
        ends.append([y(points[-1][1]), name, COLORS[color]])
    ends.sort()
    for i in range(1, len(ends)):  # no name on another
        ends[i][0] = max(ends[i][0], ends[i - 1][0] + 16)
    for at, name, fill in ends:
        text(WIDTH - RIGHT + 8, at + 4, name, fill=fill)
    return "\n".join(out) + "\n</svg>\n"


def picture():
    return draw(table((HERE.parent / "performance.md").read_text()))


if __name__ == "__main__":
    (HERE / "batch.svg").write_text(picture())
