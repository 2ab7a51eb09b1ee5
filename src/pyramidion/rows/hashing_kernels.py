"""SipHash-1-3 in numba: words, strings, views and floats, straight from their buffers.

One value becomes one 64-bit key. SipHash is a keyed pseudorandom function: who
does not know the stream's key can neither predict a bucket nor craft two values
that meet. The 1-3 variant is the one CPython and Rust chose for their tables.

Memory is read by address (`load8` to `load64`), so that one kernel serves every
producer of Arrow buffers without a copy. No load passes the end of a value's
buffer. That offsets and views stay inside their buffers is checked beforehand,
by `offsets_sound` and `views_sound`: hashing must not fail halfway.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# Kinds of values; each has its own pair of SipHash keys, so that the text "1",
# the number 1 and the instant 1 never share a key. A decimal is a DECIMAL only
# where no integer and no float equals it.
TEXT, NUMBER, LARGE, FRACTION, BYTES, INSTANT, TIME_OF_DAY, DURATION, MISSING, DECIMAL = range(10)
KINDS = 10

# A stream that reads values by their text (`config.spelling`) has one more pair of keys than
# there are kinds: so whatever has the keys, in a snapshot, a pickle or a kernel, has the rule.
BY_TEXT_ROWS = KINDS + 1

_MINUS, _POINT, _ZERO, _NINE = 0x2D, 0x2E, 0x30, 0x39
_LOWER, _T, _F = 0x20, 0x74, 0x66  # the bit that makes a small letter of a capital; t and f
_ZEROS, _SIXES, _THREES, _UPPER, _TOP, _ABOVE_NINE, _FROM_MINUS = (
    np.uint64(0x0101010101010101 * byte)
    for byte in (_ZERO, 0x06, 0x33, 0xF0, 0x80, 0x80 - _NINE - 1, 0x80 - _MINUS)
)  # eight times the same byte
_TRUTHS = tuple(
    np.frombuffer(text, dtype=np.uint8)
    for text in (b"true", b"True", b"TRUE", b"false", b"False", b"FALSE")
)
_TENS = np.array([10**n for n in range(9)], dtype=np.uint64)
_TENTH, _SIGN = np.uint64((2**64 - 1) // 10), np.uint64(1 << 63)
_BLOCK = 512  # rows of text that are read together

# 2**63 and 2**64 as floats, both exact: the borders between NUMBER, LARGE and FRACTION.
_TWO63 = 9223372036854775808.0
_TWO64 = 18446744073709551616.0

# The sizes from which on floats stand for their neighbours: of 64 bits, and of 32.
EXACT, EXACT32 = 9007199254740992.0, 16777216.0

# Odd integers from 2**53 on are no floats; 5**27 is the largest power of five in 64 bits.
_TWO53 = 9007199254740992
_FIVES = 27


def _loader(bits: int) -> Any:
    result: Any = {8: types.uint8, 32: types.int32, 64: types.uint64}[bits]

    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            width = ir.IntType(bits)
            loaded = builder.load(builder.inttoptr(args[0], width.as_pointer()))
            loaded.align = 1
            return loaded

        return result(types.int64), codegen

    return load


load8, load32, load64 = _loader(8), _loader(32), _loader(64)


@njit(inline="always", cache=True)
def _rotate(x: Any, bits: Any) -> Any:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@njit(inline="always", cache=True)
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v1 = _rotate(v1, 13) ^ v0
    v0 = _rotate(v0, 32)
    v2 += v3
    v3 = _rotate(v3, 16) ^ v2
    v0 += v3
    v3 = _rotate(v3, 21) ^ v0
    v2 += v1
    v1 = _rotate(v1, 17) ^ v2
    v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


@njit(inline="always", cache=True)
def _start(k0: Any, k1: Any) -> Any:
    return (
        k0 ^ np.uint64(0x736F6D6570736575),
        k1 ^ np.uint64(0x646F72616E646F6D),
        k0 ^ np.uint64(0x6C7967656E657261),
        k1 ^ np.uint64(0x7465646279746573),
    )


@njit(inline="always", cache=True)
def _absorb(v0: Any, v1: Any, v2: Any, v3: Any, word: Any) -> Any:
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


@njit(inline="always", cache=True)
def _finish(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v2 ^= np.uint64(0xFF)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@njit(inline="always", cache=True)
def hash_word(k0: Any, k1: Any, word: Any) -> Any:
    """SipHash-1-3 of eight little-endian bytes given as one word."""
    v0, v1, v2, v3 = _start(k0, k1)
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, word)
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, np.uint64(8) << np.uint64(56))
    return _finish(v0, v1, v2, v3)


@njit(inline="always", cache=True)
def _tail(address: Any, rest: Any, end: Any) -> Any:
    """The last ``rest`` < 8 bytes as a word; one masked load where the buffer allows it."""
    if rest == 0:
        return np.uint64(0)
    if address + 8 <= end:
        return load64(address) & ((np.uint64(1) << np.uint64(8 * rest)) - np.uint64(1))
    word = np.uint64(0)
    for i in range(rest):
        word |= np.uint64(load8(address + i)) << np.uint64(8 * i)
    return word


@njit(cache=True, nogil=True)
def hash_bytes(k0: Any, k1: Any, address: Any, length: Any, end: Any) -> Any:
    """SipHash-1-3 of ``length`` bytes at ``address``; ``end`` is where the buffer ends."""
    v0, v1, v2, v3 = _start(k0, k1)
    whole = length >> 3
    for i in range(whole):
        v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, load64(address + 8 * i))
    last = _tail(address + 8 * whole, length & 7, end) | (np.uint64(length) << np.uint64(56))
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, last)
    return _finish(v0, v1, v2, v3)


@njit(cache=True, nogil=True)
def hash_words(keys: Any, kind: Any, words: Any, out: Any) -> None:
    """Keys of integers; a loop without branches, so that LLVM vectorises it."""
    k0, k1 = keys[kind, 0], keys[kind, 1]
    for i in range(words.size):
        out[i] = hash_word(k0, k1, words[i])


# --- text that is the same value as a number (see `config.spelling`) ----------------------------
#
# Usual text pays for one test of its first eight bytes. Columns of digits are read eight
# bytes at once, block by block, and hashed as columns of integers are.


@njit(inline="always", cache=True)
def by_text(keys: Any) -> Any:
    """Whether values are read by their text."""
    return keys.shape[0] > KINDS


@njit(inline="always", cache=True)
def _may_be_number(address: Any, length: Any) -> Any:
    """Whether text may be a number, a truth value or nothing: a test that most text fails.

    Of long text all first eight bytes must be one of ``-./0123456789``: which of them is no
    digit cannot be foretold in text of hexadecimal digits, and a branch on one would cost more.
    """
    if length >= 8:
        word = load64(address)
        return (((word + _ABOVE_NINE) | word | ~(word + _FROM_MINUS)) & _TOP) == 0
    if length == 0:
        return True
    first = load8(address)
    return first <= _NINE or (length >= 4 and (first | _LOWER) in (_T, _F))


@njit(cache=True, nogil=True)
def whole_of(address: Any, length: Any) -> Any:
    """Kind and word of text: NUMBER or LARGE where it is a whole number, else TEXT."""
    negative = load8(address) == _MINUS
    start = 1 if negative else 0
    word, at = np.uint64(0), start
    while at < length:
        digit = np.uint64(load8(address + at)) - np.uint64(_ZERO)
        if digit > np.uint64(9):
            break
        if word > _TENTH or (word == _TENTH and digit > np.uint64(5)):
            return TEXT, word  # beyond 64 bits
        word, at = word * np.uint64(10) + digit, at + 1
    if at == start or (at > start + 1 and load8(address + start) == _ZERO):
        return TEXT, word
    if at < length:
        if load8(address + at) != _POINT or at + 1 == length:
            return TEXT, word
        for i in range(at + 1, length):
            if load8(address + i) != _ZERO:
                return TEXT, word
    if negative and word > _SIGN:
        return TEXT, word
    if negative:
        return NUMBER, np.uint64(0) - word
    return (NUMBER if word < _SIGN else LARGE), word


@njit(cache=True, nogil=True)
def kind_of(address: Any, length: Any) -> Any:
    """Kind and word of text where it is the value: NUMBER, LARGE or MISSING, else TEXT."""
    if length == 0:
        return MISSING, np.uint64(0)
    if load8(address) <= _NINE:
        return whole_of(address, length)
    for truth in range(len(_TRUTHS)):
        text = _TRUTHS[truth]
        if length == text.size:
            same = True
            for i in range(length):
                same &= load8(address + i) == text[i]
            if same:
                return NUMBER, np.uint64(length == 4)
    return TEXT, np.uint64(0)


@njit(inline="always", cache=True)
def _eight_bytes(address: Any, length: Any, end: Any) -> Any:
    """The first eight bytes of text as a word; of less, filled up with 0 before it."""
    if length >= 8:
        return load64(address)
    bits = np.uint64(8 * length)
    up = (np.uint64(64) - bits) & np.uint64(63)
    if length > 0 and address + 8 <= end:
        return (load64(address) << up) | (_ZEROS >> bits)
    return (_tail(address, length, end) << up) | (_ZEROS >> bits)


@njit(inline="always", cache=True)
def _are_digits(word: Any) -> Any:
    """Whether all eight bytes of a word are digits."""
    above = ((word + _SIXES) & _UPPER) >> np.uint64(4)
    return ((word & _UPPER) | above) == _THREES


@njit(inline="always", cache=True)
def _eight_digits(word: Any) -> Any:
    """The number that eight digits are, the first one in the lowest byte."""
    word -= _ZEROS
    word = word * np.uint64(10) + (word >> np.uint64(8))
    even = (word & np.uint64(0x000000FF000000FF)) * np.uint64(0x000F424000000064)
    odd = ((word >> np.uint64(16)) & np.uint64(0x000000FF000000FF)) * np.uint64(0x0000271000000001)
    return (even + odd) >> np.uint64(32)


@njit(inline="always", cache=True)
def _digits_of(address: Any, length: Any, end: Any) -> Any:
    """The number that text is, and whether it is 1 to 18 digits, without a 0 before others."""
    word = _eight_bytes(address, length, end)
    number, good = _eight_digits(word), _are_digits(word)
    good &= 0 < length <= 18 and (load8(address) != _ZERO or length == 1)
    if length > 8:
        word = _eight_bytes(address + 8, length - 8, end)
        good &= _are_digits(word)
        number = number * _TENS[min(length - 8, 8)] + _eight_digits(word)
        if length > 16:
            word = _eight_bytes(address + 16, length - 16, end)
            good &= _are_digits(word)
            number = number * _TENS[min(length - 16, 8)] + _eight_digits(word)
    return number, good


@njit(cache=True, nogil=True)
def read_digits(offsets: Any, data: Any, end: Any, words: Any) -> Any:
    """The numbers that a block of texts are, 0 for an empty one; whether all are digits."""
    for i in range(words.size):
        start = np.int64(offsets[i])
        address, length = data + start, np.int64(offsets[i + 1]) - start
        if length == 0:
            words[i] = 0
            continue
        number, good = _digits_of(address, length, end)
        if not good:
            return False
        words[i] = number
    return True


@njit(cache=True, nogil=True)
def _hash_odd(keys: Any, address: Any, length: Any, end: Any) -> Any:
    """Key of text that may be a number, a truth value or nothing."""
    if length > 0:
        word, good = _digits_of(address, length, end)
        if good:
            return hash_word(keys[NUMBER, 0], keys[NUMBER, 1], word)
    kind, word = kind_of(address, length)
    if kind in (NUMBER, LARGE):
        return hash_word(keys[kind, 0], keys[kind, 1], word)
    return hash_bytes(keys[kind, 0], keys[kind, 1], address, length, end)


@njit(inline="always", cache=True)
def hash_value(keys: Any, kind: Any, address: Any, length: Any, end: Any) -> Any:
    """Key of text or bytes, by the rule that the keys say."""
    if by_text(keys):
        if _may_be_number(address, length):
            return _hash_odd(keys, address, length, end)
        return hash_bytes(keys[TEXT, 0], keys[TEXT, 1], address, length, end)
    return hash_bytes(keys[kind, 0], keys[kind, 1], address, length, end)


@njit(cache=True, nogil=True)
def _hash_each(keys: Any, offsets: Any, data: Any, end: Any, out: Any) -> None:
    """Keys of text that is the value, by `hash_value`."""
    k0, k1 = keys[TEXT, 0], keys[TEXT, 1]
    for i in range(out.size):
        start = np.int64(offsets[i])
        address, length = data + start, np.int64(offsets[i + 1]) - start
        if _may_be_number(address, length):
            out[i] = _hash_odd(keys, address, length, end)
        else:
            out[i] = hash_bytes(k0, k1, address, length, end)


@njit(cache=True, nogil=True)
def _hash_texts(keys: Any, offsets: Any, data: Any, end: Any, out: Any) -> None:
    """Keys of text that is the value: of blocks of digits as of integers."""
    words = np.empty(_BLOCK, dtype=np.uint64)
    missing = hash_bytes(keys[MISSING, 0], keys[MISSING, 1], data, 0, data)
    for first in range(0, out.size, _BLOCK):
        count = min(_BLOCK, out.size - first)
        some, block = offsets[first : first + count + 1], out[first : first + count]
        if read_digits(some, data, end, words[:count]):
            hash_words(keys, NUMBER, words[:count], block)
            for i in range(count):
                if some[i] == some[i + 1]:
                    block[i] = missing
            continue
        _hash_each(keys, some, data, end, block)


@njit(inline="always", cache=True)
def hash_number(keys: Any, value: Any) -> Any:
    """Key of a float: an integral one hashes as the integer it equals, -0.0 as 0."""
    if value == np.floor(value):
        if -_TWO63 <= value < _TWO63:
            return hash_word(keys[NUMBER, 0], keys[NUMBER, 1], np.uint64(np.int64(value)))
        if 0.0 < value < _TWO64:
            return hash_word(keys[LARGE, 0], keys[LARGE, 1], np.uint64(value))
    bits = np.float64(value).view(np.uint64)
    return hash_word(keys[FRACTION, 0], keys[FRACTION, 1], bits)


@njit(cache=True, nogil=True)
def hash_floats(keys: Any, values: Any, out: Any) -> None:
    """Keys of floats, by `hash_number`."""
    for i in range(values.size):
        out[i] = hash_number(keys, values[i])


@njit(cache=True, nogil=True)
def hash_strings(keys: Any, kind: Any, offsets: Any, data: Any, end: Any, out: Any) -> None:
    """Keys of variable-length values: n + 1 offsets into the buffer at ``data``."""
    if by_text(keys):
        _hash_texts(keys, offsets, data, end, out)
        return
    k0, k1 = keys[kind, 0], keys[kind, 1]
    for i in range(out.size):
        start = np.int64(offsets[i])
        out[i] = hash_bytes(k0, k1, data + start, np.int64(offsets[i + 1]) - start, end)


@njit(inline="always", cache=True)
def valid(bitmap: Any, bit: Any) -> Any:
    """Whether a validity bitmap says that a value is there; an empty one says that all are."""
    return bitmap.size == 0 or (bitmap[bit >> 3] >> (bit & 7)) & 1


@njit(cache=True, nogil=True)
def hash_views(
    keys: Any, kind: Any, bitmap: Any, offset: Any, views: Any, buffers: Any, ends: Any, out: Any
) -> None:
    """Keys of Arrow's view layout: 16 bytes a value, short ones inline.

    Where a value is missing its view may be anything, so it is not followed.
    """
    for i in range(out.size):
        if not valid(bitmap, offset + i):
            continue
        view = views + 16 * i
        length = np.int64(load32(view))
        if length <= 12:
            out[i] = hash_value(keys, kind, view + 4, length, view + 16)
        else:
            buffer = load32(view + 8)
            start = buffers[buffer] + np.int64(load32(view + 12))
            out[i] = hash_value(keys, kind, start, length, ends[buffer])


@njit(cache=True, nogil=True)
def offsets_sound(offsets: Any, size: Any) -> Any:
    """Whether offsets never fall and stay inside a buffer of ``size`` bytes."""
    sound = offsets[0] >= 0 and offsets[offsets.size - 1] <= size
    for i in range(offsets.size - 1):
        sound &= offsets[i] <= offsets[i + 1]
    return sound


@njit(cache=True, nogil=True)
def views_sound(bitmap: Any, offset: Any, length: Any, views: Any, sizes: Any) -> Any:
    """Whether the views of all values that are there stay inside buffers of these sizes."""
    for i in range(length):
        view = views + 16 * i
        size = np.int64(load32(view))
        if 0 <= size <= 12 or not valid(bitmap, offset + i):
            continue
        buffer, start = np.int64(load32(view + 8)), np.int64(load32(view + 12))
        if size < 0 or start < 0 or not 0 <= buffer < sizes.size or start + size > sizes[buffer]:
            return False
    return True


@njit(cache=True, nogil=True)
def hash_fixed(keys: Any, kind: Any, data: Any, width: Any, out: Any) -> None:
    """Keys of values of one fixed width in bytes."""
    end = data + width * out.size
    for i in range(out.size):
        out[i] = hash_value(keys, kind, data + width * i, width, end)


@njit(cache=True, nogil=True)
def hash_payloads(keys: Any, kinds: Any, lengths: Any, buffer: Any, out: Any) -> None:
    """Keys of payloads of several kinds that stand one after the other in ``buffer``."""
    address = np.int64(buffer.ctypes.data)
    end = address + buffer.size
    for i in range(out.size):
        out[i] = hash_bytes(keys[kinds[i], 0], keys[kinds[i], 1], address, lengths[i], end)
        address += lengths[i]


@njit(inline="always", cache=True)
def hash_decimal(keys: Any, digits: Any, scale: Any) -> Any:
    """Key of digits / 10**scale: that of the integer or float it equals, if there is one."""
    while scale > 0 and digits % 10 == 0:
        digits //= 10
        scale -= 1
        if digits == 0:
            scale = 0
    if scale == 0:
        return hash_word(keys[NUMBER, 0], keys[NUMBER, 1], np.uint64(digits))
    odd, fives = digits, 0
    while fives < min(scale, _FIVES) and odd % 5 == 0:
        odd //= 5
        fives += 1
    if fives == scale and -_TWO53 < odd < _TWO53:
        value = np.float64(odd) * 0.5**scale
        bits = np.float64(value).view(np.uint64)
        return hash_word(keys[FRACTION, 0], keys[FRACTION, 1], bits)
    v0, v1, v2, v3 = _start(keys[DECIMAL, 0], keys[DECIMAL, 1])
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, np.uint64(digits))
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, np.uint64(scale))
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, np.uint64(16) << np.uint64(56))
    return _finish(v0, v1, v2, v3)


@njit(cache=True, nogil=True)
def hash_decimals(keys: Any, data: Any, width: Any, scale: Any, wide: Any, out: Any) -> None:
    """Keys of decimals of ``width`` bytes; those beyond 64 bits are left out and marked."""
    for i in range(out.size):
        at = data + width * i
        digits = np.int64(load32(at)) if width == 4 else np.int64(load64(at))
        for word in range(1, width >> 3):
            if np.int64(load64(at + 8 * word)) != digits >> 63:
                wide[i] = True
        if not wide[i]:
            out[i] = hash_decimal(keys, digits, scale)


@njit(cache=True, nogil=True)
def blank(bitmap: Any, offset: Any, key: Any, out: Any) -> None:
    """Write ``key`` where a value is missing."""
    for i in range(out.size):
        if not valid(bitmap, offset + i):
            out[i] = key


@njit(cache=True, nogil=True)
def take(dictionary: Any, indices: Any, out: Any) -> None:
    """Keys of a dictionary-encoded column, and 0 for an index that points nowhere."""
    for i in range(out.size):
        index = indices[i]
        out[i] = dictionary[index] if 0 <= index < dictionary.size else np.uint64(0)


@njit(inline="always", cache=True)
def finalise(x: Any) -> Any:
    """MurmurHash3's 64-bit finaliser: a bijection in which every bit stirs every bit."""
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@njit(inline="always", cache=True)
def join(group: Any, part: Any) -> Any:
    """The key of a group extended by one more part; order matters."""
    return finalise(group) + part


@njit(cache=True, nogil=True)
def join_all(group: Any, parts: Any) -> None:
    """Extend the keys of a group in place."""
    for i in range(group.size):
        group[i] = join(group[i], parts[i])
