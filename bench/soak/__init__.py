"""Whether anything grows: `make soak`, ten minutes of mixed traffic through one proxy process; `MINUTES=1` for a shorter run.

The upstream, Redis where it is the store, and the proxy are processes of their own. The traffic (see traffic.py) is everything
that clients and upstreams do, good and bad, drawn at random from a seed: writes, replays and reads, streams both ways, events,
tunnels, pipelines, refused requests, clients that leave at every stage by FIN and by RST, upstreams that reset, cut and fall
silent. Records are kept for half a minute only, so that they too come and go while it lasts.

After the first minute (a fifth of a shorter run) the traffic pauses, and again at its end. It has failed, and exits with 1, when

    memory     the proxy holds more in the second pause than in the first, by more than 5 MiB or 5 %, whichever is less; or
               a line fitted through its resident memory, from twice as late as the first pause on, rises by more than that;
               likewise that of the processes that it started
    levels     in the last pause a client's or an upstream's connection is left, or more file descriptors or tasks are there
               than in the first pause, or more threads than the growth of their pools explains
    answers    a client was answered what it should not have been

Over TLS each connection has a buffer of 256 KiB for a while, and the heap around those takes some minutes to find its size: a
short run may fail with `mib under way` and hold no more than before. With MALLOC_MMAP_THRESHOLD_=131072 it is level.

The table has a line for each sample; `quiet` marks the pauses.

    mib        resident memory of the proxy, in MiB; in a pause, after it has given back what is free
    workers    resident memory of the processes that it started, in MiB
    fds        file descriptors, all kinds           clients    those of them that are connections of clients
    upstreams  and connections to upstreams          sockets    and other sockets: listeners, the store's, those of the event loop
    threads    of the process                        tasks      of its event loop
    objects    that Python's collector tracks; in a pause, after a collection
    attempts   that are being forwarded under a claim
    done       pieces of traffic so far, each of one request to a few

Modules: command (arguments, table), run (the order of things), traffic and client (what clients do), upstream, proxy (idemproxy,
which tells its tasks when asked), samples (what is read off a process), verdict.
"""
