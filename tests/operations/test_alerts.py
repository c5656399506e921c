"""Every alert fires at a real Prometheus, and every panel of the dashboard has its data there."""

import json
import subprocess

import pytest
import yaml
from tests.operations.monitored_hives import OPERATIONS, monitored, scaled
from tests.waiting import eventually

pytestmark = pytest.mark.operations

RULES = yaml.safe_load((OPERATIONS / "alerts.yml").read_text())
BOARD = json.loads((OPERATIONS / "dashboard.json").read_text())
UNPROVOKED = {"HiveDiskFull"}
"""It takes a file system with less than 2 GB; promtool fires it by series that are made up."""

LAST = "HiveAbsent"
ALERTS = {rule["alert"] for group in RULES["groups"] for rule in group["rules"]}
EXPRESSIONS = [
    (panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]
]


@pytest.fixture(scope="module")
def hives(tmp_path_factory):
    with monitored(tmp_path_factory.mktemp("hives")) as known:
        yield known


@pytest.mark.parametrize("alert", sorted(ALERTS - UNPROVOKED - {LAST}))
def test_an_alert_fires_where_its_trouble_is(hives, alert, request):
    server, trouble, _ = hives
    fired = request.config.stash.setdefault(FIRED, set())

    def has_fired():
        assert trouble.errors == []
        fired.update(server.firing())
        return alert in fired

    assert eventually(has_fired, interval=0.3)


FIRED = pytest.StashKey()


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS)
def test_a_panel_of_the_dashboard_has_data(hives, title, expression):
    server, _, _ = hives
    given = expression.replace("$__rate_interval", "10s").replace("$run", ".*")

    assert "$" not in given
    assert eventually(lambda: server.query(given), interval=0.3), title


def test_the_variable_of_the_dashboard_lists_the_runs(hives):
    server, _, _ = hives
    [query] = [one["query"] for one in BOARD["templating"]["list"] if one["name"] == "run"]
    names = server.get("/label/name/values", **{"match[]": "arkml_run_info"})

    assert query == "label_values(arkml_run_info, name)"
    assert {"nan", "goal", "damaged"} <= set(names)


def test_no_hive_is_scraped_once_all_have_ended(hives):
    server, _, end = hives
    end()

    assert eventually(lambda: LAST in server.firing(), interval=0.3)


def test_promtool_fires_what_no_test_can_provoke(tmp_path):
    series = {
        "HiveDiskFull": [
            ('arkml_disk_free_bytes{instance="a"}', "3e9 3e9 1e9 1e9 1e9"),
            ('arkml_disk_free_bytes{instance="b"}', "3e9 3e9 3e9 3e9 3e9"),
        ]
    }
    assert series.keys() == UNPROVOKED
    said = "The file system of a has less than 2 GB: rows will be refused (507)."
    tests = {
        "rule_files": [str(OPERATIONS / "alerts.yml")],
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values} for name, values in series["HiveDiskFull"]
                ],
                "alert_rule_test": [
                    {"eval_time": "1m", "alertname": "HiveDiskFull", "exp_alerts": []},
                    {
                        "eval_time": "4m",
                        "alertname": "HiveDiskFull",
                        "exp_alerts": [
                            {
                                "exp_labels": {"instance": "a", "severity": "page"},
                                "exp_annotations": {"summary": said},
                            }
                        ],
                    },
                ],
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "tests.yml"], capture_output=True, check=False
    )

    assert done.returncode == 0, done.stdout.decode()


def test_scaling_changes_times_only():
    rules = {"groups": [{"rules": [{"expr": 'rate(x[10m]) > 5 and y{a="1h"}', "for": "1h"}]}]}

    assert scaled(rules)["groups"][0]["rules"] == [
        {"expr": 'rate(x[10s]) > 5 and y{a="1h"}', "for": "12s"}
    ]
