"""Instructions of bodies as CUDA C, which is C++ that a host compiler takes too.

What NumPy and ONNX say about NaN, signed zeros, division of integers and ties is kept. Arithmetic in half precision is
done in float, as everywhere in bodies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybrid_infer.backends.native._code import inside

#: The type in which a value of each dtype is computed.
COMPUTE = {
    "bool": "bool", "uint8": "unsigned char", "int8": "signed char", "uint16": "unsigned short", "int16": "short",
    "uint32": "unsigned int", "int32": "int", "uint64": "unsigned long long", "int64": "long long",
    "float16": "float", "bfloat16": "float", "float32": "float", "float64": "double",
}  # fmt: skip

#: The type in which it lies in memory. A truth is a byte there, of which any that is not 0 is true: a program may see
#: bytes of its own as truths, and the compiler takes for granted that a ``bool`` is 0 or 1.
STORED = {**COMPUTE, "bool": "HiTruth", "float16": "__half", "bfloat16": "__nv_bfloat16"}

#: What the expressions rest on. `bits` makes a float from its bits, which host and device compilers both take.
PRELUDE = """
template <class T> __device__ inline T hi_max(T a, T b) { return (a > b || a != a) ? a : b; }
template <class T> __device__ inline T hi_min(T a, T b) { return (a < b || a != a) ? a : b; }
template <class T> __device__ inline T hi_sign(T a) { return a != a ? a : (T)((a > (T)0) - (a < (T)0)); }
template <class T> __device__ inline T hi_quotient(T a, T b) { return b == (T)0 ? a : (T)(a / b); }
template <class T> __device__ inline T hi_power(T a, long long n) {
  if (n < 0) return a == (T)1 ? a : (T)-1 > (T)0 || a != (T)-1 ? (T)0 : n % 2 ? a : (T)1;
  unsigned long long total = 1, power = (unsigned long long)a;
  for (; n; n >>= 1, power *= power) total *= n & 1 ? power : 1;
  return (T)total;
}
template <class T> __device__ inline T hi_remainder(T a, T b) {
  if (b == (T)0) return (T)0;
  T r = (T)(a % b);
  return (r != (T)0 && (r < (T)0) != (b < (T)0)) ? (T)(r + b) : r;
}
__device__ inline float hi_mod(float a, float b) {
  float r = fmodf(a, b);
  return (r != 0.0f && (r < 0.0f) != (b < 0.0f)) ? r + b : r;
}
__device__ inline double hi_mod(double a, double b) {
  double r = fmod(a, b);
  return (r != 0.0 && (r < 0.0) != (b < 0.0)) ? r + b : r;
}
__device__ inline float hi_float(unsigned bits) { union { unsigned u; float f; } x; x.u = bits; return x.f; }
__device__ inline double hi_double(unsigned long long bits) {
  union { unsigned long long u; double f; } x;
  x.u = bits;
  return x.f;
}
"""

#: For results in half precision, which round more away: the standard normal distribution to within 1e-7 (Abramowitz and
#: Stegun, "Handbook of Mathematical Functions", 26.2.17), and the logistic function, by a GPU's own approximations of
#: powers of two and reciprocals, to within 1e-6 of their values. A host compiler brings these two along.
NARROW = """
#ifndef HI_ON_HOST
__device__ inline float hi_binary_power(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float hi_inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif
__device__ inline float hi_normal(float x) {
  const float t = hi_inverse(1.0f + 0.2316419f * fabsf(x)), root = 0.849321800f * x;
  const float sum = 0.710706871f + t * (-0.726576014f + t * 0.530702715f);
  const float tail = t * (0.127414796f + t * (-0.142248368f + t * sum)) * hi_binary_power(-root * root);
  return x > 0.0f ? 1.0f - tail : tail;
}
__device__ inline float hi_logistic(float x) { return hi_inverse(1.0f + hi_binary_power(-1.442695041f * x)); }
"""

#: The types of results that call those.
_NARROW = ("float16", "bfloat16")

_FUNCTIONS = {
    "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Erf": "erf", "Sin": "sin", "Cos": "cos", "Tan": "tan",
    "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh",
    "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Ceil": "ceil", "Floor": "floor", "Round": "rint",
}  # fmt: skip

_INFIX = {
    "Add": "+", "Sub": "-", "Mul": "*", "And": "&&", "Or": "||", "BitwiseAnd": "&", "BitwiseOr": "|",
    "BitwiseXor": "^", "Equal": "==", "Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">=",
}  # fmt: skip


def literal(value: Any, dtype: str) -> str:
    """A number as a constant of the type in which `dtype` is computed."""
    kind = inside(dtype)
    if dtype == "bool":
        return "true" if value else "false"
    if kind not in ("float32", "float64"):
        whole = int(value)
        if whole == -(2**63):
            return "(-9223372036854775807LL - 1)"
        return f"(({COMPUTE[kind]}){whole}{'ULL' if whole >= 2**63 else 'LL'})"
    number = float(value)
    if math.isnan(number):
        return "hi_float(0x7fc00000u)" if kind == "float32" else "hi_double(0x7ff8000000000000ull)"
    if math.isinf(number):
        sign = "8" if number < 0 else "0"
        if kind == "float32":
            return f"hi_float(0x{int(sign, 16) + 7:x}f800000u)"
        return f"hi_double(0x{int(sign, 16) + 7:x}ff0000000000000ull)"
    if kind == "float32" and abs(number) > 3.4028235677973366e38:
        return literal(math.copysign(math.inf, number), dtype)
    text = number.hex()
    return f"{text}f" if kind == "float32" else text


def expression(op: str, values: Sequence[str], types: Sequence[str], dtype: str, at: Mapping[str, Any]) -> str:
    """The C expression of one instruction; `types` are the dtypes of its arguments, `dtype` that of its result."""
    if op == "Cast":
        return _cast(values[0], types[0], at["to"])
    real = inside(types[-1 if op == "Where" else 0])
    single = real == "float32"
    floating = single or real == "float64"
    if op in _FUNCTIONS:
        if not floating:
            return values[0] if op in ("Ceil", "Floor", "Round") else _cast(f"{_FUNCTIONS[op]}((double){values[0]})",
                                                                             "float64", dtype)  # fmt: skip
        return _call(_FUNCTIONS[op], values[0], single)
    if op in _INFIX:
        narrow = COMPUTE[inside(dtype)] if dtype != "bool" else "bool"
        return f"({narrow})({values[0]} {_INFIX[op]} {values[1]})"
    if op in ("Max", "Min"):
        return _reduce(lambda a, b: f"hi_{op.lower()}({a}, {b})", values)
    if op in ("Sum", "Mean"):
        total = _reduce(lambda a, b: f"({a} + {b})", values)
        return total if op == "Sum" else f"({total} / {literal(len(values), dtype)})"
    if op in _SPECIAL:
        return _SPECIAL[op](_Operands(values, types, real, floating, single, at, dtype in _NARROW))
    raise KeyError(op)


def _reduce(join: Callable[[str, str], str], values: Sequence[str]) -> str:
    total = values[0]
    for each in values[1:]:
        total = join(total, each)
    return total


def _call(name: str, argument: str, single: bool) -> str:
    return f"{name}{'f' if single else ''}({argument})"


def _cast(value: str, source: str, target: str) -> str:
    if target == "bool":
        return f"({value} != ({COMPUTE[inside(source)]})0)"
    if target == "float16":
        return f"__half2float(__float2half_rn((float){value}))"
    if target == "bfloat16":
        return f"__bfloat162float(__float2bfloat16_rn((float){value}))"
    if inside(source) in ("float32", "float64") and target == "uint8":
        return f"({COMPUTE[target]})(long long){value}"  # as the frameworks' own kernels go about it
    return f"({COMPUTE[target]}){value}"


class _Operands:
    """The arguments of an operator that needs more than one word."""

    def __init__(
        self, values: Sequence[str], types: Sequence[str], real: str, floating: bool, single: bool,
        at: Mapping[str, Any], narrow: bool,
    ) -> None:  # fmt: skip
        self.x, self.values, self.types, self.real = values[0], values, types, real
        self.floating, self.single, self.at, self.narrow = floating, single, at, narrow

    def number(self, value: float) -> str:
        return literal(value, self.real)

    def attribute(self, name: str, default: float) -> str:
        return self.number(self.at.get(name, default))

    def call(self, name: str, argument: str) -> str:
        return _call(name, argument, self.single)

    def softplus(self, x: str) -> str:
        low, high = self.call("log1p", self.call("exp", x)), self.call("log1p", self.call("exp", f"-{x}"))
        return f"({x} > {self.number(0)} ? {x} + {high} : {low})"

    def sigmoid(self, x: str) -> str:
        if self.narrow:
            return f"hi_logistic({x})"
        return f"({self.number(1)} / ({self.number(1)} + {self.call('exp', f'-({x})')}))"


def _pow(o: _Operands) -> str:
    exponent = o.values[1]
    if o.floating:
        return f"{'powf' if o.single else 'pow'}({o.x}, ({COMPUTE[o.real]}){exponent})"
    if inside(o.types[1]) in ("float32", "float64"):
        return f"({COMPUTE[o.real]})pow((double){o.x}, (double){exponent})"
    return f"hi_power(({COMPUTE[o.real]}){o.x}, (long long){exponent})"  # a double has no room for all of them


def _mod(o: _Operands) -> str:
    if not o.floating:
        if o.at.get("fmod"):
            return f"({o.values[1]} == 0 ? ({COMPUTE[o.real]})0 : ({COMPUTE[o.real]})({o.x} % {o.values[1]}))"
        return f"hi_remainder({o.x}, {o.values[1]})"
    name = ("fmodf" if o.single else "fmod") if o.at.get("fmod") else "hi_mod"
    return f"{name}({o.x}, {o.values[1]})"


def _gelu(o: _Operands) -> str:
    if o.at.get("approximate", "none") == "tanh":
        cubic = f"{o.number(math.sqrt(2 / math.pi))} * {o.x} * ({o.number(1)} + {o.number(0.044715)} * {o.x} * {o.x})"
        return f"({o.number(0.5)} * {o.x} * ({o.number(1)} + {o.call('tanh', cubic)}))"
    if o.narrow:
        return f"({o.x} * hi_normal({o.x}))"
    curve = o.call("erf", f"{o.x} * {o.number(math.sqrt(0.5))}")
    return f"({o.number(0.5)} * {o.x} * ({o.number(1)} + {curve}))"


def _clip(o: _Operands) -> str:
    if o.at.get("only") == "high":
        return f"hi_min({o.x}, {o.values[1]})"
    text = o.x
    if len(o.values) > 1:
        text = f"hi_max({text}, {o.values[1]})"
    return f"hi_min({text}, {o.values[2]})" if len(o.values) > 2 else text


def _is_inf(o: _Operands) -> str:
    up, down = o.number(math.inf), o.number(-math.inf)
    tests = []
    if o.at.get("detect_positive", 1):
        tests.append(f"{o.x} == {up}")
    if o.at.get("detect_negative", 1):
        tests.append(f"{o.x} == {down}")
    return f"({' || '.join(tests)})" if tests else "false"


def _selu(o: _Operands) -> str:
    alpha, gamma = o.at.get("alpha", 1.6732632423543772), o.at.get("gamma", 1.0507009873554805)
    curve = f"{o.number(gamma * alpha)} * {o.call('expm1', o.x)}"
    return f"({o.x} > {o.number(0)} ? {o.number(gamma)} * {o.x} : {curve})"


def _celu(o: _Operands) -> str:
    alpha = o.attribute("alpha", 1.0)
    curve = f"{alpha} * {o.call('expm1', f'{o.x} / {alpha}')}"
    return f"({o.x} < {o.number(0)} ? {curve} : {o.x})"


def _hard(o: _Operands, alpha: str, beta: str) -> str:
    return f"hi_min(hi_max({alpha} * {o.x} + {beta}, {o.number(0)}), {o.number(1)})"


_SPECIAL: dict[str, Callable[[_Operands], str]] = {
    "Div": lambda o: f"({o.x} / {o.values[1]})" if o.floating else f"hi_quotient({o.x}, {o.values[1]})",
    "Mod": _mod, "Pow": _pow, "Xor": lambda o: f"({o.x} != {o.values[1]})", "Not": lambda o: f"(!{o.x})",
    "BitwiseNot": lambda o: f"({COMPUTE[o.real]})(~{o.x})",
    "Where": lambda o: f"({o.x} ? {o.values[1]} : {o.values[2]})",
    "Abs": lambda o: o.call("fabs", o.x) if o.floating else (
        o.x if o.real[0] == "u" else f"({COMPUTE[o.real]})({o.x} < 0 ? -{o.x} : {o.x})"
    ),
    "Neg": lambda o: f"({COMPUTE[o.real]})(-{o.x})", "Sign": lambda o: f"hi_sign({o.x})",
    "Reciprocal": lambda o: f"({o.number(1)} / {o.x})", "IsNaN": lambda o: f"({o.x} != {o.x})", "IsInf": _is_inf,
    "Relu": lambda o: f"({o.x} < {o.number(0)} ? {o.number(0)} : {o.x})",
    "Sigmoid": lambda o: o.sigmoid(o.x), "Softplus": lambda o: o.softplus(o.x),
    "Softsign": lambda o: f"({o.x} / ({o.number(1)} + {o.call('fabs', o.x)}))",
    "Elu": lambda o: f"({o.x} < {o.number(0)} ? {o.attribute('alpha', 1.0)} * {o.call('expm1', o.x)} : {o.x})",
    "Selu": _selu, "Celu": _celu,
    "LeakyRelu": lambda o: f"({o.x} < {o.number(0)} ? {o.attribute('alpha', 0.01)} * {o.x} : {o.x})",
    "HardSigmoid": lambda o: _hard(o, o.attribute("alpha", 0.2), o.attribute("beta", 0.5)),
    "HardSwish": lambda o: f"({o.x} * {_hard(o, o.number(1 / 6), o.number(0.5))})",
    "ThresholdedRelu": lambda o: f"({o.x} > {o.attribute('alpha', 1.0)} ? {o.x} : {o.number(0)})",
    "Mish": lambda o: f"({o.x} * {o.call('tanh', o.softplus(o.x))})",
    "PRelu": lambda o: f"({o.x} < {o.number(0)} ? {o.values[1]} * {o.x} : {o.x})",
    "Gelu": _gelu, "Clip": _clip,
    "Swish": lambda o: f"({o.x} * {o.sigmoid(o.attribute('alpha', 1.0) + ' * ' + o.x)})",
}  # fmt: skip
