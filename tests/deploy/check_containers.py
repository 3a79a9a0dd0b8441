"""The image, the Pods, the compose file and the unit, really run (`make deploy-check`): with root, and what stand_in.py names.

The first run makes the images that stand in for a registry's, too. A run takes five to eight minutes on two cores.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection
from typing import Any, Final

import pytest
import trustme

from idemproxy import __version__
from tests.deploy import played
from tests.deploy.files import COMPOSE, REPOSITORY, manifest
from tests.deploy.stand_in import PYTHON, Engine, engine, load_images, missing
from tests.docs.pages import blocks, read
from tests.servers import free_port

IMAGE: Final = f"idemproxy:{__version__}"
SOURCE: Final = "https://git.example.com/idemproxy"
ON_DOCKER: Final = [each.text for each in blocks(read("docs/how-to/deploy-with-docker.md"), "sh")]
WITH_DOCKER: Final = shlex.split(next(text for text in ON_DOCKER if "run --detach" in text).replace("\\\n", ""))
CONFINED: Final = tuple(WITH_DOCKER[WITH_DOCKER.index("--name") + 2 : WITH_DOCKER.index("--volume")])
"""What the page about Docker has a container of the proxy be given."""

SECONDS: Final = 60.0
MIB: Final = 1024 * 1024
LARGEST: Final = 90 * MIB
"""What the image may add to the one that it is built on."""

pytestmark = [pytest.mark.skipif(missing() is not None, reason=str(missing())), pytest.mark.timeout(1800)]

API: Final = "http://127.0.0.1:9000"
PROXY: Final = "http://127.0.0.1:8080"
ADDRESS: Final = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
    asking.connect(("192.0.2.1", 9))
    print(asking.getsockname()[0])
"""
"""Tells the address of the Pod; a datagram socket that is connected sends nothing."""

ASK: Final = """
import json, sys, urllib.error, urllib.request
method, url, key, body = sys.argv[1:]
fields = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
request = urllib.request.Request(url, body.encode() if body else None, fields, method=method)
try:
    answer = urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as problem:
    answer = problem
print(json.dumps([answer.status, answer.headers.get("Idempotency-Status", "").partition(";")[0], answer.read().decode()]))
"""
"""A client, for a container without curl."""

ON_KUBERNETES: Final = read("docs/how-to/deploy-on-kubernetes.md").splitlines()
RENEWING: Final = next(shlex.split(line)[-3:] for line in ON_KUBERNETES if "kill -HUP" in line)
"""What the page about Kubernetes has run in the proxy's container when its certificate was renewed."""


def until(holds: Callable[[], object], what: str) -> None:
    """Return when it holds; AssertionError after a minute."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def ask(made: Engine, container: str, method: str, url: str, key: str = "", body: str = "") -> tuple[int, str, str]:
    """What somebody in that container is answered: status, Idempotency-Status without its parameters, body."""
    status, told, text = json.loads(made("podman", "exec", container, "python", "-c", ASK, method, url, key, body))
    return status, told, text


def is_open(host: str, port: int) -> bool:
    """Whether this machine is let in there."""
    try:
        create_connection((host, port), 2).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def made() -> Iterator[Engine]:
    """An engine with the proxy's image, and those that stand in for others."""
    with engine() as started:
        load_images(started)
        build = (
            "buildah",
            "bud",
            "--isolation",
            "chroot",
            "--pull=never",
            "--layers=false",
            "--format",
            "docker",
            "--build-arg",
            f"SOURCE={SOURCE}",
            "--tag",
            IMAGE,
            ".",
        )
        started(*build, seconds=900.0)
        yield started


@contextmanager
def running(made: Engine, name: str, *words: str, options: tuple[str, ...] = ("--network", "none")) -> Iterator[str]:
    """A container of the image, confined, that goes with the context."""
    made("podman", "run", "--detach", "--name", name, *CONFINED, *options, IMAGE, *words)
    try:
        yield name
    finally:
        made("podman", "rm", "--force", "--volumes", "--time", "0", name)


def is_healthy(made: Engine, name: str) -> bool:
    """Whether the image's own health check, asked now, passes."""
    made("podman", "healthcheck", "run", name, expects=None)
    return bool(made.inspect(name)["State"]["Health"]["Status"] == "healthy")


def test_image_is_small(made: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """The image adds less than 90 MiB to the one that it is built on; the number is printed."""
    added = made.inspect(IMAGE)["Size"] - made.inspect(PYTHON)["Size"]
    with capsys.disabled():
        sys.stdout.write(f"\nthe image adds {added / MIB:.1f} MiB to {PYTHON}\n")

    assert 0 < added < LARGEST


def test_image_says_what_it_is(made: Engine) -> None:
    """The labels of the OCI are there, and the program of the package's version."""
    labels = made.inspect(IMAGE)["Config"]["Labels"]

    assert {
        "title": "idemproxy",
        "version": __version__,
        "licenses": "Apache-2.0",
        "revision": "unknown",
        "source": SOURCE,
    }.items() <= {name.removeprefix("org.opencontainers.image."): value for name, value in labels.items()}.items()
    assert f"idemproxy {__version__}\n" == made("podman", "run", "--rm", "--network", "none", IMAGE, "version")


def test_image_has_no_build_tools(made: Engine) -> None:
    """No compiler is in it, no build backend, and no pip beside the program."""
    look = "command -v cc gcc g++ ld make hatchling; ls /opt/idemproxy/bin | grep pip; ls -d /build"

    assert "" == made("podman", "run", "--rm", "--network", "none", "--entrypoint", "sh", IMAGE, "-c", look, expects=None)


def test_container_is_healthy_and_confined(made: Engine) -> None:
    """With a read-only root and no capability it runs as uid 10001, keeps its records in the volume, and is healthy."""
    with running(made, "confined", "run", "--upstream", "http://127.0.0.1:9000") as name:
        until(lambda: is_healthy(made, name), "it does not become healthy")
        status = made("podman", "exec", name, "cat", "/proc/1/status")
        told = dict(line.split(":\t", 1) for line in status.splitlines())
        made("podman", "exec", name, "touch", "/written", expects=1)
        kept = made("podman", "exec", name, "ls", "/var/lib/idemproxy").split()

    assert ["10001"] * 4 == told["Uid"].split()
    assert {"0000000000000000"} == {told[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
    assert {"idemproxy.db", "idemproxy-spool"} <= set(kept)


WITH_TLS: Final = """
listen: 0.0.0.0:8080
tls: {certificate_file: tls.crt, key_file: tls.key}
scope: shared
admin: {listen: "0.0.0.0:9191"}
upstreams: {payments: {url: "http://127.0.0.1:9000"}}
"""


def test_container_with_a_file(made: Engine, tmp_path: Path) -> None:
    """The health check, and other commands, find the admin listener where the file has it; SIGHUP reads the certificate again."""
    (tmp_path / "idemproxy.yaml").write_text(WITH_TLS)
    certificate = trustme.CA().issue_cert("localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    for path in (tmp_path, *tmp_path.iterdir()):
        path.chmod(0o755)
    given = ("--env", "IDEMPROXY_CONFIG=/etc/idemproxy/idemproxy.yaml", "--volume", f"{tmp_path}:/etc/idemproxy:ro")
    with running(made, "filed", options=("--network", "none", *given)) as name:
        until(lambda: is_healthy(made, name), "it does not become healthy")
        listed = made("podman", "exec", name, "idemproxy", "records", "list")
        made("podman", "exec", name, *RENEWING)
        until(lambda: "SIGHUP: only the certificate was read again" in made.logs(name), "it does not read its certificate again")

    assert "" == listed


def test_sigterm_drains_and_ends_with_0(made: Engine) -> None:
    """As PID 1 it hears SIGTERM: an attempt that is under way ends, its caller is answered, and then the container, with 0."""
    with running(made, "upstream", "demo-api") as upstream, ThreadPoolExecutor(1) as client:
        beside = ("--network", f"container:{upstream}")
        with running(made, "draining", "run", "--upstream", API, options=beside) as name:
            until(lambda: is_healthy(made, name), "it does not become healthy")
            ask(made, upstream, "POST", f"{API}/faults", body=json.dumps({"fault": "hold_after=stop"}))
            charge = client.submit(ask, made, upstream, "POST", f"{PROXY}/charges", "order-1", '{"amount": 4200}')
            ask(made, upstream, "GET", f"{API}/holds/stop")
            began = time.monotonic()
            made("podman", "kill", "--signal", "TERM", name)
            until(lambda: "draining: 1 requests" in made.logs(name), "it does not drain")
            ask(made, upstream, "DELETE", f"{API}/holds/stop")
            status = made("podman", "wait", name).strip()
            took = time.monotonic() - began

    assert ("0", 201, "executed") == (status, *charge.result()[:2])
    assert took < 30


WITH_SYSTEMD: Final = f"""
FROM {PYTHON}
RUN apt-get update && apt-get install --yes --no-install-recommends procps systemd-sysv
COPY . /checkout
RUN cd /checkout && sh -eux installing
ENTRYPOINT mount --make-rshared / && exec /sbin/init
"""
"""Credentials are mounted for the unit alone, which needs mounts to spread, as they do where systemd is not in a container."""

WITH_SYSTEMCTL: Final = blocks(read("docs/how-to/deploy-with-systemd.md"), "sh")[0].text.splitlines()
CHECKOUT: Final = ("idemproxy", "requirements", "deploy/systemd", "pyproject.toml", "README.md", "LICENSE")
"""What of the repository the installation needs."""


def checkout(directory: Path) -> Path:
    """A copy of what is installed, and the commands by which the page installs it, without those that need a booted systemd."""
    for name in CHECKOUT:
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
        (directory / name).parent.mkdir(exist_ok=True)
        copy(REPOSITORY / name, directory / name)
    (directory / "installing").write_text("\n".join(line for line in WITH_SYSTEMCTL if not line.startswith("systemctl")))
    return directory


def test_unit_under_systemd(made: Engine, tmp_path: Path) -> None:
    """Installed as the page has it, with systemd as PID 1: started when ready, confined, reloaded, back when killed, 0 at a stop.

    Without its token it fails once, and is not started again and again.
    """
    build = ("buildah", "bud", "--isolation", "chroot", "--pull=never", "--layers=false", "--tag", "systemd", "--file", "-", ".")
    made(*build, directory=checkout(tmp_path), given=WITH_SYSTEMD, seconds=900.0)
    host = "host"
    made("podman", "run", "--detach", "--name", host, "--network", "none", "--privileged", "--systemd=always", "systemd")

    def show(name: str) -> str:
        return made("podman", "exec", host, "systemctl", "show", "idemproxy", "--property", name, "--value", expects=None).strip()

    def is_booted() -> bool:
        said = made("podman", "exec", host, "systemctl", "is-system-running", expects=None)
        return said.strip() in {"running", "degraded"}

    try:
        until(is_booted, "systemd does not start")
        for command in WITH_SYSTEMCTL:
            if command.startswith("systemctl"):
                made("podman", "exec", host, *command.split())
        assert "active" == show("ActiveState")
        first = show("MainPID")
        status = made("podman", "exec", host, "cat", f"/proc/{first}/status")
        told = dict(line.split(":\t", 1) for line in status.splitlines())
        records = ("/opt/idemproxy/bin/idemproxy", "records", "list", "--admin-token-file", "/etc/idemproxy/admin-token")
        made("podman", "exec", host, *records)
        made("podman", "exec", host, "systemctl", "reload", "idemproxy")
        made("podman", "exec", host, "kill", "-9", first)
        until(lambda: show("ActiveState") == "active" and show("MainPID") != first, "it does not come back")
        made("podman", "exec", host, "systemctl", "stop", "idemproxy")
        ended = [show(name) for name in ("Result", "ExecMainStatus", "NRestarts")]
        made("podman", "exec", host, "rm", "/etc/idemproxy/admin-token")
        made("podman", "exec", host, "systemctl", "start", "idemproxy", expects=1)
        without = [show(name) for name in ("ActiveState", "ExecMainStatus", "NRestarts")]
    finally:
        made("podman", "rm", "--force", "--time", "0", host)

    assert int(told["Uid"].split()[0]) >= 61_184  # where systemd takes its dynamic users from
    assert ("0" * 16, "1", "2") == (told["CapBnd"], told["NoNewPrivs"], told["Seccomp"])
    assert ["success", "0", "1"] == ended
    assert ["failed", "243", "0"] == without  # 243: CREDENTIALS


@contextmanager
def playing(made: Engine, directory: Path, name: str, text: str) -> Iterator[None]:
    """A Pod that goes with the context, in a network of podman's, where the host reaches it by its address."""
    path = directory / f"{name}.yaml"
    path.write_text(text)
    made("podman", "play", "kube", str(path))
    try:
        yield
    finally:
        made("podman", "pod", "rm", "--force", "--time", "0", name)
        made("podman", "volume", "prune", "--force")


def charges(made: Engine, container: str) -> int:
    """How many charges the sample upstream has made, as it says itself."""
    ledger = json.loads(ask(made, container, "GET", f"{API}/ledger")[2])
    return int(ledger["by_kind"].get("charge", 0))


@pytest.mark.parametrize("file", ["agent.yaml", "agent-before-1.29.yaml"])
def test_agent_in_its_pod(made: Engine, tmp_path: Path, file: str) -> None:
    """The agent reaches the proxy on 127.0.0.1, where a retry acts once; the host does not; health is there for all."""
    with playing(made, tmp_path, "agent", played.pod(file, "agent")):
        agent, proxy = "agent-agent", "agent-idemproxy"
        made("podman", "exec", proxy, "idemproxy", "wait", "--timeout", "60s")
        until(lambda: '"done"' in made.logs(agent), "the sample agent does not finish its trip")
        before = charges(made, agent)
        answers = [ask(made, agent, "POST", f"{PROXY}/charges", "order-1", '{"amount": 4200}')[:2] for _ in range(2)]
        effects = charges(made, agent) - before
        address = made("podman", "exec", agent, "python", "-c", ADDRESS).strip()
        opened = {port: is_open(address, port) for port in (8080, 8081)}
        probes = [ask(made, agent, "GET", f"http://{address}:8081{path}")[0] for path in ("/startupz", "/livez", "/readyz")]
        records = ask(made, agent, "GET", f"http://{address}:8081/records")[0]
        made("podman", "pod", "stop", "--time", "60", "agent")
        status = made.inspect(proxy)["State"]["ExitCode"]

    assert ([(201, "executed"), (201, "replayed")], 1) == (answers, effects)
    assert {8080: False, 8081: True} == opened
    assert ([200] * 3, 401, 0) == (probes, records, status)


def test_job_in_its_pod(made: Engine, tmp_path: Path) -> None:
    """The Job's container comes to its end with 0; another under the same name does nothing again."""
    job = manifest("job.yaml", "Job", "rebook-trip-17")["metadata"]["name"]
    with playing(made, tmp_path, "job", played.pod("job.yaml", "job", job)):
        statuses, effects = [], []
        for _ in range(2):
            statuses.append(made("podman", "wait", "job-agent").strip())
            effects.append(charges(made, "job-sample-upstream"))
            made("podman", "start", "job-agent")
        made("podman", "wait", "job-agent")
        told = [json.loads(line) for line in made.logs("job-agent").splitlines() if line.startswith("{")]

    assert (["0", "0"], [1, 1]) == (statuses, effects)
    assert {"replayed"} == {each["how"] for each in told[len(told) // 3 :] if each.get("how") not in {None, "read"}}


@pytest.fixture
def compose(made: Engine) -> Iterator[Callable[..., str]]:
    """podman-compose on the compose file with free ports; everything goes with the test."""
    ports = {name: str(free_port()) for name in ("PROXY_PORT", "ADMIN_PORT", "PROMETHEUS_PORT")}
    with_ports = Engine({**made.environment, **ports})
    program = str(Path(sys.prefix) / "bin/podman-compose")

    def run(*words: str, expects: int | None = 0) -> str:
        return with_ports(program, *words, directory=COMPOSE, expects=expects)

    try:
        yield run
    finally:
        run("down", "--volumes", "--timeout", "5", expects=None)


def test_compose_file(made: Engine, compose: Callable[..., str]) -> None:
    """One command brings all four up; a retry acts once; Prometheus scrapes the proxy and knows its rules; all stop with 0."""
    compose("up", "--detach")
    proxy, upstream, prometheus = (f"idemproxy_{name}_1" for name in ("proxy", "upstream", "prometheus"))
    until(lambda: is_healthy(made, proxy), "the proxy does not become healthy")
    made("podman", "exec", proxy, "idemproxy", "wait", "--timeout", "60s")
    answers = [ask(made, upstream, "POST", "http://proxy:8080/charges", "order-1", '{"amount": 4200}')[:2] for _ in range(2)]
    published = made.inspect(proxy)["NetworkSettings"]["Ports"]["8080/tcp"]
    asked = "http://prometheus:9090/api/v1/"

    def up() -> bool:
        found = json.loads(ask(made, upstream, "GET", asked + "query?query=up")[2])["data"]["result"]
        return ["1"] == [each["value"][1] for each in found]

    until(up, "Prometheus does not scrape the proxy")
    rules = json.loads(ask(made, upstream, "GET", asked + "rules")[2])["data"]["groups"]
    doctor = made("podman", "exec", proxy, "idemproxy", "doctor")
    compose("stop")
    states: list[dict[str, Any]] = [made.inspect(name)["State"] for name in (proxy, upstream, prometheus)]

    assert [(201, "executed"), (201, "replayed")] == answers
    assert ["127.0.0.1"] == [each["HostIp"] for each in published]
    assert rules
    assert "no errors" in doctor
    assert [0, 0, 0] == [state["ExitCode"] for state in states]
