"""Where data lives. A space imports nothing of the library."""

from .base import Smooth, Space
from .euclidean import Euclidean
from .finite import Finite
from .product import Product
from .units import Affine, Factorwise, Identity, Units, default_units

__all__ = [
    "Affine",
    "Euclidean",
    "Factorwise",
    "Finite",
    "Identity",
    "Product",
    "Smooth",
    "Space",
    "Units",
    "default_units",
]
