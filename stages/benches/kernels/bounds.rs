//! What the machine can do at most: rates of one thread, measured in the same rounds as the kernels, and the
//! time that they leave for a pass.

use std::hint::black_box;

use pipewright_stages::DType;
use pulp::{Arch, Simd, WithSimd};

use crate::clock::{Clock, Run};
use crate::table::{Kernel, Work, medians};

/// What a pass must do for each number, by its formula as it is written. Conversions between number formats
/// are not in it.
#[derive(Clone, Copy)]
pub(crate) struct Needs {
    /// Bytes that are only read.
    pub(crate) read: f64,
    /// Bytes that are read and written in the same place.
    pub(crate) changed: f64,
    /// Bytes that are only written.
    pub(crate) written: f64,
    /// Additions, multiplications, multiply-adds, comparisons and shifts. Those in 64 bits count twice.
    pub(crate) operations: f64,
    /// Divisions and square roots.
    pub(crate) divisions: f64,
}

impl Needs {
    /// `bytes` read, changed, written; operations, divisions.
    pub(crate) const fn new([read, changed, written]: [f64; 3], operations: f64, divisions: f64) -> Self {
        Self { read, changed, written, operations, divisions }
    }

    /// With activations, which are all that it moves, in this number format.
    pub(crate) fn in_format(self, dtype: DType) -> Self {
        let part = dtype.bytes() as f64 / 4.0;
        Self { read: self.read * part, changed: self.changed * part, written: self.written * part, ..self }
    }

    /// The memory that `count` numbers take, in `f32`.
    pub(crate) fn footprint(&self, count: usize) -> usize {
        ((self.read + self.changed + self.written) * count as f64 / 4.0) as usize
    }
}

/// The measured rates.
pub(crate) struct Bounds {
    /// Seconds of a multiply-add and of a division.
    arithmetic: [f64; 2],
    /// For each footprint: seconds a byte to read, change and write; hot, then cold.
    streams: Vec<(usize, [[f64; 2]; 3])>,
}

/// Chains of multiply-adds, and of divisions, that are in flight at once.
const CHAINS: usize = 10;
const LENGTH: usize = 1 << 16;

/// The kernels that measure the rates, for these footprints.
pub(crate) fn kernels(footprints: &[usize]) -> Vec<Kernel> {
    let lanes = Arch::new().dispatch(Lanes);
    let flops = |each: usize| Work::Flops { flops: (each * lanes * CHAINS * LENGTH) as f64, dtype: None };
    let run: Run = Box::new(|clock| {
        clock.time(|| Arch::new().dispatch(Chains::MultiplyAdd));
        clock.time(|| Arch::new().dispatch(Chains::Divide));
        Ok(())
    });
    let passes = vec![("mul-add", flops(2)), ("divide", flops(1))];
    let mut kernels = vec![Kernel::new("in registers".to_owned(), passes, run)];
    kernels.extend(footprints.iter().map(|&count| stream(count)));
    kernels
}

fn stream(count: usize) -> Kernel {
    let mut numbers = vec![0.0; count];
    let run = move |clock: &mut Clock| {
        for kind in [Kind::Read, Kind::Change, Kind::Write] {
            clock.time(|| Arch::new().dispatch(Stream { kind, numbers: &mut numbers }));
        }
        Ok(())
    };
    let bytes = Work::Bytes(4 * count);
    let passes = vec![("read", bytes), ("change", bytes), ("write", bytes)];
    Kernel::new(format!("stream: {} KiB", count / 256), passes, Box::new(run))
}

impl Bounds {
    /// From the measurements of [`kernels`].
    pub(crate) fn new(kernels: &[Kernel], footprints: &[usize]) -> Self {
        let lanes = Arch::new().dispatch(Lanes);
        let each = |pass| medians(&kernels[0].samples, pass)[0] / (lanes * CHAINS * LENGTH) as f64;
        let streams = footprints.iter().zip(&kernels[1..]).map(|(&count, kernel)| {
            let each = [0, 1, 2]
                .map(|pass| medians(&kernel.samples, pass).map(|seconds| seconds / (4 * count) as f64));
            (count, each)
        });
        Self { arithmetic: [each(0), each(1)], streams: streams.collect() }
    }

    /// GFLOP/s of multiply-adds in `f32`.
    pub(crate) fn multiply_adds(&self) -> f64 {
        2e-9 / self.arithmetic[0]
    }

    /// Seconds that `count` numbers take at least, hot and cold, and what bounds them. `plain` are the
    /// seconds of plain loops that move the same bytes, if there are any.
    pub(crate) fn of(&self, needs: Needs, count: usize, plain: Option<[f64; 2]>) -> [(f64, &'static str); 2] {
        let [operation, division] = self.arithmetic;
        let arithmetic = (needs.operations * operation).max(needs.divisions * division) * count as f64;
        let memory = plain.unwrap_or_else(|| self.streams(needs, count));
        memory.map(|memory| match memory > arithmetic {
            true => (memory, "memory"),
            false => (arithmetic, "arithmetic"),
        })
    }

    /// Seconds to stream the bytes of `count` numbers, hot and cold.
    fn streams(&self, needs: Needs, count: usize) -> [f64; 2] {
        let footprint = needs.footprint(count);
        let streams = self.streams.iter().find(|(stream, _)| *stream == footprint);
        let [read, change, write] = streams.expect("measured for every kernel").1;
        [0, 1].map(|cold| {
            let each = needs.read * read[cold] + needs.changed * change[cold] + needs.written * write[cold];
            each * count as f64
        })
    }
}

/// How many numbers a register has.
struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> usize {
        S::F32_LANES
    }
}

enum Chains {
    MultiplyAdd,
    Divide,
}

impl WithSimd for Chains {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let [by, start] = black_box([0.999, 1.0]).map(|number| simd.splat_f32s(number));
        let mut chains = [start; CHAINS];
        for _ in 0..LENGTH {
            for chain in &mut chains {
                *chain = match self {
                    Self::MultiplyAdd => simd.mul_add_f32s(*chain, by, start),
                    Self::Divide => simd.div_f32s(*chain, by),
                };
            }
        }
        black_box(chains);
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Change,
    Write,
}

struct Stream<'a> {
    kind: Kind,
    numbers: &'a mut [f32],
}

impl WithSimd for Stream<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { kind, numbers } = self;
        let one = simd.splat_f32s(black_box(1.0));
        let registers = S::as_mut_simd_f32s(numbers).0;
        match kind {
            Kind::Read => {
                let mut sums = [one; 8];
                for eight in registers.as_chunks::<8>().0 {
                    for (sum, number) in sums.iter_mut().zip(eight) {
                        *sum = simd.add_f32s(*sum, *number);
                    }
                }
                black_box(sums);
            }
            Kind::Change => registers.iter_mut().for_each(|number| *number = simd.add_f32s(*number, one)),
            Kind::Write => registers.fill(one),
        }
    }
}
