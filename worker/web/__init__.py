"""What our web servers have in common: who enters, and what holds for every request (extras `ui` and `mcp`).

- `refusals` what is refused, and with which status of HTTP
- `site` what differs between the servers
- `access` who enters, by which token, and what that admits
- `guard` what holds for every request: host, origin, token, security headers
- `reading` answers, made in threads, a bounded number of them for each run
- `connections` deadlines for requests that do not come, and for clients that do not read
- `bodies` the body of a request, bounded
- `listening` the socket
- `serving` the server, from its socket to its end
"""
