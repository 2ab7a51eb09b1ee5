"""One row from the bytes of JSON: the kernel against Python's parser and the door for dicts."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.config.spelling import BY_TEXT, BY_TYPE
from pyramidion.errors import ObservationError
from pyramidion.rows import json_kernels as kernels
from pyramidion.rows.encoding import Encoder
from pyramidion.rows.json_rows import NOT_JSON, JsonRows
from tests import reference

SECRET = b"a secret of the stream"
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
LATE = Label("late", classes=[0, 1])
MIXED = Schema(
    features=[
        Categorical("open"),
        Categorical("known", domain=["a", 1, 2.5, "é", False, "null"]),
        Continuous("binned", edges=[-1, 0, 0.1, 10, 2.0**53]),
        Categorical("größe"),
    ],
    label=LATE,
    groups=[("open", "größe"), ("known", "binned"), ("open", "known", "binned")],
)
ROW = {"open": "x", "known": 1, "binned": 2.5, "größe": None}


def door_of(schema, dense_limit=65_536, keyed_by=BY_TEXT):
    return JsonRows(Encoder(schema, SECRET, dense_limit, keyed_by))


DOOR = door_of(MIXED)


def fast(door, body):
    """The keys that the kernel makes, or None where it gives up."""
    door = pickle.loads(pickle.dumps(door))  # noqa: S301
    door.slowly = lambda body: None
    found = door.keys(body)
    return None if found is None else found.tolist()


def told(make):
    """The keys, or what is refused: two ways agree when this is the same."""
    try:
        return make().tolist()
    except ObservationError as error:
        refused = error
    assert refused.__context__ is None
    return str(refused), sorted(refused.problems.items())


def expected(door, body):
    """What the door for dicts says of what Python's parser reads."""
    try:
        row = json.loads(body)
    except (ValueError, RecursionError):
        return NOT_JSON, []
    return told(lambda: door._encoder.one(row))


def value_of(text, door=None):
    """The key that the kernel makes of a value in JSON, and what it should be."""
    body, door = b'{"x":' + text.encode() + b"}", door or ONE
    return fast(door, body), expected(door, body)


ONE = door_of(Schema(features=[Categorical("x")], label=LATE))
TYPED = door_of(Schema(features=[Categorical("x")], label=LATE), keyed_by=BY_TYPE)
KNOWN = door_of(Schema(features=[Categorical("x", domain=[1, "x", "7"])], label=LATE))
BIN = door_of(Schema(features=[Continuous("x", edges=[0, 1, 2.0**53, 1e19])], label=LATE))


# What the kernel reads by itself


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(ROW),
        json.dumps(ROW, ensure_ascii=False),
        json.dumps(dict(reversed(ROW.items())), ensure_ascii=False),
        json.dumps({"z": 1, **ROW, "open ": "y", "": True}, ensure_ascii=False),
        ' {\t"open"\n:\r"x" , "known":1,"binned":2.5,"größe":null } \n',
        '{"open": "y", "open": 1, "known": 1, "binned": 2, "größe": null, "open": "x"}',
    ],
)
def test_usual_rows_have_the_keys_of_their_dicts(body):
    found = fast(DOOR, body.encode())
    assert (found is None) == ("\\u" in body)  # a name with an escape is left to Python
    assert told(lambda: DOOR.keys(body.encode())) == expected(DOOR, body.encode())
    assert found in (None, expected(DOOR, body.encode()))


VALUES = [
    *("0", "-0", "7", "-7", "9007199254740993", "9223372036854775807", "-9223372036854775807"),
    *("9223372036854775808", "9999999999999999999", "true", "false", "null", '""', '"x"'),
    *('"7"', '"-7"', '"7.0"', '"007"', '"true"', '"False"', '"12345678901234567890"', '"0.5"'),
    *("0.0", "-0.0", "1.0", "-1.5", "1e3", "1E+3", "1e-3", "0.1", "0.30000000000000004"),
    *("123456789.12345679", "9007199254740991.0", "5e-250", "0e9999"),
    *("0.000012345678901234567", "2.5e0", '"tab\\t"', '"\\u00e9"'),
    *(
        '"é"',
        '"\\ud83d\\ude00"',
        '"😀"',
        '"\\"\\\\\\/\\b\\f\\n\\r\\t"',
        '"\\u0000"',
        '"ab\\u20ACcd"',
    ),
    *('"long ' + "ünicode " * 40 + '"', '"\x7f"', '"\\ud7ff\\ue000\\uffff"', '"\\u007f\\u07ff"'),
]


@pytest.mark.parametrize("text", VALUES)
def test_usual_values_are_read_as_python_reads_them(text):
    for door in (ONE, KNOWN, TYPED):
        found, right = value_of(text, door)
        fraction = text[0] in "-0123456789" and float(text) != int(float(text))
        assert found == (None if fraction and door is not TYPED else right)


UNUSUAL = [
    *("", "-", "01", "-01", "1.", ".5", "+1", "1e", "1e+", "1.e5", "0x10", "1_0", "--1", "tru"),
    *("NaN", "Infinity", "-Infinity", "nul", "True", "[]", "[1]", "{}", '{"x": 1}', "1 2"),
    *("18446744073709551615", "18446744073709551616", "-9223372036854775808", "1" * 30, "9" * 5000),
    *("1e22", "1e25", "1.7976931348623157e270", "1844674407370955161e1", "-9007199254740992.0"),
    *("1e400", "-1e400", "1e-400", "1e99999", "1" * 20 + ".5", "2.2250738585072014e-308"),
    *('"', '"\\"', '"\\x"', '"\\u12"', '"\\u12g4"', '"\\ud800"', '"\\ud800\\u0041"', '"\\udc00"'),
    *(
        '"\\ud800\\ud800"',
        '"\\ud800\\n"',
        '"\n"',
        '"\x00"',
        '"a\x1fb"',
        "'x'",
        '"\\ud83d\\u',
        "[" * 5000,
    ),
]


@pytest.mark.parametrize("text", UNUSUAL, ids=range(len(UNUSUAL)))
def test_unusual_values_are_left_to_python(text):
    found, right = value_of(text)
    assert found is None
    assert told(lambda: ONE.keys(b'{"x":' + text.encode() + b"}")) == right


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b" ", b"{", b"{}", b"}", b"[]", b"null", b'"x"', b"1", b'{"x"}', b'{"x":}', b"{,}"),
        *(b'{"x":1,}', b'{"x":1}}', b'{"x":1} 2', b'{"x" 1}', b'{x:1}', b'{"y":1}', b'{"x":1;}'),
        *(b'\xef\xbb\xbf{"x":1}', '{"x":1}'.encode("utf-16"), '{"x":1}'.encode("utf-32-be")),
        *(b'{"x":"\xff"}', b'{"x":"\xc0\x80"}', b'{"x":"\xed\xa0\x80"}'),
        *(b'{"x":"\xf4\x90\x80\x80"}', b'{"x":"\xf5\x80\x80\x80"}', b'{"x":"\x80"}'),
        *(b'{"x":"\xe2\x82"}', b'{"x":"\xe2', b'{"x":"\xf0\x8f\xbf\xbf"}', b'{"x":"\xe0\x9f\xbf"}'),
        *(b'{"\xff":1,"x":1}', b'{"\\u0078":1}', b'{"x":1,"y":[1]}', b'{"x":1,"y":NaN}'),
        *(b'\x00{"x":1}', b'{"x":1}\x00', b'{"x":[],"x":1}', b'{"x":1,"x":[]}', b'{"y":"\\q"}'),
    ],
)  # fmt: skip
def test_unusual_bodies_are_left_to_python(body):
    assert fast(ONE, body) is None
    assert told(lambda: ONE.keys(body)) == expected(ONE, body)


@pytest.mark.parametrize("text", ['"1"', '""', '"x"'])
def test_text_where_a_number_is_due_is_refused_as_by_the_door_for_dicts(text):
    body = b'{"x":' + text.encode() + b"}"
    assert told(lambda: BIN.keys(body)) == expected(BIN, body)


def test_what_is_no_json_is_refused_without_its_text():
    with pytest.raises(ObservationError, match="not JSON") as caught:
        ONE.keys(b'{"x": SECRET123}')
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_any_buffer_is_a_body():
    body = b'{"x": "y"}'
    told = ONE.keys(body).tolist()
    strided = memoryview(b"".join(bytes([b, 0]) for b in body))[::2]
    for same in (bytearray(body), memoryview(body), memoryview(b"  " + body)[1:], strided):
        assert ONE.keys(same).tolist() == told


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_names_that_are_always_escaped_are_left_to_python(name):
    door = door_of(Schema(features=[Categorical(name), Categorical("x")], label=LATE))
    for body in (json.dumps({name: 1, "x": 2}), '{"a"b": 1, "x": 2}', '{"a\\b": 1, "x": 2}'):
        assert fast(door, body.encode()) is None
        assert told(lambda b=body: door.keys(b.encode())) == expected(door, body.encode())


def test_names_that_begin_alike_or_share_a_slot_are_told_apart():
    names = [f"n{'x' * i}{j}" for i in range(3) for j in range(40)]
    door = door_of(Schema(features=list(map(Categorical, names)), label=LATE))
    for order in (names, names[::-1], sorted(names), names[1::2] + names[::2]):
        body = json.dumps({"n": 0, **{name: names.index(name) for name in order}, "nx": 1}).encode()
        assert fast(door, body) == expected(door, body)


def test_a_door_survives_pickling():
    twin = pickle.loads(pickle.dumps(DOOR))  # noqa: S301
    body = json.dumps(ROW, ensure_ascii=False).encode()
    assert twin.keys(body).tolist() == DOOR.keys(body).tolist()
    assert twin.plans is twin._encoder.plans
    assert not np.shares_memory(twin.plans.places, DOOR.plans.places)
    assert (twin.plans.places[:, 0] != DOOR.plans.places[:, 0]).all()


# Numbers against a naive twin


def read(text):
    kind, word, at = kernels.number(np.frombuffer(text.encode(), dtype=np.uint8), 0)
    return kind, word, at


def naive(text):
    """Kind and word of a number, by Python's own parser."""
    value = json.loads(text)
    if isinstance(value, float):
        return kernels.FLOAT, int(np.float64(value).view(np.uint64))
    return kernels.NUMBER if value < 2**63 else kernels.LARGE, value % 2**64


decimals = st.builds(
    lambda sign, whole, fraction, power: sign + str(whole) + fraction + power,
    st.sampled_from(["", "-"]),
    st.one_of(st.integers(0, 99), st.integers(0, 10**20)),
    st.one_of(st.just(""), st.integers(0, 10**20).map(lambda n: f".{n}"), st.just(".0000")),
    st.one_of(st.just(""), st.integers(-330, 330).map(lambda n: f"e{n}"), st.just("E+0")),
)
halves = st.builds(
    lambda mantissa, shift, off: str(((2 * mantissa + 1) << shift) + off),
    st.integers(2**52, 2**53 - 1),
    st.integers(0, 9),
    st.integers(-1, 1),
).map(lambda whole: whole + ".0")


@pytest.mark.slow
@settings(patient, max_examples=1500)
@given(st.one_of(decimals, halves, st.floats(allow_nan=False, allow_infinity=False).map(repr)))
def test_a_number_is_what_python_reads_or_given_up(text):
    kind, word, at = read(text)
    assert at in (kernels.GIVEN_UP, len(text))
    if at >= 0:
        assert (kind, int(word)) == naive(text)


@settings(patient, max_examples=1000)
@given(st.floats(1e-200, 1e200), st.booleans())
def test_hardly_any_float_that_python_writes_is_given_up(value, negative):
    text = repr(-value if negative else value)
    kind, word, at = read(text)
    assert (kind, int(word)) == naive(text)
    assert at == len(text)


# Anything at all


texts = st.one_of(
    st.sampled_from(
        [
            "",
            "a",
            "x",
            "é",
            "null",
            "1",
            "1.0",
            "-12",
            "True",
            "0.5",
            "😀",
            'a"b',
            "a\\b",
            "tab\t",
            "\ud800",
        ]
    ),
    st.text(max_size=12),
)
numbers = st.one_of(
    st.integers(-3, 12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**66), 2**66),
    st.sampled_from([0.1, -0.0, 2.5, 2**53 + 1, 2**63, 2**64 - 1, float("nan"), float("inf")]),
)
nested = st.sampled_from([[], {}, [1, "x"], {"open": 1}])
scalars = st.one_of(st.none(), st.booleans(), texts, numbers)


def features(name):
    domain = st.lists(st.one_of(texts.filter(_unicode), st.integers(-3, 9)), min_size=1, max_size=6)
    edges = st.lists(st.integers(-5, 5), min_size=1, max_size=12, unique=True).map(sorted)
    return st.one_of(
        st.just(Categorical(name)),
        domain.filter(_apart).map(lambda values: Categorical(name, domain=values)),
        edges.map(lambda cuts: Continuous(name, edges=cuts)),
    )


def _apart(values):
    """Whether values have different texts, none of which is empty."""
    texts = [reference.spelled(value) for value in values]
    return None not in texts and len(set(texts)) == len(texts)


def _unicode(text):
    return "\ud800" not in text


@st.composite
def schemas(draw):
    names = draw(st.sampled_from([["a"], ["b", "a"], ["a", "ab", "aé", "x y"]]))
    groups = st.lists(st.sampled_from(names), min_size=2, max_size=4, unique=True)
    many = st.lists(groups, max_size=3, unique_by=frozenset) if len(names) > 1 else st.just([])
    made = [draw(features(name)) for name in names]
    return Schema(features=made, label=LATE, groups=draw(many))


def written(pairs, ensure_ascii, spaces):
    """Pairs as JSON, names that come twice too."""
    colon, comma = (" : ", " ,\n") if spaces else (":", ",")
    told = [
        json.dumps(name, ensure_ascii=False)
        + colon
        + json.dumps(value, ensure_ascii=ensure_ascii or (value == "\ud800"))
        for name, value in pairs
    ]
    return ("{" + comma.join(told) + "}").encode(errors="surrogatepass")


@st.composite
def bodies(draw, schema, values=None):
    def value_for(name):
        if values is not None:
            return values
        feature = next((f for f in schema.features if f.name == name), None)
        return (
            st.one_of(st.none(), st.booleans(), numbers)
            if isinstance(feature, Continuous)
            else scalars
        )

    names = [*draw(st.permutations(schema.feature_names)), *draw(st.lists(st.sampled_from("acz")))]
    pairs = [(name, draw(value_for(name))) for name in names]
    return written(pairs, draw(st.booleans()), draw(st.booleans()))


@pytest.mark.slow
@settings(patient, max_examples=400)
@given(schemas(), st.sampled_from([0, 30, 65_536]), st.sampled_from([BY_TEXT, BY_TYPE]), st.data())
def test_every_row_has_the_keys_or_the_refusal_of_its_dict(schema, dense_limit, keyed_by, data):
    door = door_of(schema, dense_limit, keyed_by)
    body = data.draw(bodies(schema))
    assert told(lambda: door.keys(body)) == expected(door, body)


@pytest.mark.slow
@settings(patient, max_examples=150)
@given(schemas(), st.data())
def test_rows_of_any_values_have_the_refusal_of_their_dicts(schema, data):
    door = door_of(schema)
    body = data.draw(bodies(schema, st.one_of(scalars, nested)))
    assert told(lambda: door.keys(body)) == expected(door, body)


MARKS = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b",",
    b":",
    b" ",
    b"0",
    b"e",
    b".",
    b"-",
    b"\\u",
    b"\xc3",
    b"\x00",
]


@st.composite
def mutants(draw):
    """A body with some bytes changed, left out, put in, or cut off."""
    body = bytearray(draw(bodies(MIXED)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        how = draw(st.sampled_from(["flip", "drop", "put", "cut"]))
        if how == "flip" and at < len(body):
            body[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "drop":
            del body[at : at + draw(st.integers(1, 3))]
        elif how == "put":
            body[at:at] = draw(st.one_of(st.sampled_from(MARKS), st.binary(max_size=3)))
        elif how == "cut":
            del body[at:]
    return bytes(body)


@pytest.mark.slow
@settings(patient, max_examples=1000)
@given(mutants())
@example(b'{"open":"\\ud83d\\u')
def test_damaged_bodies_are_read_or_refused_as_python_does(body):
    assert told(lambda: DOOR.keys(body)) == expected(DOOR, body)


def test_a_body_cut_off_anywhere_is_refused():
    body = json.dumps(ROW | {"open": "é\n😀", "z": -1.5e-7}, ensure_ascii=False).encode()
    body += json.dumps("é😀").encode()
    for stop in range(len(body)):
        assert told(lambda s=stop: DOOR.keys(body[:s])) == expected(DOOR, body[:stop])
