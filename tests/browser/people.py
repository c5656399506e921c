"""People in front of the page: a browser context each, with what they see and do."""

from playwright.sync_api import expect

PATIENCE = 30_000  # milliseconds
TICKS = "Number(document.getElementById('tick').textContent)"
REPORT = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
});
"""

expect.set_options(timeout=PATIENCE)


class Person:
    """
    Someone who opened a link. `complaints` are errors of the console, of scripts, of the policy.

    Errors of the network are expected where a test breaks it: `is_cut_off` leaves those out.
    """

    def __init__(self, chromium, link, name, *, part=None, begins=True, **options):
        self.name = name
        self.complaints = []
        self.is_cut_off = False
        self.context = chromium.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.add_init_script(REPORT)
        self.page.on("console", self._log)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(link)
        if begins:
            self.begin(part)

    def _log(self, message):
        is_network = "net::ERR_" in message.text
        if message.type == "error" and not (self.is_cut_off and is_network):
            self.complaints.append(message.text)

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


def live(person):
    """Wait until the page of a hive has its stream of events."""
    expect(person.page.locator("#state")).to_have_attribute("data-state", "live")
    return person


def log_in(person, token):
    """Send the form of a hive's page."""
    person.page.fill("#token", token)
    person.page.keyboard.press("Enter")


def asked_to_log_in(person):
    """Wait for the form, and forget the refusals, which browsers write to the console."""
    expect(person.page.locator("#login")).to_be_visible()
    person.complaints.clear()
    return person
