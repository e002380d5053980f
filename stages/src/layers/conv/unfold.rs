//! The windows that a 1-D convolution sees of sequences `[count, time, channels]`, as rows.
//!
//! Channels are innermost, so a window is one contiguous piece of a sequence, with zeros where it reaches
//! over an end.

use std::ops::Range;

use crate::cpu::parts::{By, cut};
use crate::layers::conv::cpu::window::Window;

/// The length and the channels of a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    pub(crate) time: usize,
    pub(crate) channels: usize,
}

impl Sequence {
    fn count(self) -> usize {
        self.time * self.channels
    }

    /// The numbers of all windows.
    fn seen(self, window: Window) -> usize {
        let places = window.places(self.time).expect("checked: the window fits");
        places * self.row(window)
    }

    /// The numbers of one window.
    fn row(self, window: Window) -> usize {
        window.kernel * self.channels
    }

    /// Which numbers of the window at this place are numbers of the sequence, and which these are.
    fn shared(self, window: Window, place: usize) -> [Range<usize>; 2] {
        let start = place * window.stride;
        let from = start.max(window.padding);
        let to = (start + window.kernel).min(window.padding + self.time).max(from);
        [start, window.padding].map(|first| (from - first) * self.channels..(to - first) * self.channels)
    }
}

/// Writes the windows of all sequences, one row for each place.
pub(crate) fn unfold(windows: &mut [f32], sequences: &[f32], of: Sequence, window: Window) {
    let seen = of.seen(window);
    let each = (By(windows, seen), By(sequences, of.count()));
    cut(each, seen, |_, (windows, sequences)| {
        let each = windows.chunks_exact_mut(seen).zip(sequences.chunks_exact(of.count()));
        for (windows, sequence) in each {
            for (place, row) in windows.chunks_exact_mut(of.row(window)).enumerate() {
                let [inside, numbers] = of.shared(window, place);
                row.fill(0.0);
                if !inside.is_empty() {
                    row[inside].copy_from_slice(&sequence[numbers]);
                }
            }
        }
    });
}

/// The gradient of the sequences, from the gradient of their windows: each number gets the sum over all
/// windows that see it.
pub(crate) fn fold(sequences: &mut [f32], windows: &[f32], of: Sequence, window: Window) {
    let seen = of.seen(window);
    let each = (By(sequences, of.count()), By(windows, seen));
    cut(each, seen, |_, (sequences, windows)| {
        sequences.fill(0.0);
        let each = sequences.chunks_exact_mut(of.count()).zip(windows.chunks_exact(seen));
        for (sequence, windows) in each {
            for (place, row) in windows.chunks_exact(of.row(window)).enumerate() {
                let [inside, numbers] = of.shared(window, place);
                if !inside.is_empty() {
                    let sums = sequence[numbers].iter_mut();
                    sums.zip(&row[inside]).for_each(|(sum, grad)| *sum += grad);
                }
            }
        }
    });
}
