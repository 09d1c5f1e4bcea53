"""A headless Chromium, driven over a pipe: the DevTools protocol without a library."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
DARK = [{"name": "prefers-color-scheme", "value": "dark"}]


class Page:
    """One tab; `complaints` are its errors and warnings, `requests` what it asked for."""

    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        self.complaints, self.requests, self.loaded = [], [], False

    def call(self, method, **parameters):
        return self.browser.call(method, parameters, self.session)

    def on(self, event, about):
        if event == "Page.loadEventFired":
            self.loaded = True
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(about["exceptionDetails"])
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append(about["args"])
        elif event == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"])
        elif event == "Page.javascriptDialogOpening":
            self.complaints.append(about)
        elif event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

    def open(self, path):
        self.loaded = False
        self.call("Page.navigate", url=f"file://{path}")
        end = time.monotonic() + 60
        while not self.loaded:
            assert time.monotonic() < end, f"{path} did not load"
            self.browser.receive()

    def run(self, expression):
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, (expression, done["exceptionDetails"])
        return done["result"].get("value")

    def press(self, key):
        code = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "End": 35}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=code[key])

    def picture(self):
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="heed-browser-")
        to_read, self.to = os.pipe()
        self.from_, to_write = os.pipe()
        # Chromium reads commands from 3 and answers on 4; as root it has no sandbox.
        command = (f'exec "$0" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage '
                   f'--no-first-run --user-data-dir="$1" --remote-debugging-pipe '
                   f'3<&{to_read} 4>&{to_write}')
        self.process = subprocess.Popen(["bash", "-c", command, PROGRAM, self.folder],
                                        pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.rest, self.answers, self.pages = b"", {}, {}
        self.numbers = itertools.count(1)

    def receive(self):
        while b"\0" not in self.rest:
            more = os.read(self.from_, 1 << 20)
            assert more, "the browser is gone"
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        if "id" in message:
            self.answers[message["id"]] = message
        elif message.get("sessionId") in self.pages:
            self.pages[message["sessionId"]].on(message["method"], message["params"])

    def call(self, method, parameters=None, session=None):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while number not in self.answers:
            self.receive()
        answer = self.answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def page(self, width=1440, height=1000, dark=False):
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=False)
        page.call("Emulation.setEmulatedMedia", features=DARK if dark else [])
        return page

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=20)
        os.close(self.to)
        os.close(self.from_)
        shutil.rmtree(self.folder, ignore_errors=True)
