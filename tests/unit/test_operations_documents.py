"""What operators copy: units, container files, nginx, dashboards and alerts name what there is."""

import configparser
import json
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from arkml.hive.protocol.runs import DEFAULT_PORT
from arkml.server.hive_app import routes_of
from arkml.server.monitoring.health import HEALTH_PATH, READY_PATH
from arkml.server.monitoring.prometheus import HIVE_SERIES, METRICS_PATH, HiveFigures, exposition

ROOT = Path(__file__).parents[2]
HERE = ROOT / "docs" / "operations"
PAGE = (ROOT / "docs" / "operations.md").read_text()
NAME = re.compile(r"\b(?:arkml|process)_[a-z_]+")
UNREAL = {"arkml_token"}
"""Words of the page that look like metrics: the file of a token."""


def types():
    """The type of each metric, by its name, as a hive without runs exposes them."""
    figures = HiveFigures(ROOT, {}, {}, [0.0] * len(HIVE_SERIES), [], {}, {}, 0)
    text, _ = exposition(figures, None)
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text.decode(), re.MULTILINE))


TYPES = types()
SAMPLES = {name for name, kind in TYPES.items() if kind != "histogram"} | {
    f"{name}_{part}"
    for name, kind in TYPES.items()
    if kind == "histogram"
    for part in ("bucket", "sum", "count")
}


def test_the_table_of_metrics_is_that_of_the_hive():
    table = re.findall(r"^\| `((?:arkml|process)_\w+)` \| (\w+) \|", PAGE, re.MULTILINE)

    assert dict(table) == TYPES
    assert len(table) == len(TYPES) > 30


def test_the_page_names_no_other_metric():
    assert set(NAME.findall(PAGE)) - UNREAL <= SAMPLES | TYPES.keys()


def expressions(path):
    """The expressions of a file, by their name."""
    if path.suffix == ".yml":
        rules = [rule for group in yaml.safe_load(path.read_text())["groups"]
                 for rule in group["rules"]]  # fmt: skip
        return {rule["alert"]: rule["expr"] for rule in rules}
    board = json.loads(path.read_text())
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel["targets"]
    }
    queries = [one["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    return found | dict(enumerate(queries))


@pytest.mark.parametrize("name", ["alerts.yml", "dashboard.json"])
def test_alerts_and_dashboard_name_metrics_of_the_hive_and_labels_that_these_have(name):
    for what, expression in expressions(HERE / name).items():
        named = NAME.findall(expression)

        assert named, what
        assert set(named) <= SAMPLES, what
        assert expression.count("(") == expression.count(")"), what
        for metric, labels in re.findall(r"(\w+)\{([^}]*(?:\{sid\}[^}]*)?)\}", expression):
            used = set(re.findall(r"(\w+)[!=]~?", labels)) | set(re.findall(r"(\w+)=", labels))
            assert used <= labels_of(metric), (what, used)


def labels_of(sample):
    """The labels of a sample, as the table of the page has them."""
    name = re.sub(r"_(bucket|sum|count)$", "", sample) if sample not in TYPES else sample
    (labels,) = re.findall(rf"^\| `{name}` \| \w+ \| ([^|]*)\|", PAGE, re.MULTILINE)
    return {label.strip() for label in labels.split(",")} | {"instance"}


def test_every_alert_says_what_is_wrong_and_how_much_it_matters():
    rules = yaml.safe_load((HERE / "alerts.yml").read_text())["groups"][0]["rules"]

    assert len({rule["alert"] for rule in rules}) == len(rules) > 10
    assert all(rule["annotations"]["summary"].endswith(".") for rule in rules)
    assert {rule["labels"]["severity"] for rule in rules} <= {"page", "warning", "info"}


def test_the_panels_of_the_dashboard_do_not_overlap_and_have_the_source_of_the_page():
    panels = json.loads((HERE / "dashboard.json").read_text())["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}

    assert len(places) == len(panels) == len({panel["id"] for panel in panels})
    assert {panel["datasource"]["uid"] for panel in panels} == {"${source}"}


def unit():
    """The sections of the unit of systemd, each a dictionary; comments are left out."""
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str
    parser.read(HERE / "arkml-hive.service")
    return {name: dict(parser[name]) for name in parser.sections()}


def options_of(command):
    return re.findall(r"--[a-z-]+", command)


def test_the_unit_is_hardened_and_leaves_the_end_to_the_hive():
    service = unit()["Service"]

    assert service["User"] not in ("", "root")
    assert (service["KillMode"], service["OOMPolicy"]) == ("mixed", "continue")
    assert int(service["TimeoutStopSec"]) > 8  # which a hive takes
    for name in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "RestrictNamespaces"):
        assert service[name] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert f"--data /var/lib/{service['StateDirectory']}" in service["ExecStart"]
    assert f"XDG_CACHE_HOME=/var/cache/{service['CacheDirectory']}" in service["Environment"]


@pytest.mark.parametrize("name", ["arkml-hive.service", "Containerfile"])
def test_commands_of_the_unit_and_the_image_have_options_that_there_are(name):
    command = (ROOT / "host/hive/arkml/hive_commands/serve.py").read_text()
    limits = (ROOT / "host/hive/arkml/hive_commands/limit_options.py").read_text()
    known = set(re.findall(r"\b([a-z_]+): (?:Annotated|Max|Session|Header|Body)", command + limits))
    text = (HERE / name).read_text()
    lines = [line for line in text.splitlines() if line.startswith(("ExecStart=", "CMD ["))]
    used = options_of(" ".join(lines))

    assert len(used) >= 3
    assert {one.removeprefix("--").replace("-", "_") for one in used} <= known


def instructions():
    """The instructions of the container file: word and rest, lines joined."""
    text = (HERE / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line.split(maxsplit=1) for line in lines]


def test_the_container_file_copies_what_is_there_and_is_not_root():
    found = instructions()
    copied = [
        source
        for word, rest in found
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    ]
    packaged = {"pyproject.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "host"}
    users = [rest for word, rest in found if word == "USER"]

    assert packaged <= set(copied)
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert users == ["10001:10001"]
    assert [word for word, _ in found].index("USER") < [word for word, _ in found].index("CMD")
    assert ["EXPOSE", str(DEFAULT_PORT)] in found
    assert ["STOPSIGNAL", "SIGTERM"] in found


def test_the_container_asks_for_a_path_that_needs_no_token():
    (check,) = [rest for word, rest in instructions() if word == "HEALTHCHECK"]
    (url,) = re.findall(r"http://[^']+", check)

    assert url == f"http://127.0.0.1:{DEFAULT_PORT}{READY_PATH}"


def test_the_check_of_the_container_asks_no_proxy(monkeypatch):
    (check,) = [rest for word, rest in instructions() if word == "HEALTHCHECK"]
    program = json.loads(check[check.index("[") :])[-1]
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        Thread(target=server.handle_request, daemon=True).start()
        here = program.replace(str(DEFAULT_PORT), str(server.server_port))
        run = subprocess.run([sys.executable, "-c", here], check=False)

    assert run.returncode == 0


class Ready(BaseHTTPRequestHandler):
    """A hive that is ready."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_nginx_knows_the_prefix_streams_and_sizes():
    text = (HERE / "nginx.conf").read_text()
    events = re.search(r"location = /hive/v1/events \{(.*?)\}", text, re.DOTALL)[1]

    assert text.count("{") == text.count("}")
    assert f"server 127.0.0.1:{DEFAULT_PORT};" in text
    assert "proxy_buffering off;" in events
    assert "proxy_request_buffering off;" in text
    assert re.search(r"location /hive/ \{\s*proxy_pass http://hive/;", text)
    assert "ssl_certificate " in text


def test_the_page_names_every_path_that_operators_ask_for():
    plain = {route.path for route in routes_of(None) if not route.path.startswith("/v1/")}

    assert {HEALTH_PATH, READY_PATH, METRICS_PATH} <= plain
    assert all(f"`GET {path}`" in PAGE for path in (HEALTH_PATH, READY_PATH, METRICS_PATH))
    assert all(f"operations/{file.name})" in PAGE for file in HERE.iterdir())
