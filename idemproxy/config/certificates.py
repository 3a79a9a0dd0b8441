"""TLS contexts from PEM files, and what is wrong with a file in words for whoever has to mend it.

TLS 1.2 or newer, and HTTP/1.1 alone. A server's certificate is always verified, its name included: nothing switches that off.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from idemproxy.config.settings import ListenerTls
from idemproxy.core.policy import UpstreamTls

Setting: TypeAlias = Literal["ca_file", "certificate_file", "key_file"]

_MARKS: Final = {
    "certificate": re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----"),
    "private key": re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----"),
}


class CertificateError(ValueError):
    """A file that TLS cannot use: which, what is wrong with it, and what to do. `setting` is the one that names the file."""

    def __init__(self, setting: Setting, text: str) -> None:
        super().__init__(text)
        self.setting: Setting = setting


class Validity(NamedTuple):
    """What becomes of a certificate that is shown now: until when it will do, or why it is refused already."""

    until: datetime | None
    refused: str | None


def client_context(tls: UpstreamTls) -> ssl.SSLContext:
    """How TLS is spoken to an upstream. Raises CertificateError."""
    if tls.ca_file is not None:
        _look_for("certificate", "ca_file", tls.ca_file)
        _read_certificates("ca_file", tls.ca_file)
    context = _limited(ssl.create_default_context(cafile=tls.ca_file))
    if tls.ca_file is not None:
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN  # who is named here is trusted, root or not
    if tls.certificate_file is not None:
        _load_pair(context, tls.certificate_file, tls.key_file)
    return context


def server_context(tls: ListenerTls) -> ssl.SSLContext:
    """How TLS is spoken to clients. Raises CertificateError."""
    context = _limited(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    _load_pair(context, tls.certificate_file, tls.key_file)
    return context


def validity(tls: ListenerTls | UpstreamTls) -> Validity | None:
    """What the other side thinks of the certificate that it is shown; None where none is. Raises CertificateError.

    It is shown to ourselves, in memory: beside the dates, this proves that TLS can be spoken with it. Whom the other side trusts
    is not known here.
    """
    if tls.certificate_file is None:
        return None
    server, client = _limited(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)), _limited(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    client.check_hostname = False  # before the mode: nothing but the certificate of ourselves can be met in memory
    client.verify_mode = ssl.CERT_NONE
    for side in (server, client):
        _load_pair(side, tls.certificate_file, tls.key_file)
    judge = client if isinstance(tls, ListenerTls) else server
    judge.verify_mode = ssl.CERT_REQUIRED
    judge.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    judge.load_verify_locations(tls.certificate_file)
    try:
        seen = _shake_hands(server, client, judge)
    except ssl.SSLCertVerificationError as failure:
        return Validity(None, failure.verify_message)
    except ssl.SSLError as failure:
        text = f"with {tls.certificate_file} no TLS can be spoken ({_reason(failure)}): have it issued anew"
        raise CertificateError("certificate_file", text) from failure
    return Validity(datetime.fromtimestamp(ssl.cert_time_to_seconds(str(seen["notAfter"])), UTC), None)


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, judge: ssl.SSLContext) -> dict[str, object]:
    """A whole handshake without a network; the certificate as the judging side has it."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)]
    waiting = list(sides)
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)
    (certificate,) = [side.getpeercert() for side in sides if side.context is judge]
    return dict(certificate or {})


def _limited(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_pair(context: ssl.SSLContext, certificate_file: str, key_file: str | None) -> None:
    """Load a certificate and its key, which may stand in the same file."""
    key_setting: Setting = "certificate_file" if key_file is None else "key_file"
    key = key_file or certificate_file
    _look_for("certificate", "certificate_file", certificate_file)
    _look_for("private key", key_setting, key)
    _read_certificates("certificate_file", certificate_file)
    try:
        context.load_cert_chain(certificate_file, key, password=_no_passphrase)
    except _PassphraseError as failure:
        text = f"the key in {key} has a passphrase, which nobody could type: take it off with `openssl pkey -in KEY -out NEW`"
        raise CertificateError(key_setting, text) from failure
    except ssl.SSLError as failure:
        if failure.reason == "KEY_VALUES_MISMATCH":
            text = f"the key in {key} does not belong to the certificate in {certificate_file}, the first one there"
            text += ": name the key that it was issued for, and put the certificates of its authorities after it"
        else:
            text = f"the key in {key} cannot be used ({_reason(failure)}): write it anew, in PEM"
        raise CertificateError(key_setting, text) from failure


def _look_for(what: str, setting: Setting, file: str) -> None:
    """See that a file can be read and has something of that kind in PEM."""
    try:
        content = Path(file).read_bytes()
    except FileNotFoundError as failure:
        raise CertificateError(setting, f"there is no file {file}: check the path") from failure
    except OSError as failure:
        text = f"{file} cannot be read ({failure.strerror}): check what it is, and that this user may read it"
        raise CertificateError(setting, text) from failure
    if not _MARKS[what].search(content):
        raise CertificateError(setting, f"{file} holds no {what} in PEM, which has a line that begins with -----BEGIN")


def _read_certificates(setting: Setting, file: str) -> None:
    """See that every certificate in a file can be read."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError as failure:
        raise CertificateError(setting, f"a certificate in {file} cannot be read: write the file anew, in PEM") from failure


class _PassphraseError(Exception):
    """A key asks for a passphrase."""


def _no_passphrase() -> str:
    """Asked for by OpenSSL, which would ask the terminal else."""
    raise _PassphraseError


def _reason(failure: ssl.SSLError) -> str:
    """OpenSSL's words, without its numbers."""
    return failure.reason.replace("_", " ").lower() if failure.reason else "OpenSSL cannot read it"
