//! The weights of a convolution, packed in the order in which tiles read them.

use std::ops::Range;

use crate::cpu::matmul::{PANEL, pack};
use crate::cpu::matrix::Matrix;
use crate::layers::conv::cpu::window::Window;
use crate::pool::Buffer;

/// The most numbers over which a tile is summed at once, if a line of a window is not longer. Three lines of
/// 64 channels just fit.
const DEPTH: usize = 576;

/// Weights `[inputs, kernel, kernel, outputs]`, packed for forward or for backward-input.
pub(crate) struct Filters {
    window: Window,
    /// Of the product: from the outputs to the inputs if it is backward.
    sizes: [usize; 2],
    is_backward: bool,
    numbers: Buffer,
}

/// The pixels of an image whose windows begin at the same place of the stride, and the weights that reach
/// them. Forward has one phase, for all pixels.
#[derive(Clone, Copy)]
pub(crate) struct Phase<'a> {
    /// The place of the first line and column of weights.
    place: [usize; 2],
    /// How many lines and columns of weights there are.
    pub(crate) taps: [usize; 2],
    /// `[channels read, channels written]`.
    pub(crate) sizes: [usize; 2],
    /// Blocks of the depth; in each its panels of 32 columns; in each panel its rows.
    pub(crate) panels: &'a [f32],
}

/// Which pixels of one direction a phase reaches.
pub(crate) struct Reach {
    /// The first pixel. The others are a stride apart.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Where the window of the first one begins in the padded gradient.
    pub(crate) window: usize,
}

/// A part of the depth: some whole lines of the window, or a part of one.
pub(crate) struct Block {
    pub(crate) lines: Range<usize>,
    pub(crate) of_line: Range<usize>,
}

impl Block {
    /// Over how many numbers it sums.
    pub(crate) fn depth(&self) -> usize {
        self.lines.len() * self.of_line.len()
    }
}

/// The blocks of windows of `lines` lines, each of `length` numbers.
pub(crate) fn blocks(lines: usize, length: usize) -> impl Iterator<Item = Block> {
    let parts = length.div_ceil(DEPTH);
    let part = length.div_ceil(parts);
    let together = (DEPTH / length).max(1);
    (0..lines).step_by(together).flat_map(move |line| {
        (0..length).step_by(part).map(move |at| Block {
            lines: line..lines.min(line + together),
            of_line: at..length.min(at + part),
        })
    })
}

impl Filters {
    /// How many numbers the packed weights for forward and for backward hold.
    pub(crate) fn packed([inputs, outputs]: [usize; 2], kernel: usize) -> [usize; 2] {
        [[inputs, outputs], [outputs, inputs]]
            .map(|[from, to]| kernel * kernel * from * to.next_multiple_of(PANEL))
    }

    /// Packs weights for forward.
    pub(crate) fn forward(weights: &[f32], [inputs, outputs]: [usize; 2], window: Window) -> Self {
        Self::new(weights, [inputs, outputs], window, false)
    }

    /// Packs weights of a convolution from `inputs` to `outputs` for backward-input.
    pub(crate) fn backward(weights: &[f32], [inputs, outputs]: [usize; 2], window: Window) -> Self {
        Self::new(weights, [outputs, inputs], window, true)
    }

    fn new(weights: &[f32], sizes: [usize; 2], window: Window, is_backward: bool) -> Self {
        let taps = window.kernel * window.kernel;
        let mut filters = Self {
            window,
            sizes,
            is_backward,
            numbers: Buffer::pooled(taps * sizes[0] * sizes[1].next_multiple_of(PANEL)),
        };
        let mut numbers = std::mem::replace(&mut filters.numbers, Buffer::pooled(0));
        let mut left = &mut numbers[..];
        for phase in filters.phase_shapes() {
            let (to, rest) = left.split_at_mut(filters.length(phase.taps));
            filters.pack(to, phase, weights);
            left = rest;
        }
        filters.numbers = numbers;
        filters
    }

    pub(crate) fn window(&self) -> Window {
        self.window
    }

    /// `[channels read, channels written]`.
    pub(crate) fn sizes(&self) -> [usize; 2] {
        self.sizes
    }

    /// How many products make all outputs of a pixel.
    pub(crate) fn count(&self) -> usize {
        self.window.kernel * self.window.kernel * self.sizes[0] * self.sizes[1]
    }

    /// The phases with their packed weights.
    pub(crate) fn phases(&self) -> impl Iterator<Item = Phase<'_>> {
        let mut left = &self.numbers[..];
        self.phase_shapes().map(move |phase| {
            let (panels, rest) = left.split_at(self.length(phase.taps));
            left = rest;
            Phase { panels, ..phase }
        })
    }

    fn phase_shapes(&self) -> impl Iterator<Item = Phase<'static>> + use<> {
        let (Window { kernel, stride, .. }, sizes) = (self.window, self.sizes);
        let step = if self.is_backward { stride } else { 1 };
        let places = if self.is_backward { stride.min(kernel) } else { 1 };
        let taps = move |place: usize| (kernel - place).div_ceil(step);
        (0..places * places).map(move |index| {
            let place = [index / places, index % places];
            Phase { place, taps: place.map(taps), sizes, panels: &[] }
        })
    }

    /// How many numbers the packed weights of a phase have.
    fn length(&self, taps: [usize; 2]) -> usize {
        taps[0] * taps[1] * self.sizes[0] * self.sizes[1].next_multiple_of(PANEL)
    }

    /// Packs a phase's weights.
    fn pack(&self, to: &mut [f32], phase: Phase<'_>, weights: &[f32]) {
        let [from, columns] = self.sizes;
        let width = columns.next_multiple_of(PANEL);
        let mut left = to;
        for block in blocks(phase.taps[0], phase.taps[1] * from) {
            let (panels, rest) = left.split_at_mut(block.depth() * width);
            left = rest;
            let mut row = 0;
            for line in block.lines.clone() {
                let mut at = block.of_line.start;
                while at < block.of_line.end {
                    let (tap, channel) = (at / from, at % from);
                    let end = from.min(channel + block.of_line.end - at);
                    let matrix = self.matrix(weights, phase, [line, tap]);
                    let pitch = block.depth() * PANEL;
                    pack::<PANEL>(&mut panels[row * PANEL..], pitch, matrix, channel..end, 0..columns);
                    row += end - channel;
                    at += end - channel;
                }
            }
        }
    }

    /// The weights of one place of the window: `[channels read, channels written]`.
    fn matrix<'a>(&self, weights: &'a [f32], phase: Phase<'_>, tap: [usize; 2]) -> Matrix<'a> {
        let Window { kernel, stride, .. } = self.window;
        let [inputs, outputs] = match self.is_backward {
            true => [self.sizes[1], self.sizes[0]],
            false => self.sizes,
        };
        let [line, column] = match self.is_backward {
            // The last weight meets the first gradient.
            true => [0, 1].map(|axis| phase.place[axis] + stride * (phase.taps[axis] - 1 - tap[axis])),
            false => tap,
        };
        let from = &weights[(line * kernel + column) * outputs..];
        let matrix = Matrix::strided(from, [inputs, outputs], kernel * kernel * outputs);
        if self.is_backward { matrix.t() } else { matrix }
    }
}

impl Phase<'_> {
    /// Which pixels of a direction it reaches. A window at place `q` reaches pixel `stride q + place -
    /// padding` with the first of its weights. `border`: how many zeros are before the gradient.
    pub(crate) fn reach(&self, window: Window, side: usize, axis: usize, border: usize) -> Reach {
        let Window { stride, padding, .. } = window;
        let place = self.place[axis];
        let first = padding.saturating_sub(place).div_ceil(stride);
        // The place that would reach the first pixel behind the image.
        let end = (side + padding).saturating_sub(place).div_ceil(stride);
        Reach {
            first: stride * first + place - padding,
            count: end.saturating_sub(first),
            window: first + border + 1 - self.taps[axis],
        }
    }
}

/// How many zeros are before and after a side of a gradient, so that all windows of backward lie in it.
pub(crate) fn borders(window: Window, side: usize) -> [usize; 2] {
    let Window { kernel, stride, padding } = window;
    let places = window.places(side).expect("checked: the window fits");
    (0..stride.min(kernel)).fold([0; 2], |[before, after], place| {
        let taps = (kernel - place).div_ceil(stride);
        let first = padding.saturating_sub(place).div_ceil(stride);
        let end = (side + padding).saturating_sub(place).div_ceil(stride);
        [before.max((taps - 1).saturating_sub(first)), after.max(end.saturating_sub(places))]
    })
}

impl std::fmt::Debug for Filters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [from, to] = self.sizes;
        write!(f, "Filters({from} to {to}, {:?})", self.window)
    }
}
