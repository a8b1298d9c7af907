r"""A parser for LaTeX formulas and numbers with units. The parser reads a text completely, or raises Unreadable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any


class Unreadable(Exception):
    """A token that the grammar does not allow."""


@dataclass(frozen=True, slots=True)
class Expr:
    """A formula. op: the operation on the parts. `num` holds a Fraction and its last decimal place; `name` and `const`
    hold a text."""

    op: str
    args: tuple[Any, ...] = ()


GREEK = (
    r"\\(?:alpha|beta|gamma|delta|(?:var)?epsilon|zeta|eta|(?:var)?theta|kappa|lambda|mu|nu|xi|rho|sigma|tau|upsilon"
    r"|(?:var)?phi|chi|psi|omega|ell|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Upsilon|Phi|Psi|Omega)(?![A-Za-z])"
)
_INDEX = r"(?: ?_ ?(?:\{[^{}]*\}|\w))"
_NAME = (
    rf"(?:{GREEK}|\\(?:mathbb|mathcal) ?\{{\w\}}|\\#"
    r"|\\(?:vec|hat|bar|d?dot|tilde|overline|over(?:right|left)arrow|widehat) ?(?:[A-Za-z]|\{ ?\\?[A-Za-z][\w ]*\})"
    rf"|\\(?:angle|triangle) ?(?:\{{[A-Z][^{{}}]*\}}|[A-Z](?:{_INDEX}?'* ?[A-Z])*)"
    r"|\\frac\{ ?(?:d|\\partial)(?: ?\^ ?\{?\d\}?)? ?\\?\w+ ?\}\{ ?(?:d|\\partial) ?\\?[a-z][^{}]*\}"
    rf"|[A-Za-z])(?:{_INDEX}|')*"
)
#: `3\frac{1}{2}` and `3 1/2`, `0.\overline{3}` and `0.333\ldots`, `1.5e3` and `.5`.
_NUMERAL = (
    r"(?<![\^_])(?P<whole>\d+)(?: ?\\frac\{(?P<top>\d+)\}\{(?P<bottom>\d+)\}| (?:and )?(?P<part>\d+ ?/ ?\d+)(?![\d.]))"
    r"|(?P<head>\d*\.\d*?)(?:\\(?:overline|bar|dot) ?\{? ?(?P<period>\d+) ?\}?|(?P<digit>\d)(?P=digit){2,} ?\\ldots)"
    r"|(?:\d+(?:\.(?P<decimals>\d*))?|\.(?P<places>\d+))(?:[eE](?P<power>[+-]?\d{1,3})(?!\d))?"
)
_TOKEN = re.compile(
    rf"\s*(?:(?P<name>{_NAME})|\\(?:text|textrm|textbf|mathrm|mbox|operatorname) ?\{{ ?(?P<word>[A-Za-z]+) ?\}}(?= ?\()"
    rf"|(?P<numeral>{_NUMERAL})|(?P<sign>\\(?:begin|end) ?\{{[a-z]+\}}|\\[A-Za-z]+|\\.|\S))"
)
_CONSTANTS = {"e": "e", "i": "i", r"\pi": "pi", r"\infty": "inf"}
#: Names of functions. Brackets behind such a name hold arguments; behind another name they hold a factor.
_CALLED = re.compile(r"[fghFGHPQWEOST]|\\(?:(?:var)?phi|psi|sigma|tau|zeta|Phi|Psi|Gamma|Theta)|.*'")
#: Names of functions for which the power -1 means the inverse function.
_INVERTIBLE = re.compile(r"[fghA-Z]|\\(?:(?:var)?phi|psi)")
_DERIVED = re.compile(r"\^\{\((\d{1,2}|[a-z])\)\}")
FUNCTIONS = frozenset("ln lg sin cos tan cot sec csc sinh cosh tanh exp arcsin arccos arctan".split(" "))  # noqa: SIM905
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_SEVERAL = ("max", "min", "gcd", "lcm")
_CLOSING = {"(": ")", "[": "]", "{": "}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil", r"\{": r"\}"}
_ROUNDED = {r"\lfloor": "floor", r"\lceil": "ceil", r"\{": "frac"}
_BARS = {"|": "|", r"\lvert": r"\rvert", r"\vert": r"\vert", r"\|": r"\|", r"\lVert": r"\rVert"}
_TIMES = {"*": "*", r"\cdot": "*", r"\times": "*", "/": "/", r"\div": "/", r"\bmod": "mod"}
_NAMED = {"\\" + name for name in ("log", *FUNCTIONS, *_SEVERAL)}
#: Tokens that start a further factor of a product.
_STARTS = {r"\frac", r"\sqrt", r"\binom", r"\sum", r"\prod", *_NAMED, *_CONSTANTS, *_CLOSING} - {"["}
_STARTS |= {r"\begin{pmatrix}", r"\begin{bmatrix}"}
#: Signs that follow a factor, each with its operation and its number of tokens.
_POSTFIX = {"!!": ("!!", 2), "!": ("!", 1), r"\%": ("%", 1), r"^{\circ}": ("deg", 4)}
_VECTOR = re.compile(r"[A-Z]|\\(?:vec|hat|bar|overrightarrow)")
_THOUSANDS = re.compile(r"^[-+ ]*(?:[1-9]\d{0,2}(?:,\d{3})+|\d{1,3}(?: \d{3})+)(?!\d)")
MAX_NUMERAL = 2_000


def constant(value: int | Fraction) -> Expr:
    return Expr("num", (Fraction(value), None))


def _numeral(found: re.Match[str]) -> Expr:
    """Return (value, value of one unit in the last decimal place) of a number as written."""
    place = None
    if len(found[0]) > MAX_NUMERAL:
        raise Unreadable("a number of too many digits")
    if found["whole"]:
        part = found["part"] or f"{found['top']}/{found['bottom']}"
        if not int(part.partition("/")[2]):
            raise Unreadable(part)
        value = int(found["whole"]) + Fraction(part.replace(" ", ""))
    elif found["head"] is not None:
        period = found["period"] or found["digit"]
        shift = 10 ** len(found["head"].partition(".")[2])
        value = Fraction(found["head"].rstrip(".") or 0) + Fraction(int(period), (10 ** len(period) - 1) * shift)
    else:
        value = Fraction(found["numeral"])
        decimals = len(found["decimals"] or found["places"] or "")
        place = Fraction(10) ** (int(found["power"] or 0) - decimals) if decimals else None
    return Expr("num", (value, place))


def nodes(formula: Expr) -> Iterator[Expr]:
    yield formula
    for part in formula.args:
        if isinstance(part, Expr):
            yield from nodes(part)


def is_constant(formula: Expr) -> bool:
    """Return whether a formula has no variables, only numbers, operators and named constants."""
    return not any(node.op in ("name", "call", "max", "min") for node in nodes(formula))


def names_in(formula: Expr) -> frozenset[str]:
    """Return the free variables of a formula."""
    if formula.op == "name":
        return frozenset(formula.args)
    bound = {formula.args[0]} if formula.op in ("sum", "prod") else set()
    return frozenset(n for a in formula.args if isinstance(a, Expr) for n in names_in(a)) - bound


@lru_cache(maxsize=8192)
def parse(text: str) -> Expr:
    r"""Parse a normalised text. Raise Unreadable.

    >>> parse("2x") == parse(r"2\cdot x"), parse("f(x)").op, parse("x(x+1)").op
    (True, 'call', '*')
    """
    parser = _Parser(_THOUSANDS.sub(lambda found: re.sub("[ ,]", "", found[0]), text))
    found = parser.sum()
    if parser.at < len(parser.tokens):
        raise Unreadable(parser.peek())
    return found


def parsed(text: str) -> Expr | None:
    """Return the formula of a normalised text; None if the parser does not read it."""
    try:
        return parse(text)
    except Unreadable:
        return None


class _Parser:
    r"""A recursive parser. kinds: the kind of each token: `name`, `word` (a function's name in `\text`), `numeral` or
    `sign`."""

    def __init__(self, text: str) -> None:
        self.found = list(_TOKEN.finditer(text.rstrip()))
        self.tokens = [token[token.lastgroup or 0] for token in self.found]
        self.kinds = [token.lastgroup for token in self.found]
        self.at = self.bars = 0
        self.bound: set[str] = set()

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        token = self.peek()
        if not token or (expected and token not in expected):
            raise Unreadable(token)
        self.at += 1
        return token

    def sum(self) -> Expr:
        terms = [self.product()]
        while self.peek() in ("+", "-"):
            negative = self.take() == "-"
            term = self.product()
            terms.append(Expr("neg", (term,)) if negative else term)
        return terms[0] if len(terms) == 1 else Expr("+", tuple(terms))

    def product(self) -> Expr:
        left = self.signed()
        while (sign := self.peek()) in _TIMES:
            self.take()
            right = self.signed()
            names = [e.args[0] for e in (left, right) if e.op == "name"]
            ordered = sign == r"\times" and (len(names) == 2 or any(map(_VECTOR.match, names)))
            left = Expr("call", ("cross", left, right)) if ordered else Expr(_TIMES[sign], (left, right))
        return left

    def signed(self) -> Expr:
        if self.peek() in ("+", "-"):
            return self.signed() if self.take() == "+" else Expr("neg", (self.signed(),))
        return self.implicit()

    def implicit(self, of_function: bool = False) -> Expr:
        factors = [self.factor()]
        while self.starts_factor(of_function, factors[-1]):
            factors.append(self.factor())
        return factors[0] if len(factors) == 1 else Expr("*", tuple(factors))

    def starts_factor(self, of_function: bool, last: Expr) -> bool:
        token = self.peek()
        if not token:
            return False
        if self.kinds[self.at] == "numeral":
            return last.op != "num"
        if of_function and (token in _NAMED or token == "("):
            return False
        return self.kinds[self.at] == "name" or token in _STARTS or (token in _BARS and not self.bars)

    def factor(self) -> Expr:
        found = self.primary()
        while (token := self.peek()) in ("!", r"\%", "^", "'", "_"):
            ahead = "".join(self.tokens[self.at : self.at + 4])
            if sign := next(filter(ahead.startswith, _POSTFIX), None):
                op, length = _POSTFIX[sign]
                self.at += length
                found = Expr(op, (found,))
            elif token == "^":
                self.take()
                found = Expr("^", (found, self.argument()))
            else:
                raise Unreadable(token)
        return found

    def argument(self) -> Expr:
        """Read a group in braces or one token; a minus sign belongs to the token after it."""
        if self.peek() in ("-", "+"):
            return Expr("neg", (self.argument(),)) if self.take() == "-" else self.argument()
        return self.group("{")[0] if self.peek() == "{" else self.primary()

    def group(self, opening: str) -> tuple[Expr, ...]:
        """Read formulas in brackets, separated by commas."""
        self.take(opening)
        kept, self.bars = self.bars, 0
        found = [self.sum()]
        while self.peek() in (",", ";") and opening in ("(", "["):
            self.take()
            found.append(self.sum())
        self.bars = kept
        self.take(_CLOSING[opening])
        return tuple(found)

    def primary(self) -> Expr:
        kind, token = (self.kinds[self.at], self.take()) if self.peek() else (None, self.take())
        bare = token[1:] if token[0] == "\\" else ""
        if token in _CONSTANTS and token not in self.bound:
            return Expr("const", (_CONSTANTS[token],))
        if kind == "name":
            return self.named(re.sub("[{} ]", "", token))
        if kind == "numeral":
            return _numeral(self.found[self.at - 1])
        if token != "[" and token in _CLOSING:
            self.at -= 1
            found = self.group(token)
            if len(found) != 1:
                raise Unreadable(",")
            return Expr(_ROUNDED[token], found) if token in _ROUNDED else found[0]
        if token in _BARS:
            self.bars += 1
            inner = self.sum()
            self.bars -= 1
            self.take(_BARS[token])
            return Expr("call", ("norm", inner)) if token in (r"\|", r"\lVert") else Expr("abs", (inner,))
        if bare in FUNCTIONS or bare == "log":
            return self.function(bare)
        if bare in _SEVERAL or token in _SEVERAL:
            return Expr(bare or token, self.arguments(()))
        if kind == "word":
            return Expr("call", self.arguments((token,)))
        match bare:
            case "frac":
                if "".join(self.tokens[self.at : self.at + 5]) in ("{d}{d", r"{\partial}{\partial"):
                    raise Unreadable("a derivative")
                return Expr("/", (self.argument(), self.argument()))
            case "binom":
                return Expr("binom", (self.argument(), self.argument()))
            case "sqrt":
                degree = self.group("[")[0] if self.peek() == "[" else constant(2)
                return Expr("root", (self.argument(), degree))
            case "sum" | "prod":
                return self.running(bare)
        if token.startswith(r"\begin"):
            return self.matrix(re.sub(r"\\begin ?|[{}]", "", token))
        raise Unreadable(token)

    def named(self, name: str) -> Expr:
        """Read a variable, or an unknown function with its arguments."""
        head, _, index = name.partition("_")
        if index and self.bound & {*re.findall("[A-Za-z]", index)}:
            return Expr("call", (f"{head}_", parse(index)))
        called = bool(_CALLED.fullmatch(re.sub(r"_\w+", "", name)))
        ahead = "".join(self.tokens[self.at : self.at + 6])
        if found := _DERIVED.match(ahead):
            self.at += 6
            name, called = name + ("'" * int(found[1]) if found[1].isdigit() else f"^({found[1]})"), True
        elif _INVERTIBLE.fullmatch(head) and ahead.startswith("^{-1}"):
            self.at += 5
            name, called = name + "^-1", True
        if called and self.peek() in ("(", "["):
            return Expr("call", self.arguments((name,)))
        return Expr("name", (name,))

    def arguments(self, before: tuple[str, ...]) -> tuple[Any, ...]:
        return (*before, *self.group("[" if self.peek() == "[" else "("))

    def function(self, name: str) -> Expr:
        base = power = None
        if name == "log":
            base = self.argument() if self.peek() == "_" and self.take() else constant(10)
        if self.peek() == "^" and self.take():
            power = self.argument()
            if power == Expr("neg", (constant(1),)) and name in _INVERSES:
                name, power = _INVERSES[name], None
            elif power.op == "neg":
                raise Unreadable("a negative power of a function")
        inner = self.group("(")[:1] if self.peek() == "(" else (self.implicit(of_function=True),)
        found = Expr("/", (Expr("ln", inner), Expr("ln", (base,)))) if base else Expr(name, inner)
        return Expr("^", (found, power)) if power else found

    def running(self, op: str) -> Expr:
        r"""Read variable, range and body of `\sum_{k=1}^{n} …`."""
        self.take("_")
        self.take("{")
        variable = self.take()
        self.take("=")
        low = self.sum()
        self.take("}")
        self.take("^")
        high = self.argument()
        self.bound.add(variable)
        return Expr(op, (variable, self.product(), low, high))

    def matrix(self, name: str) -> Expr:
        if name not in ("pmatrix", "bmatrix", "vmatrix", "matrix", "smallmatrix"):
            raise Unreadable(name)
        rows: list[list[Expr]] = [[]]
        token = "&"
        while not token.startswith(r"\end"):
            rows[-1].append(self.sum())
            if (token := self.take()) == r"\\":
                rows.append([])
                token = self.take() if self.peek().startswith(r"\end") else token
        rows = [row for row in rows if row]
        if len({len(row) for row in rows}) > 1:
            raise Unreadable(name)
        found = Expr("matrix", tuple(Expr("row", tuple(row)) for row in rows))
        return Expr("det", (found,)) if name == "vmatrix" else found


# ---- numbers as written, with their units

#: Longer texts are not searched for a number with a unit, because the patterns would be slow.
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
_CURRENCIES = {"€": "euro", "¥": "yen", "₹": "rupee"}
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
#: Nouns that a number may count.
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
    r"""Return (remainder, unit or None). A single letter is a variable, never a unit: `6m` is 6·m.

    A noun from the list below is a unit (`7 apples`); any other word stays in the remainder.

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
    parts = [_product(part.split()) for part in ((above, below) if per else (above,))]
    return None if None in parts else "/".join(parts)  # type: ignore[arg-type]


def _product(words: list[str]) -> str | None:
    """Return the unit of words without `per`, in the singular. `square feet` gives `ft`, `red apples` `red apple`."""
    if words[1:] and words[-1].lower() in ("squared", "cubed", "old"):
        words = words[:-1]
    if not words or words[-1].lower() in ("square", "cubic", "sq"):
        return None
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
    """An exact number as written. value: without its unit; place: value of one unit in the last decimal place, None
    without a decimal point; unit: `%`, `°` or a word."""

    value: Fraction
    place: Fraction | None = None
    unit: str | None = None


def terminates(value: Fraction) -> bool:
    """Return whether the value has a finite decimal form."""
    return pow(10, value.denominator.bit_length(), value.denominator) == 0


def number(text: str) -> Number | None:
    r"""Read an integer, fraction, decimal, mixed number or power of ten, with an optional unit; None for other texts.

    >>> number("1,234").value, number(r"-3\frac{1}{2}").value, number("0.50").value, number(r"62.5\%").unit
    (Fraction(1234, 1), Fraction(-7, 2), Fraction(1, 2), '%')
    """
    if len(text) > MAX_UNIT_CHARS and not re.fullmatch(r"[-+\d.,]+", text):
        return None
    if not any(c.isdigit() for c in text):
        return None
    text, unit = split_unit(text.strip())
    formula = parsed(text)
    found = None if formula is None else _plain(formula)
    return None if found is None else Number(*found, unit)


def _plain(formula: Expr) -> tuple[Fraction, Fraction | None] | None:
    """Return (value, value of one unit in the last decimal place) of a formula that is one number; else None."""
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
