"""A mongod that calls itself a mongos: what a client asks goes to a real mongod, but `hello` says "isdbgrid" and config.collections holds
what the test says. Enough to see what is asked of a sharded cluster and what follows from the answers; it shards nothing."""
import contextlib
import socket
import struct
import threading

import bson

OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
REPLICA_SET = ("setName", "setVersion", "hosts", "primary", "me", "electionId", "lastWrite", "secondary", "topologyVersion", "tags")


def receive(connection):
    """One message of the wire protocol: its bytes; None at the end."""
    data = b""
    while len(data) < 4 or len(data) < struct.unpack_from("<i", data)[0]:
        wanted = 4 - len(data) if len(data) < 4 else struct.unpack_from("<i", data)[0] - len(data)
        more = connection.recv(wanted)
        if not more:
            return None
        data += more
    return data


def as_mongos(reply):
    return {**{name: value for name, value in reply.items() if name not in REPLICA_SET}, "msg": "isdbgrid"}


def with_document(message, start, document):
    """The same message with another document at its end."""
    body = message[4:start] + bson.encode(document)
    return struct.pack("<i", len(body) + 4) + body


class FakeMongos:
    """`sharded`: {"db.collection": its document in config.collections}. `refused`: config.collections may not be read."""

    def __init__(self, port):
        self.port_behind = port
        self.sharded = {}
        self.refused = False
        self.asked = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.open = [self.listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/"

    def close(self):
        for each in self.open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                behind = socket.create_connection(("127.0.0.1", self.port_behind))
                self.open += [connection, behind]
                threading.Thread(target=self._serve, args=(connection, behind), daemon=True).start()

    def _serve(self, connection, behind):
        with contextlib.suppress(OSError):
            while request := receive(connection):
                connection.sendall(self._answer(request, behind))
        connection.close()
        behind.close()

    def _answer(self, request, behind):
        number, code = struct.unpack_from("<4xi4xi", request)
        command = bson.decode(request[21:21 + struct.unpack_from("<i", request, 21)[0]]) if code == OP_MSG else {"hello": 1}
        name = next(iter(command))
        if name == "find" and command["$db"] == "config" and command["find"] == "collections":
            return self._config_collections(number, command)
        behind.sendall(request)
        reply = receive(behind)
        if name not in ("hello", "isMaster", "ismaster"):
            return reply
        start = 36 if struct.unpack_from("<12xi", reply)[0] == OP_REPLY else 21
        return with_document(reply, start, as_mongos(bson.decode(reply[start:])))

    def _config_collections(self, number, command):
        self.asked.append(command["filter"])
        found = self.sharded.get(command["filter"]["_id"])
        answer = {"cursor": {"firstBatch": [found] if found else [], "id": bson.Int64(0), "ns": "config.collections"}, "ok": 1.0}
        if self.refused:
            answer = {"ok": 0.0, "code": 13, "codeName": "Unauthorized", "errmsg": "not authorized on config to execute command"}
        return with_document(struct.pack("<iiiiiB", 0, 1, number, OP_MSG, 0, 0), 21, answer)
