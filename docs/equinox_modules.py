"""Signatures of Equinox modules for the reference, which is made without importing the library.

An `eqx.Module` is a dataclass without a decorator, so a static reader sees no `__init__`. This
Griffe extension makes one from the annotated fields; for named tuples too.
"""

import griffe


class EquinoxModules(griffe.Extension):
    """Gives every module class of a package the `__init__` that Equinox will give it."""

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        for cls in _classes(pkg):
            fields = _fields(cls) if _is_module(cls) and "__init__" not in cls.members else []
            if fields:
                init = griffe.Function(
                    "__init__", parameters=griffe.Parameters(_self(), *fields), parent=cls
                )
                cls.set_member("__init__", init)


def _self() -> griffe.Parameter:
    return griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)


def _classes(scope: griffe.Object):
    for member in list(scope.members.values()):
        if member.is_alias:
            continue
        if member.is_class:
            yield member
        if member.is_module or member.is_class:
            yield from _classes(member)


def _bases(cls: griffe.Class):
    """The paths of a class's bases, and the classes where they are of this package."""
    for base in cls.bases:
        path = base if isinstance(base, str) else base.canonical_path
        try:
            yield path, cls.modules_collection[path]
        except (KeyError, griffe.GriffeError):
            yield path, None


def _is_module(cls: griffe.Class) -> bool:
    return any(
        path in ("equinox.Module", "typing.NamedTuple")
        or (base is not None and _is_module(_final(base)))
        for path, base in _bases(cls)
    )


def _final(base):
    return base.final_target if base.is_alias else base


def _fields(cls: griffe.Class) -> list[griffe.Parameter]:
    """The fields of a class, those of its bases first, as Python orders those of a dataclass."""
    found: dict[str, griffe.Parameter] = {}
    for _, base in reversed(list(_bases(cls))):
        if base is not None:
            found |= {parameter.name: parameter for parameter in _fields(_final(base))}
    for member in cls.members.values():
        if member.is_attribute and _is_field(member):
            found[member.name] = griffe.Parameter(
                member.name,
                annotation=member.annotation,
                kind=griffe.ParameterKind.positional_or_keyword,
                default=_default(member.value),
            )
    return list(found.values())


def _is_field(attribute: griffe.Attribute) -> bool:
    if attribute.annotation is None or "property" in attribute.labels:
        return False
    if "class-attribute" in attribute.labels and "instance-attribute" not in attribute.labels:
        return False  # a ClassVar
    return "Abstract" not in str(attribute.annotation)


def _default(value):
    """The default in `eqx.field(...)`, or the value itself."""
    if value is None or not str(value).startswith("eqx.field("):
        return value
    arguments = {getattr(a, "name", None): getattr(a, "value", None) for a in value.arguments}
    if "default_factory" in arguments:
        return f"{arguments['default_factory']}()"
    return arguments.get("default")
