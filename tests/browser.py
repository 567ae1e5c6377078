"""A headless Chromium for tests that look at pages: the report's and the documentation's."""

import json
import os
import select
import shutil
import subprocess
import sys
from functools import partial

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


LEFT = "Inspected target navigated or closed"  # Chromium's message


class PageLeft(Exception):
    """The page was left while an expression in it was being evaluated."""


def is_loaded(loader, event):
    told = event.get("params", {})
    return event.get("method") == "Page.lifecycleEvent" and (told["loaderId"], told["name"]) == (loader, "load")


def opened(tmp_path_factory, unchecked):
    """The body of a fixture: a browser, closed at the end. Without Chromium the tests are skipped: `unchecked` says which."""
    if CHROMIUM is None:
        pytest.skip(f"there is no chromium on this machine: {unchecked} is not checked")
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


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
        self("Page.setLifecycleEventsEnabled", enabled=True)
        self("Network.enable")

    def __call__(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters} | self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while (answer := self.next()).get("id") != self.count:
            self.events.append(answer)
        if LEFT in answer.get("error", {}).get("message", ""):
            raise PageLeft
        assert "result" in answer, answer
        return answer["result"]

    def next(self):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], 600)
            chunk = os.read(self.read, 1 << 20) if ready else b""
            assert chunk, "the browser does not answer"
            self.buffer += chunk
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def show(self, page, width, colours):
        """Load a page, a path or an address; returns the addresses that were asked for."""
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self("Emulation.setDeviceMetricsOverride", **metrics)
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colours}])
        self.events.clear()
        loader = self("Page.navigate", url=page if isinstance(page, str) else page.as_uri())["loaderId"]
        while not any(map(partial(is_loaded, loader), self.events)):  # the page before may still be loading
            self.events.append(self.next())
        return self.asked()

    def asked(self):
        """The addresses that were asked for since the page began to load."""
        self.evaluate("0")  # events that are on their way arrive first
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent]

    def evaluate(self, expression):
        result = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"]["value"]

    def until(self, expression):
        """Evaluate, in the browser, until the answer is true; a page that is loaded meanwhile is asked in its turn."""
        polling = f"""
            new Promise((resolve, reject) => {{
                const give_up = Date.now() + 600000;
                const look = () => {{
                    const found = {expression};
                    if (found) resolve(found);
                    else if (Date.now() > give_up) reject(new Error('not within ten minutes'));
                    else setTimeout(look, 50);
                }};
                look();
            }})
        """
        while True:
            try:
                return self.evaluate(polling)
            except PageLeft:
                continue

    def close(self):
        os.close(self.write)
        os.close(self.read)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
