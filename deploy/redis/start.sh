# Becomes the server in a container, with the users of $REDIS_USERS and what $REDIS_MEMORY allows. Each user's password is
# in REDIS_PASSWORD_NAME. The configuration, with the hashes of the passwords, goes in through standard input: no list of
# processes shows it.
set -eu
users=$(cat "$REDIS_USERS")
for user in $(sed -n 's/.*[$]{\([A-Z]*\)_SHA256}.*/\1/p' "$REDIS_USERS"); do
  password=$(printenv "REDIS_PASSWORD_$user") || password=
  [ -n "$password" ] || { echo "set REDIS_PASSWORD_$user: deploy/passwords.py makes it" >&2; exit 2; }
  hash=$(printf '%s' "$password" | sha256sum | cut -d ' ' -f 1)
  users=$(printf '%s' "$users" | sed "s/[$]{${user}_SHA256}/$hash/")
done
exec valkey-server - --appendonly yes --appendfsync always --save "" \
  --maxmemory "$REDIS_MEMORY" --maxmemory-policy noeviction <<CONFIGURATION
$users
CONFIGURATION
