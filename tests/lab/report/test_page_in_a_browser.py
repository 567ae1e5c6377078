"""How a browser shows the page: widths, light and dark, no request to the network."""

import json
import os
import select
import shutil
import subprocess
import sys

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


# its two pipes become files 3 and 4, where it listens and answers
LAUNCH = """
import fcntl, os, sys
asks, answers = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(asks, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A headless Chromium, spoken to through its debugging pipe."""

    def __init__(self, home):
        (asks, self.write), (self.read, answers) = os.pipe(), os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={home}"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(asks), str(answers), CHROMIUM, *options, "about:blank"],
            pass_fds=(asks, answers),
            stderr=subprocess.DEVNULL,
        )
        os.close(asks)
        os.close(answers)
        self.count, self.buffer, self.events, self.session = 0, b"", [], {}
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self("Page.enable")
        self("Network.enable")

    def __call__(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters} | self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while (answer := self.next()).get("id") != self.count:
            self.events.append(answer)
        assert "result" in answer, answer
        return answer["result"]

    def next(self):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], 120)
            chunk = os.read(self.read, 1 << 20) if ready else b""
            assert chunk, "the browser does not answer"
            self.buffer += chunk
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def show(self, path, width, colours):
        """Load a page; returns the addresses that were asked for."""
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self("Emulation.setDeviceMetricsOverride", **metrics)
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colours}])
        self.events.clear()
        self("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.next())
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent]

    def evaluate(self, expression):
        result = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"]["value"]

    def close(self):
        os.close(self.write)
        os.close(self.read)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine: how the page looks in a browser is not checked")
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


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
