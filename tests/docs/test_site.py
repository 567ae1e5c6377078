"""The documentation site: it builds without a warning, has every public name, and works in a browser without a network."""

import functools
import http.server
import importlib
import importlib.util
import os
import pkgutil
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.browser import opened

import mesu

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="the docs tools are not installed (pip install 'mesu[docs]')"
)
ROOT = Path(__file__).parents[2]
MODULES = (
    *("mesu", "mesu.rules", "mesu.optim", "mesu.engine", "mesu.learners"),
    *("mesu.measures", "mesu.river", "mesu.data", "mesu.streams", "mesu.testing"),
)


def build(folder: Path) -> subprocess.CompletedProcess:
    # not --quiet, which would hide warnings from the strict mode
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# -- what was built ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", ["nowhere.md", "guide.md#no-such-heading"])
def test_a_broken_link_or_anchor_fails_the_build(link, tmp_path):
    """Of a site of two pages, with this project's settings for links."""
    settings = text_of(ROOT / "mkdocs.yml")
    validation = re.search(r"^validation:\n(?: .*\n)+", settings, re.MULTILINE)
    assert "\nstrict: true\n" in settings
    assert validation is not None
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text(f"site_name: two pages\nstrict: true\n{validation[0]}")
    (tmp_path / "docs" / "guide.md").write_text("# Guide\n")
    for target, code in (("guide.md#guide", 0), (link, 1)):
        (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n[there]({target})\n")
        command = [sys.executable, "-m", "mkdocs", "build"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stderr


def public_names(module_name: str) -> list[str]:
    module = importlib.import_module(module_name)
    if hasattr(module, "__all__"):
        return list(module.__all__)
    mine = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module_name)
    return [name for name in mine if not name.startswith("_")]


@pytest.mark.parametrize("module_name", MODULES)
def test_every_public_name_stands_in_the_reference(module_name, site):
    ids = {
        found for page in (site / "reference").glob("*.html") for found in re.findall(r' id="([^"]+)"', text_of(page))
    }
    names = public_names(module_name)
    assert names
    for name in names:
        also_above = getattr(mesu, name, None) is getattr(importlib.import_module(module_name), name)
        assert f"{module_name}.{name}" in ids or (also_above and f"mesu.{name}" in ids), f"{module_name}.{name}"


def test_what_needs_avalanche_stands_in_the_reference_too(site):
    assert 'id="mesu.avalanche.Posterior"' in text_of(site / "reference" / "avalanche.html")


def test_public_modules_are_all_looked_at():
    """Those that a user imports; the rest is reached through them."""
    inner = {
        "mesu.__main__",
        "mesu.avalanche",  # can only be imported where Avalanche can
        "mesu.disk",
        "mesu.health",
        "mesu.memory",
        "mesu.merging",
        "mesu.monitor",
        "mesu.lab",
        "mesu.online",
        "mesu.posterior",
        "mesu.prediction",
        "mesu.registry",
        "mesu.replay",
        "mesu.version",
    }
    assert {f"mesu.{found.name}" for found in pkgutil.iter_modules(mesu.__path__)} <= {*MODULES, *inner}


def test_a_number_stays_on_one_line_with_its_spread(site):
    page = text_of(site / "streams.html")
    assert "\u00a0±\u00a0" in page
    assert not re.search(r"\d ± \d", page)


def test_special_methods_are_not_in_the_reference(site):
    pages = [text_of(path) for path in (site / "reference").glob("*.html")]
    assert not [found for page in pages for found in re.findall(r'id="[\w.]*\.[A-Z]\w*\.__\w+__"', page)]


def test_files_of_numbers_that_a_page_names_are_on_the_site(site):
    for path in site.rglob("*.html"):
        for name in re.findall(r'href="([^":]+\.csv)"', text_of(path)):
            assert (path.parent / name).is_file(), (path, name)


def test_equations_are_drawn_when_the_site_is_built(site):
    pages = {path.name: text_of(path) for path in (site / "concepts").glob("*.html")}
    assert len(pages) >= 4
    for name, page in pages.items():
        assert "arithmatex" not in page, name  # TeX that nobody drew
        assert page.count('class="tex" role="img"') > 5, name


def test_pages_ask_for_nothing_from_elsewhere(site):
    loaded = re.compile(r"""<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")
    for path in site.rglob("*.html"):
        assert loaded.findall(text_of(path)) == [], path
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", text_of(path)), path


def test_a_page_is_light(site):
    """Without its figures, which load when they come into view."""
    scripts = sum(path.stat().st_size for path in (site / "assets" / "javascripts").glob("bundle.*.js"))
    styles = sum(path.stat().st_size for path in (site / "assets" / "stylesheets").glob("*.css"))
    assert scripts + styles < 400_000
    for path in site.rglob("*.html"):
        assert path.stat().st_size < 500_000, path
        assert all('loading="lazy"' in image for image in re.findall(r"<img [^>]*>", text_of(path))), path


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    yield from opened(tmp_path_factory, "how the site looks in a browser")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module", params=["file", "http"])
def address(request, site):
    """The site opened from the disk, and from a web server."""
    if request.param == "file":
        yield site.as_uri()
        return
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


PAGES = [
    "index.html",
    "guide.html",
    "concepts/update.html",
    "results/permuted-mnist/index.html",
    "reference/optimisers.html",
]
WIDE = """
    [...document.querySelectorAll('.md-content *')]
        .filter(e => !e.closest('.md-typeset__scrollwrap, pre, .equation, table, .highlight, .doc-signature'))
        .filter(e => !e.matches('p > img:only-child'))  // scrolled sideways on a phone
        .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
        .map(e => e.outerHTML.slice(0, 80))
"""


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_in_the_readers_colours_and_asks_the_network_for_nothing(page, width, colours, site, browser):
    asked = browser.show(site / page, width, colours)
    assert [one for one in asked if not one.startswith(("file:", "data:"))] == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(WIDE) == []
    scheme = browser.evaluate("document.body.getAttribute('data-md-color-scheme')")
    assert scheme == {"light": "default", "dark": "slate"}[colours]


def test_navigation_leads_from_page_to_page(address, browser):
    browser.show(f"{address}/index.html", 1280, "light")
    sections = browser.evaluate("[...document.querySelectorAll('.md-tabs__link')].map(e => e.textContent.trim())")
    assert [name for name in sections if name != "How-to"] == [
        *("Home", "Start", "Guides", "Concepts", "Results", "Reference", "Project")
    ]
    for section, heading in (
        ("Concepts", "A posterior over weights"),
        ("Results", "Results"),
        ("Reference", "Reference"),
    ):
        browser.evaluate(
            f"[...document.querySelectorAll('.md-tabs__link')].find(e => e.textContent.trim() == '{section}').click(), 1"
        )
        assert browser.until(f"document.querySelector('h1')?.textContent.startsWith('{heading}')")


@pytest.mark.parametrize(
    ("words", "page"), [("trust region", "guide.html"), ("epistemic", "concepts/uncertainty.html")]
)
def test_search_finds_a_page_offline(words, page, address, browser):
    browser.show(f"{address}/index.html", 1280, "light")
    browser.evaluate("document.querySelector('#__search').click(), 1")
    browser.evaluate(f"""
        (() => {{
            const box = document.querySelector('.md-search__input');
            box.focus();
            box.value = '{words}';
            box.dispatchEvent(new Event('input', {{bubbles: true}}));
            box.dispatchEvent(new KeyboardEvent('keyup', {{bubbles: true}}));
            return 1;
        }})()
    """)
    found = browser.until(
        "document.querySelectorAll('.md-search-result__link').length && "
        "[...document.querySelectorAll('.md-search-result__link')].map(e => e.href)",
    )
    assert any(f"/{page}" in link for link in found), found
    assert all(one.startswith((address, "data:", "blob:")) for one in browser.asked())


def test_equations_have_a_size_and_the_readers_colour(address, browser):
    for colours in ("light", "dark"):
        browser.show(f"{address}/concepts/update.html", 1280, colours)
        shown = browser.evaluate("""
            [...document.querySelectorAll('svg.tex')].map(e => {
                const box = e.getBoundingClientRect();
                return [e.getAttribute('aria-label'), box.width, box.height, getComputedStyle(e.querySelector('path')).fill];
            })
        """)
        assert any(r"\Delta \mu" in label for label, *_ in shown)
        assert all(width > 3 and 3 < height < 120 for _, width, height, _ in shown)
        ink = browser.evaluate("getComputedStyle(document.querySelector('.md-content p')).color")
        assert {fill for *_, fill in shown} == {ink}


def test_code_is_copied(address, browser):
    browser.show(f"{address}/index.html", 1280, "light")
    browser.evaluate("""
        (() => {
            window.copied = null;
            document.execCommand = () => {
                window.copied = getSelection().toString() || document.activeElement.value;
                return true;
            };
            return 1;
        })()
    """)
    browser.until("document.querySelector('.md-code__button[data-md-type=copy]')")
    browser.evaluate("""
        [...document.querySelectorAll('.md-code__button[data-md-type=copy]')]
            .find(e => e.closest('.highlight').textContent.includes('mesu.MESU(')).click(), 1
    """)
    copied = browser.until("window.copied")
    program = re.findall(r"```python\n(.*?)```", text_of(ROOT / "README.md"), re.DOTALL)[0]
    assert copied.strip() == program.strip()


def test_a_printed_page_shows_what_is_folded(address, browser):
    browser.show(f"{address}/start.html", 1280, "light")
    assert browser.evaluate("document.querySelectorAll('.md-content details').length") >= 2
    tall = "document.querySelector('.md-content details').getBoundingClientRect().height"
    folded = browser.evaluate(tall)
    browser("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate(tall) > folded + 20
    assert browser.evaluate("getComputedStyle(document.querySelector('.md-header')).display") == "none"
    browser("Emulation.setEmulatedMedia", media="")
