"""TLS contexts from PEM files, and what is wrong with a file in words for whoever has to mend it.

TLS 1.2 or newer, and HTTP/1.1 alone. A server's certificate is always verified, its name included: nothing switches that off.
Each file is read once: it may be written anew between two looks at it.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
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


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, which may stand in the same file: the files' names, and what was in them."""

    certificate_file: str
    key_file: str | None
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)

    def server_context(self) -> ssl.SSLContext:
        """How TLS is spoken to clients. Raises CertificateError."""
        return self._loaded(ssl.PROTOCOL_TLS_SERVER)

    def validity(self, *, of_server: bool = True) -> Validity:
        """What the other side thinks now of the certificate that it is shown. Raises CertificateError.

        It is shown to ourselves, in memory: beside the dates, this proves that TLS can be spoken with it. Whom the other side
        trusts is not known here.
        """
        server, client = self._loaded(ssl.PROTOCOL_TLS_SERVER), self._loaded(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False  # before the mode: nothing but the certificate of ourselves can be met in memory
        client.verify_mode = ssl.CERT_NONE
        judge = client if of_server else server
        judge.verify_mode = ssl.CERT_REQUIRED
        judge.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        try:
            with _as_file(self.certificate) as path:
                judge.load_verify_locations(path)
            seen = _shake_hands(server, client, judge)
        except ssl.SSLCertVerificationError as failure:
            return Validity(None, failure.verify_message)
        except OSError as failure:  # ssl.SSLError is one
            text = f"with {self.certificate_file} no TLS can be spoken ({_reason(failure)}): have it issued anew"
            raise CertificateError("certificate_file", text) from failure
        return Validity(datetime.fromtimestamp(ssl.cert_time_to_seconds(str(seen["notAfter"])), UTC), None)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Let it be shown. Raises CertificateError."""
        key = self.key_file or self.certificate_file
        try:
            with _as_file(self.certificate) as certificate_path, _as_file(self.key) as key_path:
                context.load_cert_chain(certificate_path, key_path, password=_no_passphrase)
        except _PassphraseError as failure:
            text = f"the key in {key} has a passphrase, which nobody could type: take it off with `openssl pkey -in KEY -out NEW`"
            raise CertificateError(self._key_setting, text) from failure
        except OSError as failure:  # ssl.SSLError is one
            if getattr(failure, "reason", None) == "KEY_VALUES_MISMATCH":
                text = f"the key in {key} does not belong to the certificate in {self.certificate_file}, the first one there"
                text += ": name the key that it was issued for, and put the certificates of its authorities after it"
            else:
                text = f"the key in {key} cannot be used ({_reason(failure)}): write it anew, in PEM"
            raise CertificateError(self._key_setting, text) from failure

    @property
    def _key_setting(self) -> Setting:
        return "certificate_file" if self.key_file is None else "key_file"

    def _loaded(self, protocol: int) -> ssl.SSLContext:
        context = _limited(ssl.SSLContext(protocol))
        self.load_into(context)
        return context


def read_pair(certificate_file: str, key_file: str | None) -> Pair:
    """Read a certificate and its key. Raises CertificateError."""
    certificate = _read("certificate", "certificate_file", certificate_file)
    if key_file is None:
        key = _looked_through("private key", "certificate_file", certificate_file, certificate)
    else:
        key = _read("private key", "key_file", key_file)
    _check_certificates("certificate_file", certificate_file, certificate)
    return Pair(certificate_file, key_file, certificate, key)


def client_context(tls: UpstreamTls) -> ssl.SSLContext:
    """How TLS is spoken to an upstream. Raises CertificateError."""
    if tls.ca_file is None:
        context = _limited(ssl.create_default_context())
    else:
        trusted = _read("certificate", "ca_file", tls.ca_file)
        _check_certificates("ca_file", tls.ca_file, trusted)
        with _as_file(trusted) as path:
            context = _limited(ssl.create_default_context(cafile=path))
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN  # who is named here is trusted, root or not
    if tls.certificate_file is not None:
        read_pair(tls.certificate_file, tls.key_file).load_into(context)
    return context


def validity(tls: ListenerTls | UpstreamTls) -> Validity | None:
    """What the other side thinks of the certificate that it is shown; None where none is. Raises CertificateError."""
    if tls.certificate_file is None:
        return None
    return read_pair(tls.certificate_file, tls.key_file).validity(of_server=isinstance(tls, ListenerTls))


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


def _read(what: str, setting: Setting, file: str) -> bytes:
    """The content of a file that has something of that kind in PEM."""
    try:
        with open(file, "rb", opener=_open_without_waiting) as stream:
            content = stream.read() or b""  # None from a FIFO to which nothing was written
    except FileNotFoundError as failure:
        raise CertificateError(setting, f"there is no file {file}: check the path") from failure
    except OSError as failure:
        text = f"{file} cannot be read ({failure.strerror}): check what it is, and that this user may read it"
        raise CertificateError(setting, text) from failure
    return _looked_through(what, setting, file, content)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file, and do not wait for whoever might write to it: nobody is served meanwhile."""
    return os.open(path, flags | os.O_NONBLOCK)


def _looked_through(what: str, setting: Setting, file: str, content: bytes) -> bytes:
    """The content, if something of that kind is in it."""
    if not _MARKS[what].search(content):
        raise CertificateError(setting, f"{file} holds no {what} in PEM, which has a line that begins with -----BEGIN")
    return content


def _check_certificates(setting: Setting, file: str, content: bytes) -> None:
    """See that every certificate can be read."""
    try:
        with _as_file(content) as path:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as failure:  # ssl.SSLError is one
        raise CertificateError(setting, f"a certificate in {file} cannot be read: write the file anew, in PEM") from failure


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path at which this process alone reads these bytes, within the context: OpenSSL takes a pair only from paths."""
    # In memory where there are such files: a container may have no place for others.
    with os.fdopen(os.memfd_create("pem"), "w+b") if sys.platform == "linux" else tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield f"/dev/fd/{file.fileno()}"


class _PassphraseError(Exception):
    """A key asks for a passphrase."""


def _no_passphrase() -> str:
    """Asked for by OpenSSL, which would ask the terminal else."""
    raise _PassphraseError


def _reason(failure: OSError) -> str:
    """OpenSSL's words, without its numbers, or the system's."""
    if not isinstance(failure, ssl.SSLError):
        return failure.strerror or str(failure)
    return failure.reason.replace("_", " ").lower() if failure.reason else "OpenSSL cannot read it"
