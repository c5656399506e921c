"""People in front of the page: a browser context each, with what they see and do."""

from pathlib import Path

from playwright.sync_api import expect

PATIENCE = 30_000  # milliseconds
TICKS = "Number(document.getElementById('tick').textContent)"
REPORT = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
});
"""
SAVES = """() => {
  document.saves = [];
  const blobs = new Map();
  const make = URL.createObjectURL.bind(URL);
  URL.createObjectURL = (blob) => {
    const address = make(blob);
    blobs.set(address, blob);
    return address;
  };
  HTMLAnchorElement.prototype.click = function () {
    document.saves.push([this.download, blobs.get(this.href)]);
  };
}"""
SAVED = """async () => {
  const [name, blob] = document.saves[0];
  return [name, [...new Uint8Array(await blob.arrayBuffer())]];
}"""

expect.set_options(timeout=PATIENCE)


def listen(page, complain):
    """
    Call `complain` with what goes wrong in a page, of which it is told before it opens anything.

    That is what it writes to the console as an error, errors of scripts, requests that its policy
    forbids, and answers with a status of 400 and more, which Chromium writes to the
    console and Firefox does not.
    """
    page.add_init_script(REPORT)

    def hear(message):
        if message.type == "error":
            complain(message.text)

    def look(response):
        if response.status >= 400:
            complain(f"{response.url} was answered by {response.status}")

    page.on("console", hear)
    page.on("pageerror", lambda error: complain(str(error)))
    page.on("response", look)


class Person:
    """
    Someone who opened a link. `complaints` are what `listen` hears.

    Errors of the network are expected where a test breaks it: `is_cut_off` leaves those out.
    """

    def __init__(self, browser, link, name, *, part=None, begins=True, **options):
        self.name = name
        self.complaints = []
        self.is_cut_off = False
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        listen(self.page, self._complain)
        self.page.goto(link)
        if begins:
            self.begin(part)

    def _complain(self, text):
        if not (self.is_cut_off and "net::ERR_" in text):
            self.complaints.append(text)

    def begin(self, part=None):
        """Answer the dialog."""
        expect(self.page.locator("#begin")).to_be_enabled()
        self.page.fill("#name", self.name)
        if part is not None:
            self.page.select_option("#slot", label=part)
        self.page.click("#begin")

    def sees(self, selector, text):
        """Wait until an element has a text."""
        expect(self.page.locator(selector)).to_contain_text(text)

    def plays(self, actor):
        """Wait until the page says that an actor is mine, and for some ticks more."""
        self.sees("#part", f"you play {actor}")
        self.waits()
        return self

    def row(self, actor):
        """The row of the table for an actor."""
        return self.page.locator("#actors tr", has=self.page.locator(".name", has_text=actor))

    def take(self, actor, *, at_once=False):
        """Click the button of an actor; `at_once` although it may vanish meanwhile."""
        button = self.row(actor).locator("button", has_text="Take over")
        if at_once:
            button.dispatch_event("click")
        else:
            button.click()

    def looks_away(self):
        """Bring another tab to the front, without which Playwright has every page focused."""
        session = self.context.new_cdp_session(self.page)
        session.send("Emulation.setFocusEmulationEnabled", {"enabled": False})
        self.context.new_page().bring_to_front()

    def waits(self, ticks=5):
        """Wait for some ticks."""
        self.page.wait_for_function(
            f"(last) => {TICKS} >= last", arg=self.page.evaluate(TICKS) + ticks
        )

    def holds(self, *keys, ticks=5):
        """Hold keys down for some ticks."""
        for key in keys:
            self.page.keyboard.down(key)
        self.waits(ticks)
        for key in keys:
            self.page.keyboard.up(key)


def saved(page, button):
    """
    Click a button that saves a file; return its name and its bytes.

    Firefox saves no blobs in a context of its own, nor tells of them, so there they are taken where
    the page hands them to the browser.
    """
    if page.context.browser.browser_type.name == "chromium":
        with page.expect_download() as download:
            button.click()
        return download.value.suggested_filename, Path(download.value.path()).read_bytes()
    page.evaluate(SAVES)
    button.click()
    page.wait_for_function("document.saves.length")
    name, content = page.evaluate(SAVED)
    return name, bytes(content)


def live(person):
    """Wait until the page of a hive has its stream of events."""
    expect(person.page.locator("#state")).to_have_attribute("data-state", "live")
    return person


def log_in(person, token):
    """Send the form of a hive's page."""
    person.page.fill("#token", token)
    person.page.keyboard.press("Enter")


def asked_to_log_in(person):
    """Wait for the form, and forget the refusals, of which `listen` hears."""
    expect(person.page.locator("#login")).to_be_visible()
    person.complaints.clear()
    return person
