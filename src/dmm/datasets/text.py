"""Text as sequences of characters."""

from typing import NamedTuple

import numpy as np

from .files import find


class Characters(NamedTuple):
    """A text as numbers, one a character, in parts; `alphabet` turns them back."""

    train: np.ndarray
    test: np.ndarray
    alphabet: str

    def decode(self, numbers: np.ndarray) -> str:
        """The text of a sequence."""
        return "".join(self.alphabet[i] for i in np.asarray(numbers).ravel())


def shakespeare(*, test: float = 0.1) -> Characters:
    """Karpathy's tiny Shakespeare: 1,115,394 characters of 65 kinds; the last tenth is held out."""
    text = find("text/tinyshakespeare.txt").read_text(encoding="utf-8")
    alphabet = "".join(sorted(set(text)))
    numbers = np.array([alphabet.index(c) for c in alphabet])
    codes = np.zeros(max(map(ord, alphabet)) + 1, np.int32)
    codes[[ord(c) for c in alphabet]] = numbers
    coded = codes[np.frombuffer(text.encode("utf-32-le"), np.uint32)]
    cut = round(len(coded) * (1 - test))
    return Characters(coded[:cut], coded[cut:], alphabet)


def windows(sequence: np.ndarray, length: int) -> np.ndarray:
    """Consecutive pieces of a sequence, (n, length); what is left over is dropped."""
    n = len(sequence) // length
    if n == 0:
        raise ValueError(f"length: the sequence has only {len(sequence)} entries; choose less")
    return sequence[: n * length].reshape(n, length)
