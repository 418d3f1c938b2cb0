"""Plain values: numbers, texts, enumerations, and what libraries make of them."""

from __future__ import annotations

from doors.kind import Kind

KINDS = (
    Kind("float", "2.0", others=("3.0", "2.0 + 2**-3")),
    Kind("zero", "0.0", "(2 + math.copysign(1.0, v))", others=("-0.0",)),
    Kind("int", "2", others=("3",)),
    Kind("one", "1", "(2.0 if v is True else 3.0 if isinstance(v, float) else 4.0)", others=("True", "1.0")),
    Kind("bool", "True", "(2.0 if v else 3.0)", others=("False",)),
    Kind("str", "'wide'", "(2.0 if v == 'wide' else 3.0)", others=("'thin'",)),
    Kind("bytes", "b'ab'", "float(v[0])", others=("b'bb'",)),
    Kind("complex", "2 + 1j", "(v.real + v.imag)", others=("2 + 2j",)),
    Kind("none", "None", "(2.0 if v is None else v)", others=("3.0", "0")),
    Kind("type", "[1]", "(2.0 if type(v[0]) is bool else 3.0)", inside=(("v[0] = True", "v[0] = 1"),)),
    Kind(
        "enum", "Mode.SMALL", "(v.value * v.extra)",
        others=("Mode.LARGE",),
        inside=(("v.extra = 5.0", "v.extra = 1.0"), ("v._value_ = 7.0", "v._value_ = 2.0")),
        own="""
            class Mode(enum.Enum):
                SMALL, LARGE = 2.0, 3.0
            Mode.SMALL.extra = Mode.LARGE.extra = 1.0
        """,
    ),
    Kind(
        "int_enum", "Level.LOW",
        others=("Level.HIGH", "3"),
        own="""
            class Level(enum.IntEnum):
                LOW, HIGH = 2, 3
        """,
    ),
    Kind("range", "range(2)", "(len(v) + 1)", others=("range(3)",)),
    Kind(
        "fraction", "fractions.Fraction(2)", "float(v)",
        others=("fractions.Fraction(3)",),
        inside=(("v._numerator = 5", "v._numerator = 2"),),
    ),
    Kind("decimal", "decimal.Decimal(2)", "float(v)", others=("decimal.Decimal(3)",)),
    Kind("delta", "datetime.timedelta(seconds=2)", "v.total_seconds()", others=("datetime.timedelta(seconds=3)",)),
    Kind("path", "pathlib.Path('ab')", "len(v.name)", others=("pathlib.Path('abc')",)),
    Kind("pattern", "re.compile('a+')", "len(v.pattern)", others=("re.compile('a')",)),
)
