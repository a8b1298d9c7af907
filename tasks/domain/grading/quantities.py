"""Numbers as written: exact values, whether they have a decimal point, their unit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from tasks.domain.grading.formulas import Expr, Unreadable, parse

_ONES = (  # noqa: SIM905
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split(" ")  # noqa: SIM905
_BELOW_100 = {word: Fraction(value) for value, word in enumerate(_ONES)}
_BELOW_100 |= {word: Fraction(10 * value) for value, word in enumerate(_TENS, start=2)}
_BELOW_100 |= {f"{ten} {one}": _BELOW_100[ten] + _BELOW_100[one] for ten in _TENS for one in _ONES[1:10]}
SCALES = {"dozen": 12, "trillion": 10**12, "billion": 10**9, "million": 10**6, "thousand": 1000, "hundred": 100}
_PARTS = {"half": 2, "halve": 2, "quarter": 4, "hundredth": 100, "thousandth": 1000}
_ORDINALS = "third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_PARTS |= {word: value for value, word in enumerate(_ORDINALS.split(), start=3)}


def number_in_words(text: str) -> Fraction | None:
    """Return the number that English words spell, or None. `one hundred and one half` is none, because it may be 100.5
    or 50.5.

    >>> number_in_words("minus two thirds"), number_in_words("3 dozen"), number_in_words("zero and a half")
    (Fraction(-2, 3), Fraction(36, 1), Fraction(1, 2))
    >>> number_in_words("two point five"), number_in_words("one and a half million"), number_in_words("two fifth")
    (Fraction(5, 2), Fraction(1500000, 1), None)
    """
    words = re.sub("[-,]", " ", text.lower()).replace("half a ", "half ").split()[:20]
    sign = -1 if words[:1] in (["minus"], ["negative"]) else 1
    words = words[sign < 0 :]
    if not words:
        return None
    value = _with_part(words)
    if value is None and words[-1] in SCALES and (times := _with_part(words[:-1])) is not None:
        value = times * SCALES[words[-1]]
    value = _cardinal(words) if value is None else value
    return None if value is None else sign * value


def _with_part(words: list[str]) -> Fraction | None:
    """Read a decimal (`two point five`), a fraction (`two thirds`) or a mixed number (`two and a half`)."""
    if "point" in words:
        whole, decimals = words[: words.index("point")], words[words.index("point") + 1 :]
        digits = "".join(str(_ONES.index(word)) for word in decimals if word in _ONES[:10])
        value = _cardinal(whole)
        return None if value is None or not decimals or len(digits) < len(decimals) else value + Fraction(f"0.{digits}")
    if "and" in words[1:]:
        start = len(words) - 1 - words[::-1].index("and")
        value, part = _cardinal(words[:start]), _with_part(words[start + 1 :])
        if value is None or part is None or part >= 1 or words[start - 1] in SCALES:
            return None
        return value + part
    *top, name = words or [""]
    part = _PARTS.get(name.removesuffix("s"))
    one = top in (["a"], ["an"], ["one"]) or (not top and name in ("half", "quarter"))
    above = Fraction(1) if one else _cardinal(top) if name.endswith("s") else None
    return None if part is None or above is None else above / part


def _cardinal(words: list[str]) -> Fraction | None:
    """Read a whole number. Words after a scale such as `thousand` must be smaller than it."""
    scale = next((scale for scale in SCALES if scale in words), None)
    if scale is None:
        text = " ".join(words)
        return Fraction(text) if text.isdecimal() else _BELOW_100.get(text)
    above, below = words[: words.index(scale)], words[words.index(scale) + 1 :]
    below = below[below[:1] == ["and"] and len(below) > 1 :]
    decimal = len(above) == 1 and re.fullmatch(r"\d+\.\d+", above[0])
    times = Fraction(above[0]) if decimal else Fraction(1) if above in ([], ["a"]) else _cardinal(above)
    rest = _cardinal(below) if below else Fraction(0)
    return None if times is None or rest is None or rest >= SCALES[scale] else times * SCALES[scale] + rest


_NUMBER_WORD = rf"(?:{'|'.join([*_ONES, *_TENS, *SCALES, *_PARTS])}|minus|negative|an?)s?"
_SPELLED = re.compile(
    r"(?:(?P<twice>\d+) ?\()?(?<![A-Za-z\\])"
    rf"(?P<words>(?:\d+(?:\.\d+)? (?:and )?)?{_NUMBER_WORD}(?:[ -]+(?:and |point )?{_NUMBER_WORD})*)"
    r"(?![A-Za-z])(?P<after>\)| ?\(\d+\))?",
    re.I,
)


def in_digits(text: str) -> str:
    """Return a text in which numbers in words are replaced by digits.

    >>> in_digits("twenty one ways"), in_digits("3 dozen"), in_digits("seven (7)"), in_digits("minus 5")
    ('21 ways', '36', '7', '-5')
    """
    text = re.sub(r"\\text ?\{ ?(-?\d+(?:/\d+)?) ?\}", r"\1", _SPELLED.sub(_digits, text))
    return re.sub(r"\b(?:minus|negative) (?=\d)", "-", text)


def _digits(found: re.Match[str]) -> str:
    """Return the match in digits; unchanged if the words are no numbers, or if a number given twice differs."""
    words, after = found["words"], found["after"] or ""
    spelt = [
        number_in_words(part) for part in ([words] if number_in_words(words) is not None else words.split(" and "))
    ]
    numbers = [value for value in spelt if value is not None]
    if len(numbers) < len(spelt) or numbers[0].denominator == 1 < numbers[-1].denominator:
        return found[0]
    digits = " and ".join(map(str, numbers))
    if found["twice"]:
        return digits if (found["twice"], after) == (digits, ")") else found[0]
    return digits + after if after in ("", ")") else digits if after == f" ({digits})" else found[0]


#: Longer texts hold no number with a unit; patterns that look for one are kept away from them.
MAX_UNIT_CHARS = 200
_PREFIXES = {"": "", "milli": "m", "centi": "c", "deci": "d", "kilo": "k", "micro": "u", "nano": "n", "mega": "M"}
_PREFIXED = {"meter": "m", "metre": "m", "gram": "g", "second": "s", "liter": "L", "litre": "L", "watt": "W"}
#: Signs of units, each followed by its names in the singular.
_NAMES = """
° degree,deg  % percent,percentage,pct  $ dollar,usd  euro euro,eur  yuan yuan,rmb  cent cent  in inch,inches,in
ft foot,feet,ft  yd yard,yd  mi mile,mi  h hour,hr,h  min minute,min  s sec  day day  week week  month month
year year,yr  lb pound,lb  gal gallon,gal  oz ounce,oz  rad radian,rad  L l  celsius celsius  fahrenheit fahrenheit
mL ml  mi/h mph  km/h kph
"""
#: Names that are their own signs.
_SIGNS = (
    "m cm dm mm km nm g kg mg s ms L mL kW kWh Hz kHz MHz KB MB GB TB"
    " 个 元 只 人 种 本 张 次 天 年 月 小时 分钟 秒 米 厘米 毫米 千米 公里 平方厘米 平方米 立方厘米 立方米"
    " 千克 克 吨 度 岁 支 块 рублей рубля рубль руб часов часа час минут минуты минута штук шт дней дня день лет"
    " года год человек человека способов способа см км м мм кг г градусов чисел"
)
_SINGULAR = {
    **dict.fromkeys("unit square cubic sq".split(" "), ""),  # noqa: SIM905
    **{name: name for name in _SIGNS.split()},
    **{f"{prefix}{name}": f"{sign}{unit}" for prefix, sign in _PREFIXES.items() for name, unit in _PREFIXED.items()},
    **{name: sign for sign, names in zip(*[iter(_NAMES.split())] * 2, strict=True) for name in names.split(",")},
}
_SIGNS_OF_UNITS = {**{f"{name}s": sign for name, sign in _SINGULAR.items() if len(name) > 1}, **_SINGULAR}
_CURRENCIES = {"€": "euro", "£": "lb", "¥": "yen", "₹": "rupee"}
_SIGNED = re.compile(
    r"(?P<before>\\?\$|[€£¥₹])[\\$ ]*(?P<price>.*)"
    r"|(?P<number>.*?) *(?:(?P<after>\\?[$%]|[€£¥₹])"
    r"|\^\{\\circ\} ?(?:(?:\\(?:text|mathrm) ?\{ ?)?(?P<scale>[CF]) ?\}?)?)",
    re.S,
)
_UNIT = re.compile(
    r"(?P<number>.+?)(?: ?\\(?:text|mathrm|textrm|textbf|mbox|operatorname|hbox) ?\{(?P<text>[^{}]*)\}"
    r"|(?<=[\d})])(?: ?(?P<glued>cm|mm|km|kg|ft|lbs?|mph|(?:m|km|mi|ft|cm)/(?:s|h|hr|min|sec)|[^\W\d_a-zA-Z]+)"
    r"| (?P<word>[A-Za-z][A-Za-z. ]*[A-Za-z])))(?P<power> ?\^ ?\{?[23]\}?)?",
    re.S,
)
#: What may be counted: an answer is a number with one of these. No other noun is read.
_NOUNS = (
    "solution value integer number point digit term element way possibility case arrangement permutation combination"
    " subset triple quadruple triangle rectangle polygon person people child children man men woman women boy girl"
    " student friend player team passenger apple orange egg onion strawberry cookie candy sandwich cake slice piece cup"
    " bottle can bag box pack book page photo movie song album game match question problem marble ball card coin nickel"
    " dime penny toy car plant tree flower fish dog cat rabbit bird tile row step pencil pen eraser room house calorie"
    " function polynomial pair"
)
_PLURALS = (("", ""), ("", "s"), ("", "es"), ("y", "ies"))
#: Forms of nouns, each with its singular.
_COUNTED = {n.removesuffix(y) + end: n for n in _NOUNS.split() for y, end in _PLURALS if n.endswith(y)}
_ADJECTIVES = re.compile(
    "(?:(?:such|ordered|unordered|distinct|different|positive|negative|real|complex|possible|total|whole|prime|even|odd"
    "|valid|red|blue|green|black|white|yellow|integer|rational|non-?negative|of|these) )*"
)
_POWERS = ((re.compile(r"\b(?:square|sq|squared)\b", re.I), "2"), (re.compile(r"\b(?:cubic|cubed)\b", re.I), "3"))


def split_unit(text: str) -> tuple[str, str | None]:
    r"""(remainder, unit or None). A single letter is a variable, never a unit: `6m` is 6·m.

    A counted noun is a unit (`7 apples`); any other word stays in the remainder.

    >>> split_unit(r"6\text{ m}"), split_unit("6m"), split_unit("45^{\\circ}"), split_unit(r"\$5")
    (('6', 'm'), ('6m', None), ('45', '°'), ('5', '$'))
    >>> split_unit("7 red apples"), split_unit("20 miles per hour"), split_unit("7 dozens")
    (('7', 'red apple'), ('20', 'mi/h'), ('7 dozens', None))
    """
    text = text.strip()
    if len(text) > MAX_UNIT_CHARS:
        return text, None
    if match := _SIGNED.fullmatch(text):
        sign = (match["before"] or match["after"] or f"°{match['scale'] or ''}").lstrip("\\")
        return match["price"] or match["number"] or "", _CURRENCIES.get(sign, sign)
    if match := _UNIT.fullmatch(text):
        word = (match["text"] or match["glued"] or match["word"] or "").strip()
        if (unit := unit_of(word)) is not None:
            power = (match["power"] or "").strip(" ^{}") or next((p for w, p in _POWERS if w.search(word)), "")
            return match["number"].strip(), (unit + power) or "unit"
    return text, None


def unit_of(words: str) -> str | None:
    """Return the unit that words name (`km`, `apples`, `km per hour`), or None for other words."""
    words = re.sub(r" ?/ ?", " per ", re.sub(r"[. ]+", " ", words).strip())
    above, per, below = f" {words}".partition(" per ")
    parts = [_product(part.split()) for part in ((above, below) if per else (above,)) if part.strip()]
    return None if None in parts or not parts else "/".join(["", *parts][-2:] if per else parts)  # type: ignore[arg-type]


def _product(words: list[str]) -> str | None:
    """`square feet` as `ft`, `red apples` unchanged, in the singular."""
    if words[1:] and words[-1].lower() in ("squared", "cubed", "old"):
        words = words[:-1]
    signs = _SIGNS_OF_UNITS  # only signs are case-sensitive
    known = [signs.get(word, signs.get(word.lower()) if len(word) > 1 else None) for word in words]
    if None not in known:
        return "".join(sign for sign in known if sign)
    adjectives, noun = " ".join([*words[:-1], ""]).lower(), _COUNTED.get(words[-1].lower())
    if noun == "pair" and "ordered" not in adjectives:
        return None
    return adjectives + noun if noun and _ADJECTIVES.fullmatch(adjectives) else None


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number as written. value: without unit; place: value of one unit in the last digit, if there is a
    decimal point; unit: `%`, `°`, a word."""

    value: Fraction
    place: Fraction | None = None
    unit: str | None = None


def terminates(value: Fraction) -> bool:
    """Return whether the value has a finite decimal form."""
    return pow(10, value.denominator.bit_length(), value.denominator) == 0


def number(text: str) -> Number | None:
    r"""An integer, fraction, decimal, mixed number or power of ten, with an optional unit; None for anything else.

    >>> number("1,234").value, number(r"-3\frac{1}{2}").value, number("0.50").value, number(r"62.5\%").unit
    (Fraction(1234, 1), Fraction(-7, 2), Fraction(1, 2), '%')
    """
    if len(text) > MAX_UNIT_CHARS and not re.fullmatch(r"[-+\d.,]+", text):
        return None
    if not any(c.isdigit() for c in text):
        return None
    text, unit = split_unit(text.strip())
    try:
        found = _plain(parse(text))
    except Unreadable:
        return None
    return None if found is None else Number(*found, unit)


def _plain(formula: Expr) -> tuple[Fraction, Fraction | None] | None:
    """Return (value, place) of a number."""
    parts = [_plain(part) for part in formula.args if isinstance(part, Expr)]
    match formula.op, parts:
        case "num", _:
            return formula.args
        case "neg", [(value, place)]:
            return -value, place
        case "/", [(above, None), (below, None)] if below and above.denominator == below.denominator == 1:
            return above / below, None
        case "^", [(base, None), (power, None)] if base == 10 and power.denominator == 1 and abs(power) < 10_000:
            return base ** int(power), None
        case "*", [(value, place), (scale, None)] if formula.args[1].op == "^":
            return value * scale, place and place * scale
    return None


_BASED = re.compile(r"\(?(\d+)\)? ?_ ?\{? ?(\\(?:text|mathrm|mbox) ?\{ ?)?\(?(\d{1,2}|[a-z]+)\)?[ }]*")


def _based(text: str) -> tuple[str, int, bool] | None:
    """Return (digits, base, whether the base is in words) of a number with an explicit base."""
    found = _BASED.fullmatch(text.strip(" $"))
    base = None if found is None else int(found[3]) if found[3].isdigit() else number_in_words(found[3])
    return (found[1], int(base), bool(found[2])) if found and base in range(2, 37) else None  # type: ignore[arg-type]


def same_in_base(prediction: str, gold: str) -> bool | None:
    r"""`101_2` equals 5, and an answer to the gold `101_2` may omit the base; None if no base is given. An answer with
    a base in words matches only a gold with the same base.

    >>> same_in_base("101_2", "5"), same_in_base("101", "101_2"), same_in_base(r"7_{\text{eight}}", "7")
    (True, True, False)
    """
    want, got = _based(gold), _based(prediction)
    if want and not got:
        return prediction == want[0] or None
    if got is None:
        return None
    digits, base, in_words = got
    if want or in_words:
        return want is not None and got[:2] == want[:2]
    plain = number(gold)
    return None if plain is None else max(map(int, digits)) < base and int(digits, base) == plain.value
