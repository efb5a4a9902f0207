"""A MongoDB server that refuses single operations with any code: a real one behind a proxy that answers some commands itself."""
import socket
import struct
import threading

import bson

OP_MSG = 2013


def _exactly(sock, n):
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def _sections(message):
    """(the command, the documents of its sequences) of an OP_MSG."""
    at, body, sequence = 20, {}, []
    end = len(message) - (4 if message[16] & 1 else 0)
    while at < end:
        kind, at = message[at], at + 1
        (size,) = struct.unpack_from("<i", message, at)
        if kind == 0:
            body = bson.decode(message[at:at + size])
        else:
            first = message.index(b"\0", at + 4) + 1
            sequence += bson.decode_all(message[first:at + size])
        at += size
    return body, sequence


class RefusingProxy:
    """
    Refuses, as a whole, each update and insert that has an operation on the dedup key in `refused` ({eventId: code}). .refusals
    is [(eventId, operations in the command)].
    """

    def __init__(self, host, port):
        self.server = (host, port)
        self.refused, self.refusals = {}, []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.server)
            self._sockets += [client, server]
            lock = threading.Lock()  # two threads answer
            threading.Thread(target=self._forward, args=(client, server, lock), daemon=True).start()
            threading.Thread(target=self._back, args=(client, server, lock), daemon=True).start()

    def _forward(self, client, server, lock):
        try:
            while True:
                head = _exactly(client, 16)
                size, request, _, opcode = struct.unpack("<iiii", head)
                message = head + _exactly(client, size - 16)
                answer = self._judge(message) if opcode == OP_MSG else None
                if answer is None:
                    server.sendall(message)
                    continue
                document = bson.encode(answer)
                with lock:
                    client.sendall(struct.pack("<iiiiIB", 21 + len(document), 0, request, OP_MSG, 0, 0) + document)
        except OSError:
            self._shut(client, server)

    def _back(self, client, server, lock):
        try:
            while True:
                head = _exactly(server, 16)
                message = head + _exactly(server, struct.unpack_from("<i", head)[0] - 16)
                with lock:
                    client.sendall(message)
        except OSError:
            self._shut(client, server)

    @staticmethod
    def _shut(*sockets):
        for sock in sockets:
            sock.close()

    def _judge(self, message):
        body, operations = _sections(message)
        if next(iter(body)) not in ("update", "insert"):
            return None
        operations += body.get("updates", body.get("documents", []))
        for operation in operations:
            key = operation.get("q", operation).get("eventId")
            if key in self.refused:
                self.refusals.append((key, len(operations)))
                return {"ok": 0.0, "code": self.refused[key], "codeName": "Location", "errmsg": "refused by the test"}
        return None

    def close(self):
        self._shut(*self._sockets)
