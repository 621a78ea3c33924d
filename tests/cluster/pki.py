"""Certificates and kubeconfigs of a test cluster."""

import base64
import datetime
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=30)


class Authority:
    """One certificate authority, used for everything: servers, clients and the front proxy."""

    def __init__(self, directory: Path):
        self.directory = directory
        directory.mkdir()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gaia test cluster")])
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = directory / "ca.crt"
        self.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def issue(self, file: str, user: str, group: str = "", names: Sequence[str] = ()) -> tuple[Path, Path]:
        """Write `<file>.crt` and `<file>.key` for a user in a group, and for a server under these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            subject.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = _builder(x509.Name(subject), self._name, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        if names:
            alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
        certificate = self.directory / f"{file}.crt"
        certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        return certificate, self._write_key(file, key)

    def signing_key(self, file: str) -> tuple[Path, Path]:
        """Write `<file>.pub` and `<file>.key`, with which service account tokens are signed."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = self.directory / f"{file}.pub"
        public.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        return public, self._write_key(file, key)

    def kubeconfig(self, target: Path, server: str, client: tuple[Path, Path]) -> Path:
        """Write a kubeconfig that needs no other file."""
        certificate, key = client
        user = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": _base64(self.certificate),
                    },
                }
            ],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        target.write_text(json.dumps(config))
        target.chmod(0o600)
        return target

    def _write_key(self, file: str, key: ec.EllipticCurvePrivateKey) -> Path:
        path = self.directory / f"{file}.key"
        path.touch(0o600)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        return path


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(hours=1),
        not_valid_after=now + _LIFE,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
