"""What a method of a random program may do: templates of Python statements.

A slot ``<a:F>`` is filled with a float tensor, ``<i:I>`` with one of integers, ``<m:B>`` with one of booleans,
``<n:N>`` with arithmetic on sizes and integer arguments, ``<d:AX(a)>`` with an axis of what filled ``a``;
`fuzz_grammar` has them all. ``<a>`` stands for the same again. ``lib`` is the framework, ``DIM`` its word for an axis;
where the two are spelled in other ways, a rule is a pair (PyTorch's, Paddle's), of which one may be empty.

Left out is what ends the process eagerly, or reads what is not there: Paddle's ``split`` into fewer than no parts, its
indices out of range, its ``pad`` of a single number.
"""

from __future__ import annotations

from dataclasses import dataclass

Spelling = str | tuple[str, str]


@dataclass(frozen=True)
class Rule:
    """A statement: an expression that gets a name, or (`block`) lines that name their result ``OUT`` themselves."""

    spelling: Spelling
    block: bool = False
    #: The order of the values of its tensor ``a`` decides: no two may be equal.
    ordered: bool = False
    #: Where ``a`` has no element, an engine may answer otherwise or where eager raises (docs/limits.md).
    filled: bool = False

    def text(self, framework: str) -> str:
        if isinstance(self.spelling, str):
            return self.spelling
        return self.spelling[framework == "paddle"]


def _rules(*spellings: Spelling, **facts: bool) -> list[Rule]:
    return [Rule(each, **facts) for each in spellings]


def _indexed(index: str) -> Spelling:
    """A tensor at what `index` says; for Paddle a copy of it, whose kernel reads past the end of some strided views."""
    return f"<a:F>[{index}]", f"(<a:F> * 1)[{index}]"


ELEMENTWISE = _rules(
    "<a:F> + <b:F>", "<a:F> - <b:F>", "<a:F> * <b:F>", "<a:F> / (lib.abs(<b:F>) + 1)", "<a:F> * <n:N>",
    "<a:F> + <n:N>", "<n:N> - <a:F>", "<a:F> / max(<n:N>, 1)", "<a:F> * <x:X>", "<x:X> - <a:F>",
    "<x:X> / (lib.abs(<a:F>) + 1)", "lib.tanh(<a:F>)", "lib.sigmoid(<a:F>)", "F.relu(<a:F>)", "F.gelu(<a:F>)",
    "F.silu(<a:F>)", "F.softplus(<a:F>)", "lib.exp(-lib.abs(<a:F>))", "lib.sqrt(lib.abs(<a:F>) + 0.1)",
    "lib.log1p(lib.abs(<a:F>))", "lib.sin(<a:F> * <k:K>)", "lib.clip(<a:F>, -0.5, 0.7)", "lib.maximum(<a:F>, <b:F>)",
    "lib.minimum(<a:F>, <b:F>)", "<a:F> ** <k:K>", "lib.floor(<a:F> * 3)", "lib.round(<a:F> * 2)", "lib.sign(<a:F>)",
    "<a:F> // 0.3", "<a:F> % 0.7", "lib.erf(<a:F>)", "lib.where(<a:F> > <b:F>, <a>, <b>)",
    "lib.where(<m:B>, <a:F>, lib.zeros_like(<a>))", "<a:F>.masked_fill(<m:B>, <x:X>)", "<i:I> // <k:K>",
    "<i:I> % <k:K>", "-<i:I> // <k:K>", "<i:I> + <n:N>", "<i:I> * <i>", "<i:I>.float() / <k:K>", "<i:I> / <k:K>",
    "<m:B>.float()", "<m:B>.long() * <n:N>", "(<a:F> * 2).long()", "lib.full_like(<a:F>, <n:N>)",
    "lib.ones_like(<a:F>) * <n:N>", "lib.zeros_like(<i:I>) + <n:N>", "lib.remainder(<i:I>, -<k:K>)",
    "lib.lerp(<a:F>, <b:F>, 0.3)",
)  # fmt: skip

MASKS = _rules(
    "<a:F> > <b:F>", "<a:F> > <x:X>", "<i:I> == <k:K>", "<i:I> < <n:N>", "<m:B> & <o:B>", "~<m:B>", "<m:B> | <o:B>",
    "lib.arange(<n:N>)[None] < <i:I>[..., None]", "lib.arange(<a:F>.shape[<d:AX(a)>]) < <n:N>", "lib.isfinite(<a:F>)",
    "<i:I> != <j:I>", "lib.logical_xor(<m:B>, <o:B>)",
)  # fmt: skip

REDUCTIONS = [
    *_rules(
        "<a:F>.sum(<d:AX(a)>)", "<a:F>.sum(<d:AX(a)>, keepdim=<g:G>)", "<a:F>.mean(<d:AX(a)>, keepdim=<g:G>)",
        "<a:F>.sum()", "<a:F>.mean()", "<a:F>.sum([<d:AX(a)>, <e:AX(a)>], keepdim=<g:G>)", "<i:I>.sum(<d:AX(i)>)",
        "<m:B>.sum(<d:AX(m)>)", "<a:F>.mean([<d:AX(a)>, <e:AX(a)>], keepdim=<g:G>)",
        "<a:F>.sum(DIM=<d:AX(a)>) / <n:P>", "(<a:F> * <m:B>.float()).sum(<d:AX(a)>) / (<m>.float().sum(<d>) + 1)",
        "lib.cumsum(<a:F>, <d:AX(a)>)", "lib.cumsum(<i:I>, <d:AX(i)>)", "lib.cumsum(<m:B>.long(), <d:AX(m)>)",
        "<a:F>.cumsum(<n:V>)", "<a:F>.sum(<n:V>)", "<a:F>.mean(<n:V>)", "lib.cumprod(<a:F>, <d:AX(a)>)",
        "lib.diff(<a:F>, DIM=<d:AX(a)>)", "F.softmax(<a:F>, DIM=<d:AX(a)>)", "F.log_softmax(<a:F>, DIM=<d:AX(a)>)",
        "F.softmax(<a:F>, <n:V>)", "F.normalize(<a:F>, DIM=<d:AX(a)>)", "F.layer_norm(<a:F>, <a>.shape[-1:])",
    ),
    *_rules(
        "<a:F>.amax(<d:AX(a)>, keepdim=<g:G>)", "<a:F>.amin(<d:AX(a)>)", "<a:F>.max()",
        "lib.logsumexp(<a:F>, <d:AX(a)>)", "<a:F>.var(<d:AX(a)>, unbiased=False)", "<a:F>.std()",
        "<a:F>.prod(<d:AX(a)>)", "<a:F>.norm(DIM=<d:AX(a)>)", "(<a:F> > 0).any(<d:AX(a)>)",
        "(<a:F> > 0).all(<d:AX(a)>)",
        filled=True,
    ),
    *_rules(
        "lib.argmax(<a:F>, <d:AX(a)>)", "lib.argmin(<a:F>, <d:AX(a)>, keepdim=<g:G>)",
        "lib.argsort(<a:F>, <d:AX(a)>)", "lib.sort(<a:F>, <d:AX(a)>)", "lib.max(<a:F>, <d:AX(a)>)",
        "lib.topk(<a:F>, <k:K>, <d:AX(a)>)", "lib.topk(<a:F>, min(<n:P>, <a>.shape[<d:AX(a)>]), <d>)",
        "lib.argmax(<a:F>)", "lib.argmax(<a:F>, <n:V>)", "lib.sort(<a:F>, <d:AX(a)>, descending=True)",
        "lib.argsort(<a:F>, <d:AX(a)>, descending=True)",
        ordered=True, filled=True,
    ),
]  # fmt: skip

FORMS = _rules(
    "<a:F>.reshape([<a>.shape[0], -1])", "<a:F>.reshape([-1, <a>.shape[-1]])", "<a:F>.reshape([-1])",
    "<a:F>.flatten()", "<a:F>.flatten(1)", "<a:F>.flatten(0, 1)", "<a:F>.flatten(-2)", "<a:F>.reshape([<n:P>, -1])",
    "<a:F>.reshape([-1, <n:P>])", "<a:F>.reshape([*<a>.shape[:-1], <a>.shape[-1] // <k:K>, <k>])",
    "<a:F>.reshape([<a>.shape[-1], -1])", "<a:F>.reshape([<a>.shape[0], <a>.shape[1] // <k:K>, <k>, -1])",
    "<a:F>.reshape([<a>.shape[0] // <k:K>, <k>, -1])", "<a:F>.reshape([*<a>.shape[:<l:L>], -1])",
    "<a:F>.reshape([-1, *<a>.shape[<l:L>:]])", "<a:F>.reshape(list(<b:F>.shape))",
    "<a:F>.reshape([<a>.shape[0] * <a>.shape[1], *<a>.shape[2:]])", "<a:F>.unsqueeze(<d:AX(a)>)",
    "<a:F>.squeeze(<d:AX(a)>)", ("<a:F>.view(<a>.size(0), -1)", "<a:F>.reshape([0, -1])"),
    ("<a:F>.view(-1, <n:P>)", ""), "<a:F>[None]", ("<a:F>.permute(<p:PERM(a)>)", "<a:F>.transpose([<p:PERM(a)>])"),
    "lib.moveaxis(<a:F>, <d:AX(a)>, <e:AX(a)>)", ("<a:F>.transpose(<d:AX(a)>, <e:AX(a)>)", ""),
    ("<a:F>.transpose(<d:AX(a)>, <n:V>)", ""), "<a:F>.unsqueeze(<n:V>)",
    ("<a:F>.unflatten(<d:AX(a)>, (-1, <k:K>))", ""), "lib.stack([<a:F>, <b:F>], <d:AX(a)>)",
    "CAT([<a:F>, <b:F>], <d:AX(a)>)", "CAT([<a:F>, <a>, <b:F>], <d:AX(a)>)", "lib.stack([<a:F>] * <n:P>)",
    "CAT([<a:F>, lib.zeros_like(<a>)], <n:V>)", "CAT([<a:F>, lib.zeros([<n:P>, *<a>.shape[1:]])], 0)",
    "lib.chunk(<a:F>, <k:K>, <d:AX(a)>)", "lib.unbind(<a:F>, <d:AX(a)>)", "lib.split(<a:F>, <k:K>, <d:AX(a)>)",
    ("torch.split(<a:F>, <n:P>, <d:AX(a)>)", "paddle.split(<a:F>, max(<n:N>, 1), <d:AX(a)>)"),
    "lib.split(<a:F>, [<k:K>, <a>.shape[<d:AX(a)>] - <k>], <d>)", "lib.roll(<a:F>, <n:N>, <d:AX(a)>)",
    "lib.roll(<a:F>, <n:N>)", "lib.flip(<a:F>, [<d:AX(a)>])",
    ("F.pad(<a:F>, [<l:L>, <n:P>])", "F.pad(<a:F>[None], [<l:L>, <n:P>])"),
    "F.pad(<a:F>, [0, -<a>.shape[-1] % <k:K>])",
    ("F.pad(<a:F>, [<l:L>, <n:P>, 0, <o:P>])", "F.pad(<a:F>[None], [<l:L>, <n:P>, 0, <o:P>])"),
    "<a:F>.repeat_interleave(<n:P>, <d:AX(a)>)", "lib.tile(<a:F>, [<n:P>, 1])", "<a:F>.expand([<n:P>, *<a>.shape])",
    "lib.broadcast_to(<a:F>, [<n:P>, *<a>.shape])", "lib.tile(<a:F>, [<n:P>])",
    "<a:F>[None].expand([<n:P>, *<a>.shape])", "<a:F>.mean(0, keepdim=True).expand([<n:P>, *<a>.shape[1:]])",
    "lib.repeat_interleave(<a:F>, <n:P>, <d:AX(a)>)", "<a:F>.expand_as(<b:F>)", "lib.tril(<a:F>, <l:L>)",
    "lib.triu(<a:F>, <n:N>)", "lib.diagonal(<a:F>)", "<a:F>.unfold(<d:AX(a)>, <k:K>, <s:K>)",
    "F.avg_pool1d(<a:F>, <k:K>)", "F.max_pool1d(<a:F>, <k:K>)", "F.adaptive_avg_pool1d(<a:F>, <k:K>)",
    "lib.meshgrid(<a:F>, <b:F>)", ("<a:F>.repeat(<n:P>, *[1] * <a>.dim())", ""),
    ("<a:F>.contiguous().view([*<a>.shape[:-1], -1, <k:K>])", ""), ("<a:F>.narrow(<d:AX(a)>, <l:L>, <n:P>)", ""),
    ("<a:F>.tensor_split(<k:K>, <d:AX(a)>)", ""),
)  # fmt: skip

PARTS = _rules(
    "<a:F>[<n:N>:]", "<a:F>[:<n:N>]", "<a:F>[<n:N>:<o:N>]", "<a:F>[:, <n:N>:]", "<a:F>[:, :<n:N>]",
    "<a:F>[..., :<n:N>]", "<a:F>[..., <n:N>:]", "<a:F>[:, <l:L>::<k:K>]", "<a:F>[-<n:P>:]", "<a:F>[:-<n:P>]",
    "<a:F>[<l:L>]", "<a:F>[-1]", "<a:F>[:, -1]", "<a:F>[..., -1]", "<a:F>[<n:N>]", "<a:F>[:, <n:N>]",
    "<a:F>[<a>.shape[0] // 2]", "<a:F>[..., None]", "<a:F>[::<k:K>]", ("", "<a:F>[::-1]"), ("", "<a:F>[:, ::-<k:K>]"),
    ("", "<a:F>[<n:N>::-1]"), "<a:F>[<a>.shape[0] // 2:]", "<a:F>[<a>.shape[0] - <k:K>:]", "<i:I>[<n:N>:]",
    "<m:B>[:<n:N>]", "<i:I>[..., -1]", _indexed("<i:I> % <a>.shape[0]"), _indexed(":, <i:I> % <a>.shape[1]"),
    _indexed("<m:B>"), _indexed("<i:I> % <a>.shape[0], <j:I> % <a>.shape[1]"), ("<a:F>[<i:I>]", ""),
    ("torch.gather(<a:F>, <d:AX(a)>, <i:I> % <a>.shape[<d>])",
     "paddle.gather(<a:F>, <i:I> % <a>.shape[<d:AX(a)>], <d>)"),
    ("torch.index_select(<a:F>, <d:AX(a)>, <i:I>.flatten() % <a>.shape[<d>])",
     "paddle.index_select(<a:F>, <i:I>.flatten() % <a>.shape[<d:AX(a)>], <d>)"),
    ("torch.take_along_dim(<a:F>, <i:I> % <a>.shape[<d:AX(a)>], <d>)",
     "paddle.take_along_axis(<a:F>, <i:I> % <a>.shape[<d:AX(a)>], <d>)"),
    ("torch.zeros_like(<a:F>).scatter_add(<d:AX(a)>, torch.zeros_like(<a>).long(), <a>)",
     "paddle.scatter(<a:F>, paddle.arange(<a>.shape[0]), <a> * 2)"),
    "F.one_hot(<i:I> % <k:K>, <k>)", "lib.nonzero(<m:B>)", "lib.masked_select(<a:F>, <m:B>)",
    "<a:F>[:, None] - <a>[None]", "<i:I>[:, None] == lib.arange(<n:P>)",
    _indexed(":, lib.arange(<n:P>) % <a>.shape[1]"),
    ("<a:F>[torch.arange(<n:N>)]", "(<a:F> * 1)[paddle.arange(<n:N>) % <a>.shape[0]]"),
)  # fmt: skip

MAKERS = _rules(
    "lib.arange(<n:N>)", "lib.arange(<l:L>, <n:N>)", "lib.arange(<n:P>) * <x:X>", "lib.arange(<n:N>, <l:L>, -1)",
    "lib.zeros([<n:P>])", "lib.zeros([<n:P>, <o:P>])", "lib.ones([<n:P>]) * <o:N>", "lib.full([<n:P>], <x:X>)",
    "lib.full([<k:K>, <n:P>], float(<o:N>))", "lib.arange(<n:P>).float() / <n>", "lib.linspace(0, 1, <n:P>)",
    "lib.eye(<n:P>)", "lib.arange(0, <n:P>, <k:K>)", "lib.tril(lib.ones([<n:P>, <n>]))",
    ("torch.tensor([<n:N>, <o:N>])", "paddle.to_tensor([<n:N>, <o:N>])"),
    ("torch.tensor(<n:N>)", "paddle.to_tensor(<n:N>)"), ("<a:F>.new_zeros(<n:P>, <k:K>)", ""),
    "lib.arange(<n:P>) // <k:K>", "lib.exp(-math.log(10000.0) * lib.arange(0, <k:K>) / <n:P>)",
    ("torch.full((<n:P>,), <o:N>)", "paddle.full([<n:P>], <o:N>, 'int64')"),
)  # fmt: skip

PRODUCTS = _rules(
    "<a:F> @ <b:F>", ("<a:F> @ <b:F>.transpose(-1, -2)", "paddle.matmul(<a:F>, <b:F>, transpose_y=True)"),
    ("<a:F>.transpose(-1, -2) @ <b:F>", "paddle.matmul(<a:F>, <b:F>, transpose_x=True)"), "lib.outer(<a:F>, <b:F>)",
    "lib.einsum('ij,kj->ik', <a:F>, <b:F>)", "lib.einsum('bij,bkj->bik', <a:F>, <b:F>)",
    "lib.einsum('ij->ji', <a:F>)", "lib.einsum('...i,...i->...', <a:F>, <b:F>)", "lib.einsum('bij->bj', <a:F>)",
    "lib.bmm(<a:F>, <b:F>)", ("F.scaled_dot_product_attention(<a:F>, <b:F>, <b>)", ""),
    ("torch.cdist(<a:F>, <b:F> + 3)", ""), "F.softmax(<a:F> / math.sqrt(max(<a>.shape[-1], 1)), DIM=-1)",
    "lib.dot(<a:F>, <b:F>)",
)  # fmt: skip

NUMBERS = _rules(
    "<n:N>", "<n:N>", "<n:N> / <k:K>", "<c:C>", "list(<a:F>.shape)", "len(<a:F>)", "<a:F>.ndim", "(<n:N>, <o:N>)",
    "tuple(<a:F>.shape[1:])", "divmod(<n:N>, <k:K>)", ("<a:F>.shape", ""), ("<a:F>.numel()", ""),
)  # fmt: skip

BLOCKS = _rules(
    "if <c:C>:\n    OUT = <a:F> * 2\nelse:\n    OUT = <a> - 1",
    "if <c:C>:\n    OUT = <a:F>[:<n:N>]\nelse:\n    OUT = <a>[<o:N>:]",
    ("OUT = <a:F>\nif <c:C>:\n    OUT = F.pad(OUT, [0, <n:P>])",
     "OUT = <a:F>[None]\nif <c:C>:\n    OUT = F.pad(OUT, [0, <n:P>])"),
    "OUT = <a:F>\nfor step in range(<n:P>):\n    OUT = lib.tanh(OUT * 1.1) + step",
    "OUT = []\nfor step in range(<n:P>):\n    OUT.append(<a:F> * step)\nOUT = lib.stack(OUT)",
    "OUT = <a:F>\nwhile OUT.shape[0] > <k:K>:\n    OUT = OUT[: OUT.shape[0] // 2]",
    "OUT = <a:F>.clone()\nOUT[<l:L>] = <x:X>", "OUT = <a:F>.clone()\nOUT[:, <n:N>:] = <x:X>",
    "OUT = <a:F>.clone()\nOUT[:<n:N>] += <o:N>", "OUT = <a:F>.clone()\nOUT[<m:B>] = <x:X>",
    "OUT = <a:F> * 1\nOUT += <n:N>", "OUT = <a:F> * 1\nOUT *= <b:F>",
    "OUT = lib.zeros([<a:F>.shape[0] + <k:K>, *<a>.shape[1:]])\nOUT[: <a>.shape[0]] = <a>",
    "OUT = [row.sum() for row in <a:F>]", "OUT = lib.stack([row * <n:N> for row in <a:F>])",
    "OUT = 0\nfor part in <a:F>:\n    OUT = OUT * 0.5 + part",
    "OUT = {'a': <a:F>, 'n': <n:N>, 'deep': [<b:F>, (<o:N>, None)]}",
    "OUT = <a:F>\nif <a>.ndim > <l:L> and <c:C>:\n    OUT = OUT.mean(-1)", "assert <c:C>\nOUT = <a:F> + 1",
    "OUT = <a:F> if <c:C> else None", "OUT = sum(<a:F>.shape) * <a>", "OUT = [size + 1 for size in <a:F>.shape]",
    "if <c:C>:\n    raise ValueError('size')\nOUT = <a:F> - 1",
    "rows = <a:F>.shape[0]\nOUT = <a>[rows // <k:K> :] * rows",
    "OUT = <a:F>\nfor size in <a>.shape:\n    OUT = OUT + size",
    "if <a:F>.abs().sum() > <k:K>:\n    OUT = <a> * 2\nelse:\n    OUT = <a> - 1",
    "OUT = <a:F>\nif (<b:F> > 0).all():\n    OUT = OUT + 1", "assert (<a:F> > -1e4).all()\nOUT = <b:F> + 1",
    "if lib.isnan(<a:F>).any():\n    raise ValueError('nan')\nOUT = <a> - 1",
    "OUT = <a:F> if bool((<b:F> > 0.5).any()) else None", "OUT = <a:F> + 1\nif <m:B>.any():\n    OUT += <n:N>",
    block=True,
)  # fmt: skip

CHANGES = _rules(
    "items.append(<a:F>)\nOUT = len(items)", "items[0] = items[0] * <n:N>\nOUT = items[0]",
    "table['a'] = CAT([table['a'], <a:F>], <d:AX(a)>)\nOUT = table['a'] * 2",
    "table['n'] = table['n'] + <n:N>\nOUT = table['n']", "table['new'] = <a:F> + 1\nOUT = len(table)",
    "state.value = CAT([state.value, <a:F>], <d:AX(a)>)\nOUT = state.value.sum(0)",
    "state.steps += <n:N>\nOUT = <a:F> * state.steps", "state.seen.append(<n:N>)\nOUT = <a:F> + len(state.seen)",
    "OUT = state.value[: state.steps]", "OUT = items.pop() + <a:F>", "state.value[:1] = <x:X>\nOUT = state.value * 1",
    "OUT = CAT([*items, <a:F>], <d:AX(a)>)",
    block=True,
)  # fmt: skip

#: Sorts of statements, and how many of a hundred are of each.
SORTS = (
    (18, ELEMENTWISE), (8, MASKS), (14, REDUCTIONS), (19, FORMS), (13, PARTS), (8, MAKERS), (6, PRODUCTS), (5, NUMBERS),
    (9, BLOCKS),
)  # fmt: skip
