"""Metrics of enlarged images, by images whose figures are known."""

import numpy as np
import pytest

from dmm.diagnostics import (
    bicubic,
    consistency,
    diversity,
    downsampled,
    psnr,
    sharpness,
    ssim,
)

RANDOM = np.random.default_rng(0)
SHAPES = [(2, 8, 12), (2, 8, 12, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_downsampling_is_the_mean_of_squares(shape):
    images = RANDOM.integers(0, 256, shape)
    small = downsampled(images, 4)
    assert small.shape == (2, 2, 3, *shape[3:])
    np.testing.assert_allclose(small[1, 1, 2], images[1, 4:, 8:].mean((0, 1)))


@pytest.mark.parametrize("shape", SHAPES)
def test_consistency_is_in_levels(shape):
    """Detail that averages out does not count; an offset counts as it is, for its image alone."""
    images = RANDOM.integers(0, 256, shape).astype(float)
    small = downsampled(images, 2)
    detail = np.zeros_like(images)
    detail[:, ::2, ::2], detail[:, 1::2, ::2] = 9.0, -9.0
    np.testing.assert_allclose(consistency(images + detail, small), [0, 0], atol=1e-12)
    images[1] += 3.0
    np.testing.assert_allclose(consistency(images, small), [0, 3], atol=1e-12)


def test_diversity_of_draws():
    """Ten draws of independent pixels have their deviation, the same image over again none."""
    draws = RANDOM.normal(100, 5, (3, 10, 40, 40))
    np.testing.assert_allclose(diversity(draws), 5, rtol=0.03)
    same = np.repeat(draws[:, :1], 10, 1)
    np.testing.assert_allclose(diversity(same), 0, atol=1e-12)
    pairs = np.sqrt(((draws[:, 0] - draws[:, 1]) ** 2).mean((1, 2)))
    np.testing.assert_allclose(pairs, np.sqrt(2) * diversity(draws[:, :2]), rtol=1e-12)


def test_sharpness_is_that_of_the_truth_or_less():
    """A ramp has the slope it is made with; blurring noise takes gradients away."""
    ramp = np.add.outer(3.0 * np.arange(8), 4.0 * np.arange(6))[None]
    np.testing.assert_allclose(sharpness(2 * ramp, ramp), 2)
    np.testing.assert_allclose(sharpness(ramp, ramp[:, ::-1]), 1)
    noise = RANDOM.integers(0, 256, (2, 32, 32, 3)).astype(float)
    blurred = bicubic(downsampled(noise, 4), 4, top=255)
    assert np.all(sharpness(blurred, noise) < 0.3)
    assert np.all(sharpness(np.full((2, 8, 8), 7.0), np.full((2, 8, 8), 7.0)) == 0)


@pytest.mark.parametrize("channels", [(), (3,)])
def test_bicubic_keeps_planes_and_the_range(channels):
    """Cubic interpolation is exact on a plane, away from the edges; overshoot is cut off."""
    plane = np.add.outer(2.0 * np.arange(12), 5.0 * np.arange(12)) + 20
    small = np.broadcast_to(
        plane.reshape(1, 12, 12, *[1 for _ in channels]), (1, 12, 12, *channels)
    )
    large = bicubic(small, 2, top=255)
    assert large.shape == (1, 24, 24, *channels)
    place = (np.arange(24) + 0.5) / 2 - 0.5
    truth = (np.add.outer(2.0 * place, 5.0 * place) + 20).reshape(24, 24, *[1 for _ in channels])
    inner = slice(6, -6)
    np.testing.assert_allclose(
        large[0, inner, inner], np.broadcast_to(truth, (24, 24, *channels))[inner, inner], rtol=1e-4
    )
    step = np.zeros((1, 8, 8))
    step[:, :, 4:] = 255
    assert 0 == bicubic(step, 4, top=255).min() < bicubic(step, 4, top=255).max() == 255


def test_likeness_of_colour_images():
    """PSNR by its formula over all channels; SSIM 1 for the same, lower for a channel alone off."""
    truth = RANDOM.integers(0, 256, (2, 16, 16, 3)).astype(float)
    off = truth.copy()
    off[..., 0] += 6.0
    np.testing.assert_allclose(psnr(off, truth, top=255), 10 * np.log10(255**2 / 12))
    np.testing.assert_allclose(ssim(truth, truth, top=255), 1)
    assert np.all(ssim(RANDOM.permutation(truth, axis=1), truth, top=255) < 0.9)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda: downsampled(np.zeros((1, 8, 9)), 4), "factor: 4 does not divide"),
        (lambda: downsampled(np.zeros((8, 9)), 1), "images: expected"),
        (lambda: consistency(np.zeros((1, 8, 8)), np.zeros((1, 3, 4))), "small: images of"),
        (lambda: consistency(np.zeros((2, 8, 8)), np.zeros((1, 4, 4))), "small: expected"),
        (lambda: diversity(np.zeros((2, 1, 8, 8))), "draws: expected"),
        (lambda: sharpness(np.zeros((2, 8, 8)), np.zeros((2, 4, 4))), "truth: expected"),
        (lambda: bicubic(np.zeros((2, 8, 8)), 0, top=1), "factor: must be"),
    ],
)
def test_bad_images(f, message):
    with pytest.raises(ValueError, match=message):
        f()
