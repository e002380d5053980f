//! The inner loop of every matrix product: one tile of the output in registers.

use std::hint::black_box;

use pulp::Simd;
use smallvec::SmallVec;

use super::depth::DepthBlock;
use super::prefetch::Ahead;

/// The rows of a tile of a large product where [`wants_many_rows`], if there are 32 registers. It is a
/// multiple of [`FEW_ROWS`].
pub(crate) const MANY_ROWS: usize = 12;

/// The rows of other tiles on these machines. It is a multiple of [`FEW_ROWS`].
pub(crate) const ROWS: usize = 8;

/// The rows of a tile on machines with 16 registers. Half of the registers hold sums.
pub(crate) const FEW_ROWS: usize = 4;

/// How often a tile can prefetch memory: once per this much depth.
pub(crate) const STEP: usize = 16;

/// How many steps of the depth are taken without a jump.
const UNROLLED: usize = 4;

/// Whether there are enough registers for a tile of eight rows that is two registers wide.
#[inline(always)]
pub(crate) fn is_tall<S: Simd>() -> bool {
    S::REGISTER_COUNT >= 32
}

/// The left operand of a tile.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    /// The numbers, from the first one of the tile on.
    pub(crate) numbers: &'a [f32],
    /// The distance from one row to the next.
    pub(crate) row: usize,
    /// The distance from one column to the next.
    pub(crate) column: usize,
    /// Whether the columns are a copy of a block's, one segment behind the other.
    pub(crate) is_copy: bool,
}

/// The right operand of a tile. Its rows are contiguous.
#[derive(Clone, Copy)]
pub(crate) struct Right<'a> {
    /// The numbers, from the first one of the tile on.
    pub(crate) numbers: &'a [f32],
    /// The distance from one row to the next.
    pub(crate) row: usize,
}

/// Whether large products are faster with tiles of twelve rows. They read the right operand from the
/// second-level cache less often than tiles of eight, but packing is slower. On Intel's CPUs that pays, on
/// AMD's it does not.
pub(crate) fn wants_many_rows() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::sync::OnceLock;
        static IS_INTEL: OnceLock<bool> = OnceLock::new();
        *IS_INTEL.get_or_init(is_intel)
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Asks the CPU who made it.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, unused_unsafe, reason = "newer compilers call this function safe")]
fn is_intel() -> bool {
    // SAFETY: every CPU of this architecture has the instruction `cpuid`.
    let name = unsafe { std::arch::x86_64::__cpuid(0) };
    [name.ebx, name.edx, name.ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
}

/// Where the rows of a tile begin in its left operand.
#[derive(Clone, Copy)]
pub(crate) struct RowStarts<const HEIGHT: usize> {
    starts: [usize; HEIGHT],
    last: usize,
}

impl<const HEIGHT: usize> RowStarts<HEIGHT> {
    /// Rows that begin at these places.
    #[inline(always)]
    pub(crate) fn new(starts: [usize; HEIGHT]) -> Self {
        let last = starts.iter().fold(0, |last, &start| last.max(start));
        Self { starts, last }
    }

    /// The same, hidden from the compiler, which would add the places up again in each step. That takes a
    /// trip to memory.
    #[inline(always)]
    pub(crate) fn hidden(self) -> Self {
        Self { starts: black_box(self.starts), ..self }
    }
}

/// One tile of a product. It sums, over `depth` from first to last, a column of `left` times a row of
/// `right`, `WIDTH` registers long. Before each [`STEP`] of the depth it prefetches some of what is read
/// next.
#[inline(always)]
pub(crate) fn tile<S: Simd, const HEIGHT: usize, const WIDTH: usize>(
    simd: S,
    depth: usize,
    left: Left<'_>,
    right: Right<'_>,
    next: &mut [Ahead<'_>],
) -> [[S::f32s; WIDTH]; HEIGHT] {
    let mut sums = [[simd.splat_f32s(0.0); WIDTH]; HEIGHT];
    let mut rows = RowStarts::new(std::array::from_fn(|index| index * left.row));
    if depth > 4 * STEP {
        rows = rows.hidden();
    }
    add_to_tile(simd, &mut sums, depth, (left.numbers, &rows, left.column), right, next);
    sums
}

/// As [`tile`], for a block with several segments. Where a sum ends, the tree adds earlier sums to it.
#[inline(always)]
pub(crate) fn joined_tile<S: Simd, const HEIGHT: usize, const WIDTH: usize>(
    simd: S,
    block: DepthBlock<'_>,
    left: Left<'_>,
    right: Right<'_>,
    next: &mut [Ahead<'_>],
) -> [[S::f32s; WIDTH]; HEIGHT] {
    let zeros = [[simd.splat_f32s(0.0); WIDTH]; HEIGHT];
    let rows = RowStarts::new(std::array::from_fn(|index| index * left.row)).hidden();
    let mut waiting = SmallVec::<[[[S::f32s; WIDTH]; HEIGHT]; 4]>::new();
    let (mut sums, mut at) = (zeros, 0);
    for segment in block.segments() {
        let from = if left.is_copy { at } else { segment.start };
        let numbers = (&left.numbers[from * left.column..], &rows, left.column);
        let right = Right { numbers: &right.numbers[at * right.row..], ..right };
        // A copy, which stays in registers: the sums themselves are moved to memory below.
        let mut in_registers = sums;
        add_to_tile(simd, &mut in_registers, segment.len(), numbers, right, next);
        sums = in_registers;
        at += segment.len();
        let Some(joined) = segment.joined else { continue };
        for _ in 0..joined {
            let earlier = waiting.pop().expect("the tree has it");
            for (sums, earlier) in sums.as_flattened_mut().iter_mut().zip(earlier.as_flattened()) {
                *sums = simd.add_f32s(*earlier, *sums);
            }
        }
        if at < block.len {
            waiting.push(std::mem::replace(&mut sums, zeros));
        }
    }
    sums
}

/// Adds to the sums of a [`tile`]. `left`: the numbers of the left operand, where its rows begin in them, and
/// the distance from one column to the next.
#[inline(always)]
#[allow(unsafe_code, reason = "the innermost loop has no time for checks")]
pub(crate) fn add_to_tile<S: Simd, const HEIGHT: usize, const WIDTH: usize>(
    simd: S,
    sums: &mut [[S::f32s; WIDTH]; HEIGHT],
    depth: usize,
    (numbers, rows, column): (&[f32], &RowStarts<HEIGHT>, usize),
    right: Right<'_>,
    next: &mut [Ahead<'_>],
) {
    let last = depth - 1;
    assert!(numbers.len() > rows.last + last * column);
    assert!(right.numbers.len() >= last * right.row + WIDTH * S::F32_LANES);
    let (mut a, mut b) = (numbers.as_ptr(), right.numbers.as_ptr());
    let mut rest = depth;
    while rest > 0 {
        next.iter_mut().for_each(Ahead::ask);
        let steps = rest.min(STEP);
        // SAFETY: `a` is at the next column and `b` at the next row of the operands. Of both, `rest` are
        // left. So what is read lies before the ends that were asserted; no row begins after `rows.last`.
        unsafe {
            for _ in 0..steps / UNROLLED {
                for _ in 0..UNROLLED {
                    step::<S, HEIGHT, WIDTH>(simd, sums, a, &rows.starts, b);
                    (a, b) = (a.wrapping_add(column), b.wrapping_add(right.row));
                }
            }
            for _ in 0..steps % UNROLLED {
                step::<S, HEIGHT, WIDTH>(simd, sums, a, &rows.starts, b);
                (a, b) = (a.wrapping_add(column), b.wrapping_add(right.row));
            }
        }
        rest -= steps;
    }
}

/// Adds the products of a column of the left operand and a row of the right one.
///
/// # Safety
/// The numbers of the column, which are so far from `a`, and all numbers of the row can be read.
#[inline(always)]
#[allow(unsafe_code, reason = "see `tile`")]
unsafe fn step<S: Simd, const HEIGHT: usize, const WIDTH: usize>(
    simd: S,
    sums: &mut [[S::f32s; WIDTH]; HEIGHT],
    a: *const f32,
    rows: &[usize; HEIGHT],
    b: *const f32,
) {
    // SAFETY: the caller says that these numbers can be read.
    unsafe {
        let right: [S::f32s; WIDTH] =
            std::array::from_fn(|index| b.cast::<S::f32s>().add(index).read_unaligned());
        for (sums, &row) in sums.iter_mut().zip(rows) {
            let number = simd.splat_f32s(*a.add(row));
            for (sum, right) in sums.iter_mut().zip(right) {
                *sum = simd.mul_add_f32s(number, right, *sum);
            }
        }
    }
}
