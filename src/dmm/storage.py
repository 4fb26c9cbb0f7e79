"""One file for any tree of Equinox modules, settings and weights, read without unpickling.

The file is an uncompressed zip archive. `manifest.json` holds the format's version, the kind of
content, the versions of dmm, jax and equinox, and the tree; `arrays/<index>` the raw bytes of one
array, little-endian, in C order; the archive's comment the SHA-256 of every byte before it.

In the manifest null, booleans, integers, finite floats and strings stand for themselves. Any other
value is an object whose first key says what it is, such as `{"tuple": [1, 2]}`. Classes and
functions are stored by name. Loading looks names up in a fixed set of places, refuses others, and
calls none of what it finds.
"""

import dataclasses
import functools
import hashlib
import importlib
import json
import math
import os
import secrets
import sys
import types
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from . import __version__

_VERSION = 1
_DIGEST_BYTES = 64  # SHA-256 in hexadecimal
_JaxDtype = type(jnp.float32)
_DTYPES = {jnp.dtype(t).name: jnp.dtype(t) for t in vars(jnp).values() if isinstance(t, _JaxDtype)}
# Public in jax.numpy, but they read files, write files or change global state.
_IMPURE = {"fromfile", "load", "printoptions", "save", "savez", "set_printoptions"}


class StorageError(ValueError):
    """A tree cannot be saved, or a file cannot be loaded. The message is one line."""


def save_tree(path: str | os.PathLike, tree: Any, *, kind: str) -> None:
    """Write `tree` to `path`; a file already there is replaced only once the new one is whole.

    A tree is made of Equinox modules, named tuples, tuples, lists, dicts with string keys, arrays,
    numbers, strings, None, dtypes, `jax.ShapeDtypeStruct`, and functions of `jax.nn`, `jax.numpy`,
    `jax.lax` and `equinox.nn`, also in a `functools.partial`. `kind` says what the tree is, e.g.
    "model"; `load_tree` must be given the same.
    """
    writer = _Writer()
    manifest = {
        "format": "dmm",
        "version": _VERSION,
        "kind": kind,
        "saved_with": {"dmm": __version__, "jax": jax.__version__, "equinox": eqx.__version__},
        "tree": writer.encode(tree, ""),
    }
    temporary = Path(path).parent / f".{secrets.token_hex(8)}.tmp"
    try:
        try:
            with temporary.open("x+b") as file:
                _write(file, json.dumps(manifest, indent=1), writer.arrays)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        fix = "name a file in a folder that exists and can be written to"
        raise StorageError(f"{path}: cannot be written ({error.strerror}); {fix}") from error


def load_tree(path: str | os.PathLike, *, kind: str, classes: Sequence[type] = ()) -> Any:
    """Read the tree that `save_tree` wrote, equal to the last bit.

    JAX arrays come back on the default device. `classes` are the module and named-tuple classes of
    the tree that are defined outside dmm and Equinox. No `__init__` is run.
    """
    # A class saved from a script may since have moved into a module.
    known = {f"__main__:{cls.__qualname__}": cls for cls in classes}
    known |= {_class_name(cls): cls for cls in classes}
    try:
        with Path(path).open("rb") as file:
            return _read(file, kind, known)
    except OSError as error:
        fix = "name a file that dmm has saved"
        raise StorageError(f"{path}: cannot be read ({error.strerror}); {fix}") from error
    except StorageError as error:
        raise StorageError(f"{path}: {error}") from error.__cause__
    except Exception as error:  # the checksum holds, so this is not damage
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        fix = "save it again with this version of dmm"
        raise StorageError(f"{path}: cannot be understood ({what}); {fix}") from error


def _write(file: BinaryIO, manifest: str, arrays: list[np.ndarray]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        # A bare ZipInfo has a fixed date: equal trees give equal files.
        archive.writestr(zipfile.ZipInfo("manifest.json"), manifest)
        for i, array in enumerate(arrays):
            archive.writestr(zipfile.ZipInfo(f"arrays/{i}"), array.tobytes())
        archive.comment = bytes(_DIGEST_BYTES)
    file.write(_digest(file))
    file.flush()
    os.fsync(file.fileno())


def _read(file: BinaryIO, kind: str, classes: dict[str, type]) -> Any:
    head = file.read(64)
    if not (head.startswith(b"PK\3\4") and b"manifest.json" in head):
        raise StorageError("not a dmm file; name a file that dmm has saved")
    if _digest(file) != file.read():
        raise StorageError("truncated or edited (its checksum differs); copy or save it again")
    with zipfile.ZipFile(file) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        if manifest["version"] > _VERSION:
            newer = f"format {manifest['version']}, this dmm reads up to {_VERSION}"
            raise StorageError(f"saved by a newer dmm ({newer}); upgrade dmm")
        if manifest["kind"] != kind:
            raise StorageError(f"holds a {manifest['kind']!r}, not a {kind!r}; name another file")
        return _Reader(archive, manifest["saved_with"], classes).decode(manifest["tree"])


def _digest(file: BinaryIO) -> bytes:
    """The SHA-256 of all before the digest's own bytes; leaves `file` where these begin."""
    left = file.seek(0, os.SEEK_END) - _DIGEST_BYTES
    file.seek(0)
    digest = hashlib.sha256()
    while left > 0:
        chunk = file.read(min(left, 1 << 20))
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest().encode()


@functools.cache
def _constants() -> dict[str, Any]:
    """The functions and scalar types that a file may name. Saving finds them by identity.

    Of Equinox these are the functions that `equinox.nn` defines, under the attribute that holds
    them: `MLP`'s final activation is a lambda. Elsewhere Equinox can read and write files.
    """
    constants: dict[str, Any] = {f"numpy.{name}": dtype.type for name, dtype in _DTYPES.items()}
    for module in (jax.nn, jnp, jax.lax):
        for name, value in vars(module).items():
            function = callable(value) and not isinstance(value, type) and name not in _IMPURE
            if not name.startswith("_") and (function or isinstance(value, _JaxDtype)):
                constants[f"{module.__name__}.{name}"] = value
    for module in [m for name, m in sys.modules.items() if name.startswith("equinox.nn.")]:
        for name, value in vars(module).items():
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
                constants[f"{module.__name__}.{name}"] = value
    return constants


def _class_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _refusal(path: str, what: str, fix: str) -> StorageError:
    return StorageError(f"{path.removeprefix('.') or 'the tree'}: {what} cannot be saved; {fix}")


class _Writer:
    """Turns a tree into JSON and a list of arrays. `path` is where in the tree a value stands."""

    def __init__(self):
        self.arrays: list[np.ndarray] = []

    def encode(self, value: Any, path: str) -> Any:
        # Exact types: a subclass, such as an enumeration, would come back as its base.
        cls: Any = type(value)
        if value is None or cls in (bool, int, str) or (cls is float and math.isfinite(value)):
            return value
        if cls is float:
            return {"float": str(value)}
        if cls in (tuple, list):
            return {cls.__name__: [self.encode(v, f"{path}[{i}]") for i, v in enumerate(value)]}
        if cls is dict:
            return {"dict": self._dict(value, path)}
        if isinstance(value, eqx.Module):
            return {"module": self._module(value, path)}
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return {"namedtuple": self._object(value, value._asdict(), path)}
        if isinstance(value, jax.Array):
            return {"jax": self._array(value, path), "weak": value.weak_type}
        if cls is np.ndarray or issubclass(cls, np.generic):
            return {"numpy" if cls is np.ndarray else "scalar": self._array(value, path)}
        if cls is jax.ShapeDtypeStruct and value.sharding is None:
            dtype = self._dtype(value.dtype, path)
            return {"shape": value.shape, "of": dtype, "weak": value.weak_type}
        if isinstance(value, np.dtype):
            return {"dtype": self._dtype(value, path)}
        if cls is functools.partial:
            func = self.encode(value.func, f"{path}.func")
            args = self.encode(value.args, f"{path}.args")
            keywords = self.encode(value.keywords, f"{path}.keywords")
            return {"partial": func, "args": args, "keywords": keywords}
        return {"constant": self._constant(value, path)}

    def _dict(self, value: dict, path: str) -> dict:
        for key in value:
            if type(key) is not str:
                raise _refusal(path, f"a dict with the key {key!r}", "use keys of type str")
        return {k: self.encode(v, f"{path}[{k!r}]") for k, v in value.items()}

    def _module(self, module: eqx.Module, path: str) -> dict:
        names = [field.name for field in dataclasses.fields(module)]
        if extra := sorted(vars(module).keys() - names):
            what = f"a {type(module).__name__} with {extra[0]}, which is not a field of it,"
            raise _refusal(path, what, "hold what it wraps instead")
        # An `__init__` may leave a field to the class's default; set, it would alter the treedef.
        absent = [name for name in names if name not in vars(module)]
        return {**self._object(module, vars(module), path), "absent": absent}

    def _object(self, value: Any, fields: Mapping[str, Any], path: str) -> dict:
        nodes = {name: self.encode(v, f"{path}.{name}") for name, v in fields.items()}
        return {"class": _class_name(type(value)), "fields": nodes}

    def _array(self, value: Any, path: str) -> dict:
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            raise _refusal(path, "a typed PRNG key", "hold jax.random.key_data(key)")
        dtype = self._dtype(value.dtype.newbyteorder("="), path)
        try:
            array = np.asarray(value)
        except (TypeError, RuntimeError) as error:  # traced, donated, or on another host
            what = f"an array without values ({type(error).__name__})"
            raise _refusal(path, what, "save outside jit, and before donating it") from error
        self.arrays.append(array.astype(array.dtype.newbyteorder("<"), copy=False))
        return {"index": len(self.arrays) - 1, "dtype": dtype, "shape": array.shape}

    def _dtype(self, dtype: Any, path: str) -> str:
        if _DTYPES.get(dtype.name) != dtype:
            raise _refusal(path, f"the dtype {dtype}", "use a dtype of jax.numpy")
        return dtype.name

    def _constant(self, value: Any, path: str) -> str:
        for name, constant in _constants().items():
            if constant is value:
                return name
        what = f"a value of type {type(value).__name__}"
        if isinstance(value, types.FunctionType):
            named = f"the function {value.__module__}.{value.__qualname__}"
            what = "a lambda" if value.__name__ == "<lambda>" else named
        raise _refusal(path, what, "hold it as an Equinox module or a function of jax.nn")


class _Reader:
    """Turns JSON and the arrays of an archive back into the tree."""

    def __init__(self, archive: zipfile.ZipFile, saved_with: dict, classes: dict[str, type]):
        self.archive, self.classes = archive, classes
        versions = ", ".join(f"{name} {version}" for name, version in saved_with.items())
        self.fix = f"use the versions that saved it ({versions})"

    def decode(self, node: Any) -> Any:
        match node:
            case None | bool() | int() | float() | str():
                return node
            case {"float": text}:
                return float(text)
            case {"tuple": items}:
                return tuple(self.decode(item) for item in items)
            case {"list": items}:
                return [self.decode(item) for item in items]
            case {"dict": items}:
                return {key: self.decode(item) for key, item in items.items()}
            case {"module": {"class": name, "fields": fields, "absent": absent}}:
                return self._module(self._class(name, eqx.Module), fields, absent)
            case {"namedtuple": {"class": name, "fields": fields}}:
                return self._namedtuple(self._class(name, tuple), fields)
            case {"jax": array, "weak": weak}:
                return _to_jax(self._array(**array), weak)
            case {"numpy": array}:
                return self._array(**array)
            case {"scalar": array}:
                return self._array(**array)[()]
            case {"shape": shape, "of": name, "weak": weak}:
                return jax.ShapeDtypeStruct(shape, _DTYPES[name], weak_type=weak)
            case {"dtype": name}:
                return _DTYPES[name]
            case {"partial": func, "args": args, "keywords": keywords}:
                args, keywords = self.decode(args), self.decode(keywords)
                return functools.partial(self.decode(func), *args, **keywords)
            case {"constant": name} if name in _constants():
                return _constants()[name]
            case {"constant": name}:
                raise StorageError(f"{name} is not in this jax or equinox; {self.fix}")
        raise ValueError(f"unknown entry {str(node)[:40]}")

    def _module(self, cls: type[eqx.Module], saved: dict, absent: list[str]) -> eqx.Module:
        fields = {f.name: f for f in dataclasses.fields(cls) if f.name not in absent}
        # A default that a converter or a factory makes is left out: it would have to be called.
        plain = {n: f.default for n, f in fields.items() if "converter" not in f.metadata}
        defaults = {n: v for n, v in plain.items() if v is not dataclasses.MISSING}
        module = object.__new__(cls)
        for name, value in self._values(cls, saved, fields, defaults).items():
            object.__setattr__(module, name, value)
        return module

    def _namedtuple(self, cls: Any, saved: dict) -> tuple:
        values = self._values(cls, saved, cls._fields, cls._field_defaults)
        return tuple.__new__(cls, [values[name] for name in cls._fields])

    def _values(self, cls: type, saved: dict, names: Iterable[str], defaults: dict) -> dict:
        values = defaults | {name: self.decode(node) for name, node in saved.items()}
        if changed := sorted(values.keys() ^ set(names)):
            state = "is no field" if changed[0] in values else "is a new field"
            name = _class_name(cls)
            raise StorageError(f"{changed[0]} {state} of the class {name} now; {self.fix}")
        return values

    def _class(self, name: str, base: type) -> Any:
        cls = self.classes.get(name) or _find_class(name)
        if not (isinstance(cls, type) and issubclass(cls, base)):
            raise StorageError(f"there is no {base.__name__} class {name} here; {self.fix}")
        return cls

    def _array(self, index: int, dtype: str, shape: list[int]) -> np.ndarray:
        data, native = self.archive.read(f"arrays/{index}"), _DTYPES[dtype]
        array = np.ndarray(shape, native.newbyteorder("<"), data).astype(native)
        if array.nbytes != len(data):
            raise ValueError(f"array {index} has {len(data)} bytes, not {array.nbytes}")
        return array


def _find_class(name: str) -> Any:
    """What goes by `name` in dmm or Equinox, if it is a class defined there."""
    module, _, qualname = name.partition(":")
    if module.partition(".")[0] not in ("dmm", "equinox"):
        short = qualname.rpartition("<locals>.")[2]
        raise StorageError(f"it was saved with class {name}; pass classes=[{short}]")
    # No class has a dunder in its name, and to import `dmm.__main__` would be to run it.
    found: Any = None if "__" in name else importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, "__dict__", {}).get(part)  # plain getattr may run code
    return found if isinstance(found, type) and _class_name(found) == name else None


def _to_jax(array: np.ndarray, weak: bool) -> jax.Array:
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        fix = "call jax.config.update('jax_enable_x64', True) before loading"
        raise StorageError(f"holds JAX arrays of {array.dtype}; {fix}")
    # JAX has no public switch for weak types, but `at` keeps that of a Python number. With 64 bits
    # enabled since, a Python number has another dtype, and only the dtype can be kept.
    if weak and (zero := jnp.asarray(array.dtype.type(0).item())).dtype == array.dtype:
        return jnp.broadcast_to(zero, array.shape).at[...].set(array)
    return jnp.asarray(array)
