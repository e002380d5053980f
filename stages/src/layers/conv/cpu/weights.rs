//! The gradient of a convolution's weights.
//!
//! A tile of the gradient has eight channels of the images and some of the output's, and is summed over
//! pixels. So that both are read one after the other, eight channels of the padded images are copied into a
//! strip, which serves all places of the window, and the output's gradient into panels.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use crate::cpu::matmul::{PANEL, pack};
use crate::cpu::matrix::Matrix;
use crate::cpu::parts::{By, PRODUCTS, cut};
use crate::cpu::tile::{FEW_ROWS, ROWS, Right, RowStarts, add_to_tile, is_tall};
use crate::layers::conv::cpu::window::{Image, Window};
use crate::pool::Buffer;

/// The most pixels over which a tile is summed at once, if a line is not longer.
const DEPTH: usize = 512;

/// The channels of a strip: as many as the rows of the tallest tile.
const STRIP: usize = ROWS;

/// Lines of the output over which a tile is summed at once: some of one image, or all of several.
struct Block {
    images: Range<usize>,
    lines: Range<usize>,
}

/// Cuts the output's lines into blocks.
fn blocks(images: usize, seen: Image) -> impl Iterator<Item = Block> {
    let lines = (DEPTH / seen.width).max(1);
    let (together, lines) = match lines / seen.height {
        0 => (1, seen.height.div_ceil(seen.height.div_ceil(lines))),
        whole => (whole, seen.height),
    };
    (0..images).step_by(together).flat_map(move |image| {
        (0..seen.height).step_by(lines).map(move |line| Block {
            images: image..images.min(image + together),
            lines: line..seen.height.min(line + lines),
        })
    })
}

/// Whether the gradient of `images` images is added up before it is added to the old one.
pub(crate) fn is_added_up_first(images: usize, seen: Image) -> bool {
    blocks(images, seen).nth(1).is_none()
}

/// How many numbers the copies of a block have.
pub(crate) fn scratch([height, width]: [usize; 2], outputs: usize, kernel: usize) -> usize {
    let pixels = DEPTH.max(width);
    let images = pixels.div_ceil(height * width).max(1);
    pixels * outputs.next_multiple_of(PANEL) + images * (height + kernel) * (width + kernel) * STRIP
}

/// `out += gradient of the weights`, or `=` if it is the `first`. `out` is `[inputs, kernel, kernel,
/// outputs]`.
pub(crate) fn add_weight_grad(
    out: &mut [f32],
    is_first: bool,
    [images, grads]: [&[f32]; 2],
    image: Image,
    outputs: usize,
    window: Window,
) {
    let seen = image.seen_by(window, outputs);
    let strip = STRIP * window.kernel * window.kernel * outputs;
    let count = images.len() / image.count();
    let weight = strip * count * seen.height * seen.width / PRODUCTS;
    cut(By(out, strip), weight.max(1), |first, out| {
        let mut room = [Buffer::pooled(0), Buffer::pooled(0)];
        for (index, block) in blocks(count, seen).enumerate() {
            let lines = block.images.len() * block.lines.len();
            let pixels = lines * seen.width;
            let start = (block.images.start * seen.height + block.lines.start) * seen.width;
            let grads = &grads[start * outputs..][..pixels * outputs];
            let [panels, strips] = &mut room;
            let panels = sized(panels, pixels * outputs.next_multiple_of(PANEL));
            pack::<PANEL>(panels, pixels * PANEL, Matrix::new(grads, outputs), 0..pixels, 0..outputs);
            for (number, out) in (first..).zip(out.chunks_mut(strip)) {
                let channels = number * STRIP..image.channels.min((number + 1) * STRIP);
                let copied = Strip::of(images, image, window, &block, channels.clone());
                let strips = sized(strips, copied.count());
                copied.fill(strips);
                Arch::new().dispatch(Strips {
                    out,
                    is_first: is_first && index == 0,
                    channels: channels.len(),
                    strip: strips,
                    of: copied,
                    panels,
                    seen,
                    lines,
                });
            }
        }
    });
}

/// Room for `count` numbers.
fn sized(room: &mut Buffer, count: usize) -> &mut [f32] {
    if room.len() < count {
        *room = Buffer::pooled(count);
    }
    &mut room[..count]
}

/// Eight channels of the lines of padded images that a block's windows see.
struct Strip<'a> {
    images: &'a [f32],
    image: Image,
    window: Window,
    of: Range<usize>,
    /// The first line of the padded image, and how many there are.
    first: usize,
    lines: usize,
    /// The columns of the padded image.
    columns: usize,
    channels: Range<usize>,
    /// The lines of the output in an image.
    outs: usize,
}

impl<'a> Strip<'a> {
    fn of(images: &'a [f32], image: Image, window: Window, block: &Block, channels: Range<usize>) -> Self {
        let outs = block.lines.len();
        Self {
            images,
            image,
            window,
            of: block.images.clone(),
            first: block.lines.start * window.stride,
            lines: (outs - 1) * window.stride + window.kernel,
            columns: image.width + 2 * window.padding,
            channels,
            outs,
        }
    }

    fn count(&self) -> usize {
        self.of.len() * self.lines * self.columns * STRIP
    }

    fn fill(&self, to: &mut [f32]) {
        let Image { height, width, channels } = self.image;
        let padding = self.window.padding;
        let mut lines = to.chunks_exact_mut(self.columns * STRIP);
        for image in self.of.clone() {
            for line in self.first..self.first + self.lines {
                let to = lines.next().expect("there is room for each line");
                if line < padding || line >= padding + height {
                    to.fill(0.0);
                    continue;
                }
                let (before, rest) = to.split_at_mut(padding * STRIP);
                let (within, after) = rest.split_at_mut(width * STRIP);
                before.fill(0.0);
                after.fill(0.0);
                let from = &self.images[(image * height + line - padding) * width * channels..];
                let pixels = from.chunks_exact(channels).map(|pixel| &pixel[self.channels.clone()]);
                for (to, from) in within.as_chunks_mut::<STRIP>().0.iter_mut().zip(pixels) {
                    match from.first_chunk::<STRIP>() {
                        Some(whole) => *to = *whole,
                        None => {
                            *to = [0.0; STRIP];
                            to[..from.len()].copy_from_slice(from);
                        }
                    }
                }
            }
        }
    }

    /// Where the window of an output line begins, counted over all images, at this place of the window.
    #[inline(always)]
    fn line(&self, line: usize, [down, across]: [usize; 2]) -> usize {
        let (image, line) = (line / self.outs, line % self.outs);
        ((image * self.lines + line * self.window.stride + down) * self.columns + across) * STRIP
    }
}

/// The tiles of eight channels.
struct Strips<'a> {
    out: &'a mut [f32],
    is_first: bool,
    channels: usize,
    strip: &'a [f32],
    of: Strip<'a>,
    panels: &'a [f32],
    seen: Image,
    /// The lines of the output, of all images of the block.
    lines: usize,
}

impl WithSimd for Strips<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if is_tall::<S>() { self.run::<S, ROWS>(simd) } else { self.run::<S, FEW_ROWS>(simd) }
    }
}

impl Strips<'_> {
    #[inline(always)]
    fn run<S: Simd, const HEIGHT: usize>(mut self, simd: S) {
        let outputs = self.seen.channels;
        let kernel = self.of.window.kernel;
        let panels = self.panels;
        let panels = panels.chunks_exact(self.lines * self.seen.width * PANEL);
        for (panel, first) in panels.zip((0..).step_by(PANEL)) {
            for part in (0..PANEL.min(outputs - first)).step_by(2 * S::F32_LANES) {
                for place in 0..kernel * kernel {
                    for row in (0..self.channels).step_by(HEIGHT) {
                        let at = [row, place, first + part];
                        if outputs - first - part <= S::F32_LANES {
                            self.tile::<S, HEIGHT, 1>(simd, at, &panel[part..]);
                        } else {
                            self.tile::<S, HEIGHT, 2>(simd, at, &panel[part..]);
                        }
                    }
                }
            }
        }
    }

    /// One tile: channels from `row` on, a place of the window, and outputs from `column` on.
    #[inline(always)]
    fn tile<S: Simd, const HEIGHT: usize, const WIDTH: usize>(
        &mut self,
        simd: S,
        [row, place, column]: [usize; 3],
        panel: &[f32],
    ) {
        let (outputs, lanes) = (self.seen.channels, S::F32_LANES);
        let kernel = self.of.window.kernel;
        let (width, across) = (self.seen.width, self.of.window.stride * STRIP);
        let rows = RowStarts::new(std::array::from_fn::<_, HEIGHT, _>(|index| index));
        let mut sums = [[simd.splat_f32s(0.0); WIDTH]; HEIGHT];
        for line in 0..self.lines {
            let start = self.of.line(line, [place / kernel, place % kernel]) + row;
            let right = Right { numbers: &panel[line * width * PANEL..], row: PANEL };
            add_to_tile(simd, &mut sums, width, (&self.strip[start..], &rows, across), right, &mut []);
        }
        for (row, sums) in (row..self.channels).zip(sums) {
            let out = &mut self.out[(row * kernel * kernel + place) * outputs..][..outputs];
            for (out, sum) in out[column..].chunks_mut(lanes).zip(sums) {
                let sum = match self.is_first {
                    true => sum,
                    false => simd.add_f32s(simd.partial_load_f32s(out), sum),
                };
                simd.partial_store_f32s(out, sum);
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use pulp::Scalar;
    use pulp::x86::{V3, V4};

    use super::*;
    use crate::rng;

    const IMAGE: Image = Image { height: 5, width: 6, channels: 6 };
    const WINDOW: Window = Window { kernel: 3, stride: 2, padding: 1 };

    /// The gradient of six channels of two images, added to 0.5.
    fn gradient<S: Simd>(simd: S, images: &[f32], panels: &[f32], outputs: usize) -> Vec<f32> {
        let seen = IMAGE.seen_by(WINDOW, outputs);
        let block = blocks(2, seen).next().expect("there is one");
        let of = Strip::of(images, IMAGE, WINDOW, &block, 0..IMAGE.channels);
        let mut strip = vec![0.0; of.count()];
        of.fill(&mut strip);
        let mut out = vec![0.5; IMAGE.channels * 9 * outputs];
        simd.vectorize(Strips {
            out: &mut out,
            is_first: false,
            channels: IMAGE.channels,
            strip: &strip,
            of,
            panels,
            seen,
            lines: 2 * seen.height,
        });
        out
    }

    #[test]
    fn every_level_of_simd_gives_the_same_bits() {
        for outputs in [43, 32, 7] {
            let pixels = 2 * IMAGE.seen_by(WINDOW, outputs).count() / outputs;
            let mut numbers = vec![0.0; 2 * IMAGE.count() + pixels * outputs.next_multiple_of(PANEL)];
            rng::fill_normal(rng::key(1, "numbers"), 1.0, &mut numbers);
            let (images, panels) = numbers.split_at(2 * IMAGE.count());
            let plain = gradient(Scalar, images, panels, outputs);
            assert!(V3::try_new().is_none_or(|simd| gradient(simd, images, panels, outputs) == plain));
            assert!(V4::try_new().is_none_or(|simd| gradient(simd, images, panels, outputs) == plain));
        }
    }
}
