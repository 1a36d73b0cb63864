"""Certificates of an authority of our own, and a forwarder that is a TLS server or an HTTP proxy in front of a server."""

import datetime
import ipaddress
import socket
import ssl
import threading
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certificates:
    """An authority, and certificates for 127.0.0.1 and for a client, as files."""

    def __init__(self, directory: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = directory / "ca.pem"
        self._issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the authority of the test")])
        self.ca.write_bytes(self._signed(self._issuer, self._key, authority=True))
        self.server, self.client = directory / "server.pem", directory / "client.pem"
        for path in (self.server, self.client):
            key = ec.generate_private_key(ec.SECP256R1())
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, path.stem)])
            private = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            path.write_bytes(private + self._signed(name, key, authority=False))

    def _signed(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if authority:
            usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        else:
            address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class Forwarder:
    """Forwards connections to a server: with TLS in front of it, or as an HTTP proxy that records what it is asked for."""

    def __init__(self, url: str, *, context: ssl.SSLContext | None = None, proxy: bool = False) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._context = context
        self._proxy = proxy
        self.heads: list[bytes] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            first = b""
            if self._proxy:
                while b"\r\n\r\n" not in first:
                    first += connection.recv(65536)
                head, _, rest = first.partition(b"\r\n\r\n")
                self.heads.append(head)
                line, _, headers = head.partition(b"\r\n")
                method, target, version = line.split(b" ")
                if method == b"CONNECT":
                    host, _, port = target.decode().partition(":")
                    self._target = (host, int(port))
                    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    first = b""
                else:
                    path = b"/" + target.split(b"/", 3)[3]
                    headers += b"\r\nConnection: close"
                    first = b" ".join((method, path, version)) + b"\r\n" + headers + b"\r\n\r\n" + rest
            with socket.create_connection(self._target) as server:
                server.sendall(first)
                back = threading.Thread(target=self._copy, args=(server, connection), daemon=True)
                back.start()
                self._copy(connection, server)
                back.join(30)
        except OSError:
            pass
        finally:
            connection.close()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def tls_forwarder(url: str, certificates: Certificates) -> Forwarder:
    """A server that shows a certificate and requires one."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.ca))
    context.load_cert_chain(certificates.server)
    context.verify_mode = ssl.CERT_REQUIRED
    return Forwarder(url, context=context)
