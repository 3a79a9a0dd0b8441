"""Alert rules and dashboard: each alert is tested and has its page, and what they ask for is what a running proxy has."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
import yaml

from tests.deploy.files import REPOSITORY
from tests.docs.pages import blocks, inline_code, read
from tests.process.asking import ask, configuration
from tests.processes import DemoApi, demo_api, proxy
from tests.servers import free_port

RULES: Final = REPOSITORY / "deploy/prometheus/rules.yml"
TESTS: Final = REPOSITORY / "tests/deploy/rules/alerts.yml"
DASHBOARD: Final = REPOSITORY / "deploy/grafana/idemproxy.json"
RUNBOOKS: Final = REPOSITORY / "docs/runbooks"
SECONDS: Final = 30.0

GROUPS: Final[list[dict[str, Any]]] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
ALERTS: Final[dict[str, dict[str, Any]]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
CASES: Final[list[dict[str, Any]]] = yaml.safe_load(TESTS.read_text("utf-8"))["tests"]
RECORDED: Final = {rule["record"]: rule["expr"] for group in GROUPS for rule in group["rules"] if "record" in rule}
PANELS: Final = [panel for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"] if panel["type"] != "row"]

_METRIC: Final = re.compile(r"\b(?:idemproxy[:_][\w:]+|process_\w+|up)(?=[{\[\s)]|$)")
_VARIABLES: Final = {"$job": ".*", "$route": ".*", "$__rate_interval": "1m", "$__range": "1m"}


def queries() -> list[tuple[str, str]]:
    """Every expression of the dashboard, as Grafana sends it, and the panel that it is of."""
    found = []
    for panel in PANELS:
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in _VARIABLES.items():
                text = text.replace(name, value)
            found.append((panel["title"], text))
    return found


def metrics_of(text: str) -> set[str]:
    """The names of the metrics in an expression."""
    return set(_METRIC.findall(text))


def test_rules_can_be_read(promtool: str) -> None:
    """`promtool check rules` finds no fault."""
    done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)


def test_alerts_fire_on_their_condition_and_not_otherwise(promtool: str) -> None:
    """`promtool test rules` finds each case as it is written."""
    done = subprocess.run([promtool, "test", "rules", TESTS], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_tested_both_ways(alert: str) -> None:
    """Of each there is a case in which it fires, and one in which nothing does at any time."""
    cases = [
        each
        for each in yaml.safe_load(TESTS.read_text("utf-8"))["tests"]
        if f"Idemproxy{each['name'].partition(':')[0]}" == alert
    ]
    fires = [{sample["labels"] for check in case["promql_expr_test"] for sample in check["exp_samples"]} for case in cases]

    assert [True, True] == [{f'{{alertname="{alert}"}}'} in fires, set() in fires]


def test_each_alert_has_its_page_and_each_page_its_alert() -> None:
    """A runbook is a page that names the alert, with what it means, how to see it, and what to do."""
    pages = {alert: REPOSITORY / rule["annotations"]["runbook_url"] for alert, rule in ALERTS.items()}
    texts = {page: page.read_text("utf-8") for page in RUNBOOKS.glob("*.md")}

    assert set(pages.values()) == set(texts)
    assert [] == [alert for alert, page in pages.items() if alert not in inline_code(texts[page])]
    assert [] == [page for page, text in texts.items() if not text.index("\n## See it\n") < text.index("\n## Do\n")]


def test_links_to_the_pages_can_be_made(tmp_path: Path, promtool: str) -> None:
    """What the page has done to the rules makes a whole address of each `runbook_url`, and changes nothing else."""
    [command] = [each.text for each in blocks(read("docs/how-to/alerts-and-dashboard.md"), "sh")]
    subprocess.run(["sh", "-c", command.replace("> rules.yml", f"> {tmp_path}/rules.yml")], check=True, cwd=REPOSITORY)
    subprocess.run([promtool, "check", "rules", tmp_path / "rules.yml"], check=True, capture_output=True)
    text = (tmp_path / "rules.yml").read_text("utf-8")

    assert len(ALERTS) == text.count("runbook_url: https://git.example.com/idemproxy/blob/main/docs/runbooks/")
    assert RULES.read_text("utf-8") == text.replace("https://git.example.com/idemproxy/blob/main/", "")


def test_each_alert_says_how_urgent_it_is() -> None:
    """By the same names as the page about alerts has them; no annotation is missing."""
    assert {"page", "ticket"} == {rule["labels"]["severity"] for rule in ALERTS.values()}
    assert [{"summary", "description", "runbook_url"}] * len(ALERTS) == [set(rule["annotations"]) for rule in ALERTS.values()]
    assert set() == set(re.findall(r"`(Idemproxy\w+)`", read("docs/how-to/alerts-and-dashboard.md"))) - set(ALERTS)


def test_dashboard_shows_what_it_is_for() -> None:
    """A panel for each of the five questions; panels do not lie on one another, and each has a number of its own."""
    titles = [panel["title"] for panel in PANELS]
    cells = [
        (panel["gridPos"]["x"] + right, panel["gridPos"]["y"] + down)
        for panel in PANELS
        for right in range(panel["gridPos"]["w"])
        for down in range(panel["gridPos"]["h"])
    ]

    assert {"Effects prevented", "Replays", "Told unknown", "Added to a first write, mean", "Operations, p99"} <= set(titles)
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len(PANELS) == len({panel["id"] for panel in PANELS})


class Server:
    """A Prometheus that scrapes proxies."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str, **arguments: str) -> Any:  # noqa: ANN401 - JSON
        """The data of an answer of its API. Raises OSError before it listens, AssertionError for another status than 200."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        try:
            connection.request("GET", f"/api/v1/{path}?{urlencode(arguments)}")
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        assert answer.status in {200, 503}, body  # 503: it still starts
        return json.loads(body)["data"] if answer.status == 200 else []

    def values(self, query: str) -> list[float]:
        """The values that an expression has now, NaN left out."""
        found = [float(each["value"][1]) for each in self.get("query", query=query)["result"]]
        return [value for value in found if value == value]  # noqa: PLR0124 - NaN is no value

    def until_all_have_values(self, expressions: list[str]) -> list[str]:
        """Wait until each expression has one; those that have none at the deadline."""
        deadline = time.monotonic() + SECONDS
        without = expressions
        while (without := [each for each in without if not self.values(each)]) and time.monotonic() < deadline:
            time.sleep(0.1)
        return without


@contextmanager
def scraping(prometheus: str, directory: Path, admin: str) -> Iterator[Server]:
    """A Prometheus with our rules that scrapes a proxy twice a second, and evaluates more often."""
    rules = RULES.read_text("utf-8")
    assert "interval: 15s" in rules
    (directory / "rules.yml").write_text(rules.replace("interval: 15s", "interval: 200ms"))
    scraped = {"job_name": "idemproxy", "static_configs": [{"targets": [admin.removeprefix("http://")]}]}
    settings = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [scraped],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(settings))
    server = Server(port := free_port())
    flags = [
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("wb") as log, subprocess.Popen([prometheus, *flags], stdout=log, stderr=log) as program:
        try:
            deadline = time.monotonic() + SECONDS
            while True:
                try:
                    if server.get("targets") and server.values("up == 1"):
                        break
                except OSError:
                    pass
                assert program.poll() is None, (directory / "log").read_text()
                assert time.monotonic() < deadline, (directory / "log").read_text()
                time.sleep(0.05)
            yield server
        finally:
            program.terminate()


def _traffic(url: str, api: DemoApi) -> None:
    """Executed, replayed, another request under the same key, unprotected, unknown, never sent, and one that waits."""
    ask(url, "order-1")
    ask(url, "order-1")
    ask(url, "order-1", body=b'{"amount": 1}')
    ask(url)
    api.fault("reset_after")
    ask(url, "order-2")
    ask(url, "order-3", target="/nowhere/charges")
    with ThreadPoolExecutor(2) as threads:
        for _ in range(2):
            threads.submit(ask, url, "order-4", fields=[("Demo-Fault", "delay_after=0.3")])


def test_a_real_prometheus_finds_what_is_asked_for(prometheus: str, tmp_path: Path) -> None:
    """After real traffic each metric of rules and dashboard exists, each panel has something to show, and an alert has fired."""
    expressions = {text: title for title, text in queries()}
    asked = [*expressions, *RECORDED.values(), *(rule["expr"] for rule in ALERTS.values())]
    with demo_api() as api:
        settings = {
            "upstreams": {"api": {"url": api.url}, "nowhere": {"url": f"http://127.0.0.1:{free_port()}"}},
            "store": {"url": f"sqlite:///{tmp_path}/records.db"},
            "routes": [
                {"name": "nowhere", "match": {"path": "/nowhere/**"}, "upstream": "nowhere"},
                {"name": "charges", "upstream": "api"},
            ],
        }
        with proxy(*configuration(tmp_path, settings)) as running, scraping(prometheus, tmp_path, running.admin) as server:
            _traffic(running.url, api)
            without = server.until_all_have_values([*expressions, *RECORDED])
            firing = server.until_all_have_values(['ALERTS{alertname="IdemproxyOutcomeUnknown",alertstate="firing"}'])
            names = set(server.get("label/__name__/values"))
            health = {rule["health"] for group in server.get("rules")["groups"] for rule in group["rules"]}

    assert ({"ok"}, []) == (health, firing)
    assert [] == [expressions.get(each, each) for each in without]
    assert set() == set[str]().union(*map(metrics_of, asked)) - names


def test_names_of_metrics_are_found_in_expressions() -> None:
    """Those of the proxy, of what is recorded, of the process, and `up`; no labels, functions or groupings."""
    text = (
        'sum by (job) (rate(idemproxy_a_total{outcome="up"}[5m])) / idemproxy:b:rate5m > up{job=~"(.+/)?idemproxy"} + process_c'
    )

    assert {"idemproxy_a_total", "idemproxy:b:rate5m", "up", "process_c"} == metrics_of(text)
