"""An MCP server with state, written from the specification (2025-11-25): each of its sessions counts its own calls.

    python counting_server.py FOLDER [SOCKET]

Over standard input and output the process is the session; over HTTP, at a socket that it is given, a session is what
`Mcp-Session-Id` says. In FOLDER it keeps `sessions` (one line for each that begins) and `ended` (for each that ends).
Its tool `count` answers which session it is, its process, and how many calls that session has had.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import uuid
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
SCHEMA = {"type": "object", "properties": {"text": {}}}
TOOL = {"name": "count", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
counts = Counter[str]()


def note(name: str, text: str) -> None:
    with (FOLDER / name).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def answer(request: dict[str, Any], session: str) -> dict[str, Any]:
    match request["method"]:
        case "initialize":
            info = {"name": "counting", "version": "1"}
            result: Any = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [TOOL]}
        case "tools/call":
            counts[session] += 1
            match (request["params"].get("arguments") or {}).get("text"):
                case "end":
                    os._exit(3)
                case "fail":
                    result = {"content": [{"type": "text", "text": "no such page"}], "isError": True}
                    return {"jsonrpc": "2.0", "id": request["id"], "result": result}
            found = {"session": session, "pid": os.getpid(), "n": counts[session]}
            result = {"content": [], "structuredContent": found}
        case method:
            error = {"code": -32601, "message": f"Method not found: {method}"}
            return {"jsonrpc": "2.0", "id": request["id"], "error": error}
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


class Http(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.headers.get("Mcp-Session-Id", "")
        if request["method"] == "initialize":
            session = uuid.uuid4().hex
            counts[session] = 0
            note("sessions", session)
        elif session not in counts:
            self._send(404, b"{}", "")
            return
        self._send(200, json.dumps(answer(request, session)).encode() if "id" in request else b"", session)

    def do_DELETE(self) -> None:
        session = self.headers.get("Mcp-Session-Id", "")
        del counts[session]
        note("ended", session)
        self._send(200, b"", "")

    def do_GET(self) -> None:
        self._send(405, b"", "")

    def _send(self, status: int, body: bytes, session: str) -> None:
        self.send_response(202 if status == 200 and not body else status)
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def over_http(listening: socket.socket) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Http, bind_and_activate=False)
    server.socket = listening
    server.serve_forever()


def over_stdio() -> None:
    session = str(os.getpid())
    note("sessions", session)
    for line in sys.stdin:
        if "id" in (request := json.loads(line)):
            print(json.dumps(answer(request, session)), flush=True)
    note("ended", session)


if __name__ == "__main__":
    over_stdio() if len(sys.argv) == 2 else over_http(socket.socket(fileno=int(sys.argv[2])))
