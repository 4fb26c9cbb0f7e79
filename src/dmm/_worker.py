"""A process that calls a user's simulator: run as a script, without importing JAX.

It reads pickled messages from standard input, each after its length in eight bytes: first the
search path and the simulator, then (θ, seed) a simulation. To each it answers (value, None), or
(None, text) where the simulator raised. What the simulator prints goes to standard error.
"""

import inspect
import os
import pickle
import struct
import sys
import traceback
from typing import Any

import numpy as np

HEAD = struct.Struct("<Q")


def send(file, message) -> None:
    """One message, at once."""
    data = pickle.dumps(message)
    file.write(HEAD.pack(len(data)) + data)
    file.flush()


def receive(file) -> Any:
    """The next message; None at the end."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    data = file.read(HEAD.unpack(head)[0])
    return pickle.loads(data)


def takes_generator(simulator) -> bool:
    """Whether a simulator wants a random generator after θ."""
    try:
        parameters = inspect.signature(simulator).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    second = [p for p in parameters if p.kind in kinds][1:2]
    return any(p.name == "rng" or p.default is inspect.Parameter.empty for p in second)


def plain(value):
    """What a simulator returned, as NumPy arrays, alone or in a dict."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"expected numbers, got {type(value).__name__}, an array of {array.dtype}")
    return array


def main() -> None:
    """Answer until the input ends."""
    # Copies that programs which the simulator starts do not inherit: they find an empty input.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.path[:] = receive(requests)
    try:
        simulator = pickle.loads(receive(requests))
    except Exception as error:
        send(answers, (None, f"{type(error).__name__}: {error}"))
        return
    send(answers, ("ready", None))
    generator = takes_generator(simulator)
    while (request := receive(requests)) is not None:
        theta, seed = request
        try:
            rest = (np.random.default_rng(seed),) if generator else ()
            answer = (plain(simulator(theta, *rest)), None)
        except Exception:
            answer = (None, traceback.format_exc(limit=-3).strip())
        send(answers, answer)


if __name__ == "__main__":
    main()
