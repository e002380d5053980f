//! The loops of layers of single numbers on the CPU.

use multiversion::multiversion;

use crate::cpu::parts::{By, EXP, cut};
use crate::cpu::prefetch::LINE;
use crate::cpu::real::Real;

/// How many numbers go through one loop before the next takes them from the first-level cache. Two loops with
/// half of the operations in each overlap more of them than one long loop.
pub(crate) const BLOCK: usize = 256;

/// A function of one number, whose derivative is found from the input again.
pub(crate) trait Activation {
    /// The first half of the work on a number, mostly an exponential.
    fn first_half(x: f32) -> f32;

    /// Value and derivative, from the first half.
    fn second_half(x: f32, first: f32) -> [f32; 2];
}

/// A function of one number, whose derivative is found from the output.
pub(crate) trait OfOutput {
    /// The work on a number, in the units of [`cut`].
    const WORK: usize;

    /// The value.
    fn value(x: f32) -> f32;

    /// The gradient of the input, for the gradient of the output `y`.
    fn gradient(grad: f32, y: f32) -> f32;
}

/// The loops of a layer: its forward, and its backward, which turns the output gradient into the input
/// gradient.
pub(crate) enum Loops<N> {
    /// Forward fills other memory. Backward needs the input.
    OfInput(fn(&mut [N], &[N]), fn(&mut [N], &[N])),
    /// Forward overwrites its input. Backward needs the output.
    OfOutput(fn(&mut [N]), fn(&mut [N], &[N])),
}

impl<N: Real> Loops<N> {
    /// The loops of a function of the input.
    pub(crate) fn of_input<A: Activation>() -> Self {
        Self::OfInput(forward::<N, A>, backward::<N, A>)
    }

    /// The loops of a function whose derivative is one of the output.
    pub(crate) fn of_output<F: OfOutput>() -> Self {
        Self::OfOutput(overwrite::<N, F>, backward_of_output::<N, F>)
    }
}

/// Does the first half for a block of numbers.
#[inline(always)]
pub(crate) fn first_halves<'a, N: Real, A: Activation>(room: &'a mut [f32; BLOCK], input: &[N]) -> &'a [f32] {
    let room = &mut room[..input.len()];
    for (first, x) in room.iter_mut().zip(input) {
        *first = A::first_half(x.wide());
    }
    room
}

fn forward<N: Real, A: Activation>(out: &mut [N], input: &[N]) {
    cut((By(out, LINE), By(input, LINE)), EXP * LINE, |_, (out, input)| {
        forward_part::<N, A>(out, input);
    });
}

#[multiversion(targets = "simd")]
fn forward_part<N: Real, A: Activation>(out: &mut [N], input: &[N]) {
    let mut room = [0.0; BLOCK];
    for (out, input) in out.chunks_mut(BLOCK).zip(input.chunks(BLOCK)) {
        let firsts = first_halves::<N, A>(&mut room, input);
        for ((out, x), &first) in out.iter_mut().zip(input).zip(firsts) {
            *out = N::narrow(A::second_half(x.wide(), first)[0]);
        }
    }
}

fn backward<N: Real, A: Activation>(grad: &mut [N], input: &[N]) {
    let rows = (By(grad, LINE), By(input, LINE));
    cut(rows, EXP * LINE, |_, (grad, input)| backward_part::<N, A>(grad, input));
}

#[multiversion(targets = "simd")]
fn backward_part<N: Real, A: Activation>(grad: &mut [N], input: &[N]) {
    let mut room = [0.0; BLOCK];
    for (grad, input) in grad.chunks_mut(BLOCK).zip(input.chunks(BLOCK)) {
        let firsts = first_halves::<N, A>(&mut room, input);
        for ((grad, x), &first) in grad.iter_mut().zip(input).zip(firsts) {
            *grad = N::narrow(grad.wide() * A::second_half(x.wide(), first)[1]);
        }
    }
}

/// Multiplies the gradient by the derivatives at `input`, and turns that into the values.
pub(crate) fn backward_and_forward<N: Real, A: Activation>(grad: &mut [N], input: &mut [N]) {
    let rows = (By(grad, LINE), By(input, LINE));
    cut(rows, EXP * LINE, |_, (grad, input)| {
        backward_and_forward_part::<N, A>(grad, input);
    });
}

#[multiversion(targets = "simd")]
fn backward_and_forward_part<N: Real, A: Activation>(grad: &mut [N], input: &mut [N]) {
    let mut room = [0.0; BLOCK];
    for (grad, input) in grad.chunks_mut(BLOCK).zip(input.chunks_mut(BLOCK)) {
        let firsts = first_halves::<N, A>(&mut room, input);
        for ((grad, x), &first) in grad.iter_mut().zip(input).zip(firsts) {
            let [value, derivative] = A::second_half(x.wide(), first);
            *grad = N::narrow(grad.wide() * derivative);
            *x = N::narrow(value);
        }
    }
}

fn overwrite<N: Real, F: OfOutput>(numbers: &mut [N]) {
    cut(By(numbers, LINE), F::WORK * LINE, |_, numbers| overwrite_part::<N, F>(numbers));
}

#[multiversion(targets = "simd")]
fn overwrite_part<N: Real, F: OfOutput>(numbers: &mut [N]) {
    for number in numbers {
        *number = N::narrow(F::value(number.wide()));
    }
}

fn backward_of_output<N: Real, F: OfOutput>(grad: &mut [N], output: &[N]) {
    cut((By(grad, LINE), By(output, LINE)), LINE, |_, (grad, output)| {
        backward_of_output_part::<N, F>(grad, output);
    });
}

#[multiversion(targets = "simd")]
fn backward_of_output_part<N: Real, F: OfOutput>(grad: &mut [N], output: &[N]) {
    for (grad, y) in grad.iter_mut().zip(output) {
        *grad = N::narrow(F::gradient(grad.wide(), y.wide()));
    }
}
