"""The sample upstream as a real process, asked over real connections by a client that never sends anything twice."""

from __future__ import annotations

import hashlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHARGE = b'{"amount": 4200, "customer": "ann"}'


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer; `value` is its JSON, None without a body."""

    status: int
    headers: http.client.HTTPMessage
    value: Any


@dataclass(frozen=True, slots=True)
class Upstream:
    """A running sample upstream."""

    process: subprocess.Popen[str]
    port: int

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Any:  # noqa: ANN401 - the stub has no public name for a connection with an answer due
        """Send a request and leave its answer to be read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, headers or {})
        return connection

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Reply:
        """Send a request and read its answer."""
        connection = self.send(method, path, body, headers)
        try:
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        return Reply(response.status, response.headers, json.loads(content) if content else None)

    def effects(self) -> list[dict[str, Any]]:
        """Every effect so far."""
        effects: list[dict[str, Any]] = self.ask("GET", "/ledger").value["effects"]
        return effects

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Stop with a signal; returns the exit status and what else was written on standard error."""
        self.process.send_signal(number)
        written = self.process.communicate(timeout=20)[1]
        return self.process.returncode, written


def command(*arguments: str) -> list[str]:
    """Build the command line; a warning in the process is an error there too."""
    return [sys.executable, "-W", "error", "-m", "idemproxy.demo", *arguments]


def start(*arguments: str) -> Upstream:
    """Start the sample on a free port and wait until it says which."""
    process = subprocess.Popen(command("--listen", "127.0.0.1:0", *arguments), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    if not line.startswith("listening on http://127.0.0.1:"):
        raise AssertionError(line + process.communicate(timeout=20)[1])
    return Upstream(process, int(line.rpartition(":")[2]))


def until(condition: Callable[[], object]) -> None:
    """Ask again and again until `condition` holds; fail after 20 seconds."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"


@pytest.fixture(scope="module")
def shared() -> Iterator[Upstream]:
    """One process for the tests that need no life of their own; it must end without a word of complaint."""
    upstream = start()
    yield upstream
    assert (0, "") == upstream.end()


@pytest.fixture
def upstream(shared: Upstream) -> Upstream:
    """The shared process, afresh."""
    assert 204 == shared.ask("DELETE", "/ledger").status
    return shared


def test_every_charge_is_another_effect_whatever_its_key(upstream: Upstream) -> None:
    """The same request with the same key charges twice: two ids, each with its own Location."""
    replies = [upstream.ask("POST", "/charges", CHARGE, {"Idempotency-Key": "order-17"}) for _ in range(2)]

    made = {"amount": 4200, "currency": "usd", "customer": "ann"}
    assert [{"id": "ch_1", **made}, {"id": "ch_2", **made}] == [reply.value for reply in replies]
    assert [(201, "/charges/ch_1"), (201, "/charges/ch_2")] == [(reply.status, reply.headers["Location"]) for reply in replies]


def test_the_ledger_tells_every_effect_in_order_and_counts_them(upstream: Upstream) -> None:
    """Effects come in order with key as received, digest and resource, and are counted by kind and by key."""
    upstream.ask("POST", "/charges", CHARGE, {"Idempotency-Key": '"order-17"'})
    upstream.ask("POST", "/charges", CHARGE, {"Idempotency-Key": '"order-17"'})
    refunded = upstream.ask("POST", "/refunds", b'{"charge": "ch_1"}').value
    ledger = upstream.ask("GET", "/ledger").value

    seen = [(effect["seq"], effect["kind"], effect["id"], effect["idempotency_key"]) for effect in ledger["effects"]]
    assert [(1, "charge", "ch_1", '"order-17"'), (2, "charge", "ch_2", '"order-17"'), (3, "refund", "re_1", None)] == seen
    assert hashlib.sha256(CHARGE).hexdigest() == ledger["effects"][0]["request_digest"]
    assert refunded == ledger["effects"][2]["resource"]
    assert {"charge": 2, "refund": 1} == ledger["by_kind"]
    assert {'"order-17"': 2} == ledger["by_key"]


def test_a_key_in_any_bytes_is_noted(upstream: Upstream) -> None:
    """Repeated key lines are joined and bytes that are not UTF-8 are shown as escapes, so that the ledger can always be read."""
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=30) as connection:
        head = b"POST /charges HTTP/1.1\r\nHost: demo\r\nConnection: close\r\nIdempotency-Key: a\xff\r\nIdempotency-Key: b\r\n"
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(CHARGE) + CHARGE)
        assert b"HTTP/1.1 201 Created" == connection.recv(65536).partition(b"\r\n")[0]

    assert ["a\\xff, b"] == [effect["idempotency_key"] for effect in upstream.effects()]


def test_what_was_made_can_be_read(upstream: Upstream) -> None:
    """Charges are listed, picked by customer, and read one by one; an unknown one is 404."""
    ann = upstream.ask("POST", "/charges", CHARGE).value
    ben = upstream.ask("POST", "/charges", b'{"amount": 1, "currency": "eur", "customer": "ben"}').value

    assert {"charges": [ann, ben]} == upstream.ask("GET", "/charges").value
    assert {"charges": [ben]} == upstream.ask("GET", "/charges?customer=ben").value
    assert {"charges": []} == upstream.ask("GET", "/charges?customer=cyd").value
    assert ben == upstream.ask("GET", "/charges/ch_2").value
    assert 404 == upstream.ask("GET", "/charges/ch_3").status


def test_refunds_never_exceed_the_charge(upstream: Upstream) -> None:
    """A charge can be refunded in parts, then what is left of it, then no more."""
    upstream.ask("POST", "/charges", CHARGE)
    bodies = (b'{"charge": "ch_1", "amount": 200}', b'{"charge": "ch_1", "amount": 4001}', b'{"charge": "ch_1"}')
    replies = [upstream.ask("POST", "/refunds", body) for body in (*bodies, bodies[2])]

    assert [201, 422, 201, 422] == [reply.status for reply in replies]
    assert [200, 4000] == [refund["amount"] for refund in upstream.ask("GET", "/refunds").value["refunds"]]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/charges", b'{"amount": 4200', 400),
        ("/charges", b"[1]", 400),
        ("/charges", b"", 400),
        ("/charges", b"{}", 422),
        ("/charges", b'{"amount": 0}', 422),
        ("/charges", b'{"amount": "4200"}', 422),
        ("/charges", b'{"amount": 42.0}', 422),
        ("/charges", b'{"amount": true}', 422),
        ("/charges", b'{"amount": 1, "currency": 7}', 422),
        ("/charges", b'{"amount": 1, "customer": []}', 422),
        ("/charges", b'{"amount": 1000001}', 402),
        ("/charges", b'{"amount": 1, "reference": 7}', 422),
        ("/refunds", b'{"charge": "ch_9"}', 404),
        ("/cases", b'{"customer": "ann", "booking": "old_417"}', 422),
        ("/vouchers", b'{"customer": "ann", "case": "case_9", "amount": 1}', 404),
        ("/seat-holds", b'{"customer": 7, "flight": "ID419", "seat": "14C"}', 422),
        ("/mails", b'{"customer": "ann", "to": "ann@example.com", "subject": "", "text": null}', 422),
    ],
)
def test_a_wrong_request_is_refused_and_has_no_effect(upstream: Upstream, path: str, body: bytes, status: int) -> None:
    """What cannot be carried out is answered with its status and a sentence, and leaves no effect."""
    reply = upstream.ask("POST", path, body)

    assert (status, "application/json") == (reply.status, reply.headers.get_content_type())
    assert ["error"] == list(reply.value)
    assert [] == upstream.effects()


def test_the_airline_and_the_mail_keep_what_they_are_told(upstream: Upstream) -> None:
    """What is made may lean on what was made before; numbers count from 1 for each kind, and every call is another effect."""
    case = b'{"customer": "ann", "booking": "old_417", "reason": "no crew", "colour": "red"}'
    made = [
        upstream.ask("POST", path, body).value
        for path, body in (
            ("/cases", case),
            ("/cases", case),
            ("/vouchers", b'{"customer": "ann", "case": "case_2", "amount": 1500}'),
            ("/mails", b'{"customer": "ann", "to": "ann@example.com", "subject": "Hello", "text": ""}'),
        )
    ]

    kept = {"customer": "ann", "booking": "old_417", "reason": "no crew"}
    assert [
        {"id": "case_1", **kept},
        {"id": "case_2", **kept},
        {"id": "vch_1", "customer": "ann", "case": "case_2", "amount": 1500},
        {"id": "mail_1", "customer": "ann", "to": "ann@example.com", "subject": "Hello", "text": ""},
    ] == made


def test_what_can_be_looked_up_does_not_change(upstream: Upstream) -> None:
    """The timetable is the same before and after an effect, and an unknown flight is not found."""
    paths = ("/itineraries/ann", "/flights/ID417", "/flights?from=LIS&to=BER", "/fares/ID419", "/seats/ID419", "/members/ann")
    before = [upstream.ask("GET", path).value for path in paths]
    upstream.ask("POST", "/seat-holds", b'{"customer": "ann", "flight": "ID419", "seat": "14C"}')

    assert before == [upstream.ask("GET", path).value for path in paths]
    assert ["ID419", "ID421"] == [flight["flight"] for flight in before[2]["flights"]]
    assert (404, {"error": "no flight 'ID1'"}) == ((reply := upstream.ask("GET", "/seats/ID1")).status, reply.value)
    assert [] == upstream.ask("GET", "/flights?from=BER").value["flights"]


def test_a_reference_is_kept_and_found(upstream: Upstream) -> None:
    """The caller's own name for what it makes is in the resource, and picks it; without one there is none."""
    named = upstream.ask("POST", "/charges", b'{"amount": 1, "reference": "trip-1_step_12"}').value
    other = upstream.ask("POST", "/charges", b'{"amount": 1}').value

    assert {"id": "ch_1", "amount": 1, "currency": "usd", "customer": None, "reference": "trip-1_step_12"} == named
    assert "reference" not in other
    assert {"charges": [named]} == upstream.ask("GET", "/charges?reference=trip-1_step_12").value


def test_the_ledger_of_one_customer(upstream: Upstream) -> None:
    """Fields pick effects as they pick resources, and what is counted are those; a refund is the customer's who was charged."""
    for body in (CHARGE, b'{"amount": 1, "customer": "bob"}'):
        upstream.ask("POST", "/charges", body)
    upstream.ask("POST", "/refunds", b'{"charge": "ch_2"}')
    ledger = upstream.ask("GET", "/ledger?customer=bob").value

    assert ["ch_2", "re_1"] == [effect["id"] for effect in ledger["effects"]]
    assert {"charge": 1, "refund": 1} == ledger["by_kind"]


@pytest.mark.parametrize(("fault", "effects"), [("hold_before=a", 0), ("hold_after=a", 1)])
def test_a_request_is_held_until_it_is_let_go(upstream: Upstream, fault: str, effects: int) -> None:
    """Whoever watches learns when it is held, before or after its effect; only then, and when let go, it is answered."""
    connection = upstream.send("POST", "/charges", CHARGE, {"Demo-Fault": fault})
    held, while_held = upstream.ask("GET", "/holds/a").status, len(upstream.effects())
    let_go = upstream.ask("DELETE", "/holds/a").status

    assert (204, effects, 204) == (held, while_held, let_go)
    assert 201 == connection.getresponse().status
    assert 1 == len(upstream.effects())
    connection.close()


def test_a_read_suffers_what_it_names(upstream: Upstream) -> None:
    """What is armed is for writes; a read fails only when it asks for that."""
    upstream.ask("POST", "/faults", b'{"fault": "status_before=500"}')
    armed = [upstream.ask("GET", path).status for path in ("/charges", "/flights", "/ledger")]
    named = [
        upstream.ask("GET", path, None, {"Demo-Fault": "status_after=503"}).status for path in ("/charges", "/flights/ID417")
    ]

    assert ([200, 200, 200], [503, 503]) == (armed, named)


@pytest.mark.parametrize(("fault", "effects"), [("status_before=500", 0), ("status_after=503", 1)])
def test_a_status_can_come_before_or_after_the_effect(upstream: Upstream, fault: str, effects: int) -> None:
    """The caller sees the asked-for status either way; only the ledger tells whether the effect happened."""
    assert int(fault[-3:]) == upstream.ask("POST", "/charges", CHARGE, {"Demo-Fault": fault}).status
    assert effects == len(upstream.effects())


@pytest.mark.parametrize(("fault", "effects"), [("reset_before", 0), ("reset_after", 1)])
def test_a_reset_can_come_before_or_after_the_effect(upstream: Upstream, fault: str, effects: int) -> None:
    """The connection is reset without a byte of an answer; only the ledger tells whether the effect happened."""
    with pytest.raises(ConnectionResetError) as failure:
        upstream.ask("POST", "/charges", CHARGE, {"Demo-Fault": fault})
    assert ConnectionResetError is failure.type, "a reset, not RemoteDisconnected, which is an orderly close"
    assert effects == len(upstream.effects())


def test_a_cut_answer_breaks_off_in_its_body(upstream: Upstream) -> None:
    """The header promises the whole body, half of it comes, and the effect has happened."""
    whole = len(json.dumps({"id": "ch_1", "amount": 4200, "currency": "usd", "customer": "ann"}, separators=(",", ":"))) + 1
    with pytest.raises(http.client.IncompleteRead) as failure:
        upstream.ask("POST", "/charges", CHARGE, {"Demo-Fault": "cut"})

    assert (whole // 2, whole - whole // 2) == (len(failure.value.partial), failure.value.expected)
    assert 1 == len(upstream.effects())


@pytest.mark.parametrize("fault", ["delay_before=0.2", "delay_after=0.2", "delay_before=0.1, delay_after=0.1"])
def test_a_delay_makes_the_answer_late_and_nothing_else(upstream: Upstream, fault: str) -> None:
    """The answer comes no sooner than asked for, and is the usual one."""
    began = time.monotonic()
    reply = upstream.ask("POST", "/charges", CHARGE, {"Demo-Fault": fault})

    assert 0.2 <= time.monotonic() - began
    assert (201, 1) == (reply.status, len(upstream.effects()))


def test_a_delay_before_comes_before_the_effect(upstream: Upstream) -> None:
    """While the delay lasts, the request has arrived and the ledger is still empty."""
    upstream.ask("POST", "/faults", b'{"fault": "delay_before=3600"}')
    connection = upstream.send("POST", "/charges", CHARGE)
    until(lambda: upstream.ask("GET", "/faults").value == {"armed": []})  # taken: the request is in

    assert [] == upstream.effects()
    connection.close()


def test_a_delay_after_comes_after_the_effect(upstream: Upstream) -> None:
    """While the delay lasts, the effect is in the ledger and no byte of the answer has come."""
    connection = upstream.send("POST", "/charges", CHARGE, {"Demo-Fault": "delay_after=3600"})
    until(upstream.effects)

    connection.sock.setblocking(False)  # noqa: FBT003 - the signature of the standard library
    with pytest.raises(BlockingIOError):
        connection.sock.recv(1)
    connection.close()


def test_the_effect_happens_although_the_client_has_gone(upstream: Upstream) -> None:
    """A client that leaves during a delay before the effect changes nothing of it, as with any slow upstream."""
    upstream.send("POST", "/charges", CHARGE, {"Demo-Fault": "delay_before=0.1"}).close()

    until(upstream.effects)
    assert 1 == len(upstream.effects())


def test_faults_can_be_named_in_the_query(upstream: Upstream) -> None:
    """`?demo_fault=` serves clients that set no headers, and several faults happen in their order."""
    assert 502 == upstream.ask("POST", "/refunds?demo_fault=delay_before=0,status_before=502,reset_before", b"{}").status


def test_armed_faults_strike_the_next_writes_and_then_no_more(upstream: Upstream) -> None:
    """`times` writes of any kind suffer the fault, reads and writes with faults of their own do not use it up."""
    armed = upstream.ask("POST", "/faults", b'{"fault": "status_before=500", "times": 2}').value
    upstream.ask("GET", "/charges")
    own = upstream.ask("POST", "/charges", CHARGE, {"Demo-Fault": "status_before=503"}).status
    after = [upstream.ask("POST", path, CHARGE).status for path in ("/charges", "/refunds", "/charges")]

    assert {"armed": ["status_before=500", "status_before=500"]} == armed
    assert (503, [500, 500, 201]) == (own, after)


@pytest.mark.parametrize(
    "fault",
    [
        "explode",
        "delay=1",
        "delay_before",
        "delay_after=soon",
        "status_after=200",
        "cut=1",
        "cut,",
        "reset_before=1",
        "hold_after",
        "hold=a",
    ],
)
def test_an_unknown_fault_is_refused(upstream: Upstream, fault: str) -> None:
    """A misspelt fault is a 400 that names the known ones, whether sent or armed, and has no effect."""
    sent = upstream.ask("POST", "/charges", CHARGE, {"Demo-Fault": fault})
    armed = upstream.ask("POST", "/faults", json.dumps({"fault": fault}).encode())

    assert (400, 400) == (sent.status, armed.status)
    assert "known: delay_before=SECONDS" in sent.value["error"]
    assert ([], {"armed": []}) == (upstream.effects(), upstream.ask("GET", "/faults").value)


@pytest.mark.parametrize("body", [b"{}", b'{"fault": "cut", "times": 0}', b'{"fault": "cut", "times": "2"}', b"cut"])
def test_a_wrong_order_for_faults_is_refused(upstream: Upstream, body: bytes) -> None:
    """Arming needs a fault and a number of times; anything else is a 400 and arms nothing."""
    assert 400 == upstream.ask("POST", "/faults", body).status
    assert {"armed": []} == upstream.ask("GET", "/faults").value


def test_a_reset_ledger_starts_afresh(upstream: Upstream) -> None:
    """After DELETE /ledger no effect and no armed fault is left, and ids begin again."""
    upstream.ask("POST", "/charges", CHARGE)
    upstream.ask("POST", "/faults", b'{"fault": "cut"}')
    upstream.ask("DELETE", "/ledger")

    assert {"effects": [], "by_kind": {}, "by_key": {}} == upstream.ask("GET", "/ledger").value
    assert (201, "ch_1") == ((reply := upstream.ask("POST", "/charges", CHARGE)).status, reply.value["id"])


def test_a_killed_upstream_still_knows_its_effects(tmp_path: Path) -> None:
    """Every answered effect outlives SIGKILL, a line torn by it is dropped, and the numbers go on."""
    file = tmp_path / "ledger.jsonl"
    first = start("--ledger", str(file))
    first.ask("POST", "/charges", CHARGE, {"Idempotency-Key": "k"})
    before = first.ask("GET", "/ledger").value
    first.process.kill()
    first.process.communicate(timeout=20)
    with file.open("ab") as torn:
        torn.write(file.read_bytes()[:40])
    second = start("--ledger", str(file))

    assert before == second.ask("GET", "/ledger").value
    assert "ch_2" == second.ask("POST", "/charges", CHARGE).value["id"]
    assert (0, "") == second.end()
    assert ["ch_1", "ch_2"] == [json.loads(line)["id"] for line in file.read_text().splitlines()]


def test_an_effect_is_in_the_file_before_its_answer_leaves(tmp_path: Path) -> None:
    """An effect whose answer is still held back already has its line; a reset empties the file."""
    file = tmp_path / "ledger.jsonl"
    upstream = start("--ledger", str(file))
    with pytest.raises(ConnectionResetError):
        upstream.ask("POST", "/charges", CHARGE, {"Demo-Fault": "reset_after"})

    assert upstream.effects() == [json.loads(line) for line in file.read_text().splitlines()]
    assert 1 == len(upstream.effects())
    upstream.ask("DELETE", "/ledger")
    assert "" == file.read_text()
    assert (0, "") == upstream.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_even_during_a_long_delay(number: signal.Signals) -> None:
    """SIGTERM and SIGINT are exit status 0 without complaint, also while a request is held back for an hour."""
    upstream = start()
    connection = upstream.send("POST", "/charges", CHARGE, {"Demo-Fault": "delay_after=3600"})
    until(upstream.effects)

    assert (0, "") == upstream.end(number)
    connection.close()


def failure(*arguments: str) -> tuple[int, list[str]]:
    """Run a command that cannot start; returns its exit status and its lines on standard error."""
    ended = subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    return ended.returncode, ended.stderr.splitlines()


def test_a_port_in_use_is_one_clear_line() -> None:
    """A taken address ends the start with status 1 and one line that names it and the reason."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, lines = failure("--listen", f"127.0.0.1:{port}")

    assert (1, 1) == (status, len(lines))
    assert lines[0].startswith("demo api: ")
    assert str(port) in lines[0]
    assert "address already in use" in lines[0]


@pytest.mark.parametrize("content", [b'{"seq": 1}\n', b"not JSON\n", b"7\n"])
def test_a_foreign_file_is_not_taken_for_a_ledger(tmp_path: Path, content: bytes) -> None:
    """A file with a whole line that is no effect is one clear line and status 1, and is left as it was."""
    file = tmp_path / "ledger.jsonl"
    file.write_bytes(content + b"torn")
    status, lines = failure("--listen", "127.0.0.1:0", "--ledger", str(file))

    assert (1, 1) == (status, len(lines))
    assert lines[0].startswith(f"demo api: {file} holds a line that is not an effect")
    assert content + b"torn" == file.read_bytes()


def test_a_ledger_that_cannot_be_opened_is_one_clear_line(tmp_path: Path) -> None:
    """A directory in the ledger's place ends the start with status 1 and one line that names it."""
    status, lines = failure("--ledger", str(tmp_path))

    assert (1, 1) == (status, len(lines))
    assert str(tmp_path) in lines[0]


@pytest.mark.parametrize("address", ["9000", ":9000", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:65536"])
def test_an_address_must_be_host_and_port(address: str) -> None:
    """A wrong `--listen` is a wrong argument: status 2 and a last line that says what was expected."""
    status, lines = failure("--listen", address)

    assert 2 == status
    assert lines[-1].endswith(f"{address!r} is not HOST:PORT")


def test_it_listens_on_ipv6_and_says_so() -> None:
    """An IPv6 address is given, and shown, in brackets."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with subprocess.Popen(command("--listen", "[::1]:0"), cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("listening on http://[::1]:")
        process.terminate()
