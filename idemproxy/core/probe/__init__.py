"""The probe: a read that asks the upstream whether an operation of unknown outcome happened, and what its answer proves.

It is asked with the request of a retry, since the first one is not kept: the same fingerprint makes it say the same, and
`compared` refuses to take from it what the fingerprint does not compare. An answer proves something only where it says so
plainly; whatever can be read in two ways is unclear, and then the operation stays unknown.

The modules in their order: `rule` says how to ask, `compared` what a retry may be trusted with, `question` makes the request,
`verdict` reads its answer.
"""

from idemproxy.core.probe.compared import check_compared
from idemproxy.core.probe.question import ProbeError, probe_request
from idemproxy.core.probe.rule import ProbeRule, check_probe
from idemproxy.core.probe.verdict import Done, NotDone, Unclear, Verdict, judge_probe

__all__ = [
    "Done",
    "NotDone",
    "ProbeError",
    "ProbeRule",
    "Unclear",
    "Verdict",
    "check_compared",
    "check_probe",
    "judge_probe",
    "probe_request",
]
