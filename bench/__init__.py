"""How fast idemproxy is, next to what stands beside it in the same run: `make bench`, or `make bench QUICK=1` for a short form.

Needs Linux (it reads /proc, and waits with epoll). Everything runs on loopback: an upstream that answers every request with the
same 500 bytes of JSON, a Redis server that keeps nothing on disk, idemproxy as users run it (access log on, to a file), and its
neighbours, one process each. Peers come from their registries into build/peers on the first run (bench.peers). One server at a
time is put under load. The load checks every answer: its status, its body byte for byte, and the field by which the server
tells an executed answer from a replay. One wrong answer ends the run, or, where a peer gave it, that series; a peer that cannot
be had, does not start or answers wrongly is told by name, with the reason. So does the run end where a server of ours falls
silent.

How to read the table. A row is a series: a server, what was asked of it, and over how many connections, each of which sends
its next request when its last one is answered.

    work      write: a POST of 300 bytes of JSON that is passed on; first: the same with a new key each time, on idemproxy;
              replay: the same with one key, whose answer is stored; read: a GET that is passed on
    req/s     median of the rounds; range: the slowest and the fastest of them
    p50, p99  milliseconds from before a request is written until its answer is read, medians of the rounds
    +p50      p50 less that of the same request sent directly to the upstream over as many connections: what the server adds.
              Over many connections that is mostly the queue in front of one busy core; 1 connection shows the way itself.
              +p99 likewise
    CPU µs    processor time of the server's process for each request, user and system, all its threads; not the store's
    kernel    what of that the kernel took, in µs; it is told in steps of 10 ms, so of short rounds it is rough
    server %  how busy the server's process was: near 100 where the server is the limit. A store that flushes to disk, or a
              machine that others use too, keeps it lower
    load %    how busy the load's core was with this run: generator, and what shares that core. Above 90, marked *, the load is
              the limit and the server could do more: compare CPU µs then, not req/s
    MiB       resident memory of the server's process at the end of a round; of several the sum, what they share in each

Below stand the ratios and what is wanted of them, and the resident memory of idemproxy idle, while long bodies stream, and with
many requests in flight (bench.memory).

Where there are two cores or more the server under test has one to itself; load, upstream and Redis share another, or, from
three on, upstream and Redis have one of their own. The ratios divide medians of one run at the most connections. Its rounds are
interleaved, so that what disturbs the machine disturbs all; still, where rounds differ much, something else was using it, and
the ratio of processor times, given beside each, is the steadier one. Only ratios mean something on another machine.
`bench/results/latest.json` holds all of this, with the range of every figure.

    direct         the upstream itself
    passthrough    aiohttp's server and aiohttp's ClientSession, tuned, without idempotency: what one writes in an afternoon
    nginx          proxy_pass, without idempotency: the limit
    redis, sqlite  idemproxy on that store
    redis-2-workers
                   with --workers 2, on a core more; where there are two, that is the one of load, upstream and Redis
    naive-sqlite   idemproxy on SQLite with one transaction for each operation
    nginx-lua      nginx with Lua and Redis: idempotency as an infrastructure engineer writes it by hand
    idemkit, asgi-idempotency-header, fastapi-idempotency-key
                   FastAPI on uvicorn behind that middleware on Redis, passing on by aiohttp's client; the last one refuses
                   every retry (422), so that it is compared by first writes only
    express        Express behind express-idempotency on Redis; fastify: Fastify with @node-idempotency

`--quick` measures only what the ratios need, in short rounds; not the two workers.

Modules: command (the order of things), lineup (servers, series and ratios: the place to add one), ours and peers (how servers
are started), stage (starts and ends programs), measure (rounds, medians and ratios), memory, load (the generator, a process of
its own), targets, report (table and JSON), picture (bars) and svg; upstream, passthrough and naive_sqlite are servers; wire has
the bytes, machine knows cores and clocks, loop the event loop.

Other questions are asked apart: `make bench-growth`, how cost grows (bench.growth); `make bench-profile`, where the time of a
request goes (profile, profile_load); `python -m bench.guard`, whether it grew by our own hand; `python -m bench.loop_delay`,
how long large bodies hold up everybody else; `make bench-store` (store_operations, store_contenders), what the stores do
without a proxy; `make bench-memory`, what a record costs Redis.
"""
