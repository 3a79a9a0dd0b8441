"""idemproxy with a configuration of its own, in front of the stage's upstream."""

from __future__ import annotations

import json
from typing import Any, Final

from bench.stage import Stage, Standing, answers_ok, free_port

_PATIENCE: Final = 120.0
"""Seconds for a start: how long many routes take is measured, and not given up."""


def start(stage: Stage, name: str, configuration: dict[str, Any]) -> Standing:
    """Start one; `configuration` is what a file may hold, added to addresses, a store in memory and the upstream `behind`."""
    port, admin, (upstream, upstream_pid) = free_port(), free_port(), stage.upstream
    usual = {
        "listen": f"127.0.0.1:{port}",
        "admin": {"listen": f"127.0.0.1:{admin}"},
        "store": {"url": "memory://"},
        "spool": {"directory": str(stage.directory / f"{name}-spool")},
        "upstreams": {"behind": {"url": f"http://127.0.0.1:{upstream}", "max_connections": 20_000}},
    }
    file = stage.directory / f"{name}.yaml"  # JSON is YAML too
    file.write_text(json.dumps(usual | configuration))
    pid = stage.start_python(
        name, "idemproxy", "run", "--config", str(file),
        cores=stage.cores.server, patience=_PATIENCE, is_ready=lambda: answers_ok(f"http://127.0.0.1:{admin}/readyz"),
    )  # fmt: skip
    return Standing(port, pid, (upstream_pid,))


def on_redis(stage: Stage, name: str) -> Standing:
    """One on the stage's Redis."""
    store, store_pid = stage.redis
    standing = start(stage, name, {"store": {"url": f"redis://127.0.0.1:{store}/0"}})
    return Standing(standing.port, standing.pid, (*standing.support, store_pid))
