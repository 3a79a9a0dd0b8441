"""What people use today, and the limit: the servers beside which idemproxy is measured, each with its installation.

Each peer is installed on its first run, by the ordinary client of its registry, into build/peers, without root and without a
change to the machine. One that cannot be installed or started, or answers wrongly, is reported by name with the reason.

    nginx    proxy_pass alone, and with Lua and Redis (idempotency.lua)
    python   FastAPI with a middleware (python_app.py, in an environment of its own)
    node     Express and Fastify with a middleware (express_app.mjs, fastify_app.mjs)
    install  how they come here
"""
