"""Networks: (inputs, tau, given, present) to a pytree in the shape the score is made from."""

from .base import Reader, Stochastic
from .centred import Centred
from .embedded import Embedded
from .mlp import MLP
from .observations import Observations, OneHot, Standardised, observe
from .published import load_published
from .resnet import ResNet
from .series import SeriesEncoder
from .sets import SetEncoder
from .time import time_features
from .transformer import Transformer
from .unet import UNet
from .upsampler import Upsampler

__all__ = [
    "MLP",
    "Centred",
    "Embedded",
    "Observations",
    "OneHot",
    "Reader",
    "ResNet",
    "SeriesEncoder",
    "SetEncoder",
    "Standardised",
    "Stochastic",
    "Transformer",
    "UNet",
    "Upsampler",
    "load_published",
    "observe",
    "time_features",
]
