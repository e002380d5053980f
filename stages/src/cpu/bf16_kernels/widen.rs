//! Products by multiply-adds in `f32`, for CPUs without instructions for `bf16`: right, and no faster than
//! in `f32`.

use half::bf16;
use pulp::{Arch, Simd, WithSimd};

use super::left::{Left, Order};
use super::panels::{TILE, Tile};
use crate::cpu::tile::{FEW_ROWS, ROWS, is_tall};

/// As [`super::Way::add`].
pub(crate) fn add(sums: &mut Tile, left: Left<'_>, panel: &[bf16]) {
    Arch::new().dispatch(Add { sums, left, panel });
}

struct Add<'a> {
    sums: &'a mut Tile,
    left: Left<'a>,
    panel: &'a [bf16],
}

impl WithSimd for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if is_tall::<S>() {
            self.run::<S, ROWS>(simd);
        } else {
            self.run::<S, FEW_ROWS>(simd);
        }
    }
}

impl Add<'_> {
    #[inline(always)]
    fn run<S: Simd, const HEIGHT: usize>(self, simd: S) {
        let Left { numbers, order, .. } = self.left;
        let panel: &[[u32; TILE]] = bytemuck::cast_slice(self.panel);
        let tiles = self.sums.as_chunks_mut::<HEIGHT>().0.iter_mut();
        for (first, sums) in (0..self.left.rows).step_by(HEIGHT).zip(tiles) {
            match order {
                Order::Rows(stride) => {
                    let rows: [&[[bf16; 2]]; HEIGHT] = std::array::from_fn(|row| {
                        numbers[(first + row) * stride..][..2 * panel.len()].as_chunks().0
                    });
                    tile::<S, HEIGHT>(simd, sums, panel, |pair, row| rows[row][pair]);
                }
                Order::Pairs => {
                    let pairs = numbers.as_chunks::<2>().0;
                    tile::<S, HEIGHT>(simd, sums, panel, |pair, row| pairs[pair * TILE + first + row]);
                }
            }
        }
    }
}

/// Some rows of sums, two registers at a time.
#[inline(always)]
fn tile<S: Simd, const HEIGHT: usize>(
    simd: S,
    sums: &mut [[f32; TILE]; HEIGHT],
    panel: &[[u32; TILE]],
    left: impl Fn(usize, usize) -> [bf16; 2],
) {
    let high = simd.splat_u32s(0xffff_0000);
    let shift = simd.splat_u32s(16);
    for part in (0..TILE).step_by(2 * S::F32_LANES) {
        let part = part..TILE.min(part + 2 * S::F32_LANES);
        let mut all: [[S::f32s; 2]; HEIGHT] = std::array::from_fn(|row| {
            let old = S::as_simd_f32s(&sums[row][part.clone()]).0;
            [old[0], old[1]]
        });
        for (index, pairs) in panel.iter().enumerate() {
            let pairs = S::as_simd_u32s(&pairs[part.clone()]).0;
            let right = [pairs[0], pairs[1]].map(|pairs| {
                [
                    simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(pairs, shift)),
                    simd.transmute_f32s_u32s(simd.and_u32s(pairs, high)),
                ]
            });
            for (row, sums) in all.iter_mut().enumerate() {
                let left = left(index, row).map(|number| simd.splat_f32s(f32::from(number)));
                for (sum, right) in sums.iter_mut().zip(right) {
                    for (left, right) in left.into_iter().zip(right) {
                        *sum = simd.mul_add_f32s(left, right, *sum);
                    }
                }
            }
        }
        for (row, all) in sums.iter_mut().zip(all) {
            S::as_mut_simd_f32s(&mut row[part.clone()]).0.copy_from_slice(&all);
        }
    }
}
