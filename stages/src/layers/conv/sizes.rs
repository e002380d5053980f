//! How much memory a convolution needs.

use crate::device::DType;
use crate::layers::conv::cpu as conv;
use crate::layers::conv::cpu::filters::Filters;
use crate::layers::conv::cpu::window::{Image, Window, Windows};

/// A convolution over images of these sides, with as many places as pixels or fewer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvSizes {
    /// The images of a micro-batch.
    pub(crate) rows: usize,
    /// Height and width of the output.
    pub(crate) sides: [usize; 2],
    /// `[inputs, outputs]`.
    pub(crate) channels: [usize; 2],
    /// The side of the window.
    pub(crate) kernel: usize,
}

impl ConvSizes {
    /// The numbers of the output.
    pub(crate) fn outputs(self) -> u64 {
        (self.rows * self.sides.iter().product::<usize>() * self.channels[1]) as u64
    }

    /// The weights, without a bias.
    pub(crate) fn weights(self) -> u64 {
        (self.kernel * self.kernel * self.channels.iter().product::<usize>()) as u64
    }

    /// The packed copies of the weights.
    pub(crate) fn packed(self) -> u64 {
        Filters::packed(self.channels, self.kernel).iter().sum::<usize>() as u64
    }

    /// The weights whose gradient is added in place.
    pub(crate) fn in_place(self) -> u64 {
        let [height, width] = self.sides;
        let seen = Image { height, width, channels: self.channels[1] };
        match conv::is_added_up_first(self.rows, seen) {
            true => self.weights(),
            false => 0,
        }
    }

    /// What a pass on the CPU needs while it runs.
    pub(crate) fn scratch(self) -> u64 {
        conv::scratch(self.sides, self.channels, self.kernel) as u64
    }

    /// The bytes of the rows of windows on a GPU. Backward-input needs them, in `f32`.
    pub(crate) fn rows_on_gpu(self) -> u64 {
        let [inputs, outputs] = self.channels;
        let image = |channels| Image { height: self.sides[0], width: self.sides[1], channels };
        let windows = Windows {
            count: self.rows,
            image: image(inputs),
            seen: image(outputs),
            window: Window { kernel: self.kernel, stride: 1, padding: self.kernel / 2 },
        };
        windows.scratch(DType::F32) as u64
    }
}
