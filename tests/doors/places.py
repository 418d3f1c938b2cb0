"""Where a program keeps values, and how a method gets at them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Place:
    """A place of any number of values, each under a name of its own.

    ``read``: how a method gets one; ``of``: the object that holds it, an expression of ``module``, ``layer`` and
    ``method``; ``by``: how it is held there ("attribute", "item", "cell", "default", "keyword"). The other fields are
    code, with ``{name}`` and ``{make}`` for each value: ``before`` and ``after`` the class, in its ``body``, in its
    constructor (``init``), ``parameters`` and ``keywords`` of the method. ``once`` is code that all values of a place
    share. With ``fallback`` the instance hides the value that counts, until its attribute is deleted.
    """

    name: str
    read: str
    of: str
    by: str = "attribute"
    before: str = ""
    body: str = ""
    init: str = ""
    after: str = ""
    parameters: str = ""
    keywords: str = ""
    fallback: bool = False
    once: dict[str, str] = field(default_factory=dict)

    @property
    def in_class(self) -> bool:
        """Would a function become a method here?"""
        holders = ("type(layer)", "type(type(layer))", "module.Base_", "module.Settings", "module.Batch")
        return (self.by == "attribute" and self.of in holders) or self.fallback


_ON_SELF = {"of": "layer", "init": "self.{name} = {make}"}
_BASE = {"before": "class Base_(Layer):\n    pass\n"}
_HOLDER = {"before": "class Holder:\n    pass\n"}

_PLACES = (
    Place("instance", "self.{name}", **_ON_SELF),
    Place("getattr", "getattr(self, 'k_' + '{name}'[2:])", **_ON_SELF),
    Place("vars", "vars(self)['{name}']", **_ON_SELF),
    Place("attrgetter", "operator.attrgetter('{name}')(self)", **_ON_SELF),
    Place("property", "self.p_{name}", body="@property\ndef p_{name}(self):\n    return self.{name}", **_ON_SELF),
    Place("method", "self.get_{name}()", body="def get_{name}(self):\n    return self.{name}", **_ON_SELF),
    Place("helper", "of_{name}(self)", after="def of_{name}(layer):\n    return layer.{name}", **_ON_SELF),
    Place("comprehension", "[getattr(one, '{name}') for one in [self]][0]", **_ON_SELF),
    Place(
        "sublayer", "self.sub.{name}", "layer.sub", init="self.sub.{name} = {make}",
        once={"before": "class Sub(Layer):\n    pass\n", "init": "self.sub = Sub()"},
    ),
    Place(
        "object", "self.holder.{name}", "layer.holder", init="self.holder.{name} = {make}",
        once={**_HOLDER, "init": "self.holder = Holder()"},
    ),
    Place(
        "deep_object", "self.a.b[0].c['d'].{name}", "layer.a.b[0].c['d']", init="self.a.b[0].c['d'].{name} = {make}",
        once={**_HOLDER, "init": "self.a = Holder()\nself.a.b = [Holder()]\nself.a.b[0].c = {'d': Holder()}"},
    ),
    Place(
        "list", "self.items[0]['{name}']", "layer.items[0]", "item", init="self.items[0]['{name}'] = {make}",
        once={"init": "self.items = [{}]"},
    ),
    Place(
        "dict", "self.table['{name}']", "layer.table", "item", init="self.table['{name}'] = {make}",
        once={"init": "self.table = {}"},
    ),
    Place(
        "tuple", "self.both[1]['{name}']", "layer.both[1]", "item", init="self.both[1]['{name}'] = {make}",
        once={"init": "self.both = (1, {})"},
    ),
    Place("class", "self.{name}", "type(layer)", body="{name} = {make}"),
    Place("class_by_type", "type(self).{name}", "type(layer)", body="{name} = {make}"),
    Place("class_by_name", "Method.{name}", "type(layer)", body="{name} = {make}"),
    Place("shadowed", "self.{name}", "layer", body="{name} = {make}", init="self.{name} = {other}", fallback=True),
    Place("base", "self.{name}", "module.Base_", before="Base_.{name} = {make}", once=_BASE),
    Place("base_by_super", "super().{name}", "module.Base_", before="Base_.{name} = {make}", once=_BASE),
    Place(
        "settings", "Settings.{name}", "module.Settings", before="Settings.{name} = {make}",
        once={"before": "class Settings:\n    pass\n"},
    ),
    Place(
        "settings_object", "SETTINGS.{name}", "module.SETTINGS", before="SETTINGS.{name} = {make}",
        once={"before": "class Setting:\n    pass\nSETTINGS = Setting()\n"},
    ),
    Place("global", "{name}", "module", before="{name} = {make}"),
    Place("global_by_name", "globals()['{name}']", "module", before="{name} = {make}"),
    Place(
        "global_table", "TABLE['{name}']", "module.TABLE", "item", before="TABLE['{name}'] = {make}",
        once={"before": "TABLE = {}\n"},
    ),
    Place(
        "global_of_helper", "get_{name}()", "module", before="{name} = {make}",
        after="def get_{name}():\n    return {name}",
    ),
    Place("closure", "{name}", "method", "cell", before="{name} = {make}"),
    Place("default", "{name}", "method", "default", parameters="{name}={make}"),
    Place("keyword", "{name}", "method", "keyword", keywords="{name}={make}"),
    Place(
        "default_of_helper", "get_{name}()", "module.get_{name}", "default",
        before="def get_{name}({name}={make}):\n    return {name}",
    ),
    Place(
        "keyword_of_helper", "get_{name}()", "module.get_{name}", "keyword",
        before="def get_{name}(*, {name}={make}):\n    return {name}",
    ),
    Place(
        "function", "helper.{name}", "module.helper", before="helper.{name} = {make}",
        once={"before": "def helper():\n    pass\n"},
    ),
    Place("argument", "batch.{name}", "module.Batch", before="Batch.{name} = {make}"),
    Place("argument_type", "type(batch).{name}", "module.Batch", before="Batch.{name} = {make}"),
    Place("module", "cfg.{name}", "module.cfg", before="cfg.{name} = {make}"),
    Place("imported", "import_of('{name}')", "sys.modules[module.CFG]", before="cfg.{name} = {make}"),
    Place("metaclass", "type(type(self)).{name}", "type(type(layer))", before="Meta_.{name} = {make}"),
)  # fmt: skip

PLACES = {place.name: place for place in _PLACES}
