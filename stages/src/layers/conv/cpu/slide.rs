//! The product of all windows with the weights, tile by tile.

use pulp::{Arch, Simd, WithSimd};

use super::filters::{Block, Phase, blocks};
use super::padded::Padded;
use crate::cpu::matmul::PANEL;
use crate::cpu::tile::{FEW_ROWS, ROWS, Right, RowStarts, add_to_tile, is_tall};
use crate::layers::conv::cpu::window::Places;

/// The columns of a block of weights: with its depth, about half a megabyte.
const BLOCK: usize = 256;

/// The pixels that are computed.
#[derive(Clone, Copy)]
pub(crate) struct Pixels {
    /// How many lines and columns there are in an image.
    pub(crate) size: [usize; 2],
    /// Where their windows begin.
    pub(crate) from: Places,
    /// Where they are written.
    pub(crate) to: Places,
}

impl Pixels {
    /// Where the window of each pixel begins, and where the pixel is written, image by image.
    #[inline(always)]
    fn each(self, images: usize) -> impl Iterator<Item = [usize; 2]> {
        let ([lines, columns], both) = (self.size, [self.from, self.to]);
        (0..images).flat_map(move |image| {
            (0..lines).flat_map(move |line| {
                let starts = both.map(|places| places.first + image * places.image + line * places.down);
                (0..columns)
                    .map(move |column| [0, 1].map(|which| starts[which] + column * both[which].across))
            })
        })
    }
}

/// Writes these pixels of the output: `bias` and the products of their windows with a phase's weights.
pub(crate) fn slide(
    out: &mut [f32],
    bias: Option<&[f32]>,
    images: &Padded<'_>,
    pixels: Pixels,
    phase: Phase<'_>,
) {
    Arch::new().dispatch(Slide { out, bias, images, pixels, phase });
}

struct Slide<'a> {
    out: &'a mut [f32],
    bias: Option<&'a [f32]>,
    images: &'a Padded<'a>,
    pixels: Pixels,
    phase: Phase<'a>,
}

impl WithSimd for Slide<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if is_tall::<S>() { self.run::<S, ROWS>(simd) } else { self.run::<S, FEW_ROWS>(simd) }
    }
}

impl Slide<'_> {
    #[inline(always)]
    fn run<S: Simd, const HEIGHT: usize>(mut self, simd: S) {
        let ([lines, columns], [from, to]) = (self.phase.taps, self.phase.sizes);
        let width = to.next_multiple_of(PANEL);
        let mut panels = self.phase.panels;
        for (index, block) in blocks(lines, columns * from).enumerate() {
            let (of_block, rest) = panels.split_at(block.depth() * width);
            panels = rest;
            for first in (0..to).step_by(BLOCK) {
                let end = to.min(first + BLOCK);
                let panels = &of_block[first * block.depth()..end.next_multiple_of(PANEL) * block.depth()];
                self.block::<S, HEIGHT>(simd, &block, index == 0, [first, end], panels);
            }
        }
    }

    /// Adds the products of all windows with a block of weights.
    #[inline(always)]
    fn block<S: Simd, const HEIGHT: usize>(
        &mut self,
        simd: S,
        block: &Block,
        is_first: bool,
        [first, end]: [usize; 2],
        panels: &[f32],
    ) {
        let mut pixels = self.pixels.each(self.images.count);
        let [mut starts, mut outs] = [[0; HEIGHT]; 2];
        loop {
            let mut rows = 0;
            for [start, out] in pixels.by_ref().take(HEIGHT) {
                (starts[rows], outs[rows]) = (start, out);
                rows += 1;
            }
            if rows == 0 {
                return;
            }
            // The rows that are left of the tile before are in the image too. They are not written.
            let windows = RowStarts::new(starts).hidden();
            for (index, panel) in panels.chunks_exact(PANEL * block.depth()).enumerate() {
                for part in (0..PANEL).step_by(2 * S::F32_LANES) {
                    let column = first + index * PANEL + part;
                    let panel = &panel[part..];
                    match end.saturating_sub(column) {
                        0 => {}
                        few if few <= S::F32_LANES => {
                            let sums = self.sums::<S, HEIGHT, 1>(simd, block, &windows, panel);
                            self.write(simd, &sums[..rows], &outs, column, is_first);
                        }
                        _ => {
                            let sums = self.sums::<S, HEIGHT, 2>(simd, block, &windows, panel);
                            self.write(simd, &sums[..rows], &outs, column, is_first);
                        }
                    }
                }
            }
        }
    }

    /// One tile, summed over a block.
    #[inline(always)]
    fn sums<S: Simd, const HEIGHT: usize, const WIDTH: usize>(
        &self,
        simd: S,
        block: &Block,
        windows: &RowStarts<HEIGHT>,
        mut panel: &[f32],
    ) -> [[S::f32s; WIDTH]; HEIGHT] {
        let mut sums = [[simd.splat_f32s(0.0); WIDTH]; HEIGHT];
        let length = block.of_line.len();
        for line in block.lines.clone() {
            let left = &self.images.numbers[line * self.images.line() + block.of_line.start..];
            let right = Right { numbers: panel, row: PANEL };
            add_to_tile(simd, &mut sums, length, (left, windows, 1), right, &mut []);
            panel = panel.get(length * PANEL..).unwrap_or(&[]);
        }
        sums
    }

    /// Writes the rows of a tile from this column on.
    #[inline(always)]
    fn write<S: Simd, const WIDTH: usize>(
        &mut self,
        simd: S,
        sums: &[[S::f32s; WIDTH]],
        outs: &[usize],
        column: usize,
        is_first: bool,
    ) {
        let (lanes, columns) = (S::F32_LANES, self.phase.sizes[1]);
        for (sums, &out) in sums.iter().zip(outs) {
            for (index, &sum) in sums.iter().enumerate() {
                let column = column + index * lanes;
                let width = lanes.min(columns.saturating_sub(column));
                let out = &mut self.out[out + column..][..width];
                let start = match (is_first, self.bias) {
                    (true, None) => None,
                    (true, Some(bias)) => Some(&bias[column..][..width]),
                    (false, _) => Some(&*out),
                };
                let sum = match start {
                    None => sum,
                    Some(start) => simd.add_f32s(simd.partial_load_f32s(start), sum),
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

    use super::super::filters::Filters;
    use super::super::window::{Image, Window, places};
    use super::*;
    use crate::pool::Buffer;
    use crate::rng;

    const IMAGE: Image = Image { height: 5, width: 6, channels: 70 };

    #[test]
    fn every_level_of_simd_gives_the_same_bits() {
        let window = Window { kernel: 3, stride: 1, padding: 1 };
        let mut numbers = vec![0.0; 2 * IMAGE.count() + 70 * 9 * 43];
        rng::fill_normal(rng::key(1, "numbers"), 1.0, &mut numbers);
        let (images, weights) = numbers.split_at(2 * IMAGE.count());
        let filters = Filters::forward(weights, [IMAGE.channels, 43], window);
        let mut room = Buffer::pooled(0);
        let padded = Padded::new(images, IMAGE, [[1, 1]; 2], &mut room);
        let seen = IMAGE.seen_by(window, 43);
        let pixels = Pixels {
            size: [seen.height, seen.width],
            from: padded.places([0, 0], 1),
            to: places(seen, [0, 0], 1),
        };
        fn product<S: Simd>(simd: S, padded: &Padded<'_>, pixels: Pixels, phase: Phase<'_>) -> Vec<f32> {
            let mut out = vec![0.5; 2 * 5 * 6 * 43];
            let (out_numbers, bias) = (&mut out[..], Some(&[0.25; 43][..]));
            simd.vectorize(Slide { out: out_numbers, bias, images: padded, pixels, phase });
            out
        }
        let phase = || filters.phases().next().expect("forward has one");
        let plain = product(Scalar, &padded, pixels, phase());
        assert!(V3::try_new().is_none_or(|simd| product(simd, &padded, pixels, phase()) == plain));
        assert!(V4::try_new().is_none_or(|simd| product(simd, &padded, pixels, phase()) == plain));
    }
}
