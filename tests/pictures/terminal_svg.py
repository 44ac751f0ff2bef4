#!/usr/bin/env python3
"""terminal_svg.py: one screen of a terminal with colours (tmux capture-pane -ep) on standard input, as SVG on standard output.

    tmux capture-pane -ep -t SESSION | python3 tests/pictures/terminal_svg.py 100 >screen.svg

The argument is the number of columns. Runs of cells with one style become one <text> element with a fixed length, so
the picture has the same columns in every font. 16 and 256 colours, bold, reverse; nothing else is needed by `top`.
"""
import html
import re
import sys

BACK, FORE = "#16181d", "#d7dae0"
BASE = ["#2b303b", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d7dae0",
        "#5c6370", "#ff7b86", "#b5e890", "#ffd68a", "#7fc1ff", "#d99bf0", "#6fd3e0", "#ffffff"]
CELL_W, CELL_H, SIZE = 8.4, 17, 14
NO_BREAK = "\u00a0"  # SVG collapses blanks


def colour(n):
    if n < 16:
        return BASE[n]
    if n >= 232:
        return "#%02x%02x%02x" % ((8 + 10 * (n - 232),) * 3)
    level = [0, 95, 135, 175, 215, 255]
    n -= 16
    return "#%02x%02x%02x" % (level[n // 36], level[n // 6 % 6], level[n % 6])


def styled(line, style):
    """cells of one line: (character, foreground, background, bold); style continues from line to line as the terminal's does"""
    cells = []
    for escape, character in re.findall(r"\x1b\[([0-9;:]*)m|(.)", line):
        if character:
            fore, back = (style["back"], style["fore"]) if style["reverse"] else (style["fore"], style["back"])
            cells.append((character, fore, back, style["bold"]))
            continue
        words = [int(w or 0) for w in re.split("[;:]", escape)]
        while words:
            w = words.pop(0)
            if w == 0:
                style.update(fore=FORE, back=BACK, bold=False, reverse=False)
            elif w in (1, 22):
                style["bold"] = w == 1
            elif w in (7, 27):
                style["reverse"] = w == 7
            elif w in (38, 48) and words[:1] == [5]:
                style["fore" if w == 38 else "back"] = colour(words[1])
                words = words[2:]
            elif 30 <= w <= 37 or 90 <= w <= 97:
                style["fore"] = BASE[w - 30 if w < 90 else w - 82]
            elif 40 <= w <= 47 or 100 <= w <= 107:
                style["back"] = BASE[w - 40 if w < 100 else w - 92]
            elif w in (39, 49):
                style["fore" if w == 39 else "back"] = FORE if w == 39 else BACK
    return cells


def main():
    columns = int(sys.argv[1])
    lines = sys.stdin.read().rstrip("\n").split("\n")
    width, height = columns * CELL_W + 20, len(lines) * CELL_H + 20
    style = dict(fore=FORE, back=BACK, bold=False, reverse=False)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}">')
    print(f'<rect width="100%" height="100%" rx="8" fill="{BACK}"/>')
    print(f'<g font-family="DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="{SIZE}">')
    for row, line in enumerate(lines):
        cells, at = styled(line, style), 0
        while at < len(cells):
            end = at
            while end < len(cells) and cells[end][1:] == cells[at][1:]:
                end += 1
            text, (_, fore, back, bold) = "".join(c[0] for c in cells[at:end]), cells[at]
            x, length = 10 + at * CELL_W, (end - at) * CELL_W
            if back != BACK:
                print(f'<rect x="{x:.1f}" y="{10 + row * CELL_H}" width="{length:.1f}" height="{CELL_H}" fill="{back}"/>')
            if text.strip():
                weight = ' font-weight="bold"' if bold else ""
                print(f'<text x="{x:.1f}" y="{10 + row * CELL_H + 13}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs" '
                      f'fill="{fore}"{weight}>{html.escape(text).replace(chr(32), NO_BREAK)}</text>')
            at = end
    print("</g>\n</svg>")


main()
