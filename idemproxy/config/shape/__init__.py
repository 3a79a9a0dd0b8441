"""The shape of a configuration file: every key that it may have, each with its meaning.

Values stay as people write them ("15s", "10MiB") and are only checked here, so that what is printed can be read again;
`build` turns them into seconds, bytes and names. The sentences under the fields are the descriptions in the JSON Schema.
What is None was not said: `effective` fills it in.
"""

from idemproxy.config.shape.file import ConfigurationShape, StoreShape
from idemproxy.config.shape.route import (
    FingerprintShape,
    KeyShape,
    Limits,
    MatchShape,
    OutcomeShape,
    ProbeShape,
    RouteShape,
    ScopeShape,
    StampShape,
)
from idemproxy.config.shape.upstream import UpstreamShape

__all__ = [
    "ConfigurationShape",
    "FingerprintShape",
    "KeyShape",
    "Limits",
    "MatchShape",
    "OutcomeShape",
    "ProbeShape",
    "RouteShape",
    "ScopeShape",
    "StampShape",
    "StoreShape",
    "UpstreamShape",
]
