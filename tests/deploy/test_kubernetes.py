"""What the manifests promise before a cluster has them; `make deploy-check` runs their Pods."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from idemproxy.store.choice import store_name
from idemproxy.workers import PATIENCE
from tests.deploy.files import (
    KUBERNETES,
    MAKING_SECRETS,
    SECRETS,
    containers,
    documents,
    manifest,
    manifests,
    pods,
    secrets,
    settings_of_config_map,
)
from tests.docs.pages import read
from tests.servers import redis_server

VALIDATE: Final = Path(sys.prefix) / "bin/kubernetes-validate"
WITHOUT_SCHEMA: Final = {"kustomization.yaml", "pod-monitor.yaml", "service-monitor.yaml"}
"""Files with kinds that come with an extension of the cluster, or are for a tool: no schema of Kubernetes has them."""

EVERY: Final = sorted(path.name for path in KUBERNETES.glob("*.yaml"))
WITH_SIDECAR: Final = {"agent.yaml", "agent-before-1.29.yaml", "job.yaml"}
LABEL: Final = {"idemproxy/sidecar": "true"}

needs_validator = pytest.mark.skipif(not VALIDATE.exists(), reason="pip install kubernetes-validate")


def refused(version: str, *files: Path) -> str:
    """What the API of that version would not take of the files, unknown fields included; empty when it takes all."""
    command = map(str, (VALIDATE, "--strict", "--no-warn", "-k", version, *files))
    done = subprocess.run(list(command), capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def sidecar(file: str) -> dict[str, Any]:
    """The proxy's container."""
    return next(each for each in containers(pods()[file]) if each["name"] == "idemproxy")


@needs_validator
@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_the_cluster_takes_every_manifest(version: str, tmp_path: Path) -> None:
    """Each is valid, without a field that is not known, from the first version with native sidecars to the latest."""
    (tmp_path / "secrets.yaml").write_text(secrets())

    assert "" == refused(version, tmp_path / "secrets.yaml", *(KUBERNETES / name for name in EVERY if name not in WITHOUT_SCHEMA))


@needs_validator
def test_an_older_cluster_takes_the_older_form() -> None:
    """The form for older versions is valid in 1.25; the native sidecar is not, so that nobody runs it there by mistake."""
    assert "" == refused("1.25", KUBERNETES / "agent-before-1.29.yaml")
    assert "restartPolicy" in refused("1.25", KUBERNETES / "agent.yaml")


def test_the_list_of_kustomize_names_what_is_there() -> None:
    """`kubectl apply -k` takes every file but those that its head leaves out: it can be run again and again."""
    [listed] = documents(KUBERNETES / "kustomization.yaml")
    left_out = {"agent-before-1.29.yaml", "pod-monitor.yaml", "service-monitor.yaml", "job.yaml", "kustomization.yaml"}

    assert sorted(listed["resources"]) == [name for name in EVERY if name not in left_out]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_makes_one_of_it() -> None:
    """`kubectl kustomize` takes the list, and hands out each object of its files once."""
    done = subprocess.run(["kubectl", "kustomize", str(KUBERNETES)], capture_output=True, text=True, check=True)
    [listed] = documents(KUBERNETES / "kustomization.yaml")
    made = sorted((each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(done.stdout))

    assert sorted((kind, name) for file, kind, name in manifests() if file in listed["resources"]) == made


@pytest.mark.parametrize("file", pods())
def test_pod_is_confined(file: str) -> None:
    """Each Pod meets the restricted Pod Security Standard, cannot write to its root, and holds no token of the cluster."""
    pod = pods()[file]

    assert pod["automountServiceAccountToken"] is False
    assert (True, {"type": "RuntimeDefault"}) == (
        pod["securityContext"]["runAsNonRoot"],
        pod["securityContext"]["seccompProfile"],
    )
    assert pod["securityContext"]["runAsUser"] >= 10_000
    confined = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert [confined] * len(list(containers(pod))) == [each["securityContext"] for each in containers(pod)]


@pytest.mark.parametrize("file", pods())
def test_resources_are_said(file: str) -> None:
    """Each container asks for processor and memory. Memory has a limit; the processor has none, since throttling loses leases."""
    for container in containers(pods()[file]):
        assert ({"cpu", "memory"}, {"memory"}) == (set(container["resources"]["requests"]), set(container["resources"]["limits"]))


def test_all_forms_hold_the_same_sidecar() -> None:
    """Deployment, Job and the older form differ in what makes the proxy start first and end last, and in nothing else."""
    forms = []
    for file in sorted(WITH_SIDECAR):
        form = dict(sidecar(file))
        assert form.pop("restartPolicy", None) == (None if "before" in file else "Always")
        assert ("lifecycle" in form) == ("before" in file)
        form.pop("lifecycle", None)
        forms.append(form)

    assert [forms[0]] * 3 == forms


def test_configuration_is_a_whole_one(tmp_path: Path) -> None:
    """The real loader takes the ConfigMap with the Secret; callers are on loopback; Pods outlive a `drain`, also with workers."""
    settings = settings_of_config_map(tmp_path)

    assert "127.0.0.1" == settings.listen.host
    assert min(pods()[file]["terminationGracePeriodSeconds"] for file in WITH_SIDECAR) > settings.drain + PATIENCE


def test_what_is_mounted_is_there() -> None:
    """Each ConfigMap and Secret that a Pod mounts is among the manifests, and each mount has its volume."""
    there = {(kind, name) for _, kind, name in manifests()}
    for file, pod in pods().items():
        volumes = {volume["name"]: volume for volume in pod.get("volumes", ())} | {"data": {}}
        mounted = {mount["name"] for each in containers(pod) for mount in each.get("volumeMounts", ())}
        wanted = {("ConfigMap", each["configMap"]["name"]) for each in volumes.values() if "configMap" in each}
        wanted |= {("Secret", each["secret"]["secretName"]) for each in volumes.values() if "secret" in each}

        assert set() == (mounted - set(volumes)) | (wanted - there), file


def test_the_spool_is_full_before_its_volume_is() -> None:
    """A Pod that comes to the limit of an emptyDir is evicted: the spool stops taking endings at half of it."""
    limits = [
        volume["emptyDir"]["sizeLimit"] for pod in pods().values() for volume in pod.get("volumes", ()) if "emptyDir" in volume
    ]

    assert ["512Mi"] * 3 == limits


@pytest.mark.parametrize(("file", "kind"), [("pod-monitor.yaml", "PodMonitor"), ("service-monitor.yaml", "Service")])
def test_monitors_find_the_sidecars(file: str, kind: str) -> None:
    """Both ways select the Pods that have the sidecar, by a label that each of them bears, and by the port of its metrics."""
    name = "idemproxy" if kind == "PodMonitor" else "idemproxy-metrics"
    spec = manifest(file, kind, name)["spec"]
    labelled = {each for each, _, _ in manifests() if LABEL.items() <= _labels(each).items()}
    [port] = sidecar("agent.yaml")["ports"]

    assert LABEL == (spec["selector"]["matchLabels"] if kind == "PodMonitor" else spec["selector"])
    assert WITH_SIDECAR == labelled
    assert {"name": "idemproxy-admin", "containerPort": 8081} == port
    assert (
        port["name"]
        == (spec["podMetricsEndpoints"] if kind == "PodMonitor" else spec["ports"])[0]["port" if kind == "PodMonitor" else "name"]
    )


def _labels(file: str) -> dict[str, str]:
    """Of the Pods that a file makes."""
    templates = [
        found["spec"]["template"]
        for (name, _, _), found in manifests().items()
        if name == file and "template" in found.get("spec", {})
    ]
    return templates[0]["metadata"]["labels"] if templates else {}


def _opened(rules: list[dict[str, Any]], port: int) -> list[dict[str, Any]]:
    """The peers to which a policy's rules open a port."""
    return [peer for rule in rules for peer in rule["to"] if port in {each["port"] for each in rule["ports"]}]


def test_the_policy_opens_what_the_sidecar_uses() -> None:
    """The sidecar's Pods may reach the store and the sample, Prometheus their metrics; no rule opens the port for callers."""
    policy = manifest("network-policy.yaml", "NetworkPolicy", "idemproxy-sidecar")["spec"]
    named = {
        (peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"], port)
        for port in (6379, 9000)
        for peer in _opened(policy["egress"], port)
    }

    assert LABEL == policy["podSelector"]["matchLabels"]
    assert [8081] == [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
    assert {("idemproxy-redis", 6379), ("sample-upstream", 9000)} == named


def test_the_policy_lets_names_be_found_and_apis_be_reached() -> None:
    """DNS of the cluster and of the node; HTTPS to the internet by both protocols, and to nothing that lies inside."""
    rules = manifest("network-policy.yaml", "NetworkPolicy", "idemproxy-sidecar")["spec"]["egress"]
    blocks = [peer["ipBlock"] for peer in _opened(rules, 443)]
    open_to = {block["cidr"]: list(map(ip_network, block["except"])) for block in blocks}
    inside = ("10.1.2.3", "100.64.0.1", "169.254.169.254", "172.31.0.1", "192.168.1.1", "fd00:ec2::254", "fe80::1")
    outside = ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c")

    def is_reached(address: str) -> bool:
        found = ip_address(address)
        return any(found in ip_network(cidr) and not any(found in each for each in left) for cidr, left in open_to.items())

    assert [False] * len(inside) + [True, True] == [is_reached(address) for address in (*inside, *outside)]
    assert {"169.254.20.10/32"} == {peer["ipBlock"]["cidr"] for peer in _opened(rules, 53) if "ipBlock" in peer}
    assert [{"UDP", "TCP"}] == [
        {port.get("protocol", "TCP") for port in rule["ports"]}
        for rule in rules
        if 53 in {port["port"] for port in rule["ports"]}
    ]


def test_no_secret_is_published() -> None:
    """Whoever makes the Secrets has values that nobody else has: no two runs share one, and none stands in a file."""
    values = [
        value
        for _ in range(2)
        for each in yaml.safe_load_all(secrets())
        if each["metadata"]["name"] == "idemproxy"
        for value in each["stringData"].values()
    ]

    assert [64] * 4 == [len(value) for value in values]
    assert 4 == len(set(values))
    assert set() == {name for name in EVERY for each in documents(KUBERNETES / name) if each["kind"] == "Secret"}


def test_secrets_agree() -> None:
    """The proxy's password is the one that Redis knows, and its rights there are those that the page on Redis documents."""
    rule = manifest(MAKING_SECRETS, "Secret", "idemproxy-redis")["stringData"]["users.acl"]
    password = manifest(MAKING_SECRETS, "Secret", "idemproxy")["stringData"]["redis-password"]
    [documented] = re.findall(r"^user idemproxy .*$", read("docs/how-to/run-on-redis.md"), re.MULTILINE)

    assert documented.replace("example-password", password) == rule.splitlines()[1]


def test_redis_of_the_example_is_a_fit_store(tmp_path: Path) -> None:
    """A real server with the manifest's configuration and users lets the proxy's user in, and `doctor` finds no fault with it."""
    users = tmp_path / "users.acl"
    users.write_text(manifest(MAKING_SECRETS, "Secret", "idemproxy-redis")["stringData"]["users.acl"])
    lines = manifest("redis.yaml", "ConfigMap", "idemproxy-redis-config")["data"]["redis.conf"].splitlines()
    configured = dict(line.split(" ", 1) for line in lines)
    assert ("/data", "/run/secrets/redis/users.acl") == (configured.pop("dir"), configured.pop("aclfile"))
    settings = settings_of_config_map(tmp_path)
    assert "idemproxy-redis:6379" in store_name(settings.store)

    with redis_server(**configured, aclfile=str(users)) as server:
        file = tmp_path / "idemproxy.yaml"
        file.write_text(file.read_text().replace("idemproxy-redis:6379", f"127.0.0.1:{server.port}"))
        command = [sys.executable, "-m", "idemproxy", "doctor", "--config", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)

    assert (0, "no errors") == (done.returncode, done.stdout.strip().rpartition(": ")[2]), done.stdout + done.stderr


def test_probes_ask_what_they_mean() -> None:
    """Each probe asks the admin listener, which stands in the Pod's network, for its own question."""
    asked = {name: sidecar("agent.yaml")[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}

    assert asked == {
        "startup": {"path": "/startupz", "port": "idemproxy-admin"},
        "liveness": {"path": "/livez", "port": "idemproxy-admin"},
        "readiness": {"path": "/readyz", "port": "idemproxy-admin"},
    }
    assert SECRETS in manifest("idemproxy.yaml", "ConfigMap", "idemproxy-config")["data"]["idemproxy.yaml"]
