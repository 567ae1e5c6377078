"""Equations as SVG paths, drawn at build time, so that a page needs no script, font or network; and unbreakable numbers."""

import html
import re
from functools import cache

import ziamath
from mkdocs.structure.pages import Page

ziamath.config.svg2 = False  # paths in place of shared symbols, whose ids would clash on a page
SIZE = 16  # of the font the drawing is made at; the page scales it by em
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
VERBATIM = re.compile(r"(^ *```.*?^ *```|`[^`\n]*`)", re.DOTALL | re.MULTILINE)
PER_CENT = re.compile(r"(\d) %")
SPREAD = re.compile(r"(\d) ± (\d)")
BOX = re.compile(r'width="[^"]*" height="[^"]*" viewBox="(\S+) (\S+) (\S+) (\S+)"')


def on_page_content(content: str, page: Page, **_: object) -> str:
    """Replace TeX by drawings, and load pictures when they come into view."""
    content = INLINE.sub(lambda tex: _drawn(html.unescape(tex[1]).strip(), inline=True), content)
    content = DISPLAY.sub(lambda tex: _display(html.unescape(tex[1]).strip()), content)
    return content.replace("<img ", '<img loading="lazy" ')


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Keep a number on one line with its per cent sign and with its standard deviation."""
    parts = VERBATIM.split(markdown)
    parts[::2] = [SPREAD.sub("\\1\u00a0±\u00a0\\2", PER_CENT.sub("\\1\u00a0%", part)) for part in parts[::2]]
    return "".join(parts)


def _display(tex: str) -> str:
    """One drawing for each line, so that a narrow screen scrolls only the lines that are too long."""
    lines = [line.strip() for line in tex.split(r"\\")]
    return f'<div class="equation">{"".join(_drawn(line, inline=False) for line in lines)}</div>'


@cache
def _drawn(tex: str, inline: bool) -> str:
    drawing = ziamath.Latex(tex, size=SIZE, inline=inline, color="currentColor").svg()
    found = BOX.search(drawing)
    if found is None:
        raise ValueError(f"the drawing of {tex!r} has no viewBox")
    _, top, width, height = map(float, found.groups())
    below = (top + height) / SIZE
    style = f"width:{width / SIZE:.3f}em;height:{height / SIZE:.3f}em;vertical-align:{-below:.3f}em"
    label = html.escape(tex, quote=True)
    box = f'class="tex" role="img" aria-label="{label}" style="{style}" viewBox="{" ".join(found.groups())}"'
    return drawing.replace(found[0], box, 1).replace("\n", "")
