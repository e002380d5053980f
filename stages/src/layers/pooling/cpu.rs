//! The largest numbers that a window sees.

use multiversion::multiversion;

use crate::cpu::parts::{By, cut};
use crate::layers::conv::cpu::window::{Image, Window};

/// Writes the largest number of each channel at each place of the window, and where in the window it is. Of
/// several it is the first. NaN counts as the largest.
pub(crate) fn forward(out: &mut [f32], found: &mut [u32], images: &[f32], image: Image, window: Window) {
    let seen = image.seen_by(window, image.channels);
    let rows = ((By(out, seen.count()), By(found, seen.count())), By(images, image.count()));
    let weight = seen.count() * window.kernel * window.kernel;
    cut(rows, weight, |_, ((out, found), images)| {
        let outs = out.chunks_exact_mut(seen.count()).zip(found.chunks_exact_mut(seen.count()));
        for ((out, found), image_numbers) in outs.zip(images.chunks_exact(image.count())) {
            let pixels = out.chunks_exact_mut(image.channels).zip(found.chunks_exact_mut(image.channels));
            for (index, (out, found)) in pixels.enumerate() {
                out.fill(f32::NEG_INFINITY);
                found.fill(u32::MAX);
                for (tap, pixel) in seen_pixels(image, seen, window, index) {
                    let from = &image_numbers[pixel * image.channels..][..image.channels];
                    take_larger(out, found, from, tap);
                }
            }
        }
    });
}

/// Adds each gradient to the number that was the largest. `out` are the images' gradients.
pub(crate) fn backward(out: &mut [f32], grads: &[f32], found: &[u32], image: Image, window: Window) {
    let seen = image.seen_by(window, image.channels);
    let rows = (By(out, image.count()), (By(grads, seen.count()), By(found, seen.count())));
    let weight = seen.count() * window.kernel * window.kernel;
    cut(rows, weight, |_, (out, (grads, found))| {
        out.fill(0.0);
        let images = grads.chunks_exact(seen.count()).zip(found.chunks_exact(seen.count()));
        for (out, (grads, found)) in out.chunks_exact_mut(image.count()).zip(images) {
            let pixels = grads.chunks_exact(image.channels).zip(found.chunks_exact(image.channels));
            for (index, (grads, found)) in pixels.enumerate() {
                for (tap, pixel) in seen_pixels(image, seen, window, index) {
                    let to = &mut out[pixel * image.channels..][..image.channels];
                    add_where(to, grads, found, tap);
                }
            }
        }
    });
}

/// The pixels of the image that the window sees at a place, with their numbers in the window.
fn seen_pixels(
    image: Image,
    seen: Image,
    window: Window,
    place: usize,
) -> impl Iterator<Item = (u32, usize)> {
    let Window { kernel, stride, padding } = window;
    let [line, column] = [place / seen.width, place % seen.width].map(|place| place * stride);
    (0..kernel * kernel).filter_map(move |tap| {
        let line = (line + tap / kernel).checked_sub(padding)?;
        let column = (column + tap % kernel).checked_sub(padding)?;
        let is_inside = line < image.height && column < image.width;
        is_inside.then_some((tap as u32, line * image.width + column))
    })
}

#[multiversion(targets = "simd")]
fn take_larger(out: &mut [f32], found: &mut [u32], from: &[f32], tap: u32) {
    for ((out, found), &number) in out.iter_mut().zip(found).zip(from) {
        let is_larger = number > *out || number.is_nan() || *found == u32::MAX;
        *out = if is_larger { number } else { *out };
        *found = if is_larger { tap } else { *found };
    }
}

#[multiversion(targets = "simd")]
fn add_where(to: &mut [f32], grads: &[f32], found: &[u32], tap: u32) {
    for ((to, grad), &found) in to.iter_mut().zip(grads).zip(found) {
        *to += if found == tap { *grad } else { 0.0 };
    }
}
