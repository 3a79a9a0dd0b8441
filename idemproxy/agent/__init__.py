"""For agents: workflows whose calls are numbered, checkpoints to resume from, and the proxy's problems as exceptions.

It needs the standard library only, and nothing else of idemproxy. What it does is also possible with plain header fields.
"""

from idemproxy.agent.checkpoint import Checkpoint, Step
from idemproxy.agent.problems import (
    BadRequestError,
    BodyTooLargeError,
    DrainingError,
    IdemproxyError,
    InProgressError,
    KeyExpiredError,
    KeyInvalidError,
    KeyMissingError,
    KeyReusedError,
    KeyUnknownError,
    MemoryChangedError,
    MethodNotAllowedError,
    NoRouteError,
    NotSentError,
    OutcomeUnknownError,
    ProxyUnreachableError,
    RecordsLostError,
    ResponseUnavailableError,
    StoreUnavailableError,
    UnprotectedCallWarning,
    WorkflowDivergedError,
    WorkflowUnknownError,
    outcome,
    raise_for_problem,
)
from idemproxy.agent.workflow import Workflow

__all__ = [
    "BadRequestError",
    "BodyTooLargeError",
    "Checkpoint",
    "DrainingError",
    "IdemproxyError",
    "InProgressError",
    "KeyExpiredError",
    "KeyInvalidError",
    "KeyMissingError",
    "KeyReusedError",
    "KeyUnknownError",
    "MemoryChangedError",
    "MethodNotAllowedError",
    "NoRouteError",
    "NotSentError",
    "OutcomeUnknownError",
    "ProxyUnreachableError",
    "RecordsLostError",
    "ResponseUnavailableError",
    "Step",
    "StoreUnavailableError",
    "UnprotectedCallWarning",
    "Workflow",
    "WorkflowDivergedError",
    "WorkflowUnknownError",
    "outcome",
    "raise_for_problem",
]
