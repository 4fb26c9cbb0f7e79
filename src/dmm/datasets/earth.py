"""Events on the globe."""

import numpy as np

from .files import DataError, find

# Name: its file, and how many lines come before the first event.
_EVENTS = {
    "volcano": ("earth/volerup.csv", 2),
    "earthquake": ("earth/quakes_all.csv", 4),
    "flood": ("earth/flood.csv", 2),
    "fire": ("earth/fire.csv", 1),
}


def earth(name: str) -> np.ndarray:
    """Where events took place, as unit vectors (n, 3): 827 eruptions of volcanoes ("volcano"), 6120
    earthquakes ("earthquake"), 4875 floods ("flood") or 12809 fires ("fire").

    The third coordinate points north, the first to longitude 0 on the equator. Compiled by Mathieu
    and Nickel (2020) from lists of NOAA, the Dartmouth Flood Observatory and NASA. The eruptions
    are of only 267 places: no density of them is the best, as it can rise there without bound.
    """
    if name not in _EVENTS:
        raise ValueError(f"name: expected one of {', '.join(_EVENTS)}, got {name!r}")
    file, header = _EVENTS[name]
    path = find(file)
    rows = []
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines()[header:], header + 1):
        if not line.strip():
            continue
        try:
            latitude, longitude = map(float, line.split(","))
            if not (abs(latitude) <= 90 and abs(longitude) <= 360):
                raise ValueError("out of range")
        except ValueError:
            raise DataError(
                f"{path}: line {number} must be a latitude and a longitude in degrees, not "
                f"{line[:40]!r}; fetch the file again"
            ) from None
        rows.append((latitude, longitude))
    if not rows:
        raise DataError(f"{path}: holds no events; fetch the file again")
    latitude, longitude = np.radians(rows).T
    across = np.cos(latitude)
    return np.stack([across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)], 1)
