"""The chart in both modes: what it makes is valid and fits together, and what is misspelt is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator

from docs.generate.chart import SCHEMA, with_configuration
from idemproxy import __version__
from idemproxy.config.load import load
from idemproxy.config.settings import Settings
from idemproxy.config.values import is_loopback
from idemproxy.workers import PATIENCE
from tests.deploy.files import REPOSITORY, containers, manifest

CHART: Final = REPOSITORY / "deploy/helm/idemproxy"
AGENT: Final = REPOSITORY / "deploy/helm/example-agent"
VALIDATE: Final = Path(sys.prefix) / "bin/kubernetes-validate"
MODES: Final = ("standalone", "sidecar")
SECRETS: Final = "/run/secrets/idemproxy"

Objects = Mapping[str, dict[str, Any]]


def values(mode: str, *changes: str) -> dict[str, Any]:
    """The values of a mode as Helm merges them, with further changes, each a YAML document of its own."""
    merged: dict[str, Any] = {}
    for text in ((CHART / "values.yaml").read_text("utf-8"), (CHART / f"ci/{mode}-values.yaml").read_text("utf-8"), *changes):
        merged = _merged(merged, yaml.safe_load(text))
    return merged


def _merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two mappings in one, key by key at every depth."""
    both = {key: _merged(below[key], above[key]) for key in below.keys() & above if isinstance(above[key], dict)}
    return {**below, **above, **both}


def helmed(helm: str, *arguments: str) -> str:
    """What helm prints. Raises CalledProcessError, with what it says of a fault."""
    return subprocess.run([helm, *arguments], check=True, capture_output=True, text=True).stdout


@cache
def rendered(helm: str, mode: str, *settings: str) -> Objects:
    """What the chart makes in a mode, by kind; `settings` as after --set."""
    more = [word for setting in settings for word in ("--set", setting)]
    text = helmed(helm, "template", "shop", str(CHART), "--values", str(CHART / f"ci/{mode}-values.yaml"), *more)
    return {each["kind"]: each for each in yaml.safe_load_all(text) if each}


@pytest.fixture(scope="module")
def agent(helm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example of an own chart, with the proxy's as its dependency."""
    directory = tmp_path_factory.mktemp("helm")
    shutil.copytree(CHART.parent, directory / "helm")
    helmed(helm, "dependency", "build", str(directory / "helm/example-agent"))
    return directory / "helm/example-agent"


@pytest.fixture(scope="module")
def with_agent(helm: str, agent: Path) -> Objects:
    """What the example makes, by kind, with two Secrets for the proxy."""
    text = helmed(helm, "template", "shop", str(agent), "--set", "idemproxy.secrets={idemproxy,tls}")
    return {each["kind"]: each for each in yaml.safe_load_all(text) if each}


def settings_of(objects: Objects, directory: Path) -> Settings:
    """What the real loader makes of the configuration in a ConfigMap, its secrets being files below `directory`."""
    for name in ("admin-token", "redis-password"):
        (directory / name).write_text("0123456789abcdef")
    path = directory / "idemproxy.yaml"
    path.write_text(objects["ConfigMap"]["data"]["idemproxy.yaml"].replace(SECRETS, str(directory)))
    return load({"config": [str(path)]}, {}).settings


def pod(objects: Objects) -> dict[str, Any]:
    """The specification of the Deployment's Pods."""
    found: dict[str, Any] = objects["Deployment"]["spec"]["template"]["spec"]
    return found


def proxy(objects: Objects) -> dict[str, Any]:
    """The container of the proxy."""
    return next(each for each in containers(pod(objects)) if each["name"] == "idemproxy")


def test_chart_is_of_this_version() -> None:
    """Chart and image are those of the package, and the example takes them."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    [dependency] = yaml.safe_load((AGENT / "Chart.yaml").read_text("utf-8"))["dependencies"]

    assert (__version__, __version__) == (about["version"], about["appVersion"])
    assert f"^{about['version']}" == dependency["version"]


def test_schema_knows_the_configuration_as_it_is_now() -> None:
    """The schema of the values holds that of the configuration: `make docs` would not change it."""
    text = SCHEMA.read_text("utf-8")

    assert with_configuration(text) == text


@cache
def validator() -> Validator:
    """Of the chart's values, as Helm has it built in."""
    return Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))


def faults(whole: object) -> list[str]:
    """Where values are not as the schema has them, as paths."""
    found = validator().iter_errors(whole)
    return sorted("/".join(map(str, fault.absolute_path)) for fault in found)


@pytest.mark.parametrize("mode", MODES)
def test_schema_takes_what_is_right(mode: str) -> None:
    """The defaults with the example of each mode, and with what Helm adds for a dependency."""
    assert [] == faults(values(mode, "global: {}"))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("replica: 3", ""),
        ("mode: side-car", "mode"),
        ("image: {tga: x}", "image"),
        ("image: {digest: sha256:12}", "image/digest"),
        ("podMonitor: {enable: true}", "podMonitor"),
        ("resources: {request: {}}", "resources"),
        ("podSpec: {volumes: []}", "podSpec"),
        ("podAnnotations: {checksum/idemproxy: mine}", "podAnnotations"),
        ("env: [{name: IDEMPROXY_STORE, value: 'sqlite:///records.db'}]", "env/0/name"),
        ("secrets: [idemproxy, idemproxy]", "secrets"),
        ("config: {upstream: {}}", "config"),
        ("config: {drain: 30}", "config/drain"),
        ("config: {upstreams: {payments: {profil: stripe}}}", "config/upstreams/payments"),
        ("config: {store: {urls: x}}", "config/store"),
    ],
)
def test_schema_refuses_what_is_misspelt(change: str, where: str) -> None:
    """A key or value that is none is a fault at its place, in the chart's values and in the proxy's configuration."""
    assert [where] == faults(values("standalone", change))


@pytest.mark.parametrize(
    ("mode", "missing"), [("standalone", ["upstreams", "store", "scope"]), ("sidecar", ["upstreams", "store"])]
)
def test_schema_asks_for_what_nobody_can_guess(mode: str, missing: list[str]) -> None:
    """Upstreams, a store that outlives the Pod, and, where callers come from other Pods, whose keys are whose."""
    whole = values(mode)
    for key in missing:
        without = whole | {"config": {name: value for name, value in whole["config"].items() if name != key}}
        assert ["config"] == faults(without)
    assert [] == faults(whole | {"config": {name: value for name, value in whole["config"].items() if name in missing}})


def test_helm_finds_no_fault(helm: str, agent: Path) -> None:
    """`helm lint --strict` is content with both modes, and with the example that has the chart as a dependency."""
    for mode in MODES:
        helmed(helm, "lint", "--strict", str(CHART), "--values", str(CHART / f"ci/{mode}-values.yaml"))
    helmed(helm, "lint", "--strict", str(agent))


@pytest.mark.parametrize(
    ("mode", "setting", "told"),
    [
        ("standalone", "replica=3", "additional properties 'replica' not allowed"),
        (
            "standalone",
            "config.upstreams.payments.profil=stripe",
            "at '/config/upstreams/payments': additional properties 'profil' not allowed",
        ),
        ("standalone", "config.store.url=sqlite:///records.db", "config.store.url: sqlite:///records.db would go with its Pod"),
        ("standalone", "config.drain=${DRAIN}", "config.drain: ${DRAIN}: the chart must know it"),
        ("standalone", "config.listen=0.0.0.0:8081", "config.admin.listen: 0.0.0.0:8081: its port is that of config.listen"),
        (
            "standalone",
            "config.listen=127.0.0.1:8080",
            "config.listen: 127.0.0.1:8080: nobody outside the container reaches that",
        ),
        ("sidecar", "config.listen=0.0.0.0:8080", "config.scope: is missing, and other Pods reach 0.0.0.0:8080"),
    ],
)
def test_helm_refuses_and_says_what(helm: str, mode: str, setting: str, told: str) -> None:
    """Nothing is made of what is misspelt, of a store that would go with its Pod, or of what the proxy itself would refuse."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered(helm, mode, setting)

    assert told in refused.value.stderr


def test_each_mode_makes_its_own(helm: str, with_agent: Objects) -> None:
    """Stand-alone a Deployment with all that belongs to it; for a sidecar the configuration, and the Pod is another chart's."""
    assert ["ConfigMap", "Deployment", "Pod", "PodDisruptionBudget", "Service"] == sorted(rendered(helm, "standalone"))
    assert ["ConfigMap", "Deployment", "Pod", "Service"] == sorted(rendered(helm, "standalone", "replicas=1"))
    assert ["ConfigMap"] == sorted(rendered(helm, "sidecar"))
    assert ["ConfigMap", "Deployment"] == sorted(with_agent)


@pytest.mark.skipif(not VALIDATE.exists(), reason="pip install kubernetes-validate")
def test_cluster_takes_what_is_made(helm: str, with_agent: Objects, tmp_path: Path) -> None:
    """Valid, without a field that is not known, from the first version with native sidecars to the latest."""
    everything = [*rendered(helm, "standalone").values(), *with_agent.values()]
    (tmp_path / "made.yaml").write_text(yaml.safe_dump_all(everything))
    checks = [
        subprocess.run(
            [VALIDATE, "--strict", "--no-warn", "-k", version, tmp_path / "made.yaml"],
            capture_output=True,
            text=True,
            check=False,
        )
        for version in ("1.29", "1.37")
    ]

    assert [(0, ""), (0, "")] == [(check.returncode, check.stderr) for check in checks]


def test_configuration_is_a_whole_one(helm: str, with_agent: Objects, tmp_path: Path) -> None:
    """The real loader takes it; a sidecar listens on the Pod's loopback, and else for other Pods; Prometheus reaches both."""
    alone, beside = (settings_of(objects, tmp_path) for objects in (rendered(helm, "standalone"), with_agent))

    assert [False, True] == [is_loopback(each.listen.host) for each in (alone, beside)]
    assert ["0.0.0.0:8081"] * 2 == [str(each.admin) for each in (alone, beside)]
    assert ["json"] * 2 == [each.log_format for each in (alone, beside)]


def test_ports_follow_the_configuration(helm: str) -> None:
    """Whoever sets an address sets the Pod's port with it."""
    made = rendered(helm, "standalone", "config.listen=0.0.0.0:9000", "config.admin.listen=[::]:9001")

    assert [("http", 9000), ("idemproxy-admin", 9001)] == [(each["name"], each["containerPort"]) for each in proxy(made)["ports"]]


@pytest.mark.parametrize(("drain", "seconds"), [("500ms", 1), ("20s", 20), ("1.5m", 90), ("1h", 3600)])
def test_pod_is_killed_after_the_drain_only(helm: str, drain: str, seconds: int) -> None:
    """The time until a Pod is killed holds preStop, `drain` as the proxy reads it, and more than workers have beyond it."""
    made = rendered(helm, "standalone", f"config.drain={drain}")

    assert 5 + seconds + 15 == pod(made)["terminationGracePeriodSeconds"]
    assert 15 > PATIENCE


def test_example_gives_the_agent_its_time_first(with_agent: Objects) -> None:
    """A sidecar is told to end when the containers have ended: their time comes before the `drain`."""
    assert 10 + 30 + 15 == pod(with_agent)["terminationGracePeriodSeconds"]


@pytest.mark.parametrize(
    ("setting", "others"),
    [("config.upstreams.payments.url=http://other", True), ("config.drain=9s", True), ("replicas=5", False)],
)
def test_another_configuration_makes_other_pods(helm: str, setting: str, others: bool) -> None:  # noqa: FBT001
    """The Pods' checksum changes with the configuration, which is read at the start, and with nothing else."""
    before, after = (
        made["Deployment"]["spec"]["template"]["metadata"]["annotations"]["checksum/idemproxy"]
        for made in (rendered(helm, "standalone"), rendered(helm, "standalone", setting))
    )

    assert others == (before != after)


def test_sidecar_is_that_of_the_manifests(with_agent: Objects) -> None:
    """What is probed, asked for and run is the same in the chart as in deploy/kubernetes."""
    other = manifest("agent.yaml", "Deployment", "agent")["spec"]["template"]["spec"]["initContainers"][0]
    same = ("args", "restartPolicy", "ports", "startupProbe", "livenessProbe", "readinessProbe", "resources")

    assert {name: other[name] for name in same} == {name: proxy(with_agent)[name] for name in same}
    assert _mounted(other) | {"/run/secrets/tls"} == _mounted(proxy(with_agent))
    assert ["idemproxy"] == [each["name"] for each in pod(with_agent)["initContainers"]]


def _mounted(container: Mapping[str, Any]) -> set[str]:
    """Where a container has volumes."""
    return {mount["mountPath"] for mount in container["volumeMounts"]}


def test_pods_are_confined(helm: str, with_agent: Objects) -> None:
    """Each container meets the restricted Pod Security Standard, may write to volumes only, and has a limit on memory."""
    alone = rendered(helm, "standalone")
    every = [*containers(pod(alone)), *containers(pod(with_agent)), *containers(alone["Pod"]["spec"])]
    confined = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }

    assert [confined] * 4 == [{name: each["securityContext"].get(name) for name in confined} for each in every]
    assert [True] * 4 == [each["securityContext"]["runAsUser"] >= 10_000 for each in every]
    assert [{"memory"}] * 4 == [set(each["resources"]["limits"]) for each in every]


def test_what_is_mounted_is_there(helm: str, with_agent: Objects) -> None:
    """Each mount has its volume, the ConfigMap is the one that is made, and each Secret is in the directory of its name."""
    for objects, secrets in ((rendered(helm, "standalone"), ["idemproxy"]), (with_agent, ["idemproxy", "tls"])):
        volumes = {volume["name"]: volume for volume in pod(objects)["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in proxy(objects)["volumeMounts"]}
        named = {volume["secret"]["secretName"]: mounts[name] for name, volume in volumes.items() if "secret" in volume}

        assert mounts.keys() == volumes.keys()
        assert objects["ConfigMap"]["metadata"]["name"] == volumes["idemproxy-config"]["configMap"]["name"]
        assert {secret: f"/run/secrets/{secret}" for secret in secrets} == named


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ((), "shop-idemproxy"),
        (("fullnameOverride=payments-proxy",), "payments-proxy"),
        (("fullnameOverride=" + "a" * 62 + "-b",), "a" * 62),
    ],
)
def test_everything_has_one_name(helm: str, settings: tuple[str, ...], name: str) -> None:
    """Of the release and the chart, or as it is told, and never longer than a Service's may be."""
    made = rendered(helm, "standalone", *settings)

    assert {name} == {each["metadata"]["name"] for kind, each in made.items() if kind != "Pod"}
    assert f"'{name}'" in made["Pod"]["spec"]["containers"][0]["args"][0]


def test_two_of_them_stand_in_one_chart(helm: str, tmp_path: Path) -> None:
    """Each under its alias: no object of one is named as one of the other, and no Service or monitor finds the other's Pods."""
    source = {"name": "idemproxy", "version": __version__, "repository": f"file://{CHART}"}
    dependencies = [source | {"alias": alias} for alias in ("payments", "airline")]
    chart = {"apiVersion": "v2", "name": "shop", "version": "1.0.0", "dependencies": dependencies}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(chart))
    (tmp_path / "values.yaml").write_text(
        yaml.safe_dump({each["alias"]: values("standalone", "podMonitor: {enabled: true}") for each in dependencies})
    )
    helmed(helm, "dependency", "build", str(tmp_path))
    made = [each for each in yaml.safe_load_all(helmed(helm, "template", "one", str(tmp_path))) if each]
    named = [(each["kind"], each["metadata"]["name"]) for each in made]
    selecting = [each["spec"]["selector"] for each in made if each["kind"] in {"Service", "PodMonitor", "PodDisruptionBudget"}]
    selectors = [each.get("matchLabels", each) for each in selecting]
    pods_labels = [each["spec"]["template"]["metadata"]["labels"] for each in made if each["kind"] == "Deployment"]

    assert (12, 12) == (len(named), len(set(named)))
    assert [1] * 6 == [sum(selector.items() <= labels.items() for labels in pods_labels) for selector in selectors]


@pytest.mark.parametrize(("workers", "limit"), [(1, "512Mi"), (4, "2048Mi")])
def test_the_spool_is_full_before_its_volume_is(helm: str, workers: int, limit: str) -> None:
    """A Pod that comes to the limit of an emptyDir is evicted: it is twice what the spools of all workers take."""
    volumes = pod(rendered(helm, "standalone", f"config.workers={workers}"))["volumes"]

    assert [limit] == [volume["emptyDir"]["sizeLimit"] for volume in volumes if "emptyDir" in volume]


def test_services_and_monitors_find_the_pods(helm: str, with_agent: Objects) -> None:
    """What selects Pods selects those that are made: the Service, the budget, the PodMonitor of each mode."""
    alone = rendered(helm, "standalone", "podMonitor.enabled=true")
    beside = rendered(helm, "sidecar", "podMonitor.enabled=true")
    labels, of_agent = (made["Deployment"]["spec"]["template"]["metadata"]["labels"].items() for made in (alone, with_agent))

    assert alone["Service"]["spec"]["selector"].items() <= labels
    assert alone["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= labels
    assert alone["PodMonitor"]["spec"]["selector"]["matchLabels"].items() <= labels
    assert beside["PodMonitor"]["spec"]["selector"]["matchLabels"].items() <= of_agent
    assert {"idemproxy/sidecar": "true"}.items() <= of_agent
    assert "idemproxy/sidecar" not in dict(labels)
