"""Naive twins of the hashing and encoding kernels: plain Python, one rule at a time.

Nothing here is fast and nothing is imported from the code under test. SipHash is
Aumasson and Bernstein's, with the rounds as arguments so that their published
vector can vouch for it; numbers are compared as exact fractions.

>>> hex(siphash(bytes(range(16)), bytes(range(15)), 2, 4))
'0xa129ca6149be45e5'
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import struct
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import numpy as np

MASK = (1 << 64) - 1
KINDS = (
    "text",
    "number",
    "large",
    "fraction",
    "bytes",
    "instant",
    "time of day",
    "duration",
    "missing",
    "decimal",
)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NUMBERS = (int, float, Decimal, np.integer, np.floating, np.bool_)
REFUSED = "refused"


# Hashing


def rotate(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (64 - bits))) & MASK


def sip_round(v: list[int]) -> None:
    for a, b, c, d, first, second in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
        v[a] = (v[a] + v[b]) & MASK
        v[c] = (v[c] + v[d]) & MASK
        v[b] = rotate(v[b], first) ^ v[a]
        v[d] = rotate(v[d], second) ^ v[c]
        v[a] = rotate(v[a], 32)


def siphash(key: bytes, data: bytes, c: int = 1, d: int = 3) -> int:
    """SipHash-c-d of some bytes under a key of 16 bytes."""
    k0, k1 = struct.unpack("<QQ", key)
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        for _ in range(c):
            sip_round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(d):
        sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def key_of_kind(secret: bytes, kind: str) -> bytes:
    """The pair of SipHash keys of one kind of value, from the stream's secret."""
    purpose = f"value {KINDS.index(kind)}".encode()
    return hashlib.blake2b(purpose, key=secret, digest_size=16, person=b"pyramidion").digest()


def finalise(x: int) -> int:
    """MurmurHash3's finaliser."""
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = ((x ^ (x >> 33)) * multiplier) & MASK
    return x ^ (x >> 33)


def join(parts: list[int]) -> int:
    """The key of a group, from the keys of its parts in order."""
    key = parts[0]
    for part in parts[1:]:
        key = (finalise(key) + part) & MASK
    return key


# Values


def word(number: int) -> bytes:
    return struct.pack("<Q", number & MASK)


def canonical(value: object) -> tuple[str, bytes] | str:
    """Kind and payload of a value, or REFUSED."""
    if value is None:
        return "missing", b""
    if isinstance(value, str):
        try:
            return "text", value.encode()
        except UnicodeEncodeError:
            return REFUSED
    if isinstance(value, bytes):
        return "bytes", value
    if isinstance(value, UUID):
        return "bytes", value.bytes
    if isinstance(value, NUMBERS) and not isinstance(value, np.timedelta64):
        return canonical_number(value.item() if isinstance(value, np.generic) else value)
    return canonical_time(value)


def canonical_number(value: int | float | Decimal) -> tuple[str, bytes] | str:
    if not isinstance(value, int) and not math.isfinite(value):
        return REFUSED
    exact = Fraction(value)
    if exact.denominator == 1 and -(2**63) <= exact < 2**63:
        return "number", word(int(exact))
    if exact.denominator == 1 and 0 < exact < 2**64:
        return "large", word(int(exact))
    if isinstance(value, int):
        return REFUSED
    try:
        if Fraction(float(exact)) == exact:
            return "fraction", struct.pack("<d", float(exact))
    except OverflowError:
        pass
    return "decimal", digits_and_scale(exact)


def digits_and_scale(exact: Fraction) -> bytes:
    scale = 0
    while (exact * Fraction(10) ** scale).denominator != 1:
        scale += 1
    while scale <= 0 and (exact * Fraction(10) ** (scale - 1)).denominator == 1:
        scale -= 1
    digits = int(exact * Fraction(10) ** scale)
    size = next(n for n in range(8, 512, 8) if -(2 ** (8 * n - 1)) <= digits < 2 ** (8 * n - 1))
    return digits.to_bytes(size, "little", signed=True) + word(scale)


def nanoseconds(delta: dt.timedelta) -> int:
    seconds = delta.days * 86_400 + delta.seconds
    return (seconds * 1_000_000 + delta.microseconds) * 1_000


def canonical_time(value: object) -> tuple[str, bytes] | str:
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return "instant", word(nanoseconds(aware - EPOCH))
    if isinstance(value, dt.date):
        return "instant", word(nanoseconds(value - EPOCH.date()))
    if isinstance(value, dt.time):
        minutes = value.hour * 60 + value.minute
        return "time of day", word(
            ((minutes * 60 + value.second) * 10**6 + value.microsecond) * 1000
        )
    if isinstance(value, dt.timedelta):
        return "duration", word(nanoseconds(value))
    return REFUSED


def whole_text(text: str) -> int | None:
    """The whole number in 64 bits that text is, or None."""
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return int(text.lower() == "true")
    head, point, zeros = text.partition(".")
    if point and (zeros == "" or set(zeros) != {"0"}):
        return None
    if not head.isascii() or not head.removeprefix("-").isdigit() or len(head) > 21:
        return None
    number = int(head)
    if head not in (str(number), "-0") or not -(2**63) <= number < 2**64:
        return None
    return number


def spelled(value: object) -> int | bytes | None:
    """What a value is where values are read by their text; REFUSED where it has none."""
    if value is None:
        return None
    if isinstance(value, UUID):
        return str(value).encode()
    if isinstance(value, str | bytes):
        try:
            data = value.encode() if isinstance(value, str) else value
        except UnicodeEncodeError:
            return REFUSED
        whole = whole_text(data.decode("latin-1"))
        return (data or None) if whole is None else whole
    if isinstance(value, NUMBERS) and not isinstance(value, np.timedelta64):
        return spelled_number(value)
    if isinstance(value, np.datetime64) and np.datetime_data(value.dtype)[0] == "D":
        value = value.item()
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat().encode()
    return REFUSED


def spelled_number(value: object) -> int | bytes | str:
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, int) and not math.isfinite(plain):
        return REFUSED
    exact = Fraction(plain)
    bits = {np.float16: 11, np.float32: 24}.get(type(value), 53)
    if isinstance(plain, float) and abs(exact) >= 2**bits:
        return REFUSED
    if exact.denominator == 1:
        return int(exact) if -(2**63) <= exact < 2**64 else REFUSED
    return repr(plain).encode() if isinstance(value, float) else REFUSED


def key(secret: bytes, value: object, keyed_by: str = "text") -> int:
    """The key of a value that has one."""
    if keyed_by == "type":
        kind, payload = canonical(value)
        return siphash(key_of_kind(secret, kind), payload)
    found = spelled(value)
    if found is None:
        return siphash(key_of_kind(secret, "missing"), b"")
    if isinstance(found, bytes):
        return siphash(key_of_kind(secret, "text"), found)
    return siphash(key_of_kind(secret, "number" if found < 2**63 else "large"), word(found))


# Features and tables


def domain_code(domain: tuple[object, ...], value: object, keyed_by: str = "text") -> int:
    """Place in a declared domain by text, or by Python's equality; then 'other', 'missing'."""
    if keyed_by == "text":
        domain, value = tuple(map(spelled, domain)), spelled(value)
    if value is None:
        return len(domain) + 1
    return next((code for code, known in enumerate(domain) if known == value), len(domain))


def bin_code(cuts: tuple[float, ...], value: object) -> int:
    """How many cut points are at most as large; 'missing' comes after the last bin."""
    if value is None:
        return len(cuts) + 1
    return sum(1 for cut in cuts if float(value) >= cut)


def feature_code(feature: object, value: object, keyed_by: str = "text") -> int | None:
    """The code of a finite feature's value, None when the feature is open."""
    if hasattr(feature, "cuts"):
        return bin_code(feature.cuts, value)
    return None if feature.domain is None else domain_code(feature.domain, value, keyed_by)


def feature_key(secret: bytes, feature: object, value: object, keyed_by: str = "text") -> int:
    """The key of a feature as a part of a hashed group."""
    code = feature_code(feature, value, keyed_by)
    return key(secret, value if code is None else code, keyed_by)


def table_key(
    secret: bytes,
    schema: object,
    parts: tuple[str, ...],
    dense_limit: int,
    row: dict[str, object],
    keyed_by: str = "text",
) -> int:
    """The key of one row in the table of these features."""
    features = [schema.feature(part) for part in parts]
    values = [row[part] for part in parts]
    codes = [feature_code(f, v, keyed_by) for f, v in zip(features, values, strict=True)]
    if len(parts) == 1:
        return key(secret, values[0], keyed_by) if codes[0] is None else codes[0]
    if None not in codes and math.prod(f.codes for f in features) <= dense_limit:
        joint = 0
        for feature, code in zip(features, codes, strict=True):
            joint = joint * feature.codes + code
        return joint
    each = zip(features, values, strict=True)
    return join([feature_key(secret, f, v, keyed_by) for f, v in each])


def table_keys(
    secret: bytes,
    schema: object,
    dense_limit: int,
    rows: list[dict[str, object]],
    keyed_by: str = "text",
) -> list[list[int]]:
    """keys[table][row]."""
    return [
        [table_key(secret, schema, parts, dense_limit, row, keyed_by) for row in rows]
        for parts in schema.tables
    ]


def weight(propensity: float, unit: int, omega: int) -> int:
    """floor(F / p) as doubles divide, clipped to Ω."""
    quotient = math.inf if propensity < 1e-300 else unit / propensity
    return omega if quotient >= omega else min(math.floor(quotient), omega)


def joint_label(labels: tuple[object, ...], row: dict[str, object]) -> int:
    """The joint class of several labels, the last one fastest."""
    joint = 0
    for label in labels:
        value = row[label.name]
        code = bin_code(label.edges, value) if label.edges else label.classes.index(value)
        joint = joint * label.cardinality + code
    return joint
