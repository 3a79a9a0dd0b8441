"""How cost grows: `make bench-growth`. Four questions, each asked by steps of about ten; no answer may be worse than linear.

    bodies       the p50 of a first write whose body is 0 to 10 MiB long: JSON, whose fingerprint is semantic, and plain bytes;
                 and the same sent directly to the upstream
    routes       the p50 of a first write that the last of 1 to 10,000 routes takes, and of one that the first takes;
                 resident memory, and how long a start takes
    records      the p50 of a claim of a new key, and of a claim that finds an answer, where 0 to 1,000,000 records are stored:
                 on Redis and on SQLite, asked of the store without a proxy
    connections  what 1 to 5,000 connections cost that write at once, on a store in memory: processor time for each request, and
                 resident memory; the latency of each grows with its waiting in line, and says nothing

A curve's last point by its first is `growth`; `steepest` is the exponent of its steepest step: 0 is flat, 1 linear. A step of
less than 20 µs, 1 MiB or 0.2 s is not looked at: what is measured varies as much.

Modules: command (the order of things, table and JSON), curves (what is found, and its picture), asker (a client on one
connection), proxy (idemproxy with a configuration); one for each question; prefill, which puts records in a store.
"""
