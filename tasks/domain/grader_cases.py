r"""The adversarial suite: hand-written (answer, gold, verdict) by family. `varband grader selftest` runs it.

`=` correct, `x` wrong, `?` ambiguous, `-` no answer, `!` ungradable, `t` timeout. An answer stands inside
`<answer>…</answer>`, unless a family says that whole completions are judged.
"""

from __future__ import annotations

VERDICTS = {"=": "correct", "x": "wrong", "?": "ambiguous", "-": "no_answer", "!": "ungradable", "t": "timeout"}

ANSWERS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "plain numbers": (
        ("7", "7", "="), (" 7 ", "7", "="), ("+7", "7", "="), ("007", "7", "="), ("-0", "0", "="), ("7.0", "7", "="), ("7.", "7", "="),
        ("-7", "7", "x"), ("70", "7", "x"), ("7.1", "7", "x"), ("0.07", "7", "x"), ("--7", "-7", "x"), (r"2^{10}", "1024", "="),
        (r"3 \times 10^{2}", "300", "="), ("1.5e3", "1500", "="), (r"2^{10}", "1023", "x"), ("025", "25", "="), ("23", "023", "="),
        ("(7)", "7", "="), ("{7}", "7", "="), ("７", "7", "="), ("−7", "-7", "="),
    ),
    "relation chains": (
        ("x=7", "7", "="), ("3+4=7", "7", "="), ("x = 3+4 = 7", "7", "="), ("m+n=7", "7", "="), ("7 = x", "7", "="),
        (r"S = \frac{14}{2} = 7", "7", "="), (r"\frac{n(n+1)}{2} = \frac{n^2+n}{2}", r"\frac{n(n+1)}{2}", "="),
        (r"x = \sqrt{2} \approx 1.414", r"\sqrt{2}", "="), ("5+2=8", "8", "x"), ("7=5", "5", "x"), ("7=5", "7", "x"), ("3+4=8=7", "7", "x"),
        ("1=2=7", "7", "x"), ("x>7", "7", "x"), (r"x \ge 7", "7", "x"), ("7>5", "7", "x"), ("8>7", "7", "x"), (r"x \ne 7", "7", "x"),
        ("x = 5 = 7", "7", "x"), ("=7", "7", "="), (r"m+n = 3+4 = 7", "7", "="), (r"\angle A = 7", "7", "="), ("|AB| = 7", "7", "="),
        ("7 = 7", "7", "="), ("x=7, y=5", "7", "?"), ("AB + CD = 9", "9", "="),
    ),
    "negated and hedged": (
        ("7 (not 5)", "7", "="), ("7 (not 5)", "5", "x"), ("7, not 5", "7", "="), ("7, not 5", "5", "x"), ("not 5 but 7", "7", "="),
        ("not 5 but 7", "5", "x"), ("not 7", "7", "x"), ("It is not 7.", "7", "x"), ("7 rather than 5", "5", "x"), ("7 rather than 5", "7", "="),
        ("7 instead of 5", "7", "="), ("5 or 7", "5", "?"), ("5 or 7", "7", "?"), ("either 5 or 7", "7", "?"), ("5, 7", "7", "?"), ("5 or 7", "9", "?"),
        ("5 and 7", "7", "?"), ("probably 7", "7", "="), ("7?", "7", "="), ("maybe 7", "8", "x"), ("5/7 or 7/5", r"\frac{5}{7}", "?"),
        ("anything but 7", "7", "x"), ("7 or 7", "7", "="), ("0.5 or 1/2", r"\frac{1}{2}", "="), (r"$5$ or $7$", "7", "?"), (r"7 \text{ or } 5", "7", "?"),
        ("The answer isn't 7", "7", "x"), ("5/7", "7", "x"), ("7 if x>0, otherwise 5", "7", "?"), ("between 5 and 7", "7", "?"), ("at least 7", "7", "x"),
        ("less than 7", "7", "x"), ("7 or more", "7", "x"), ("more than 7", "7", "x"), ("not equal to 7", "7", "x"), ("cannot be 7", "7", "x"), ("never 7", "7", "x"),
    ),
    "unicode": (
        ("x²+1", "x^2+1", "="), ("√2", r"\sqrt{2}", "="), ("½", r"\frac{1}{2}", "="), ("3½", r"\frac{7}{2}", "="), ("2π", r"2\pi", "="), ("10⁵", "100000", "="),
        ("2×3", "6", "="), ("x₁", "x_1", "="), ("√(2+π)", r"\sqrt{2+\pi}", "="), ("3√2", r"3\sqrt{2}", "="), ("∛2", r"\sqrt[3]{2}", "="), ("−3", "-3", "="), ("2ⁿ", "2^n", "="),
        ("1⁄2", r"\frac{1}{2}", "="), ("x²", "x^3", "x"), ("x₁", "x_2", "x"), ("10⁵", "105", "x"), ("√2", "2", "x"), ("x³", "3x", "x"), ("2⁻¹", r"\frac{1}{2}", "="), ("½", "12", "x"),
        ("２３", "23", "="), ("x²", "x2", "x"), ("x²", "2x", "x"), ("2³", "23", "x"), ("∞", r"\infty", "="), ("⌊n/2⌋", r"\lfloor n/2\rfloor", "="), ("≥ 5", "5", "x"),
    ),
    "letter case": (
        ("n/2", r"\frac{n}{2}", "="), ("N/2", r"\frac{N}{2}", "="), ("N/2", r"\frac{n}{2}", "x"), ("n/2", r"\frac{N}{2}", "x"), ("2RC+R+C", "2RC+R+C", "="), ("2rc+r+c", "2RC+R+C", "x"),
        ("n", "N", "x"), ("N", "N", "="), ("X+1", "x+1", "x"), ("k=N", "k=n", "x"), ("P(x)=x", "p(x)=x", "x"), (r"\Delta", r"\delta", "x"), ("aB", "Ab", "x"), ("C+R+2RC", "2RC+R+C", "="),
    ),
    "variable like a unit": (
        ("6m", "6m", "="), ("6 m", "6m", "="), ("6", "6m", "x"), ("6m", "6", "x"), ("m6", "6m", "="), ("6n", "6m", "x"), ("2s", "2", "x"), ("2", "2s", "x"), ("3g", "3g", "="), ("3g", "3", "x"),
        ("5 h", "5h", "="), ("m n", "mn", "="), (r"\frac{12m}{2}", "6m", "="), ("6M", "6m", "x"),
    ),
    "plus or minus": (
        (r"\pm 3", "3,-3", "="), ("3,-3", r"\pm 3", "="), ("±3", "-3, 3", "="), (r"1 \pm \sqrt{2}", r"1+\sqrt{2}, 1-\sqrt{2}", "="), (r"\pm 3", "3", "?"), (r"\pm 3", r"\{-3,3\}", "="), ("3", r"\pm 3", "x"),
        (r"\frac{3 \pm \sqrt{21}}{2}", r"\frac{3+\sqrt{21}}{2}, \frac{3-\sqrt{21}}{2}", "="), (r"x = \pm 3", "3,-3", "="), (r"\pm 3", "3,-2", "x"), (r"1 \pm \sqrt{3}", r"1+\sqrt{2}, 1-\sqrt{2}", "x"),
        (r"\pm 1, \pm 2", "1,-1,2,-2", "="), (r"\pm 0", "0", "="), ("+3 or -3", r"\pm 3", "="), (r"\pm 3", r"\pm 3", "="), (r"\mp 3", r"\pm 3", "="), (r"(\pm 1, 2)", "(1,2),(-1,2)", "="), (r"0, \pm 2", "-2,0,2", "="),
    ),
    "intervals and inequalities": (
        ("1<x<2", "(1,2)", "="), ("(1,2)", "1<x<2", "="), (r"1 \le x < 2", "[1,2)", "="), (r"1 \le x < 2", "(1,2)", "x"), ("x>5", r"(5,\infty)", "="), (r"x \ge 5", r"(5,\infty)", "x"), (r"x \geq 2", r"[2,\infty)", "="),
        (r"k \geqslant 2", r"k \ge 2", "="), (r"[2,\infty)", r"k \geqslant 2", "="), (r"2 \le k", r"k \geqslant 2", "="), ("k>2", r"k \geqslant 2", "x"), (r"k \le 2", r"k \geqslant 2", "x"), ("2", r"k \geqslant 2", "x"),
        (r"x \in (1,2)", "(1,2)", "="), (r"x \le -1 \text{ or } x \ge 3", r"(-\infty,-1] \cup [3,\infty)", "="), (r"[3,\infty) \cup (-\infty,-1]", r"(-\infty,-1] \cup [3,\infty)", "="), (r"(-\infty,-1] \cup (3,\infty)", r"(-\infty,-1] \cup [3,\infty)", "x"),
        ("2>x>1", "(1,2)", "="), ("[1,2]", "(1,2)", "x"), ("[1,2]", "[1,2]", "="), ("(1,3)", "(1,2)", "x"), ("x<-5", r"(-\infty,-5)", "="), ("x>-5", r"(-\infty,-5)", "x"), (r"0 < t \leq 4", "(0,4]", "="), (r"0 \le t \leq 4", "(0,4]", "x"),
        ("]1,2[", "(1,2)", "="), (r"(-\infty,0) \cup \{1\}", r"(-\infty, 0) \cup\{1\}", "="), (r"(-\infty,0)", r"(-\infty, 0) \cup\{1\}", "x"), (r"x<0 \text{ or } x=1", r"(-\infty, 0) \cup\{1\}", "="), (r"[\frac{1}{2}, 8]", "[0.5,8]", "="),
        ("x<5", "x>5", "x"), ("5>x", "x<5", "="), (r"-1 \le x \le -\frac{1}{2}", r"[-1,-\frac{1}{2}]", "="), (r"(-\infty,\infty)", r"\mathbb{R}", "="), ("(2,1)", "(1,2)", "x"), ("1,2", "[1,2]", "x"),
    ),
    "sets, lists and tuples": (
        (r"\{1,2\}", "(1,2)", "x"), ("(1,2)", r"\{1,2\}", "x"), (r"\{2,1\}", r"\{1,2\}", "="), ("1,2", r"\{1,2\}", "="), ("(2,1)", "(1,2)", "x"), ("1,2", "(1,2)", "="), ("2,1", "(1,2)", "x"), ("5,3,1", "1,3,5", "="), (r"\{1,3,5\}", "1,3,5", "="),
        ("1,3", "1,3,5", "x"), ("1,3,5,7", "1,3,5", "x"), ("1, 3 and 5", "1,3,5", "="), ("1 and 3 and 5", "1,3,5", "="), ("1 or 3 or 5", "1,3,5", "="), ("x=1, x=3, x=5", "1,3,5", "="), ("x=1,3,5", "1,3,5", "="), ("16,3,1,1", "16,3,1,1", "="), ("16,3,1", "16,3,1,1", "x"),
        ("-2", "-2,-2", "x"), ("(1,2),(3,4)", "(3,4),(1,2)", "="), ("(1,2),(4,3)", "(3,4),(1,2)", "x"), ("(1,8,19), (2,7,13), (4,5,7)", "(1,8,19), (2,7,13), (4,5,7)", "="), ("(1,8,19), (2,7,13)", "(1,8,19), (2,7,13), (4,5,7)", "x"), (r"\{(1,2),(3,4)\}", "(1,2),(3,4)", "="),
        (r"\left(3, \frac{\pi}{2}\right)", r"(3,\frac{\pi}{2})", "="), (r"(3,\frac{\pi}{3})", r"(3,\frac{\pi}{2})", "x"), ("(x,y)=(1,2)", "(1,2)", "="), ("x=1, y=2", "(1,2)", "="), (r"(a,b,c) = (2,251,252)", "(2,251,252)", "="), (r"\emptyset", r"\{\}", "="), ("7", r"\{7\}", "="), (r"\{7\}", "7", "="),
        ("69$,$84", "69, 84", "="), ("(0.5, 2)", r"(\frac{1}{2}, 2)", "="), ("1;3;5", "1,3,5", "="), (r"\langle 1,2\rangle", "(1,2)", "="), ("(1,2,3)", "(1,2)", "x"), ("3", "(1,2)", "x"), (r"x \in \{1,2\}", r"\{1,2\}", "="), (r"\{1,2,2\}", r"\{1,2\}", "="),
        ("(1,3,5)", "1,3,5", "="), ("[1,3,5]", "1,3,5", "="), ("f(x)=x, f(x)=-x", "f(x)=x,f(x)=-x", "="), ("f(x)=-x and f(x)=x", "f(x)=x,f(x)=-x", "="), ("f(x)=x", "f(x)=x,f(x)=-x", "x"),
    ),
    "percent": (
        ("62.5%", "62.5%", "="), (r"62.5\%", "62.5%", "="), ("62.5", "62.5%", "="), ("0.625", "62.5%", "="), ("5/8", "62.5%", "="), ("0.625%", "62.5%", "x"), ("62.5 percent", "62.5%", "="), ("50%", "0.5", "="), ("50%", "50", "="), ("0.5%", "0.5", "x"),
        ("8%", r"8 \%", "="), ("8", r"8 \%", "="), ("0.08", r"8 \%", "="), ("80%", r"8 \%", "x"), ("800%", "8", "="), ("0.8", r"8 \%", "x"), ("0.5", "0.5%", "x"), (r"$8\%$", "8%", "="), ("7%", "8%", "x"), ("50%", "5", "x"), ("1%", "1", "x"),
    ),
    "degrees and units": (
        (r"45^{\circ}", r"45^\circ", "="), ("45°", r"45^{\circ}", "="), ("45", r"45^{\circ}", "="), ("45 degrees", r"45^{\circ}", "="), (r"\frac{\pi}{4}", r"45^{\circ}", "="), (r"45^\circ", r"\frac{\pi}{4}", "="), (r"\frac{\pi}{3}", r"45^{\circ}", "x"), ("46", r"45^{\circ}", "x"),
        ("4 cm", "4", "="), (r"4\text{ cm}", "4", "="), ("4", r"4\text{ cm}", "="), (r"4\text{ m}", r"4\text{ cm}", "x"), ("4 centimeters", r"4\text{ cm}", "="), ("7 apples", "7", "="), ("8 apples", "7", "x"), (r"\$36", "36", "="), ("$36", "36", "="), ("36 dollars", r"\$36", "="), ("$36$", "36", "="),
        (r"12\text{ cm}^2", "12", "="), (r"12\,\mathrm{cm}^2", r"12 \text{ cm}^2", "="), ("12 square units", "12", "="), ("5 hours", "5", "="), ("5 hours", "5 minutes", "x"), ("7 million", "7", "x"), ("7 million", "7000000", "="), ("7 squared", "7", "x"), (r"90^{\circ}, 60^{\circ}", r"60^{\circ}, 90^{\circ}", "="),
        (r"(45^{\circ}, 60^{\circ})", r"(45^{\circ},60^{\circ})", "="), (r"10 \mathrm{~km}", "10", "="), ("3 dozen", "36", "="), (r"0.79 rad", r"45^{\circ}", "x"), (r"\pi \text{ radians}", r"\pi", "="), (r"6\sqrt{3}\text{ cm}", r"6\sqrt{3}", "="), (r"x = 45^\circ", "45", "="),
    ),
    "thousands": (
        ("1,234", "1234", "="), ("1{,}234", "1234", "="), (r"1\,234", "1234", "="), ("1 234", "1234", "="), ("1,234,567", "1234567", "="), ("1,234.5", "1234.5", "="), ("1234", "1,234", "="), ("1,23", "123", "?"), ("12,34", "1234", "?"), ("1,234", "1.234", "x"), ("1,234", "1235", "x"), ("6764, 10945", "6764,10945", "="),
        ("100,200", "100, 200", "="), ("1, 234", "1234", "?"), ("2500,7500", "7500,2500", "="), (r"10{,}000", "10000", "="), ("10.000", "10000", "x"), ("$1,234$", "1234", "="), ("1,234", "234", "x"), ("1,234", "1", "x"),
    ),
    "mixed numbers": (
        (r"3\frac{1}{2}", r"\frac{7}{2}", "="), ("3 1/2", "3.5", "="), (r"-2\frac{1}{3}", r"-\frac{7}{3}", "="), (r"3\frac12", "3.5", "="), (r"3\frac{1}{2}", r"\frac{3}{2}", "x"), ("3 1/2", "1.5", "x"), (r"2\frac{n}{3}", r"\frac{2n}{3}", "="), ("1 1/2", r"\frac{11}{2}", "x"), (r"-2\frac{1}{3}", r"-\frac{5}{3}", "x"),
        ("3 and 1/2", r"\frac{7}{2}", "="), (r"3\frac{1}{2}", r"3 \cdot \frac{1}{2}", "x"), (r"3\dfrac{1}{2}", "3.5", "="),
    ),
    "decimals and fractions": (
        ("0.5", r"\frac{1}{2}", "="), (".5", "1/2", "="), (r"\frac{2}{4}", "0.5", "="), ("0.333333", r"\frac{1}{3}", "="), ("0.3333", r"\frac{1}{3}", "x"), ("0.33", r"\frac{1}{3}", "x"), ("0.3", r"\frac{1}{3}", "x"), ("0.3333333333", r"\frac{1}{3}", "="), ("0.6666667", "2/3", "="), ("1.4142136", r"\sqrt{2}", "="), ("1.414", r"\sqrt{2}", "x"),
        ("3.14159265", r"\pi", "="), ("3.14", r"\pi", "x"), ("22/7", r"\pi", "x"), ("0.500001", r"\frac{1}{2}", "x"), ("2/4", "1/2", "="), ("-1/2", r"-\frac{1}{2}", "="), (r"\frac{-1}{2}", r"-\frac{1}{2}", "="), ("1/-2", r"-\frac{1}{2}", "="), ("1/2", "2", "x"), ("142.0", "142", "="), ("142.0000001", "142", "x"), ("0.50", "0.5", "="),
        (r"\frac{1}{2}", "0.51", "x"), (r"0.\overline{3}", r"\frac{1}{3}", "="), ("0.333...", r"\frac{1}{3}", "="), ("1000000", "1000001", "x"), ("1000000.5", "1000000", "x"), ("1/0", "0", "x"), ("0.125", r"\frac{1}{8}", "="), (r"\frac{16}{113}", "0.1415929", "="), ("18.8", r"18.8^{\circ}", "="),
    ),
    "expressions": (
        ("2n-2", "2(n-1)", "="), (r"\frac{n^2+n}{2}", r"\frac{n(n+1)}{2}", "="), ("n(n+1)/2", r"\frac{n(n+1)}{2}", "="), ("2n-1", "2n-2", "x"), ("n^2", "2n", "x"), ("2^n", "n^2", "x"), (r"\sqrt{12}", r"2\sqrt{3}", "="), (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}", "="), (r"\sqrt{12}", r"3\sqrt{2}", "x"), (r"\sqrt2", r"\sqrt{2}", "="),
        (r"\binom{2n}{n}", r"\frac{(2n)!}{n! n!}", "="), (r"\frac{100!}{2^{50}}", r"\frac{100!}{2^{50}}", "="), ("100!/2^{50}", r"\frac{100!}{2^{50}}", "="), (r"\frac{99!}{2^{50}}", r"\frac{100!}{2^{50}}", "x"), (r"2021 \cdot 505 \cdot 337", "343943885", "="), (r"\log_2 8", "3", "="), (r"\sin 30^{\circ}", r"\frac{1}{2}", "="), (r"e^{\ln 2}", "2", "="),
        (r"\lfloor n/2 \rfloor", r"\left\lfloor \frac{n}{2} \right\rfloor", "="), (r"\lceil n/2 \rceil", r"\lfloor n/2 \rfloor", "x"), ("2^{1009}", "2^{1009}", "="), ("2^{1008} * 2", "2^{1009}", "="), ("2^{1010}", "2^{1009}", "x"), ("f(x)=2x", "f(x)=2 x", "="), ("f(n)=2n", "f(x)=2x", "="), ("2x", "f(x)=2x", "="), ("g(x)=2x", "f(x)=2x", "x"), ("f(x)=x/2", "f(x)=2x", "x"),
        ("k=1", "k=1", "="), ("1", "k=1", "="), ("k=2", "k=1", "x"), ("n=1", "k=1", "x"), ("y=2x+3", "y=2x+3", "="), ("2x-y+3=0", "y=2x+3", "="), ("y=2x-3", "y=2x+3", "x"), ("x^2+y^2=4", "x^2+y^2=4", "="), ("x^2+y^2-4=0", "x^2+y^2=4", "="), ("x^2+y^2=5", "x^2+y^2=4", "x"), ("8+4i", "8+4i", "="), ("4i+8", "8+4i", "="), ("8-4i", "8+4i", "x"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "="), (r"\begin{pmatrix}2\\1\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "x"), (r"\sqrt{51}", r"\sqrt{51}", "="), (r"\frac{\pi}{6}+\pi k", r"\pi k + \frac{\pi}{6}", "="), (r"4\pi^2-1", r"4 \pi^{2}-1", "="), ("x^2-1", "(x-1)(x+1)", "="), ("(x-1)^2", "x^2-1", "x"), (r"1024-256\pi", r"256(4-\pi)", "="),
    ),
    "boxed inside the answer": (
        (r"\boxed{7}", "7", "="), (r"The answer is \boxed{7}.", "7", "="), (r"$\boxed{\frac{1}{2}}$", r"\frac{1}{2}", "="), (r"\boxed{8}", "7", "x"), (r"7 so \boxed{8}", "7", "x"), (r"\boxed{}", "7", "-"), (r"\boxed 7", "7", "="), (r"\fbox{7}", "7", "="), (r"\boxed{x=7}", "7", "="), (r"\boxed{\text{seven}}", "7", "="), (r"\boxed{\boxed{7}}", "7", "="), (r"\boxed{7\text{ cm}}", "7", "="),
    ),
    "several boxes": (
        (r"\boxed{7} and \boxed{8}", "7", "?"), (r"\boxed{7} \boxed{7}", "7", "="), (r"\boxed{1/2} = \boxed{0.5}", r"\frac{1}{2}", "="), (r"\boxed{7} no, \boxed{8}", "8", "?"), (r"\boxed{2}, \boxed{3}", "2,3", "="), (r"\boxed{3} and \boxed{2}", "2,3", "="), (r"\boxed{2} and \boxed{4}", "2,3", "x"), (r"\boxed{2}, \boxed{3}", "2", "?"), (r"\boxed{8} \boxed{8}", "7", "x"), (r"first \boxed{2} then by symmetry \boxed{3}", "2,3", "?"),
    ),
    "text around": (
        ("The answer is 7.", "7", "="), ("The answer is 7", "8", "x"), ("Answer: 7", "7", "="), ("**7**", "7", "="), ("`7`", "7", "="), ("So the final answer is $\\frac{1}{2}$.", r"\frac{1}{2}", "="), ("There are 3 cases, so the answer is 7.", "7", "="), ("There are 3 cases, so the answer is 7.", "3", "x"), ("7 is the answer", "7", "="), ("We get $x=7$.", "7", "="),
        ("The value of the expression is 12", "12", "="), ("Thus, 7", "7", "="), ("7 ways", "7", "="), ("There are 7 ways to do this.", "7", "="), ("There are 3 boys and 4 girls", "7", "?"), ("There are 3 boys and 4 girls", "4", "?"), ("f(x) = 2x for all x", "f(x)=2x", "="), ("all integers n", "n", "x"), ("the answer is seven", "7", "="), ("(A) 7", "7", "="), ("\\text{The answer is } 7", "7", "="),
        ("The final answer is 12 because 3*4=12", "12", "="), ("7 (since 3+4=7)", "7", "="), ("answer here", "7", "-"), ("I don't know", "7", "-"), ("2xy + 10x + 20y + 100", "2xy + 10x + 20y + 100", "="), ("Minimum value: 7", "7", "="), ("The minimum is 5 and the maximum is 7", "7", "?"), ("\\[7\\]", "7", "="), ("\\(7\\)", "7", "="),
    ),
    "words": (
        ("seven", "7", "="), ("Seven", "7", "="), ("twenty-one", "21", "="), ("twenty one", "21", "="), ("one hundred and five", "105", "="), ("two thousand twenty-four", "2024", "="), ("zero", "0", "="), ("one half", r"\frac{1}{2}", "="), ("two thirds", r"\frac{2}{3}", "="), ("minus three", "-3", "="), ("negative three", "-3", "="), ("eight", "7", "x"), ("seventy", "7", "x"), ("seventeen", "7", "x"), ("twenty-one", "20", "x"),
        ("Monday", r"\text{Monday}", "="), ("monday", "Monday", "="), ("Tuesday", r"\text{Monday}", "x"), (r"\text{yes}", "yes", "="), ("Yes", "No", "x"), ("(C)", r"\text{(C)}", "="), ("C", r"\text{(C)}", "="), ("D", r"\text{(C)}", "x"), ("even", r"\text{even}", "="), ("odd", r"\text{even}", "x"), ("no solution", r"\text{no solution}", "="), ("infinity", r"\infty", "="), ("one third", "3", "x"),
    ),
    "plain text mathematics": (
        ("sqrt(2)/2", r"\frac{\sqrt{2}}{2}", "="), ("pi/4", r"\frac{\pi}{4}", "="), ("2pi", r"2\pi", "="), ("2^10", "1024", "="), ("x^10", "x^{10}", "="), ("2**3", "8", "="), ("3*4", "12", "="), ("x^(n+1)", "x^{n+1}", "="), ("2^-1", r"\frac{1}{2}", "="), ("sin(x)", r"\sin x", "="), ("ln(2)", r"\ln 2", "="), ("floor(n/2)", r"\lfloor n/2 \rfloor", "="),
        ("(1,2) U (3,4)", r"(1,2)\cup(3,4)", "="), ("x >= 2", r"[2,\infty)", "="), ("2^10", "20", "x"), ("sqrt(3)/2", r"\frac{\sqrt{2}}{2}", "x"), ("pi", "3.14", "x"), ("x^12", "2x^1", "x"), ("(n+1)/2", r"\frac{n+1}{2}", "="), ("n+1/2", r"\frac{n+1}{2}", "x"), ("1/(2n)", r"\frac{1}{2n}", "="), ("3(x+1)", "3x+3", "="), ("n!", "n!", "="), ("5!", "120", "="), ("5!", "5", "x"), ("7!", "7", "x"),
    ),
    "empty": (
        ("", "7", "-"), ("   ", "7", "-"), ("\n", "7", "-"), ("...", "7", "-"), ("?", "7", "-"), ("$$", "7", "-"), ("N/A", "7", "-"), ("None", "7", "-"), (r"\boxed{ }", "7", "-"), ("{}", "7", "-"), ("0", "0", "="), ("-", "7", "-"), (".", "7", "-"), ("()", "7", "-"), (r"\text{}", "7", "-"), ("\u200b", "7", "-"), ("answer", "7", "-"),
    ),
    "unbalanced LaTeX": (
        (r"\frac{1}{2", r"\frac{1}{2}", "="), (r"\boxed{7", "7", "="), (r"\boxed{\frac{1}{2}", r"\frac{1}{2}", "="), ("$7", "7", "="), ("7$", "7", "="), (r"\left(1,2)", "(1,2)", "="), (r"\frac{1}{3", r"\frac{1}{2}", "x"), (r"\sqrt{2", r"\sqrt{2}", "="), ("(1,2", "(1,2)", "!"), ("1,2)", "(1,2)", "!"), ("7}", "7", "="), ("}{", "7", "-"), (r"\frac{1}{", r"\frac{1}{2}", "!"), (r"\frac{}{}", "7", "!"), ("((((7", "7", "!"), (r"\(7", "7", "="), (r"\sqrt{", "2", "!"), (r"\frac", "7", "!"), (r"2^{", "2", "!"), (r"\boxed{", "7", "-"),
    ),
    "pathological": (
        ("9^{9^{9^9}}", "7", "t"), (r"10^{10^{10}}!", "7", "t"), (r"\frac{1}{" * 1000 + "2" + "}" * 1000, "7", "!"), ("7" * 100_000, "7", "x"), ("7" * 100_000, "7" * 100_000, "="), ("x?(" * 33_334, "7", "!"), ("(" * 5_000, "7", "-"), ("{" * 5_000 + "7" + "}" * 5_000, "7", "-"), ("1" + "+1" * 900, "901", "="), (r"\sqrt{" * 50 + "1" + "}" * 50, "1", "="), (r"2^{2^{2^{2^{2}}}}", "7", "x"), ("1" + "0" * 400, "10^{400}", "="), (r"\sum_{n=1}^{10^{12}} \frac{1}{n!}", "7", "x"), (r"1000000000!", "7", "t"), ("\x00", "7", "-"), ("\ud800", "7", "-"), ("=" * 500, "7", "-"), ("," * 500, "7", "-"), (r"\int_0^1 x^{x^{x}} dx", "7", "x"), ("1e999", "7", "x"), ("1e-999999999999", "0", "x"), ("9" * 5000, "9" * 5000, "="), ("nan", "7", "-"), ("inf", "7", "x"), (r"\infty - \infty", "0", "x"), (r"\frac{0}{0}", "0", "x"),
    ),
}  # fmt: skip

_LOOP = r"so \boxed{5}? no"
#: Whole completions: (scaffold, completion, gold, finish, verdict). What stands outside the region must not count.
COMPLETIONS: tuple[tuple[str, str, str, str, str], ...] = (
    ("panel", "<mutipersonaDebate>it is 7</mutipersonaDebate> <answer>7</answer>", "7", "stop", "="),
    ("panel", "<mutipersonaDebate>it is 7</mutipersonaDebate> <answer>8</answer>", "7", "stop", "x"),
    ("panel", "<mutipersonaDebate>the answer is 7", "7", "length", "-"),
    ("panel", "<mutipersonaDebate>the answer is <answer>7</answer></mutipersonaDebate>", "7", "stop", "-"),
    ("panel", "<mutipersonaDebate>x</mutipersonaDebate> The answer is 7.", "7", "stop", "-"),
    ("panel", "<mutipersonaDebate>x</mutipersonaDebate> <answer>7", "7", "stop", "="),
    ("panel", "<mutipersonaDebate>x</mutipersonaDebate> <answer>7", "7", "length", "-"),
    ("panel", "<mutipersonaDebate>x</mutipersonaDebate> <answer>7</answer> <answer>8</answer>", "7", "stop", "?"),
    ("panel", "<mutipersonaDebate>x</mutipersonaDebate> <answer>7</answer> <answer>7.0</answer>", "7", "stop", "="),
    ("panel", "<mutipersonaDebate>x</mutipersonaDebate> <answer></answer>", "7", "stop", "-"),
    ("panel", r"<mutipersonaDebate>\boxed{7}</mutipersonaDebate> <answer>8</answer>", "7", "stop", "x"),
    ("panel", r"<mutipersonaDebate>x</mutipersonaDebate> \boxed{7} <answer>8</answer>", "7", "stop", "x"),
    ("panel", r"<mutipersonaDebate>x</mutipersonaDebate> <answer>\boxed{7}</answer>", "7", "stop", "="),
    ("thinking", r"<think>is it 8?</think> It is \boxed{7}.", "7", "stop", "="),
    ("thinking", r"<think>\boxed{7}</think> I give up.", "7", "stop", "-"),
    ("thinking", r"<think>so \boxed{7}", "7", "length", "-"),
    ("thinking", r"is it 8? no</think> \boxed{7}", "7", "stop", "="),
    ("thinking", r"<think>x</think> The answer is 7.", "7", "stop", "-"),
    ("thinking", r"<think>x</think> \boxed{7} or \boxed{8}", "7", "stop", "?"),
    ("thinking", r"<think>x</think> \boxed{7}, that is \boxed{7}", "7", "stop", "="),
    ("thinking", r"<think>x</think> \boxed{70", "7", "length", "-"),
    ("thinking", r"<think>x</think> \boxed{7", "7", "length", "-"),
    ("thinking", r"<think>x</think> \boxed{7", "7", "stop", "="),
    ("thinking", r"<think>\boxed{7}</think> wait <think>x</think> \boxed{8}", "7", "stop", "x"),
    ("thinking", r"<think>" + _LOOP * 500, "5", "length", "-"),
    ("no_panel", "3+4=7 <answer>7</answer>", "7", "stop", "="),
    ("no_panel", "3+4=7", "7", "stop", "-"),
    ("no_panel", "the answer is 7 <answer>8</answer>", "7", "stop", "x"),
    ("no_panel", "", "7", "stop", "-"),
    ("think_tags", "<think>7</think> <answer>7</answer>", "7", "stop", "="),
    ("think_tags", "<think>7</think> <answer>9</answer>", "7", "stop", "x"),
    ("think_tags", "<think>7</think>", "7", "stop", "-"),
    ("think_tags", "<think>x <answer>7</answer>", "7", "stop", "-"),
    ("panel", "<mutipersonaDebate>Ann: <answer>7</answer>? Bob: no", "7", "length", "-"),
    ("panel", "<answer>7</answer>", "7", "stop", "="),
)
