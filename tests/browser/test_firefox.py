"""The page of a hive in Firefox: it opens, is live, and draws charts, without a complaint."""

import pytest
from tests.browser.firefox import visit
from tests.browser.hives import serving, training

pytestmark = pytest.mark.browser

SHORT = ("--frames", 600, "--eval-every", 200, "--evaluate-episodes", 2)
LIVE = "document.getElementById('state').dataset.state === 'live'"
DRAWN = """['rollout/ep_rew_mean', 'eval/mean_reward'].every((name) => {
  const chart = document.querySelector(`figure[data-metric="${name}"]`);
  return chart?.querySelector('.plot').childElementCount && chart.querySelector('.note').hidden;
})"""


def test_firefox_shows_runs_and_draws_their_charts(tmp_path):
    with serving(tmp_path / "hive") as hive:
        with training(hive, tmp_path / "out", *SHORT, guest="c_cartpole") as trained:
            assert trained.wait() == 0, trained.said
        run = hive.the_run()
        rows = hive.run(run)["rows"]

        name, shown, _ = visit(
            hive.link,
            {"see": LIVE},
            {"see": "document.querySelector('table a')"},
            {"say": "document.querySelector('table a').textContent"},
            {"click": "table a"},
            {"see": DRAWN},
            {"press": "l"},
            {"see": "location.hash.includes('log') && document.getElementById('log').checked"},
            {"see": DRAWN},
            {"say": "document.querySelector('[data-figure=rows]').textContent"},
            {"say": "document.querySelector('.plot[role=slider]').focus()"},
            {"press": "Home"},
            {"see": "document.querySelector('.reading .where').textContent.endsWith(' rows')"},
        )

    assert name == "cartpole"
    assert shown == f"{rows:,}"


def test_what_a_page_complains_about_in_firefox_fails_its_visit(tmp_path, served):
    page = "<!doctype html><title>x</title><link rel='icon' href='data:,'><p>there</p>"
    (tmp_path / "page.html").write_text(page + "<script>console.error('a wrong turn')</script>")

    with pytest.raises(AssertionError, match="a wrong turn"):
        visit(f"{served}/page.html", {"see": "document.querySelector('p')"})
