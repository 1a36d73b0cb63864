"""A proxy that loses a request before the server gets it, or a response after the server has executed the request."""

import socket
import threading


class FlakyProxy:
    """Forwards to a server. `lose_answers` and `lose_requests` say how many of the next requests lose which part."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.lose_answers = 0
        self.lose_requests = 0
        self.requests = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            try:
                while request := _message(client):
                    with self._lock:
                        self.requests += 1
                        lose_request = self.lose_requests > 0
                        self.lose_requests -= lose_request
                        lose_answer = not lose_request and self.lose_answers > 0
                        self.lose_answers -= lose_answer
                    if lose_request:
                        return
                    server.sendall(request)
                    answer = _message(server)
                    if lose_answer or not answer:
                        return
                    client.sendall(answer)
            except OSError:
                return


def _message(sock: socket.socket) -> bytes:
    """One message with a declared length, or nothing when the other side has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        body += sock.recv(65536)
    return head + b"\r\n\r\n" + body
