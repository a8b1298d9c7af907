r"""The adversarial suite by gold: many answers to one question, decided by hand.

(answers that are correct, answers that are not, for whatever reason).
"""

from __future__ import annotations

BY_GOLD: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "12": (
        ("12.0", "twelve", r"3\cdot4", "012"),
        ("1;2", "1,2", "12 or 13", "1 2", "1.2", r"1\cdot 2", r"12\ldots"),
    ),
    "2": (
        (
            "2, where x=3", "(2)", "2.", "2 (mod 3)", "2!", r"\sqrt{4}", "{2}", "TWO", "2E0", "10_2", "2^{1}",
            r"\frac{2}{1}", r"\log_2 4", r"\lfloor e \rfloor",
        ),
        (
            "x^2", "2x", "2^2", "x=2y", "x_2", "2.3.4", "2-3", "2:1", r"2\pi", "2e", "2i", r"\pm 2", "2 or -2",
            r"x \ge 2", r"2 \le x", "(2,2)", "second", "twice", "2 million", "2 thousand", "2k", "2M", "2 hundred",
            "2e3", "0x2", "2^{-1}", r"\sqrt{2}", "2'", "2''", "a=2, b=3", "2 (3)", "(2)(3)", "2+", "<2", ">2",
            r"\ge 2", "≤ 2", "2 < x", r"x \to 2", r"x \mapsto 2",
        ),
    ),
    "0": (
        ("zero", "0.0", "-0", "0%", "x=0", r"0\cdot x", "1-1", r"\{0\}", r"\frac{0}{5}", r"\sin\pi"),
        (
            "O", r"\emptyset", "0 or 1", "nothing", "no", r"\infty", "0.000001", "1e-12", r"\frac{5}{0}", r"\sin 180",
        ),
    ),
    "yes": (
        ("yes", "Yes", "YES", r"\text{Yes.}"),
        ("yes and no", "Yes/No", "not necessarily", "yes no", "y", "no", "true"),
    ),
    "(1,2)": (
        ("1 and 2", "((1,2))", "(1,2)=(1,2)", r"\left(1,\,2\right)", r"\big(1,2\big)"),
        (
            "(1,2) or (2,1)", "(1,2), (2,1)", "x=1 or y=2", "1 or 2", "(12)", "(1.2)", "(1,2]", "(2,1)=(1,2)",
            "(-1,2)", "(1, 2, 0)", "x+y=3",
        ),
    ),
    "[0,1)": (
        ("[0;1)", r"0 \le t < 1", "[0,1[", r"\left[0,1\right)", r"x\ge 0 \text{ and } x<1"),
        (
            "0,1", "(0,1)", "[0,1]", r"0\le x\le 1", r"[0,1) \cup \{1\}", r"0\leq x, x<1", r"x\ge0 \text{ or } x<1",
            "[-1,1)", "[0,2)",
        ),
    ),
    "k=1": (
        ("1=k", r"\{1\}", "1"),
        ("k=1 or k=2", r"k\ne 1", "k>1", "k=1, m=2", "k=-1", "n=1"),
    ),
    "n^2+n": (
        ("n^2+n+0", "n(n+1)", "n+n^2", "n*n+n", "(n+1)^2-(n+1)", "n^2+n=n(n+1)", "a_n=n^2+n"),
        ("n^2-n", "N^2+N", "m^2+m", "n^2", "2n^2", "n^{2+n}", "n^2+n+1", "n^2+n=0"),
    ),
    "2^n": (
        ("2^n - 1 + 1", r"\exp(n \ln 2)", "2^{n+1}/2", "(1/2)^{-n}", "2^n = 4^{n/2}"),
        ("2n", "2*n", "2^{N}", "2 n", "2^{-n}", "2^n2", "n^2", "2^{2^n}"),
    ),
    r"\frac{a+b}{2}": (
        ("(a+b)/2", r"\frac{b+a}{2}", r"\frac{1}{2}a+\frac12 b", r"\frac{a+b}2", "0.5(a+b)"),
        ("a+b/2", r"\frac{a-b}{2}", r"\frac{A+B}{2}", r"\frac{2}{a+b}", r"\frac{a}{2}+b"),
    ),
    r"\sqrt{2}": (
        (
            "1.41421356", "√2", "sqrt2", "sqrt(2)", "2^0.5", "2^{0.5}", r"\sqrt[2]{2}", r"2/\sqrt2", r"\sqrt 2",
            r"\sqrt{ 2 }", r"\frac{\sqrt8}{2}",
        ),
        ("1.41421", r"\sqrt2i", r"-\sqrt2", r"\pm\sqrt2", r"\sqrt[3]{2}", r"\sqrt{2}x", "1.5"),
    ),
    r"\frac{\pi}{4}": (
        ("0.785398163", "pi/4", r"45^\circ", r"\pi\cdot\frac14", r"\frac14\pi", r"\arctan(1)", "π/4 rad"),
        ("0.7854", "45", r"\frac{180}{4}", r"\pi/4+2\pi", r"-\frac{\pi}{4}", r"\frac{4}{\pi}"),
    ),
    "1,2,3": (
        ("3,2,1", "{3,2,1}", "1,2 or 3", "n=1,2,3", r"n \in \{1,2,3\}", "1, 2, and 3 only"),
        (
            "1-3", "1..3", "1 2 3", "1,2", "1,2,3,4", "(3,2,1)", "1,23", "12,3", "123", "1, 2, 3 and 3", "1<2<3",
            r"1,2,3,\ldots", "-1,2,3", "1+2+3", r"\{1,2\},3", "1,2,3,1",
        ),
    ),
    "3.5": (
        ("7/2", "3 1/2", "3.50", "3.5.", "35/10", r"3\frac{5}{10}", "3.5e0", "350%"),
        ("3.49999999", "3,5", "3:5", "3+5", r"3\cdot5", "3.5e1"),
    ),
    "-1/2": (
        ("-.5", "- 0.5", "(-1)/2", "-(1/2)", r"\frac{1}{-2}", "−1⁄2"),
        ("1/2", "-2", "-1/-2", r"-\frac{1}{2}x", "--1/2"),
    ),
    "10": (
        (
            "1e1", "10.0", "1010_2", "ten", "≈10", "10 = 2*5", "2*5", "0010", r"\binom{5}{2}", r"\binom{5}{3}",
            "C(5,2)", "10_{10}",
        ),
        (
            "X", r"10 \pm 1", "<10", ">10", "10!", r"2\times 5 = 11", "1 0", "10^{0}", "10a", "10_{16}", "10_3",
        ),
    ),
    r"\text{even}": (
        ("even", "Even", "it is even"),
        ("not even", "even or odd", "uneven", "n is even", "odd"),
    ),
    "x^2": (
        ("x*x", "xx", "x^3/x", "x**2", "x^{2}"),
        ("2x", "X^2", "x^2+c", "x_2", "x22"),
    ),
    "x<3": (
        ("3>x", "x < 3.0", r"(-\infty, 3)", r"x \in (-\infty, 3)"),
        (r"x\le 3", "x<3 and x>0", "3", "x=3", "x<-3", "x>3", r"[3,\infty)", "y<3"),
    ),
    "y=2x+1": (
        ("y-2x=1", "y-2x-1=0", "2x+1", "y=2 x+1"),
        ("y=2x+1 and y=3", "x=2y+1", "y=2x+1=5", r"y \ne 2x+1", "y>2x+1", "y=2(x+1)", "y=2x+1, x>0"),
    ),
    "7": (
        (
            "7 = 8-1", r"7\cdot1", "7 = 7.0", r"7 \pm 0", r"7\text{ or }7.0", "7 choose 1", "No. 7", "7th",
            "7 (approx)", "ans=7", "7 points", "7 seconds", "7x^0", r"e^{\ln 7}", r"\{7,7\}", "definitely 7",
            "surely 7", "7, I believe", "7 I guess", "7 of them", "7, since 8 fails", "7 degrees Celsius", "7 ÷ 1",
            "7*1", "7^{1.0}", "49^{0.5}", "49^0.5", "7_{10}", "7_8", "7_{16}", "13_4", "(7)=(7)", "7 = seven",
            "7 (seven)", "seven (7)", "7 [units]", "‘7’", "~7", r"\sim 7", "7 roughly",
        ),
        (
            r"\frac{7}{0}", "7/0", "7-7", "7*0", "-7 = 7", "7^0", "7 7", r"7\neq7", "7 or none", "none, or 7",
            "7 mod 10", "7 of 10", "7 out of 10", "7/10", "0.7", "70%", "7.0.0", "7-ish", "x=7 y=8", "a=7;b=8",
            "7 + C", "7, -7", r"\{7,8\}", "7 to 1", "7 through 9", "1 through 7", "up to 7", "over 7", "under 7",
            "7 minus 1", "7 times 2", "7 plus or minus 1", "half of 7", "twice 7", "7 squared", "square root of 7",
            "7 factorial", "negative 7", "the 7 values are 1,2,3", "7 solutions: 1, 2 and 3", "no more than 7",
            "not less than 7", "7 is impossible", "it can't be 7", "7 doesn't work", "7 fails", "I am not sure, 7",
            "7 fails, 8 works", "7 is false", "double 7", "7∶1", "7:1", "7…", "7...", "7 and so on", "49^{-0.5}",
            "7_a", "(7 (7))", "7†", "7*", "c.7", r"7\ \text{or}\ 8", "7,8", "7;8", "7/8", r"7\8",
        ),
    ),
    r"\begin{pmatrix}1\\2\end{pmatrix}": (
        (
            r"\begin{bmatrix}1\\2\end{bmatrix}", "(1,2)", r"\begin{pmatrix}1&2\end{pmatrix}^T", "x=1, y=2",
            r"\begin{pmatrix}1\\2\\\end{pmatrix}", r"\begin{pmatrix} 1.0 \\ 4/2 \end{pmatrix}",
        ),
        (
            "(2,1)", "(1,2,3)", r"-\begin{pmatrix}1\\2\end{pmatrix}", "i+2j", "1+2", "12",
            r"\begin{vmatrix}1\\2\end{vmatrix}",
        ),
    ),
    "3:4": (
        ("3:4", "3 : 4"),
        ("3:5", r"\frac{3}{4}", "3", "4", "4:3", "3:4:5"),
    ),
    "100": (
        (
            "100_{10}", "10^2", "1e2", "100.0", "100%", "one hundred", "a hundred", "hundred", "1 hundred", "C(100,1)",
            "100^1.0",
        ),
        ("100_2", "100_{16}", "10,0", "1,00", "100 million"),
    ),
    r"\frac{3}{4}": (
        (
            "0.75", "75%", "3/4", "three quarters", "three fourths", "3÷4", "0.750", ".75", r"\frac{6}{8}", "3/4/1",
            "1-1/4", r"1 - \frac{1}{4}", r"\frac{3}{4} \text{ or } 0.75", r"\frac{3}{4} \approx 0.75",
        ),
        (
            "75", "3 : 4", "0,75", r"\frac{4}{3}", r"\frac34x", r"-\frac{3}{4}", r"\frac{3}{4}\%", r"3\frac{1}{4}",
            ".7499999999", r"\frac{3}{4} = 0.76", r"0.76 \approx \frac{3}{4}",
        ),
    ),
    r"2\sqrt{3}": (
        (
            "2√3", "√12", r"\sqrt{12}", r"\sqrt{3} + \sqrt{3}", "2*sqrt(3)", r"2\cdot3^{1/2}", "3.4641016",
            r"2\sqrt3\text{ cm}", r"6/\sqrt{3}", r"\sqrt{4\cdot3}", r"2 \sqrt{ 3 }",
        ),
        (
            "3.4641", r"\sqrt{2}3", r"\sqrt{6}", r"\sqrt{23}", r"2+\sqrt3", r"-2\sqrt3", r"2\sqrt{3}i", r"\sqrt{-12}",
            r"2\sqrt{x}",
        ),
    ),
    r"(3, \frac{\pi}{2})": (
        (r"(3, 90^\circ)", "(3, π/2)", "(3, 1.5707963)", r"r=3, \theta=\frac{\pi}{2}", r"3, \pi/2"),
        (r"(3,\pi)", r"(\frac{\pi}{2},3)", r"(-3, \frac{\pi}{2})"),
    ),
    "-2, 1": (
        (
            r"\{1,-2\}", "1,-2", r"x=1 \text{ or } x=-2", "-2 and 1", "-2 or 1", "-2; 1", "(-2,1)", "x_1=-2, x_2=1",
        ),
        (
            "1", "-2", "2,-1", "-2,1,1", "(x-1)(x+2)=0", "x^2+x-2=0", "-2 < x < 1", "[-2,1]", "-1", "1, -2, 0",
        ),
    ),
    "x^2+y^2=4": (
        ("x^2+y^2-4=0", "4=x^2+y^2", "x^2+y^2=2^2", "2x^2+2y^2=8", "y^2=4-x^2", "(x)^2+(y)^2=4"),
        (
            "4", "x^2+y^2", "x^2+y^2=16", "x^2-y^2=4", "X^2+Y^2=4", "a^2+b^2=4", "x+y=2", "r=2", r"y=\sqrt{4-x^2}",
            "0=0", "4=4",
        ),
    ),
    r"8\sqrt{5}": (
        (r"8\sqrt{5}", r"8 \sqrt 5", r"\sqrt{320}", r"40/\sqrt{5}", "17.88854382"),
        (r"8\sqrt{6}", r"8\cdot5", r"\sqrt[8]{5}", r"\sqrt{85}", "85"),
    ),
    r"\frac{1+\sqrt{5}}{2}": (
        (
            "(1+√5)/2", "1.6180339887", r"\frac{\sqrt{5}+1}{2}", r"\frac12+\frac{\sqrt5}{2}", r"\frac{2}{\sqrt5-1}",
            r"2\cos 36^\circ", r"2\cos\frac{\pi}{5}",
        ),
        (r"\phi", "1.618", r"1+\sqrt5/2", r"\frac{1-\sqrt5}{2}", r"\frac{1\pm\sqrt5}{2}"),
    ),
    "2^{99}": (
        (
            "2^{99}", "2^99", "2 ^ {99}", "4^{49.5}", "8^{33}", "2^{98}+2^{98}", "2^{100}/2",
            "633825300114114700748351602688",
        ),
        (
            "2^{98}", "2^{99}-1", r"2\cdot 99", "6.338e29", "633825300114114700748351602689", r"\log_2 99", "99^2",
        ),
    ),
    r"\text{no solution}": (
        (
            "no solution", "No Solution", "There is no solution", r"\emptyset", "no solutions", r"\varnothing",
        ),
        ("none", "solution", "one solution", "0"),
    ),
    "A": (
        (r"\text{A}", "(A)", "[A]", r"\mathbf{A}", r"\boxed{A}", "Answer: A", "choice A"),
        ("A and B", "AB", "A'", "A(B)", "not A", "B", "E", r"\alpha"),
    ),
    "n(n+1)(2n+1)/6": (
        (
            r"\frac{n(n+1)(2n+1)}{6}", r"\frac{2n^3+3n^2+n}{6}", r"\sum_{k=1}^n k^2", "n^3/3+n^2/2+n/6",
            r"\frac16 n(n+1)(2n+1)",
        ),
        (
            r"\frac{n(n+1)(2n-1)}{6}", "n(n+1)(2n+1)", "n(n+1)/2", r"\frac{N(N+1)(2N+1)}{6}",
            r"\frac{k(k+1)(2k+1)}{6}",
        ),
    ),
}  # fmt: skip
