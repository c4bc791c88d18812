"""Grouped bars as SVG, readable without colour vision. Pure: figures in, text out; knows nothing of programs or policies."""

import math
from xml.sax.saxutils import escape

# Okabe and Ito's colours for every kind of colour vision.
COLOURS = ["#999999", "#56B4E9", "#009E73", "#E69F00", "#F0E442", "#CC79A7", "#D55E00", "#0072B2"]
FONT = "font-family='Helvetica, Arial, sans-serif'"
INK, FAINT = "#222222", "#D8D8D8"
GAP, HEIGHT, LEFT, TOP, BOTTOM = 18, 300, 62, 84, 62
WIDTH_MIN, BAR_MIN, BAR_MAX = 760, 11, 30


def ticks(low, high, about=6):
    """Round values from at most `low` to at least `high`."""
    raw = (high - low) / about or 1.0
    power = 10 ** math.floor(math.log10(raw))
    step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    count = math.ceil(high / step - 1e-9) - first
    return [(first + i) * step for i in range(count + 1)]


def text(x, y, content, size=12, anchor="start", weight="normal", colour=INK):
    return f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' text-anchor='{anchor}' font-weight='{weight}' fill='{colour}' {FONT}>{escape(content)}</text>"


def diamond(x, y, size=5.0):
    """A published value: hollow, with a white rim that sets it off from bars."""
    path = f"M{x:.1f} {y - size:.1f} l{size} {size} l{-size} {size} l{-size} {-size} z"
    return f"<path d='{path}' fill='none' stroke='white' stroke-width='4'/><path d='{path}' fill='none' stroke='{INK}' stroke-width='1.6'/>"


def folded(name, width):
    """A hyphenated name in lines that fit the width, as far as its words do."""
    lines = [""]
    for word in name.replace("-", "-\n").split("\n"):
        if lines[-1] and 6.6 * len(lines[-1] + word) > width:
            lines.append("")
        lines[-1] += word
    return lines


def legend(names, colours, y, width, markers):
    """Swatches in as many rows as the width asks for; what follows them starts below the y returned."""
    drawn, x = [], LEFT
    for name, colour in zip(names, colours):
        room = 30 + 6.9 * len(name)
        if x + room > width - 10:
            x, y = LEFT, y + 18
        drawn.append(f"<rect x='{x}' y='{y - 10}' width='12' height='12' fill='{colour}' stroke='{INK}' stroke-width='0.5'/>")
        drawn.append(text(x + 16, y, name))
        x += room
    if markers:
        if x + 160 > width - 10:
            x, y = LEFT, y + 18
        drawn += [diamond(x + 6, y - 4), text(x + 16, y, "published (real machine)")]
    return drawn, y


def grouped_bars(title, unit, groups, series, values, markers, limit=None, colours=None):
    """One bar per series in each group. `values[group][series]` and `markers[group][series]` may lack entries; `limit` cuts the
    axis off, and bars that go beyond it say their value."""
    colours = colours or [COLOURS[1 + index] for index in range(len(series))]
    everything = [value for by in (values, markers) for of_group in by.values() for value in of_group.values()]
    low, high = min([0.0, *everything]), max([0.0, *everything])
    if limit is not None:
        high = min(high, limit)
    marks = ticks(low, high if high > low else low + 1.0)
    low, high = marks[0], marks[-1]
    narrowest = max(WIDTH_MIN, LEFT + 9 * len(title))
    room = (narrowest - LEFT - 16) / len(groups) - GAP
    bar = min(max(BAR_MIN, room / len(series)), BAR_MAX)
    group_width = bar * len(series) + GAP
    width = max(LEFT + group_width * len(groups) + 16, narrowest)
    key, last = legend(series, colours, 48, width, any(markers.values()))
    top = max(TOP, last + 24)

    def height_of(value):
        return top + HEIGHT * (high - min(value, high)) / (high - low)

    out = [text(LEFT, 22, title, 15, weight="bold"), *key]
    for mark in marks:
        y = height_of(mark)
        out.append(f"<line x1='{LEFT}' x2='{width - 12:.0f}' y1='{y:.1f}' y2='{y:.1f}' stroke='{INK if mark == 0 else FAINT}' stroke-width='1'/>")
        out.append(text(LEFT - 6, y + 4, f"{mark:g}", 11, "end"))
    out.append(f"<g transform='translate(14 {top + HEIGHT / 2:.0f}) rotate(-90)'>{text(0, 0, unit, 12, 'middle')}</g>")
    for place, group in enumerate(groups):
        start = LEFT + GAP / 2 + place * group_width
        if place:
            out.append(f"<line x1='{start - GAP / 2:.1f}' x2='{start - GAP / 2:.1f}' y1='{top}' y2='{top + HEIGHT}' stroke='{FAINT}' stroke-dasharray='2 3'/>")
        for line, words in enumerate(folded(group, group_width)):
            out.append(text(start + (group_width - GAP) / 2, top + HEIGHT + 18 + 14 * line, words, 12, "middle"))
        over = []
        for index, name in enumerate(series):
            x = start + index * bar
            value = values.get(group, {}).get(name)
            if value is not None:
                y, zero = height_of(value), height_of(0)
                out.append(f"<rect x='{x:.1f}' y='{min(y, zero):.1f}' width='{bar - 1:.1f}' height='{abs(zero - y):.1f}' fill='{colours[index]}' "
                           f"stroke='{INK}' stroke-width='0.5'><title>{escape(f'{group}, {name}: {value:.3g} {unit}')}</title></rect>")
                if value > high:
                    out.append(f"<g transform='translate({x + bar - 2:.1f} {top + 4}) rotate(-90)' stroke='white' stroke-width='3' paint-order='stroke'>"
                               f"{text(0, 0, f'{value:.0f}', 9, 'end')}</g>")
            if name in markers.get(group, {}):
                over.append(diamond(x + (bar - 1) / 2, height_of(markers[group][name])))
        out += over
    total = top + HEIGHT + BOTTOM
    head = f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0f}' height='{total:.0f}' viewBox='0 0 {width:.0f} {total:.0f}'>"
    return "\n".join([head, f"<rect width='{width:.0f}' height='{total:.0f}' fill='white'/>", *out, "</svg>", ""])
