//! Squares of 16 by 16 numbers of 32 bits, turned in registers where the CPU has 32 of them.

/// The side of a square.
pub(crate) const SIDE: usize = 16;

/// Writes the columns of a square as rows. Rows start `from.1` and `to.1` numbers apart.
#[inline(always)]
pub(crate) fn turn(from: (&[u32], usize), to: (&mut [u32], usize)) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        wide::turn(from, to);
        return;
    }
    plain(from, to);
}

#[inline(always)]
fn plain(from: (&[u32], usize), to: (&mut [u32], usize)) {
    for row in 0..SIDE {
        for column in 0..SIDE {
            to.0[column * to.1 + row] = from.0[row * from.1 + column];
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "the instructions take pointers")]
mod wide {
    use std::arch::x86_64::{
        __m512i, _mm512_loadu_si512, _mm512_permutex2var_epi32, _mm512_setzero_si512, _mm512_storeu_si512,
    };

    use crate::cpu::bf16_kernels::square::SIDE;

    /// For each step, which numbers of a pair of rows make the first new row, and which the second. A number
    /// from 16 on is of the second row. A step exchanges the halves of rows that are `1 << step` apart.
    static FROM: [[[i32; SIDE]; 2]; 4] = {
        let mut from = [[[0; SIDE]; 2]; 4];
        let mut step = 0;
        while step < 4 {
            let (apart, mut at) = (1 << step, 0);
            while at < SIDE {
                let is_upper = at & apart != 0;
                from[step][0][at] = (if is_upper { SIDE + at - apart } else { at }) as i32;
                from[step][1][at] = (if is_upper { SIDE + at } else { at + apart }) as i32;
                at += 1;
            }
            step += 1;
        }
        from
    };

    /// As [`super::turn`]. Only where the CPU has AVX-512.
    #[inline(always)]
    pub(crate) fn turn((from, from_row): (&[u32], usize), (to, to_row): (&mut [u32], usize)) {
        assert!(from.len() >= (SIDE - 1) * from_row + SIDE);
        assert!(to.len() >= (SIDE - 1) * to_row + SIDE);
        // SAFETY: the caller has asked the CPU. All rows of both squares end before their slices do.
        unsafe { by_steps(from.as_ptr(), from_row, to.as_mut_ptr(), to_row) }
    }

    /// # Safety
    /// The CPU has the instructions. Sixteen rows can be read and written.
    #[target_feature(enable = "avx512f")]
    unsafe fn by_steps(from: *const u32, from_row: usize, to: *mut u32, to_row: usize) {
        // SAFETY: reads and writes are in the bounds that the caller promises, or in `FROM`.
        unsafe {
            let mut rows = [_mm512_setzero_si512(); SIDE];
            for (index, row) in rows.iter_mut().enumerate() {
                *row = _mm512_loadu_si512(from.add(index * from_row).cast());
            }
            for (step, [first, second]) in FROM.iter().enumerate() {
                let [first, second]: [__m512i; 2] =
                    [first, second].map(|from| _mm512_loadu_si512(from.as_ptr().cast()));
                let apart = 1 << step;
                for index in (0..SIDE).filter(|index| index & apart == 0) {
                    let (upper, lower) = (rows[index], rows[index + apart]);
                    rows[index] = _mm512_permutex2var_epi32(upper, first, lower);
                    rows[index + apart] = _mm512_permutex2var_epi32(upper, second, lower);
                }
            }
            for (index, row) in rows.into_iter().enumerate() {
                _mm512_storeu_si512(to.add(index * to_row).cast(), row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_rows() {
        let from: Vec<u32> = (0..20 * SIDE as u32).collect();
        for by in [turn, plain] {
            let mut to = vec![0; 32 * SIDE];
            by((&from, 20), (&mut to, 32));
            for (row, column) in (0..SIDE).flat_map(|row| (0..SIDE).map(move |column| (row, column))) {
                assert_eq!(to[column * 32 + row], from[row * 20 + column], "{row}, {column}");
            }
        }
    }
}
