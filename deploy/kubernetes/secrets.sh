#!/bin/sh
# Prints the Secrets of the example, with values that nobody has seen:
#
#     sh deploy/kubernetes/secrets.sh | kubectl create --filename -
#
# Once: each time they are others. With `create` those that are there stay.
set -eu

drawn() {
    od -An -N32 -tx1 /dev/urandom | tr -d ' \n'
}

password=$(drawn)
cat <<END
apiVersion: v1
kind: Secret
metadata: {name: idemproxy, labels: {app.kubernetes.io/name: idemproxy}}
stringData:
  redis-password: "$password"
  # For the records on the admin listener, which is open to the Pod's network: health and metrics need no token.
  admin-token: "$(drawn)"
---
apiVersion: v1
kind: Secret
metadata: {name: idemproxy-redis, labels: {app.kubernetes.io/name: idemproxy-redis}}
stringData:
  # All rights for \`default\`, as which nobody can log in: a server reads its append-only file as that user.
  users.acl: |
    user default off ~* &* +@all
    user idemproxy on >$password ~idemproxy:* &idemproxy:* +evalsha +script|load +publish +subscribe +scan +lrange +hmget +hset +hdel +get +set +del +rpush +persist +pexpireat +time +ping +info +config|get +command|info
END
