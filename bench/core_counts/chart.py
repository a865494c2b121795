"""A line per build, resident memory against CPUs, both axes logarithmic; as SVG, readable on light and on dark."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 860, 520
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 46, 56
LABEL_HEIGHT = 16
# The colours of Okabe and Ito, less yellow and black. Colour-blind readers can tell them apart, and
# mid-tones are visible on both backgrounds.
COLOURS = ["#009e73", "#0072b2", "#d55e00", "#cc79a7", "#56b4e9", "#e69f00", "#8c6d46", "#7f7fbf", "#888888"]
STYLE = """
    text { font: 12px system-ui, sans-serif; fill: #555 }
    .title { font-size: 14px; font-weight: 600 }
    .grid { stroke: #888; stroke-opacity: 0.25 }
    @media (prefers-color-scheme: dark) { text { fill: #bbb } }
"""


def _ticks(lowest: float, highest: float) -> list[float]:
    """1, 2 and 5 of each power of ten, from the last below to the first above."""
    steps = [factor * 10**power for power in range(-1, 7) for factor in (1, 2, 5)]
    below = max((step for step in steps if step <= lowest), default=steps[0])
    above = min((step for step in steps if step >= highest), default=steps[-1])
    return [step for step in steps if below <= step <= above]


def _apart(wanted: list[float], lowest: float, highest: float) -> list[float]:
    """Positions near the wanted ones, in their order, that leave room for a label each."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed = [0.0] * len(wanted)
    at = lowest - LABEL_HEIGHT
    for index in order:
        at = max(wanted[index], at + LABEL_HEIGHT)
        placed[index] = at
    at = highest + LABEL_HEIGHT
    for index in reversed(order):
        at = min(placed[index], at - LABEL_HEIGHT)
        placed[index] = at
    return placed


def draw(lines: dict[str, list[tuple[int, int]]], title: str) -> str:
    """`lines`: (CPUs, KB) per build, in ascending order of CPUs."""
    lines = {build: points for build, points in lines.items() if points}
    cores = sorted({x for points in lines.values() for x, _ in points})
    sizes = [kb / 1024 for points in lines.values() for _, kb in points]
    ticks = _ticks(min(sizes), max(sizes))

    def x(processors: float) -> float:
        share = math.log(processors / cores[0]) / math.log(cores[-1] / cores[0])
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(megabytes: float) -> float:
        share = math.log(megabytes / ticks[0]) / math.log(ticks[-1] / ticks[0])
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"  <style>{STYLE}  </style>",
        f'  <text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
    ]
    for tick in ticks:
        out.append(f'  <line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        out.append(f'  <text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for number in cores:
        out.append(f'  <line class="grid" x1="{x(number):.1f}" x2="{x(number):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        out.append(f'  <text x="{x(number):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{number}</text>')
    out.append(f'  <text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 14}" text-anchor="middle">processors</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    out.append(f'  <text transform="translate(18 {middle:.0f}) rotate(-90)" text-anchor="middle">Rss, MB (1,024 KB)</text>')

    labels = _apart([y(points[-1][1] / 1024) for points in lines.values()], TOP, HEIGHT - BOTTOM)
    for (build, points), colour, at in zip(lines.items(), COLOURS, labels, strict=False):
        path = " ".join(f"{x(processors):.1f},{y(kb / 1024):.1f}" for processors, kb in points)
        end_x, end_y = x(points[-1][0]), y(points[-1][1] / 1024)
        out.append(f'  <polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for processors, kb in points:
            out.append(f'  <circle cx="{x(processors):.1f}" cy="{y(kb / 1024):.1f}" r="2.5" fill="{colour}"/>')
        out.append(
            f'  <path d="M{end_x + 4:.1f} {end_y:.1f} L{end_x + 16:.1f} {at:.1f}" stroke="{colour}" stroke-opacity="0.6" fill="none"/>'
        )
        size = points[-1][1] / 1024
        text = f"{build} {size:.0f} MB" if size >= 10 else f"{build} {size:.1f} MB"
        out.append(f'  <text x="{end_x + 20:.1f}" y="{at + 4:.1f}" style="fill: {colour}">{escape(text)}</text>')
    return "\n".join([*out, "</svg>", ""])
