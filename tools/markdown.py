"""Links, headings and anchors of the project's Markdown files, as far as the documents use Markdown: code is left alone, headings begin with `#`."""

import re
from dataclasses import dataclass

FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
COMMENT = re.compile(r"<!--.*?-->")
# [text](target "title"), ![text](target), and a picture in a link's text.
INLINE = re.compile(r"\]\(\s*<?([^()\s<>]+(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$")
HTML = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]*)\"", re.IGNORECASE)


@dataclass(frozen=True)
class Link:
    """A link's target, with the place where it stands: the line from 1, and columns of that line from 0, the end not included."""

    target: str
    line: int
    start: int
    end: int


def prose(text):
    """Pairs of line number (from 1) and line outside of fenced code, with code spans and comments blanked, so that columns stay what they are."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        if mark:
            fence = mark[1]
            continue
        for hidden in (CODE, COMMENT):
            line = hidden.sub(lambda match: " " * len(match[0]), line)
        yield number, line


@dataclass(frozen=True)
class Code:
    """A line of a fenced block, or a code span, and its line from 1."""

    text: str
    line: int


def code(text):
    """Every line of a fenced block, and every code span outside of them."""
    shown = dict(prose(text))
    for number, line in enumerate(text.splitlines(), 1):
        if number not in shown:
            yield Code(line, number)
            continue
        for match in CODE.finditer(line):
            yield Code(match[0].strip("`").strip(), number)


def links(text):
    """Every link and picture, in the order of the text."""
    for number, line in prose(text):
        found = [match for pattern in (INLINE, HTML) for match in pattern.finditer(line)]
        definition = DEFINITION.match(line)
        found += [definition] if definition else []
        for match in sorted(found, key=lambda match: match.start(1)):
            yield Link(match[1], number, match.start(1), match.end(1))


def is_elsewhere(target):
    """Whether a target is an address with a scheme, such as https or mailto."""
    return re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", target) is not None


def anchor(heading):
    """The anchor of a heading's text: that of the sites that show Markdown, and mdBook's."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\s-]", "", text.lower())
    return re.sub(r"\s", "-", text)


def anchors(text):
    """The anchors of all headings, of equal ones the second with `-1` behind it, and so on."""
    shown = {number for number, _ in prose(text)}
    seen, found = {}, set()
    for number, line in enumerate(text.splitlines(), 1):
        heading = HEADING.match(line) if number in shown else None
        if heading:
            name = anchor(heading[1])
            count = seen.get(name, 0)
            seen[name] = count + 1
            found.add(f"{name}-{count}" if count else name)
    return found


def replaced(text, change):
    """The text with each link's target replaced by what `change` makes of it."""
    lines = text.split("\n")
    for link in reversed(list(links(text))):
        line = lines[link.line - 1]
        lines[link.line - 1] = line[: link.start] + change(link.target) + line[link.end :]
    return "\n".join(lines)
