"""A line chart as SVG, of its own: mid-grey text on nothing, so that it is readable on a light page and on a dark one."""
from html import escape

WIDTH, HEIGHT = 1080, 480
LEFT, RIGHT, TOP, BOTTOM = 70, 360, 44, 56
GREY = "#808080"
# Colours of middle lightness. Colour-blind readers can tell them apart, and the dashes where two
# are alike.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a63d2", "#a0522d", "#7f9f1f"]
DASHES = ["", "6 3", "2 3"]
LABEL_HEIGHT = 15


def step_of(most, steps=6):
    """The least of 1, 2, 5 × 10ⁿ that reaches `most` in this many steps."""
    power = 1
    while power * 10 * steps < most:
        power *= 10
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor * steps >= most)


def chart(title, y_label, x_label, ticks, lines, area):
    """`lines`: name → a value per tick. `area`: a name and its values, drawn below them."""
    most = max(max(values) for values in [*lines.values(), area[1]])
    step = step_of(most)
    top = step * -(-most // step)
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(index):
        return LEFT + inner_width * index / (len(ticks) - 1)

    def y(value):
        return TOP + inner_height * (1 - value / top)

    def points(values):
        return " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(values))

    def text(at_x, at_y, said, anchor="middle", more=""):
        return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}" {more}>{escape(said)}</text>'

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" font-size="12" fill="{GREY}">',
        f"<title>{escape(title)}</title>",
        text(LEFT, 22, title, "start", 'font-size="15" font-weight="bold"'),
    ]
    value = 0
    while value <= top:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="{GREY}" stroke-opacity="0.25"/>')
        out.append(text(LEFT - 8, y(value) + 4, f"{value:,}", "end"))
        value += step
    for index, tick in enumerate(ticks):
        if tick:
            out.append(text(x(index), HEIGHT - BOTTOM + 18, tick, "end" if len(tick) > 2 else "middle",
                            f'transform="rotate(-35 {x(index):.1f} {HEIGHT - BOTTOM + 18})"' if len(tick) > 2 else ""))
    out.append(text(LEFT + inner_width / 2, HEIGHT - 8, x_label))
    out.append(text(18, TOP + inner_height / 2, y_label, "middle", f'transform="rotate(-90 18 {TOP + inner_height / 2})"'))
    name, values = area
    floor = f"{x(len(ticks) - 1):.1f},{y(0):.1f} {x(0):.1f},{y(0):.1f}"
    out.append(f'<polygon points="{points(values)} {floor}" fill="{GREY}" fill-opacity="0.25"><title>{escape(name)}</title></polygon>')
    labels = [(y(values[-1]), name, GREY, "")]
    for number, (name, values) in enumerate(lines.items()):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        out.append(f'<polyline points="{points(values)}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}">'
                   f"<title>{escape(name)}</title></polyline>")
        labels.append((y(values[-1]), name, colour, dash))
    # A label is beside the end of its line, but never over another.
    labels.sort()
    highest = min(labels[0][0], HEIGHT - BOTTOM - LABEL_HEIGHT * (len(labels) - 1))
    places = []
    for at, *_ in labels:
        places.append(max(at, places[-1] + LABEL_HEIGHT) if places else max(highest, TOP))
    below = max(0, places[-1] - (HEIGHT - BOTTOM))
    end = WIDTH - RIGHT
    for (at, name, colour, dash), place in zip(labels, places):
        place = max(place - below, TOP)
        out.append(f'<path d="M{end},{at:.1f} L{end + 14},{place:.1f} H{end + 38}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}"/>')
        out.append(text(end + 43, place + 4, name, "start", f'fill="{colour}"'))
    return "\n".join([*out, "</svg>"]) + "\n"
