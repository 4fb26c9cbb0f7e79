"""Where data lives. A space imports nothing of the library."""

from .base import Smooth, Space
from .box import Box, inset
from .counts import Counts
from .euclidean import Euclidean
from .finite import Finite
from .positive import PositiveReals
from .product import Product
from .rotations import SO3
from .simplex import Simplex, closure
from .sphere import Sphere
from .torus import Torus
from .units import Affine, Factorwise, Identity, Units, default_units

__all__ = [
    "SO3",
    "Affine",
    "Box",
    "Counts",
    "Euclidean",
    "Factorwise",
    "Finite",
    "Identity",
    "PositiveReals",
    "Product",
    "Simplex",
    "Smooth",
    "Space",
    "Sphere",
    "Torus",
    "Units",
    "closure",
    "default_units",
    "inset",
]
