"""The drawing of a plan: its layers from top to bottom as one SVG, made of text that was escaped.

Activities are boxes, delegates have double sides, latent calls round ends, what is sent and not waited for leans, as in
`acts check --mermaid`. Colours and lines are the page's, by the classes; without them the drawing is readable, too.
More calls than `limits.MOST_DRAWN` are folded: those of one layer that use one tool are one box.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice, pairwise
from typing import Any, Final, Self
from unicodedata import east_asian_width

from ...protocol.errors import one_line
from .. import limits

# Layers: each call below all that it waits for, and in an order in which few arrows cross.
#
# This is how layered graphs are drawn since Sugiyama, Tagawa and Toda (1981): calls are put into layers by the longest
# way to them; an arrow that passes a layer has a bend there; each layer is put in order by the average place of what
# its members are joined with in the layer before, down and up a few times; then members are moved toward these, so that
# arrows get straight. Arrows of one call share their bends.


Member = int | tuple[int, int]
"""A call, or a bend of the arrows from a call: the call and the layer."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The places of calls and bends, the middle of each across, and the arrows with their bends."""

    across: Mapping[Member, float]
    ways: Mapping[tuple[int, int], tuple[Member, ...]]
    """From an arrow to what it passes, both ends included."""
    width: float


def layers_of(calls: Collection[int], edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The calls in layers. Lanes may differ, so arrows of different lanes may form a circle: one of them goes up."""
    before = defaultdict[int, list[int]](list)
    for writer, reader in edges:
        if writer in calls and reader in calls and writer != reader:
            before[reader].append(writer)
    level: dict[int, int] = {}
    for start in calls:
        stack, open_ = [start], {start}
        while stack:
            call = stack[-1]
            left = [one for one in before[call] if one not in level and one not in open_]
            if left:
                stack.append(left[0])
                open_.add(left[0])
                continue
            level[call] = max((level[one] + 1 for one in before[call] if one in level), default=0)
            open_.discard(stack.pop())
    layers: list[list[int]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for call in calls:
        layers[level[call]].append(call)
    return layers


def place(
    layers: Sequence[Sequence[int]], edges: Collection[tuple[int, int]], widths: Mapping[int, float]
) -> tuple[list[list[Member]], Placed]:
    """Order the layers, with the bends among their members, and place everything in them."""
    ways = _ways(layers, edges)
    rows: list[list[Member]] = [list(layer) for layer in layers]
    for bend in dict.fromkeys(member for way in ways.values() for member in way if isinstance(member, tuple)):
        rows[bend[1]].append(bend)
    pairs = {pair for way in ways.values() for pair in pairwise(way)}
    above, below = defaultdict[Member, list[Member]](list), defaultdict[Member, list[Member]](list)
    for upper, lower in sorted(pairs, key=str):
        above[lower].append(upper)
        below[upper].append(lower)
    rows = _ordered(rows, above, below)
    across = _straightened(rows, above, below, widths)
    left = min((across[one] - _width(one, widths) / 2 for row in rows for one in row), default=0.0)
    right = max((across[one] + _width(one, widths) / 2 for row in rows for one in row), default=0.0)
    return rows, Placed({one: x - left for one, x in across.items()}, ways, right - left)


def _ways(
    layers: Sequence[Sequence[int]], edges: Collection[tuple[int, int]]
) -> dict[tuple[int, int], tuple[Member, ...]]:
    level = {call: number for number, layer in enumerate(layers) for call in layer}
    bends = set[Member]()
    ways = {}
    for writer, reader in sorted(edges):
        passed: tuple[Member, ...] = tuple((writer, number) for number in range(level[writer] + 1, level[reader]))
        if len(bends) > limits.MOST_BENDS:
            passed = ()
        bends.update(passed)
        ways[writer, reader] = (writer, *passed, reader)
    return ways


_Joined = Mapping[Member, Sequence[Member]]


def _ordered(rows: list[list[Member]], above: _Joined, below: _Joined) -> list[list[Member]]:
    """The rows in the order with the fewest crossings that was found."""
    best, fewest = rows, _crossings(rows, below)
    for turn in range(limits.DRAWING_PASSES):
        rows = [list(row) for row in rows]
        joined, order = (above, range(1, len(rows))) if turn % 2 == 0 else (below, range(len(rows) - 2, -1, -1))
        for number in order:
            other = rows[number - 1] if turn % 2 == 0 else rows[number + 1]
            at = {member: place for place, member in enumerate(other)}
            places = {member: place for place, member in enumerate(rows[number])}
            middle = {
                member: sum(found) / len(found) if (found := [at[one] for one in joined[member] if one in at]) else None
                for member in rows[number]
            }
            scale = len(other) / max(len(rows[number]), 1)
            rows[number].sort(key=lambda one: places[one] * scale if (x := middle[one]) is None else x)
        found_now = _crossings(rows, below)
        if found_now < fewest:
            best, fewest = rows, found_now
        if not fewest:
            break
    return best


def _crossings(rows: Sequence[Sequence[Member]], below: _Joined) -> int:
    total = 0
    for row, following in pairwise(rows):
        at = {member: place for place, member in enumerate(following)}
        seen: list[int] = []
        for member in row:
            ends = sorted(at[one] for one in below[member] if one in at)
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _width(member: Member, widths: Mapping[int, float]) -> float:
    return widths[member] if isinstance(member, int) else limits.BEND_WIDTH


def _distance(one: Member, other: Member, widths: Mapping[int, float]) -> float:
    gap = limits.DRAWING_GAP if isinstance(one, int) and isinstance(other, int) else limits.BEND_GAP
    return (_width(one, widths) + _width(other, widths)) / 2 + gap


def _straightened(
    rows: Sequence[Sequence[Member]], above: _Joined, below: _Joined, widths: Mapping[int, float]
) -> dict[Member, float]:
    across: dict[Member, float] = {}
    for row in rows:
        wanted = dict.fromkeys(row, 0.0)
        across |= _apart(row, wanted, widths)
    for turn in range(limits.DRAWING_PASSES):
        down = turn % 2 == 0
        for row in rows if down else reversed(rows):
            joined = above if down else below
            wanted = {}
            for member in row:
                places = sorted(across[one] for one in joined[member])
                middle = len(places) // 2
                wanted[member] = (places[middle] + places[~middle]) / 2 if places else across[member]
            across |= _apart(row, wanted, widths)
    return across


def _apart(row: Sequence[Member], wanted: Mapping[Member, float], widths: Mapping[int, float]) -> dict[Member, float]:
    """The members of a row in its order, as near to where they are wanted as they may be: halfway between the one
    placing in which each is pushed to the right by those before it, and the one in which it is pushed to the left.
    """
    distances = [_distance(one, other, widths) for one, other in pairwise(row)]
    right = [wanted[member] for member in row]
    for at, distance in enumerate(distances):
        right[at + 1] = max(right[at + 1], right[at] + distance)
    left = [wanted[member] for member in row]
    for at in range(len(distances) - 1, -1, -1):
        left[at] = min(left[at], left[at + 1] - distances[at])
    return {member: (left[at] + right[at]) / 2 for at, member in enumerate(row)}


NOT_TAKEN: Final = "not taken"
"""The words for a call that was skipped because another branch was taken."""
WORST_FIRST: Final = ("failed", "unknown", "held", "running", "waiting", "skipped", "done", "sent", "latent", NOT_TAKEN)
"""The order of counts: what needs attention comes first."""


@dataclass(frozen=True, slots=True)
class Node:
    """A call as it is drawn, or several that are folded into one box."""

    index: int
    tool: str
    kind: str
    counts: Mapping[str, int]
    instances: int
    classes: tuple[str, ...]
    calls: int = 1

    @classmethod
    def of(cls, call: Mapping[str, Any]) -> Self:
        """From a call as the plan lists it."""
        marks = ("note", "child", "fire_and_forget", "gather", "each")
        classes = tuple(mark.replace("_", "-") for mark in marks if call[mark])
        return cls(call["index"], call["tool"], call["kind"], call["counts"], call["instances"], classes)

    @property
    def chips(self) -> list[tuple[str, str]]:
        """Its statuses, each with the text of its count."""
        return [(status, f"{self.counts[status]:,} {status}") for status in WORST_FIRST if self.counts.get(status)]

    @property
    def subtitle(self) -> str:
        """The line below the tool's name."""
        parts = [f"call {self.index}"] if self.calls == 1 else [f"{self.calls:,} calls"]
        parts += [f"×{self.instances:,}"] if self.instances > 1 and self.calls == 1 else []
        words = {"gather": "gathers", "each": "for each", "child": "child run", "fire-and-forget": "not awaited"}
        return " · ".join([*parts, *(words[one] for one in self.classes if one in words)])

    @property
    def width(self) -> float:
        """The width of its box."""
        name = _letters(_short(self.tool, limits.DRAWING_LONGEST_NAME)) * limits.DRAWING_LETTER
        chips = sum(_chip_width(text) + 6 for _, text in self.chips) - 6
        return max(limits.LEAST_WIDTH, max(name, chips, len(self.subtitle) * limits.SMALL_LETTER) + 32)

    @property
    def spoken(self) -> str:
        """The text that a screen reader says."""
        counts = ", ".join(text for _, text in self.chips) or "no calls"
        instances = f", {self.instances:,} instances" if self.instances > 1 and self.calls == 1 else ""
        what = f"call {self.index}, {self.tool}" if self.calls == 1 else f"{self.calls:,} calls of {self.tool}"
        return f"{what}, {self.kind}{instances}: {counts}"


def draw(layers: Sequence[Sequence[int]], nodes: Mapping[int, Node], edges: Iterable[Mapping[str, Any]]) -> str:
    """The SVG; `edges` are those of the plan's answer."""
    arrows = {(edge["from"], edge["to"]): edge for edge in edges}
    sentence = ""
    if len(nodes) > limits.MOST_DRAWN:
        total = len(nodes)
        layers, nodes, arrows = _folded(layers, nodes, arrows)
        sentence = f"{total:,} calls are drawn as {len(nodes):,} boxes: calls of one layer and tool share a box"
        if len(nodes) > limits.MOST_BOXES:
            sentence = (
                f"{total:,} calls, {limits.MOST_BOXES:,} of {len(nodes):,} kinds are drawn: the list has all calls"
            )
            kept = set(islice(nodes, limits.MOST_BOXES))
            layers = [[index for index in layer if index in kept] for layer in layers]
            nodes = {index: node for index, node in nodes.items() if index in kept}
    arrows = {pair: edge for pair, edge in arrows.items() if nodes.keys() >= set(pair)}
    if (left := len(arrows) - limits.MOST_ARROWS) > 0:
        arrows = dict(islice(arrows.items(), limits.MOST_ARROWS))
        sentence += f"{'; ' if sentence else ''}{left:,} arrows are not drawn"
    rows = [
        list(layer[at : at + limits.DRAWING_ACROSS])
        for layer in layers
        for at in range(0, len(layer), limits.DRAWING_ACROSS)
    ]
    level = {index: number for number, row in enumerate(rows) for index in row}
    arrows = {pair: edge for pair, edge in arrows.items() if level[pair[0]] < level[pair[1]]}
    placed_rows, placed = place(rows, arrows.keys(), {index: node.width for index, node in nodes.items()})
    return "".join(_svg(placed_rows, placed, nodes, arrows, sentence))


def _folded(
    layers: Sequence[Sequence[int]], nodes: Mapping[int, Node], arrows: Mapping[tuple[int, int], Mapping[str, Any]]
) -> tuple[list[list[int]], dict[int, Node], dict[tuple[int, int], Mapping[str, Any]]]:
    """Calls of one layer that use the same tool, as one node with the index of the first of them."""
    first: dict[int, int] = {}
    folded: dict[int, Node] = {}
    rows: list[list[int]] = []
    for layer in layers:
        alike = defaultdict[tuple[str, str], list[Node]](list)
        for index in layer:
            alike[nodes[index].tool, nodes[index].kind].append(nodes[index])
        rows.append([group[0].index for group in alike.values()])
        for group in alike.values():
            first |= {node.index: group[0].index for node in group}
            counts = sum((Counter(node.counts) for node in group), Counter[str]())
            classes = tuple(dict.fromkeys(one for node in group for one in node.classes))
            one = group[0]
            instances = sum(node.instances for node in group)
            folded[one.index] = Node(one.index, one.tool, one.kind, counts, instances, classes, len(group))
    merged: dict[tuple[int, int], Mapping[str, Any]] = {
        (first[writer], first[reader]): {**edge, "path": ""}
        for (writer, reader), edge in arrows.items()
        if first[writer] != first[reader]
    }
    return rows, folded, merged


def _svg(
    rows: Sequence[Sequence[Member]],
    placed: Placed,
    nodes: Mapping[int, Node],
    arrows: Mapping[tuple[int, int], Mapping[str, Any]],
    sentence: str,
) -> Iterator[str]:
    tops: dict[Member, tuple[float, float]] = {}
    down = limits.DRAWING_MARGIN + (24.0 if sentence else 0.0)
    for row in rows:
        high = max((_height(nodes[one]) for one in row if isinstance(one, int)), default=0.0)
        for one in row:
            tops[one] = (down, down + (_height(nodes[one]) if isinstance(one, int) else high))
        down += high + limits.DRAWING_BETWEEN
    width = max(placed.width, len(sentence) * limits.SMALL_LETTER) + 2 * limits.DRAWING_MARGIN
    height = max(down - limits.DRAWING_BETWEEN, 0.0) + limits.DRAWING_MARGIN
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plan" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="group" aria-label="the plan, drawn as layers">'
    )
    yield (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>'
    )
    if sentence:
        yield f'<text class="folded" x="{limits.DRAWING_MARGIN:.0f}" y="20" font-size="12">{_text(sentence)}</text>'
    labelled = set[tuple[int, str]]()
    for pair, edge in arrows.items():
        points = [(placed.across[one] + limits.DRAWING_MARGIN, tops[one]) for one in placed.ways[pair]]
        yield f'<g class="edge {edge["kind"]}" data-from="{pair[0]}" data-to="{pair[1]}">'
        yield f"<title>{_text(_said(edge))}</title>"
        dashes = ' stroke-dasharray="5 4"' if edge["kind"] != "reads" else ""
        yield f'<path d="{_curve(points)}" fill="none" stroke="currentColor" marker-end="url(#arrow)"{dashes}/>'
        label = pair[0], edge["path"]
        if edge["path"] and len(arrows) <= limits.MOST_LABELS and label not in labelled:
            labelled.add(label)
            yield _label(points, edge["path"])
        yield "</g>"
    for row in rows:
        for one in row:
            if isinstance(one, int):
                yield from _box(nodes[one], placed.across[one] + limits.DRAWING_MARGIN, tops[one][0])
    yield "</svg>"


def _height(node: Node) -> float:
    return limits.DRAWING_HEIGHT if node.chips else limits.DRAWING_LOW


def _said(edge: Mapping[str, Any]) -> str:
    when = {"branch": ", if that branch is chosen", "alternative": ", if nothing else is there"}
    return f"call {edge['to']} reads {edge['path']} of call {edge['from']}{when.get(edge['kind'], '')}"


_Point = tuple[float, tuple[float, float]]


def _curve(points: Sequence[_Point]) -> str:
    (x, (_, y)), *others = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for number, (to_x, (top, bottom)) in enumerate(others, 1):
        half = (y + top) / 2
        parts.append(f"C{x:.1f} {half:.1f} {to_x:.1f} {half:.1f} {to_x:.1f} {top:.1f}")
        x, y = to_x, top
        if number < len(others):
            parts.append(f"L{to_x:.1f} {bottom:.1f}")
            y = bottom
    return "".join(parts)


def _label(points: Sequence[_Point], text: str) -> str:
    (x, (_, y)), (to_x, (top, _)) = points[:2]
    at_x, at_y = (x + to_x) / 2, (y + top) / 2
    short = _text(_short(text, limits.LONGEST_LABEL))
    return f'<text class="label" x="{at_x:.1f}" y="{at_y + 4:.1f}" font-size="11" text-anchor="middle">{short}</text>'


def _box(node: Node, middle: float, top: float) -> Iterator[str]:
    width, height = node.width, _height(node)
    left = middle - width / 2
    classes = " ".join(("call", node.kind, *node.classes, *(["several"] if node.calls > 1 else [])))
    yield (
        f'<g class="{classes}" data-call="{node.index}" tabindex="0" role="button" '
        f'aria-label="{_text(node.spoken)}"><title>{_text(node.spoken)}</title>'
    )
    yield from _shape(node, left, top, width, height)
    yield (
        f'<text class="tool" x="{middle:.1f}" y="{top + 19:.1f}" font-size="13" font-weight="600" '
        f'text-anchor="middle">{_text(_short(node.tool, limits.DRAWING_LONGEST_NAME))}</text>'
    )
    yield (
        f'<text class="about" x="{middle:.1f}" y="{top + 35:.1f}" font-size="11" '
        f'text-anchor="middle">{_text(node.subtitle)}</text>'
    )
    widths = [_chip_width(text) for _, text in node.chips]
    x = middle - (sum(widths) + 6 * (len(widths) - 1)) / 2
    for (status, text), wide in zip(node.chips, widths, strict=True):
        kind = status.replace(" ", "-")
        yield (
            f'<g class="count {kind}" data-call="{node.index}" data-status="{status}" tabindex="0" role="button" '
            f'aria-label="{_text(text)}"><rect x="{x:.1f}" y="{top + 44:.1f}" width="{wide:.1f}" height="20" rx="10" '
            f'fill="none" stroke="currentColor"/><text x="{x + wide / 2:.1f}" y="{top + 58:.1f}" font-size="11" '
            f'text-anchor="middle">{_text(text)}</text></g>'
        )
        x += wide + 6
    yield "</g>"


def _shape(node: Node, left: float, top: float, width: float, height: float) -> Iterator[str]:
    line = 'fill="none" stroke="currentColor"'
    rect = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
    rounded = height / 2 if node.kind == "latent" else 4
    if "each" in node.classes or node.calls > 1:
        behind = f'x="{left + 5:.1f}" y="{top - 5:.1f}" width="{width:.1f}" height="{height:.1f}"'
        yield f'<rect class="behind" {behind} rx="{rounded:.0f}" {line}/>'
    if "fire-and-forget" in node.classes:
        corners = f"M{left + 8:.1f} {top:.1f}h{width:.1f}l-16 {height:.1f}h-{width:.1f}z"
        yield f'<path class="body" d="{corners}" {line}/>'
        return
    yield f'<rect class="body" {rect} rx="{rounded:.0f}" {line}/>'
    if node.kind == "delegate":
        sides = f"M{left + 6:.1f} {top:.1f}V{top + height:.1f}M{left + width - 6:.1f} {top:.1f}V{top + height:.1f}"
        yield f'<path class="side" d="{sides}" {line}/>'


def _chip_width(text: str) -> float:
    return len(text) * limits.SMALL_LETTER + 16


def _letters(text: str) -> int:
    """How many Latin letters a text is as wide as."""
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in one_line(text))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(text: str) -> str:
    """Escape a text for SVG: nothing in it is markup, and what cannot be seen is shown by its number."""
    return escape(one_line(text).encode("utf-8", "backslashreplace").decode())
