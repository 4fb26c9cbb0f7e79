"""`dmm.storage`: what is saved comes back to the last bit, and anything else is refused."""

import dataclasses
import enum
import functools
import hashlib
import json
import os
import sys
import zipfile
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmm import __version__
from dmm.storage import StorageError, load_tree, save_tree


class Pair(NamedTuple):
    first: Any
    second: Any = 2


class Holder(eqx.Module):
    value: Any
    setting: Any = eqx.field(static=True, default=None)


class Converted(eqx.Module):
    value: Any = eqx.field(converter=jnp.asarray, default=1.0)
    made: Any = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Plain:
    value: int = 1


class Untouched(eqx.Module):
    """Its `__init__` leaves `kept` to the class's default."""

    value: int
    kept: int = 5

    def __init__(self):
        self.value = 1


CLASSES = (Converted, Holder, Pair, Plain, Untouched)

ARRAYS = {
    "float32": jnp.array([[1.5, -0.0, jnp.inf], [jnp.nan, 1e-45, 3.0]]),
    "bfloat16": jnp.array([1.0, 2.5, -3e38], jnp.bfloat16),
    "float16": jnp.array([6e-8, 65504], jnp.float16),
    "float8": jnp.array([1.0, -2.0], jnp.float8_e4m3fn),
    "int4": jnp.array([-8, 7], jnp.int4),
    "bool": jnp.array([True, False]),
    "uint8": jnp.arange(256, dtype=jnp.uint8),
    "complex": jnp.array([1 + 2j]),
    "scalar": jnp.float32(0.1),
    "empty": jnp.zeros((0, 3)),
    "weak scalar": jnp.asarray(0.1),
    "weak vector": jnp.broadcast_to(jnp.asarray(3), (4,)),
    "numpy": np.array([1.0, np.pi]),
    "numpy bfloat16": np.ones((2, 1), jnp.bfloat16),
    "numpy fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "numpy scalar": np.float64(0.1),
    "nan payload": np.array([0x7FC12345, 0xFFC00001], np.uint32).view(np.float32),
    "legacy key": jax.random.key_data(jax.random.key(3)),
}

VALUES = {
    "none": None,
    "bool": True,
    "int": -(2**80),
    "float": 0.1,
    "minus zero": -0.0,
    "infinity": -float("inf"),
    "nan": float("nan"),
    "str": 'é "\n\ud800',
    "tuple": (1, (2.0, ()), "x"),
    "list": [1, [2.0], []],
    "dict": {"tuple": [1], "z": {}, "a": None},
    "namedtuple": Pair(1, Pair((), [])),
    "shape": jax.ShapeDtypeStruct((2, 3), jnp.bfloat16),
    "weak shape": jax.ShapeDtypeStruct((), jnp.float32, weak_type=True),
    "dtype": np.dtype("float16"),
    "dtype of jax": jnp.zeros(2, jnp.bfloat16).dtype,
    "scalar type of jax": jnp.float32,
    "scalar type of numpy": np.int8,
    "jitted function": jax.nn.silu,
    "custom derivative": jax.nn.relu,
    "ufunc": jnp.add,
    "lax": jax.lax.tanh,
}


KEY = jax.random.key(0)
LAYERS = [
    eqx.nn.MLP(2, 3, 4, 2, key=KEY),
    eqx.nn.MLP("scalar", 3, 4, 3, activation=jax.nn.gelu, scan=True, key=KEY),
    eqx.nn.MLP(2, 2, 4, 1, activation=eqx.nn.PReLU(0.1), dtype=jnp.bfloat16, key=KEY),
    eqx.nn.Sequential([eqx.nn.Linear(2, 2, key=KEY), eqx.nn.Lambda(jax.nn.softplus)]),
    eqx.nn.Conv2d(1, 2, 3, padding="SAME", key=KEY),
    eqx.nn.GRUCell(2, 3, key=KEY),
    eqx.nn.MultiheadAttention(2, 4, dropout_p=0.5, key=KEY),
    eqx.nn.RotaryPositionalEmbedding(4),
    eqx.nn.GroupNorm(2, 4),
    eqx.nn.AvgPool1d(2),
    eqx.nn.AdaptiveMaxPool1d(2),
]


def bits(array):
    """All there is to know about an array."""
    kind = jax.Array if isinstance(array, jax.Array) else type(array)
    weak = getattr(array, "weak_type", None)
    return kind, array.dtype, array.shape, weak, np.asarray(array).tobytes()


def assert_same(new, old):
    assert jax.tree.structure(new) == jax.tree.structure(old)
    for a, b in zip(jax.tree.leaves(new), jax.tree.leaves(old), strict=True):
        if eqx.is_array(b) or isinstance(b, np.ndarray | np.generic):
            assert bits(a) == bits(b)
        else:
            assert type(a) is type(b)
            assert a is b or repr(a) == repr(b)


def round_trip(path, tree):
    save_tree(path, tree, kind="model")
    return load_tree(path, kind="model", classes=CLASSES)


def refused(path, *, kind="model", classes=CLASSES):
    """The message with which `path` is refused."""
    with pytest.raises(StorageError) as caught:
        load_tree(path, kind=kind, classes=classes)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert "; " in message, "the message says what to do"
    return message


def forge(path, edit):
    """Edit the manifest of a file and sign it again, by the format's description alone."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(entries["manifest.json"])
    edit(manifest)
    entries["manifest.json"] = json.dumps(manifest).encode()
    sign(path, entries)


def sign(path, entries):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
        archive.comment = bytes(64)
    data = path.read_bytes()[:-64]
    path.write_bytes(data + hashlib.sha256(data).hexdigest().encode())


def forge_tree(path, node):
    save_tree(path, None, kind="model")
    forge(path, lambda manifest: manifest.update(tree=node))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tree.dmm"


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(path, name):
    new, old = round_trip(path, ARRAYS[name]), ARRAYS[name]
    assert bits(new) == bits(old)


@pytest.mark.parametrize("name", VALUES)
def test_values(path, name):
    old = VALUES[name]
    new = round_trip(path, Holder(old, setting=old))
    for value in (new.value, new.setting):
        assert type(value) is type(old)
        assert value == old or name == "nan"
        assert repr(value) == repr(old)
        assert not callable(old) or value is old


def test_big_endian_array_keeps_its_values(path):
    new = round_trip(path, np.array([1, 2], ">i4"))
    np.testing.assert_array_equal(new, [1, 2])
    assert new.dtype == np.int32


def test_numpy_array_is_writable(path):
    new = round_trip(path, np.zeros(2))
    new[0] = 1.0
    assert new.sum() == 1.0


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_equinox_layers(path, layer):
    assert_same(round_trip(path, layer), layer)


def test_whole_tree(path):
    tree = Pair(Holder({**ARRAYS, **VALUES}, setting=(1, "a", jnp.float32)), [Untouched()])
    assert_same(round_trip(path, tree), tree)


def test_mlp_gives_equal_outputs_without_a_second_compilation(path):
    mlp = eqx.nn.MLP(3, 2, 8, 2, key=jax.random.key(1))
    traces = []

    @eqx.filter_jit
    def call(model, x):
        traces.append(x)
        return jax.vmap(model)(x)

    x = jax.random.normal(jax.random.key(2), (5, 3))
    assert bits(call(round_trip(path, mlp), x)) == bits(call(mlp, x))
    assert len(traces) == 1


def test_partial(path):
    old = functools.partial(jax.nn.gelu, jnp.ones(2), approximate=False)
    new = round_trip(path, old)
    assert type(new) is functools.partial
    assert new.func is jax.nn.gelu
    assert bits(new.args[0]) == bits(old.args[0])
    assert new.keywords == {"approximate": False}


def test_field_left_to_the_default_stays_unset(path):
    new = round_trip(path, Untouched())
    assert "kept" not in vars(new)
    assert new.kept == 5


def test_no_init_runs(path, monkeypatch):
    tree = Untouched()
    monkeypatch.setattr(Untouched, "__init__", lambda self: pytest.fail("__init__ was run"))
    assert round_trip(path, tree).value == 1


def test_format(path):
    save_tree(path, (jnp.arange(2.0), np.array([[7]], np.int16)), kind="thing")
    with zipfile.ZipFile(path) as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
        manifest = json.loads(archive.read("manifest.json"))
        assert archive.read("arrays/0") == np.array([0, 1], "<f4").tobytes()
        assert archive.read("arrays/1") == b"\7\0"
    versions = {"dmm": __version__, "jax": jax.__version__, "equinox": eqx.__version__}
    assert manifest.pop("tree").keys() == {"tuple"}
    assert manifest == {"format": "dmm", "version": 1, "kind": "thing", "saved_with": versions}


def test_manifest_is_strict_json(path):
    save_tree(path, [float("inf"), float("nan")], kind="thing")
    with zipfile.ZipFile(path) as archive:
        json.loads(archive.read("manifest.json"), parse_constant=pytest.fail)


def test_equal_trees_give_equal_files(tmp_path):
    for name in ("a", "b"):
        save_tree(tmp_path / name, Holder(ARRAYS["float32"]), kind="model")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# Damage


@pytest.fixture
def small(path):
    save_tree(path, Holder(jnp.arange(3.0), setting="x"), kind="model")
    return path


def test_every_truncation_is_refused(small):
    whole = small.read_bytes()
    for length in range(len(whole)):
        small.write_bytes(whole[:length])
        refused(small)
    small.write_bytes(whole + b"0")
    refused(small)


def test_every_flipped_byte_is_refused(small):
    whole = small.read_bytes()
    for i in range(len(whole)):
        small.write_bytes(whole[:i] + bytes([whole[i] ^ (1 << i % 8)]) + whole[i + 1 :])
        refused(small)
    small.write_bytes(whole)
    assert load_tree(small, kind="model", classes=CLASSES).setting == "x"


def test_damage_far_into_a_large_file_is_refused(path):
    array = np.arange(400_000.0)  # 3.2 MB: read in several chunks
    assert bits(round_trip(path, array)) == bits(array)
    data = bytearray(path.read_bytes())
    data[-200_000] ^= 1
    path.write_bytes(data)
    assert "truncated or edited" in refused(path)


# Files that are not what was asked for


def test_wrong_kind(small):
    assert "holds a 'model', not a 'state'" in refused(small, kind="state")


def test_newer_version(small):
    forge(small, lambda manifest: manifest.update(version=2))
    assert "upgrade dmm" in refused(small)


def test_forging_itself_is_not_refused(small):
    forge(small, lambda manifest: None)
    assert load_tree(small, kind="model", classes=CLASSES).setting == "x"


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY" * 20, b"{}" * 100])
def test_not_a_zip(path, content):
    path.write_bytes(content)
    assert "not a dmm file" in refused(path)


def test_another_zip(path):
    with path.open("wb") as file:
        np.savez(file, x=np.zeros(100))
    assert "not a dmm file" in refused(path)


def test_missing_file_and_folder(tmp_path):
    assert "cannot be read (No such file" in refused(tmp_path / "absent.dmm")
    assert "cannot be read (Is a directory" in refused(tmp_path)


def test_64_bit_arrays_need_64_bits(path):
    with jax.enable_x64(True):
        old = jnp.array([1 / 3])
        assert old.dtype == jnp.float64
        assert bits(round_trip(path, old)) == bits(old)
    assert "jax_enable_x64" in refused(path)


def test_weak_32_bit_arrays_keep_their_dtype_under_64_bits(path):
    save_tree(path, jnp.asarray(0.1), kind="model")
    with jax.enable_x64(True):
        new = load_tree(path, kind="model")
    assert new.dtype == jnp.float32
    assert new == jnp.float32(0.1)


# Writing


@pytest.mark.parametrize("place", ["file/tree.dmm", "absent/tree.dmm", "folder"])
def test_where_nothing_can_be_written(tmp_path, place):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match=r"cannot be written .*; name a file") as caught:
        save_tree(tmp_path / place, 1, kind="model")
    assert str(tmp_path / place) in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left"), KeyboardInterrupt()])
def test_failed_write_leaves_the_old_file(small, monkeypatch, function, error):
    def fail(*_):
        raise error

    old = small.read_bytes()
    monkeypatch.setattr(os, function, fail)
    with pytest.raises(StorageError if isinstance(error, OSError) else KeyboardInterrupt):
        save_tree(small, 2, kind="model")
    assert small.read_bytes() == old
    assert os.listdir(small.parent) == [small.name]


def test_write_leaves_one_file_and_replaces(small):
    save_tree(str(small), 2, kind="model")
    assert load_tree(str(small), kind="model") == 2
    assert os.listdir(small.parent) == [small.name]


def test_refused_tree_writes_nothing(path):
    with pytest.raises(StorageError):
        save_tree(path, object(), kind="model")
    assert os.listdir(path.parent) == []


# Trees that cannot be saved


def named(x):
    return x


class Colour(enum.IntEnum):
    RED = 1


SHARDED = jax.ShapeDtypeStruct(
    (1,), jnp.float32, sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0])
)


REFUSED = {
    "lambda": (Holder([0, lambda x: x]), r"^value\[1\]: a lambda .* function of jax\.nn$"),
    "function": (Holder({"f": named}), r"^value\['f'\]: the function .*named cannot"),
    "deep": (Pair(Holder((Pair(1, named),))), r"^first\.value\[0\]\.second: "),
    "static": (Holder(1, setting=named), r"^setting: "),
    "partial": (Holder(functools.partial(named)), r"^value\.func: "),
    "partial argument": (functools.partial(jnp.add, {1}), r"^args\[0\]: a value of type set "),
    "root": (object(), r"^the tree: a value of type object "),
    "typed key": (Holder(jax.random.key(0)), r"^value: a typed PRNG key .*key_data"),
    "dict keys": (Holder({1: 2}), r"^value: a dict with the key 1 "),
    "object array": (np.array([None]), r"the dtype object "),
    "text array": (np.array(["a"]), r"the dtype <U1 "),
    "big-endian dtype": (np.dtype(">f4"), r"the dtype >f4 "),
    "subclass of array": (np.ma.array([1]), r"of type MaskedArray "),
    "class": (Holder, r"of type _\w*Meta "),
    "enumeration": (jax.lax.Precision.HIGHEST, r"of type Precision "),
    "integer enumeration": (Colour.RED, r"of type Colour "),
    "sharded shape": (SHARDED, r"of type ShapeDtypeStruct "),
    "reads files": (jnp.load, r"the function "),
    "writes files": (eqx.tree_serialise_leaves, r"the function "),
    "wrapped": (Holder(eqx.filter_jit(named)), r"^value: a _JitWrapper with __"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_on_saving(path, name):
    tree, message = REFUSED[name]
    with pytest.raises(StorageError, match=message) as caught:
        save_tree(path, tree, kind="model")
    assert "\n" not in str(caught.value)


def test_tracers_and_deleted_arrays_are_refused(path):
    with pytest.raises(StorageError, match=r"^value: an array without values"):
        jax.jit(lambda x: save_tree(path, Holder(x), kind="model"))(1.0)
    array = jnp.ones(2)
    array.delete()
    with pytest.raises(StorageError, match=r"^value: an array without values"):
        save_tree(path, Holder(array), kind="model")


# Classes


def test_unknown_class_is_named(small):
    message = refused(small, classes=())
    assert f"{Holder.__module__}:Holder; pass classes=[Holder]" in message


def test_local_class(path):
    class Local(eqx.Module):
        x: int

    save_tree(path, Local(3), kind="model")
    assert load_tree(path, kind="model", classes=[Local]).x == 3
    assert "pass classes=[Local]" in refused(path, classes=())


def test_class_of_a_script_is_found_by_its_name(small):
    def rename(manifest):
        manifest["tree"]["module"]["class"] = "__main__:Holder"

    forge(small, rename)
    new = load_tree(small, kind="model", classes=[Holder])
    assert type(new) is Holder
    assert "pass classes=[Holder]" in refused(small, classes=[Pair])


@pytest.mark.parametrize("tag", ["module", "namedtuple"])
def test_changed_fields_are_refused(path, tag):
    tree, first = (Holder(1), "value") if tag == "module" else (Pair(1), "first")
    save_tree(path, tree, kind="model")
    forge(path, lambda manifest: manifest["tree"][tag]["fields"].update(gone=1))
    assert "gone is no field of the class" in refused(path)
    save_tree(path, tree, kind="model")
    forge(path, lambda manifest: manifest["tree"][tag]["fields"].pop(first))
    message = refused(path)
    assert f"{first} is a new field of the class" in message
    assert f"dmm {__version__}" in message


def test_new_field_takes_its_default(path):
    save_tree(path, (Holder(1, setting=3), Pair(1, 3)), kind="model")

    def drop(manifest):
        module, pair = manifest["tree"]["tuple"]
        module["module"]["fields"].pop("setting")
        pair["namedtuple"]["fields"].pop("second")

    forge(path, drop)
    assert_same(load_tree(path, kind="model", classes=CLASSES), (Holder(1), Pair(1)))


@pytest.mark.parametrize("name", ["value", "made"])
def test_new_field_whose_default_is_computed_is_refused(path, name):
    assert_same(round_trip(path, Converted()), Converted())
    forge(path, lambda manifest: manifest["tree"]["module"]["fields"].pop(name))
    assert f"{name} is a new field of the class" in refused(path)


# Malice: the checksum is right, the manifest is not.

EVIL_CLASSES = [
    "os:system",
    "builtins:eval",
    "subprocess:Popen",
    "antigravity:anything",
    "dmm.storage:os",
    "dmm.storage:os.system",
    "dmm.storage:os._Environ",
    "dmm.storage:Path",
    "dmm.storage:StorageError",
    "dmm.storage:_read",
    "dmm.storage:save_tree.__globals__",
    "dmm.storage:eqx.nn.Identity",
    "dmm.__main__:main",
    "dmm.no_such_module:X",
    "dmm:",
    "dmm",
    "..dmm:X",
    "",
    "equinox.nn._mlp:jax",
    "equinox.nn:Identity",
    "equinox.nn._mlp:_identity",
    "equinox.nn._mlp:MLP.__init__",
]


@pytest.mark.parametrize("name", EVIL_CLASSES)
@pytest.mark.parametrize("tag", ["module", "namedtuple"])
def test_evil_classes_are_refused(path, name, tag):
    forge_tree(path, {tag: {"class": name, "fields": {}, "absent": []}})
    refused(path)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("tag", ["module", "namedtuple"])
def test_class_that_is_neither_is_refused_even_if_given(path, tag):
    name = f"{Plain.__module__}:Plain"
    forge_tree(path, {tag: {"class": name, "fields": {"value": 1}, "absent": []}})
    assert f"class {name} here" in refused(path)


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.eval",
        "dmm.storage.os",
        "jax.numpy.load",
        "jax.numpy.save",
        "jax.numpy.savez",
        "jax.numpy.fromfile",
        "jax.nn.__loader__",
        "jax.nn.initializers",
        "equinox._serialisation.tree_serialise_leaves",
        "equinox.nn._mlp.jax",
        "equinox.nn._mlp.MLP",
    ],
)
def test_evil_functions_are_refused(path, name):
    forge_tree(path, {"constant": name})
    assert f"{name} is not in this jax or equinox" in refused(path)
    arguments = {"args": {"tuple": []}, "keywords": {"dict": {}}}
    forge_tree(path, {"partial": {"constant": name}, **arguments})
    assert f"{name} is not in this jax or equinox" in refused(path)


MALFORMED = [
    [],
    {},
    {"tuple": 3},
    {"unheard of": 1},
    {"constant": ["jax.nn.relu"]},
    {"float": "one"},
    {"dtype": "object"},
    {"numpy": {"index": 0, "dtype": "float32", "shape": [1]}},
    {"numpy": {"index": "../manifest.json", "dtype": "uint8", "shape": [1]}},
    {"module": {"class": 3, "fields": {}, "absent": []}},
    {"partial": 1, "args": {"tuple": []}, "keywords": {"dict": {}}},
]


@pytest.mark.parametrize("node", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_trees_are_refused(path, node):
    forge_tree(path, node)
    refused(path)


def test_endless_nesting_is_refused(path):
    tree = '{"list": [' * 10_000 + "1" + "]}" * 10_000
    manifest = f'{{"version": 1, "kind": "model", "saved_with": {{}}, "tree": {tree}}}'
    sign(path, {"manifest.json": manifest.encode()})
    assert "RecursionError" in refused(path)


@pytest.mark.parametrize("shape", [[2], [4], [-2], [3, 2], "3"])
def test_array_of_another_size_is_refused(path, shape):
    save_tree(path, np.zeros(3), kind="model")
    forge(path, lambda manifest: manifest["tree"]["numpy"].update(shape=shape))
    refused(path)
