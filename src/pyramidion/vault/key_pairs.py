"""Pairs of keys: one half seals and vouches, the other one opens and signs.

A custodian, a broker and an engineer each have a pair: X25519 for what is sealed to them
(HPKE, RFC 9180), Ed25519 for what they sign. Whoever has the public half alone can seal
and cannot open. A custodian's private half is kept under a passphrase (scrypt, AES-GCM)
and never on a machine that has the data.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import NoReturn, Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from pyramidion.errors import FormatError, KeyHolderError

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_PUBLIC, _PRIVATE = "pyramidion public key 1", "pyramidion private key 1"
_WORK = 1 << 16  # scrypt's n: 64 MB and about a quarter of a second for each guess


@dataclass(frozen=True)
class PublicKey:
    """What others need to seal something to somebody, and to believe what they signed.

    >>> from pyramidion.vault.key_pairs import PrivateKey, PublicKey
    >>> pair = PrivateKey.new()
    >>> PublicKey.from_text(pair.public.to_text()) == pair.public
    True
    >>> pair.open(pair.public.seal(b"a key", b"of what"), b"of what")
    b'a key'
    """

    sealing: bytes
    signing: bytes

    @property
    def fingerprint(self) -> str:
        """What people compare, read aloud: 32 hexadecimal digits in groups of four."""
        digits = sha256(self.sealing + self.signing).hexdigest()[:32]
        return " ".join(digits[start : start + 4] for start in range(0, 32, 4))

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Bytes that the private half alone opens, and for this context alone."""
        try:
            key = X25519PublicKey.from_public_bytes(self.sealing)
            return _SUITE.encrypt(data, key, info=context)
        except ValueError:
            pass
        raise FormatError("a public key is none that can be sealed to; ask its owner for it again")

    def signed(self, signature: bytes, data: bytes) -> bool:
        """Whether the private half signed this."""
        try:
            Ed25519PublicKey.from_public_bytes(self.signing).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True

    def to_text(self) -> str:
        """One line of JSON, for a file."""
        return json.dumps({"kind": _PUBLIC, "key": self.to_code(), "id": self.fingerprint}) + "\n"

    @classmethod
    def from_text(cls, text: str | bytes) -> Self:
        """What `to_text` made."""
        told = _json(text, _PUBLIC, "a public key")
        return cls.from_code(told.get("key"))

    def to_code(self) -> str:
        """Both keys as short text, as documents carry them."""
        return b64encode(self.sealing + self.signing).decode()

    @classmethod
    def from_code(cls, code: object) -> Self:
        """What `to_code` made."""
        data = decoded(code, "a public key")
        if len(data) != 64:
            raise FormatError("a public key is not 64 bytes long; ask its owner for it again")
        return cls(data[:32], data[32:])


class PrivateKey:
    """The half that opens and signs."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._sealing = X25519PrivateKey.from_private_bytes(data[:32])
        self._signing = Ed25519PrivateKey.from_private_bytes(data[32:])
        self.public = PublicKey(
            self._sealing.public_key().public_bytes_raw(),
            self._signing.public_key().public_bytes_raw(),
        )

    @classmethod
    def new(cls) -> Self:
        """A fresh pair from the operating system."""
        return cls(os.urandom(64))

    def __repr__(self) -> str:
        return f"PrivateKey({self.public.fingerprint})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is not pickled; write it with to_text")

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """What was sealed to the public half, for this context."""
        try:
            return _SUITE.decrypt(sealed, self._sealing, info=context)
        except (InvalidTag, ValueError):
            pass
        raise FormatError(
            "something was sealed to another key, for another purpose, or was changed since; "
            "check which key it asks for, or have it sent again"
        )

    def sign(self, data: bytes) -> bytes:
        """A signature that `PublicKey.signed` believes."""
        return self._signing.sign(data)

    def to_text(self, passphrase: str) -> str:
        """JSON for a file, under a passphrase."""
        salt, nonce = os.urandom(16), os.urandom(12)
        cipher = AESGCM(_stretched(passphrase, salt, _WORK))
        key = cipher.encrypt(nonce, self._data, _PRIVATE.encode())
        told = {"kind": _PRIVATE, "n": _WORK, "salt": salt, "nonce": nonce, "key": key}
        named = {name: coded(value) for name, value in told.items()}
        return json.dumps(named | {"id": self.public.fingerprint}, indent=1) + "\n"

    @classmethod
    def from_text(cls, text: str | bytes, passphrase: str) -> Self:
        """What `to_text` made."""
        told = _json(text, _PRIVATE, "a private key")
        salt, nonce, key = (decoded(told.get(n), "a private key") for n in ("salt", "nonce", "key"))
        work = told.get("n")
        if not isinstance(work, int) or not 1 < work <= 1 << 20 or work & (work - 1):
            raise FormatError("a private key is damaged; restore it from its backup")
        try:
            cipher = AESGCM(_stretched(passphrase, salt, work))
            return cls(cipher.decrypt(nonce, key, _PRIVATE.encode()))
        except (InvalidTag, ValueError):
            pass
        raise KeyHolderError("the passphrase does not open this private key; try it again")


def _stretched(passphrase: str, salt: bytes, work: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=work, r=8, p=1).derive(passphrase.encode())


def coded(value: object) -> object:
    """Bytes as text; anything else as it is."""
    return b64encode(value).decode() if isinstance(value, bytes) else value


def decoded(code: object, what: str) -> bytes:
    """Text as the bytes it was."""
    try:
        return b64decode(str(code), validate=True)
    except ValueError:
        pass
    raise FormatError(f"{what} is damaged; have it sent again")


def _json(text: str | bytes, kind: str, what: str) -> dict[str, object]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or told.get("kind") != kind:
        raise FormatError(f"this file is not {what} of pyramidion; give the one keygen made")
    return told
