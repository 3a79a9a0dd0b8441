"""A Pod of the manifests as podman can run it: with everything that the proxy speaks to in the same Pod.

What is changed, and so is not what a cluster runs:

- A native sidecar becomes the first container, as in the form for Kubernetes before 1.29: this podman knows no other.
- Redis and the sample upstream are containers of the same Pod, under the names of their Services: there is no cluster's DNS.
- Probes are left out: podman makes them into commands of curl.
- What fsGroup makes writable is writable for all: podman knows no fsGroup.
- Secrets are mounted as ConfigMaps: podman 4.3 hands out the base64 of a Secret as it stands.
- A label that the cluster would set is written as the value itself.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import yaml

from tests.deploy.files import containers, manifests, pods

_LEFT_OUT: Final = {"restartPolicy", "startupProbe", "livenessProbe", "readinessProbe", "ports"}
_SECRET: Final = "secret-"
_NEIGHBOURS: Final = {"redis.yaml": "idemproxy-redis", "sample-upstream.yaml": "sample-upstream"}


def pod(file: str, name: str, job: str = "") -> str:
    """The YAML for `podman play kube`: the Pod of a file with its neighbours, and what they mount. `job`: the name of the Job."""
    spec = copy.deepcopy(pods()[file])
    neighbours = [copy.deepcopy(pods()[each]) for each in _NEIGHBOURS]
    spec["containers"] = [_container(each, part, job) for part in (*neighbours, spec) for each in containers(part)]
    spec.pop("initContainers", None)
    volumes = [volume for part in (*neighbours, spec) for volume in part.get("volumes", ())]
    spec["volumes"] = [_volume(each) for each in volumes] + [{"name": "data", "emptyDir": {}}]
    spec["hostAliases"] = [{"ip": "127.0.0.1", "hostnames": list(_NEIGHBOURS.values())}]
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"test": name}}, "spec": spec}
    mounted = [_data(each) for (_, kind, _), each in manifests().items() if kind in {"ConfigMap", "Secret"}]
    text: str = yaml.safe_dump_all([*mounted, made])
    return text


def _container(spec: dict[str, Any], owner: dict[str, Any], job: str) -> dict[str, Any]:
    kept = {name: value for name, value in spec.items() if name not in _LEFT_OUT}
    kept["env"] = [{"name": each["name"], "value": each.get("value", job)} for each in spec.get("env", ())]
    user = {name: owner["securityContext"][name] for name in ("runAsUser", "runAsGroup")}
    kept["securityContext"] = spec["securityContext"] | user
    return kept


def _volume(spec: dict[str, Any]) -> dict[str, Any]:
    if "secret" not in spec:
        return spec
    return {"name": spec["name"], "configMap": {"name": _SECRET + spec["secret"]["secretName"]}}


def _data(spec: dict[str, Any]) -> dict[str, Any]:
    if spec["kind"] == "ConfigMap":
        return spec
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _SECRET + spec["metadata"]["name"]},
        "data": spec["stringData"],
    }
