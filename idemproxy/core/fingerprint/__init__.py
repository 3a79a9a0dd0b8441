"""What was asked, as a digest: the same key with another fingerprint is a caller's bug.

`rule` says what counts on a route, `digest` frames and hashes it; the rest are the canonical forms of bodies (`json_form` with
`number` and `selection`, `form`, `multipart` with `parameters`), and `frame`.
"""

from idemproxy.core.fingerprint.digest import fingerprint
from idemproxy.core.fingerprint.rule import FingerprintRule, check_rule

__all__ = ["FingerprintRule", "check_rule", "fingerprint"]
