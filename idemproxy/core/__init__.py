"""The story of a request, told without input or output.

Read in this order, which is also the only direction in which these modules lean on one another:
message, key, scope, fingerprint, record, transition, probe, stamp, policy, routing, origin, decision, forward, outcome, replay,
ending; and, of use to all, value, coding, hop, problem.
Nothing here opens a socket, reads a clock, logs, or draws a random number: `now` and tokens arrive as arguments.
"""
