"""How a browser shows the page: widths, light and dark, no request to the network."""

import pytest
from tests.browser import opened


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    yield from opened(tmp_path_factory, "how the page looks in a browser")


WIDE = """
    [...document.querySelectorAll('body *')]
        .filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName)
"""


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_page_fits_shows_its_pictures_and_asks_the_network_for_nothing(width, colours, study, browser):
    _, path = study
    asked = browser.show(path, width, colours)
    assert [address for address in asked if not address.startswith("data:")] == [path.as_uri()]
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(WIDE) == []
    images = browser.evaluate("[...document.images].map(i => [i.complete, i.naturalWidth, i.clientWidth])")
    assert len(images) == 8
    assert all(complete and natural > 0 and shown > 280 for complete, natural, shown in images)
    # wide tables scroll in their own box
    boxes = browser.evaluate("[...document.querySelectorAll('.scroll')].map(e => [e.clientWidth, e.scrollWidth])")
    assert all(client <= width for client, _ in boxes)
    assert any(scroll > client for client, scroll in boxes) or width > 360
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(254, 254, 254)", "dark": "rgb(22, 24, 29)"}[colours]
    # a picture's first pixel is its paper: it follows the reader's colours too
    pixel = """
        (async () => {
            const canvas = document.createElement('canvas').getContext('2d');
            canvas.drawImage(document.images[0], 0, 0);
            return [...canvas.getImageData(1, 1, 1, 1).data].slice(0, 3);
        })()
    """
    assert browser.evaluate(pixel) == {"light": [254, 254, 254], "dark": [22, 24, 29]}[colours]


def test_odd_names_fit_on_a_telephone(odd, browser):
    _, path = odd
    browser.show(path, 360, "light")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360
    assert browser.evaluate(WIDE) == []
