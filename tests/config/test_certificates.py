"""The files of TLS: what is wrong with one is told like any other problem, with the setting that names it and what to do."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from idemproxy.config.certificates import CertificateError, client_context, read_pair, validity
from idemproxy.config.settings import ListenerTls, StoreTls
from idemproxy.config.show import as_yaml
from idemproxy.core.policy import EgressProxy, UpstreamTls
from tests.config.conftest import Complaints, Load

LONG_AGO = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Who issues."""
    return trustme.CA()


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> Path:
    """A directory of PEM files: whole ones, and every kind of unusable one."""
    leaf, other = authority.issue_cert("localhost"), authority.issue_cert("localhost")
    expired = authority.issue_cert("localhost", not_before=LONG_AGO, not_after=LONG_AGO + dt.timedelta(days=1))
    certificate, key = b"".join(part.bytes() for part in leaf.cert_chain_pems), leaf.private_key_pem.bytes()
    locked = serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    directory = tmp_path / "tls"
    directory.mkdir()
    (directory / "directory.pem").mkdir()
    for name, content in {
        "authority.pem": authority.cert_pem.bytes(),
        "certificate.pem": certificate,
        "key.pem": key,
        "both.pem": key + certificate,
        "other-key.pem": other.private_key_pem.bytes(),
        "locked-key.pem": locked,
        "words.pem": b"hello\n",
        "empty.pem": b"",
        "cut.pem": certificate[: len(certificate) // 2],
        "bent.pem": certificate[:100] + b"!!!!" + certificate[104:],
        "bent-key.pem": key[:60] + b"!!!!" + key[64:],
        "expired.pem": b"".join(part.bytes() for part in expired.cert_chain_pems),
        "expired-key.pem": expired.private_key_pem.bytes(),
    }.items():
        (directory / name).write_bytes(content)
    return directory


def _listener(certificate: str, key: str) -> str:
    tls = {"certificate_file": f"tls/{certificate}", "key_file": f"tls/{key}"}
    return json.dumps({"tls": tls, "upstreams": {"api": {"url": "http://localhost:9000"}}})


def _store(**tls: str) -> str:
    return json.dumps(
        {"store": {"url": "rediss://localhost:6379/0", "tls": tls}, "upstreams": {"api": {"url": "http://localhost:9000"}}}
    )


def _upstream(**tls: str) -> str:
    return json.dumps({"upstreams": {"api": {"url": "https://localhost:9000", "tls": tls}}})


THE_KEY = "the key in tls/{} "
TYPED = "has a passphrase, which nobody could type: take it off with `openssl pkey -in KEY -out NEW`"
NOT_ITS = (
    "does not belong to the certificate in tls/certificate.pem, the first one there: name the key that it was issued for, and "
    "put the certificates of its authorities after it"
)
IN_PEM = "in PEM, which has a line that begins with -----BEGIN"
DIRECTORY = "cannot be read (Is a directory): check what it is, and that this user may read it"


@pytest.mark.parametrize(
    ("certificate", "key", "setting", "text"),
    [
        ("absent.pem", "key.pem", "certificate_file", "there is no file tls/absent.pem: check the path"),
        ("certificate.pem", "absent.pem", "key_file", "there is no file tls/absent.pem: check the path"),
        ("directory.pem", "key.pem", "certificate_file", f"tls/directory.pem {DIRECTORY}"),
        ("certificate.pem", "directory.pem", "key_file", f"tls/directory.pem {DIRECTORY}"),
        ("words.pem", "key.pem", "certificate_file", f"tls/words.pem holds no certificate {IN_PEM}"),
        ("empty.pem", "key.pem", "certificate_file", f"tls/empty.pem holds no certificate {IN_PEM}"),
        ("key.pem", "key.pem", "certificate_file", f"tls/key.pem holds no certificate {IN_PEM}"),
        ("certificate.pem", "words.pem", "key_file", f"tls/words.pem holds no private key {IN_PEM}"),
        ("certificate.pem", "certificate.pem", "key_file", f"tls/certificate.pem holds no private key {IN_PEM}"),
        ("cut.pem", "key.pem", "certificate_file", "a certificate in tls/cut.pem cannot be read: write the file anew, in PEM"),
        ("bent.pem", "key.pem", "certificate_file", "a certificate in tls/bent.pem cannot be read: write the file anew, in PEM"),
        (
            "certificate.pem",
            "bent-key.pem",
            "key_file",
            "the key in tls/bent-key.pem cannot be used (OpenSSL cannot read it): write it anew, in PEM",
        ),
        ("certificate.pem", "locked-key.pem", "key_file", f"the key in tls/locked-key.pem {TYPED}"),
        ("certificate.pem", "other-key.pem", "key_file", f"the key in tls/other-key.pem {NOT_ITS}"),
    ],
)
def test_a_pair_that_cannot_be_used(
    certificate: str, key: str, setting: str, text: str, files: Path, complaints: Complaints
) -> None:
    """For clients, an upstream and a store alike: one problem, at the setting whose file is wrong; nobody is asked to type."""
    mine = {"certificate_file": f"tls/{certificate}", "key_file": f"tls/{key}"}

    assert [f"idemproxy.yaml:1: tls.{setting}: {text}"] == complaints(_listener(certificate, key))
    assert [f"idemproxy.yaml:1: upstreams.api.tls.{setting}: {text}"] == complaints(_upstream(**mine))
    assert [f"idemproxy.yaml:1: store.tls.{setting}: {text}"] == complaints(_store(**mine))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("absent.pem", "there is no file tls/absent.pem: check the path"),
        ("directory.pem", f"tls/directory.pem {DIRECTORY}"),
        ("words.pem", f"tls/words.pem holds no certificate {IN_PEM}"),
        ("key.pem", f"tls/key.pem holds no certificate {IN_PEM}"),
        ("cut.pem", "a certificate in tls/cut.pem cannot be read: write the file anew, in PEM"),
    ],
)
def test_authorities_that_cannot_be_used(name: str, text: str, files: Path, complaints: Complaints) -> None:
    """As with a pair."""
    assert [f"idemproxy.yaml:1: upstreams.api.tls.ca_file: {text}"] == complaints(_upstream(ca_file=f"tls/{name}"))
    assert [f"idemproxy.yaml:1: store.tls.ca_file: {text}"] == complaints(_store(ca_file=f"tls/{name}"))


def test_a_file_of_the_store_is_told_where_it_stands(files: Path, complaints: Complaints) -> None:
    """With the line on which it is named, also where the store's URL lies in a file and is not known to speak TLS."""
    (files / "url").write_text("redis+sentinel://localhost/main")
    text = "store:\n  url_file: tls/url\n  tls:\n    ca_file: tls/authority.pem\n    certificate_file: tls/absent.pem\n"

    told = complaints(text + "upstreams: {api: {url: 'http://localhost:9000'}}\n")

    assert ["idemproxy.yaml:5: store.tls.certificate_file: there is no file tls/absent.pem: check the path"] == told


def test_what_a_store_s_server_may_be_shown(files: Path, loaded: Load) -> None:
    """A pair, one file with both, and authorities alone are taken, with absolute paths."""
    pair = {"certificate_file": "tls/certificate.pem", "key_file": "tls/key.pem"}
    said = [{**pair, "ca_file": "tls/authority.pem"}, {"certificate_file": "tls/both.pem"}, {"ca_file": "tls/authority.pem"}]
    settings = [loaded(_store(**tls)).settings for tls in said]

    expected = [StoreTls(**{name: str(files.parent / value) for name, value in tls.items()}) for tls in said]
    assert [(tls, ()) for tls in expected] == [(each.store.tls, each.warnings) for each in settings]


@pytest.mark.parametrize(
    "tls",
    [
        {"ca_file": "authority.pem"},
        {"certificate_file": "certificate.pem", "key_file": "key.pem"},
        {"certificate_file": "both.pem"},
        {"ca_file": "certificate.pem", "server_name": "other.example"},
    ],
)
def test_files_that_can_be_used_are_found_beside_the_configuration(tls: dict[str, str], files: Path, loaded: Load) -> None:
    """A key may stand in its certificate's file. What runs has absolute paths, so the directory of the start does not matter."""
    said = {name: f"tls/{value}" if name.endswith("_file") else value for name, value in tls.items()}
    expected = {name: str(files / value) if name.endswith("_file") else value for name, value in tls.items()}

    settings = loaded(_upstream(**said)).settings

    assert (UpstreamTls(**expected), ()) == (settings.upstreams["api"].tls, settings.warnings)


def test_a_listener_s_files_are_found_beside_the_configuration(files: Path, loaded: Load) -> None:
    """As with those for an upstream."""
    settings = loaded(_listener("certificate.pem", "key.pem")).settings

    assert (ListenerTls(str(files / "certificate.pem"), str(files / "key.pem")), ()) == (settings.tls, settings.warnings)


def test_a_certificate_that_has_expired_is_a_warning(files: Path, loaded: Load) -> None:
    """Whether it is refused is up to whoever is shown it."""
    pair = {"certificate_file": "tls/expired.pem", "key_file": "tls/expired-key.pem"}
    told = "certificate_file: whoever is shown it refuses it: certificate has expired"

    assert (f"tls.{told}",) == loaded(_listener("expired.pem", "expired-key.pem")).settings.warnings
    assert (f"upstreams.api.tls.{told}",) == loaded(_upstream(**pair)).settings.warnings
    assert (f"store.tls.{told}",) == loaded(_store(**pair)).settings.warnings


def test_what_is_said_of_tls_and_never_used(files: Path, complaints: Complaints) -> None:
    """TLS for an upstream without it, and a key without its certificate, are told; the files are then no matter."""
    plain = {"url": "http://localhost:9000", "tls": {"server_name": "other.example"}}
    never = "is never used: the URL says http; write https there, or delete this"
    alone = "is the key of no certificate: name that in certificate_file, or delete this"

    assert [f"idemproxy.yaml:1: upstreams.api.tls: {never}"] == complaints(json.dumps({"upstreams": {"api": plain}}))
    assert [f"idemproxy.yaml:1: upstreams.api.tls.key_file: {alone}"] == complaints(_upstream(key_file="tls/key.pem"))
    assert [f"idemproxy.yaml:1: store.tls.key_file: {alone}"] == complaints(_store(key_file="tls/key.pem"))


def test_nothing_weakens_a_context(files: Path) -> None:
    """TLS 1.2 at least; towards upstreams the certificate and its name are always verified, whatever is set."""
    pair = {"certificate_file": str(files / "certificate.pem"), "key_file": str(files / "key.pem")}
    ca_file = str(files / "authority.pem")
    contexts = [client_context(UpstreamTls(**said)) for said in ({}, pair, {"ca_file": ca_file}, {**pair, "ca_file": ca_file})]
    server = read_pair(**pair).server_context()

    assert {ssl.TLSVersion.TLSv1_2} == {context.minimum_version for context in (*contexts, server)}
    assert {(ssl.CERT_REQUIRED, True)} == {(context.verify_mode, context.check_hostname) for context in contexts}


def test_a_pair_is_what_was_read(files: Path) -> None:
    """Each file is read once: that it is written anew, or cut, between two looks at it changes nothing."""
    pair = read_pair(str(files / "certificate.pem"), str(files / "key.pem"))
    before = pair.validity()
    (files / "certificate.pem").write_bytes((files / "cut.pem").read_bytes())
    (files / "key.pem").unlink()

    assert (before, None) == (pair.validity(), before.refused)
    assert isinstance(pair.server_context(), ssl.SSLContext)


def test_a_file_that_would_have_to_be_waited_for(files: Path) -> None:
    """A FIFO that nobody writes to holds nothing; whoever is served meanwhile does not wait for it."""
    os.mkfifo(files / "fifo.pem")

    with pytest.raises(CertificateError, match=r"fifo\.pem holds no certificate in PEM"):
        read_pair(str(files / "fifo.pem"), str(files / "key.pem"))


def test_authorities_stand_in_the_place_of_the_system_s(files: Path) -> None:
    """With `ca_file` nobody else is trusted."""
    context = client_context(UpstreamTls(ca_file=str(files / "authority.pem")))

    assert 1 == context.cert_store_stats()["x509"]


def test_until_when_a_certificate_is_valid(authority: trustme.CA, tmp_path: Path) -> None:
    """To the second, in UTC, whether it is shown to clients or to an upstream."""
    until = dt.datetime(2345, 6, 7, 8, 9, 10, tzinfo=dt.UTC)
    pem = tmp_path / "both.pem"
    authority.issue_cert("localhost", not_before=LONG_AGO, not_after=until).private_key_and_cert_chain_pem.write_to_path(pem)

    found = [validity(tls) for tls in (ListenerTls(str(pem), str(pem)), UpstreamTls(certificate_file=str(pem)), UpstreamTls())]

    assert [(until, None), (until, None), None] == found


SECRET_PROXY = "http://ann:pa$$s%20word@proxy.example:3128"


def test_a_proxy_s_credentials_are_not_printed(loaded: Load) -> None:
    """A variable named by the upstream stands in their place; with it the same settings load again."""
    text = json.dumps({"upstreams": {"my-api": {"url": "https://localhost:9000", "proxy": SECRET_PROXY}}})
    first = loaded(text)

    printed = as_yaml(first.shape, first.settings.profiles)

    assert "http://${PROXY_CREDENTIALS_MY_API}@proxy.example:3128" in printed
    assert "# secrets are not shown: ${PROXY_CREDENTIALS_MY_API} must be set to use this\n" in printed
    assert not [shown for shown in (printed, repr(first.shape), repr(first.settings)) if "pa$" in shown or "word@" in shown]
    assert first.settings == loaded(printed, {"PROXY_CREDENTIALS_MY_API": "ann:pa$s%20word"}).settings
    assert EgressProxy("proxy.example", 3128, b"Basic YW5uOnBhJHMgd29yZA==") == first.settings.upstreams["my-api"].proxy


@pytest.mark.parametrize("credentials", ["SECRET", "SECRET:", ":SECRET", "SECRET:x", "x:SECRET"])
def test_whatever_part_of_the_credentials_is_the_secret(credentials: str, loaded: Load) -> None:
    """A token often stands where the user's name does: no part is printed, of a proxy's URL as of the store's."""
    upstreams = {"api": {"url": "https://localhost:9000", "proxy": f"http://{credentials}@proxy.example:3128"}}
    first = loaded(json.dumps({"upstreams": upstreams, "store": {"url": f"redis://{credentials}@localhost:6379/0"}}))

    printed = as_yaml(first.shape, first.settings.profiles)

    variables = {"PROXY_CREDENTIALS_API": credentials, "STORE_CREDENTIALS": credentials}
    assert "SECRET" not in printed
    assert first.settings == loaded(printed, variables).settings


def test_no_two_secrets_are_asked_for_by_one_name(loaded: Load) -> None:
    """Names that differ in `-` and `_` alone have variables of their own."""
    upstreams = {
        name: {"url": "https://localhost:9000", "proxy": f"http://{number}:x@p:1"}
        for number, name in enumerate(("a-b", "a_b", "a-b_"))
    }
    first = loaded(json.dumps({"upstreams": upstreams}))

    printed = as_yaml(first.shape, first.settings.profiles)

    names = ["PROXY_CREDENTIALS_A_B", "PROXY_CREDENTIALS_A_B_", "PROXY_CREDENTIALS_A_B__"]
    assert names == re.findall(r"http://\$\{(\w+)\}@p:1", printed)
    assert first.settings == loaded(printed, {name: f"{number}:x" for number, name in enumerate(names)}).settings


@pytest.mark.parametrize("proxy", ["https://ann:secret@p:1", "http://ann:secret@p", "http://ann:secret@p:1/x", "ann:secret@p:1"])
def test_a_proxy_that_cannot_be_used_is_told_without_its_password(proxy: str, complaints: Complaints) -> None:
    """Its URL is not repeated."""
    (told,) = complaints(json.dumps({"upstreams": {"api": {"url": "https://localhost:9000", "proxy": proxy}}}))

    assert told.startswith("idemproxy.yaml:1: upstreams.api.proxy: is ")
    assert "secret" not in told


@pytest.mark.parametrize("port", [8080, 8081])
def test_a_proxy_that_is_this_one(port: int, complaints: Complaints) -> None:
    """Requests would go round."""
    text = json.dumps({"upstreams": {"api": {"url": "https://localhost:9000", "proxy": f"http://localhost:{port}"}}})

    told = "is an address that idemproxy itself listens on: requests would go in a circle"
    assert [f"idemproxy.yaml:1: upstreams.api.proxy: {told}"] == complaints(text)


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example", "a..", ".a"])
def test_a_host_that_no_resolver_takes(host: str, complaints: Complaints) -> None:
    """An empty label, or one of more than 63 characters, is found at the start and not at the first request."""
    (told,) = complaints(json.dumps({"upstreams": {"api": {"url": f"https://{host}:9000"}}}))

    assert "upstreams.api.url: has no valid host" in told
