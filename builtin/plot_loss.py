"""Draws the training loss of a log.json as SVG: python3 plot_loss.py log.json loss.svg"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 300, 60, 40


def main():
    with open(sys.argv[1]) as f:
        points = [(e["tokens"] / 1e6, e["loss"]) for e in json.load(f) if "loss" in e]
    last = points[-1][0]
    low, high = math.log(min(y for _, y in points) * 0.9), math.log(max(y for _, y in points))

    def place(x, y):
        return (LEFT + (WIDTH - LEFT - 20) * x / last, 20 + (HEIGHT - BOTTOM - 20) * (high - math.log(y)) / (high - low))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    for y in (0.2, 0.3, 0.4, 0.5, 0.7, 1, 1.5, 2, 3, 5, 8):
        if low < math.log(y) <= high:
            _, v = place(0, y)
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{v:.1f}" y2="{v:.1f}" stroke="#dddddd"/>'
                       f'<text x="{LEFT - 8}" y="{v + 4:.1f}" text-anchor="end">{y}</text>')
    step = min(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if last / s <= 8)
    for i in range(int(last / step) + 1):
        x, _ = place(i * step, 1)
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - 20}" text-anchor="middle">{i * step:g}</text>')
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*p) for p in points))
    out.append(f'<polyline points="{line}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 4}" text-anchor="middle">million tokens read; loss of the answers, nats per token</text></svg>')
    with open(sys.argv[2], "w") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
