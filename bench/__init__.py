"""How fast idemproxy is, next to what stands beside it in the same run: `make bench`, or `make bench QUICK=1` for a short form.

Needs Linux (it reads /proc, and waits with epoll). Everything runs on loopback: an upstream that answers every request with
the same 500 bytes of JSON, a Redis server that keeps nothing on disk, idemproxy as users run it (access log on, to a file), and
its neighbours, one process each. One server at a time is put under load, and the load checks every answer: its status, its body byte
for byte, and `Idempotency-Status`. One wrong answer ends the run. So does a server that falls silent.

How to read the table. A row is a series: a server, what was asked of it, and over how many connections, each of which sends its
next request when its last one is answered.

    work      write: a POST of 300 bytes of JSON that is passed on; first: the same with a new key, every time, on idemproxy;
              replay: the same with one key whose answer is stored; read: a GET that is passed on
    req/s     median of the rounds, with the slowest and the fastest round
    p50, p99  milliseconds from before a request is written until its answer is read, medians of the rounds
    +p50      p50 less that of the same request sent directly to the upstream over as many connections: what the server adds.
              Over many connections it is mostly queueing, in front of one busy core; look at 1 connection for the way itself
    CPU µs    processor time of the server's process for each request, user and system, all its threads; not the store's
    server %  how busy the server's process was; with a fast store it is the limit at 64 connections, and near 100
    load %    how busy the core of the load was: generator, upstream and Redis together. Above 90, marked with *, the load is the limit,
              and the server could do more: then compare CPU µs, not req/s
    MiB       resident memory of the server's process at the end of a round

Where there are two cores or more the server under test has one to itself, and load, upstream and Redis share another (or have
one more, from three on). Only the ratios mean something on another machine: they divide medians of one run, whose rounds are
interleaved, so that what disturbs the machine disturbs all. Where rounds differ by more than a few per cent something else was using it.
`bench/results/latest.json` holds the same, with each round's figures.

    direct           the upstream itself
    passthrough      aiohttp's server and aiohttp's ClientSession, tuned, without idempotency: what one writes in an afternoon
    nginx            proxy_pass, without idempotency: the limit; skipped where nginx is not installed
    redis, sqlite    idemproxy on that store
    naive-sqlite     idemproxy on SQLite with one transaction for each operation

Modules: command (the order of things), lineup (servers, series and ratios: the place to add one), stage (starts and ends
programs), measure (rounds and medians), load (the generator, a process of its own), report (table and JSON); upstream, passthrough and
naive_sqlite are servers; wire has the bytes, machine reads /proc.
"""
