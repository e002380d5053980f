//! Copies of operands in the order in which products read them.

use std::ops::Range;

use super::matmul::Matrix;

/// Columns of a panel: as many as the widest tile, two AVX-512 registers.
pub(super) const PANEL: usize = 32;

/// Lays out rows `depth` of `columns` of a matrix as panels of 32 columns one after the other, each row by row. Columns
/// that fill up the last panel hold any numbers.
#[inline(always)]
pub(super) fn pack(to: &mut [f32], from: Matrix<'_>, depth: Range<usize>, columns: Range<usize>) {
    let panels = to.chunks_exact_mut(PANEL * depth.len());
    for (panel, first) in panels.zip(columns.clone().step_by(PANEL)) {
        let panel = panel.as_chunks_mut::<PANEL>().0;
        let columns = first..columns.end.min(first + PANEL);
        if from.turned {
            pack_turned(panel, from, depth.start, columns);
        } else {
            pack_rows(panel, from, depth.start, columns);
        }
    }
}

#[inline(always)]
fn pack_rows(panel: &mut [[f32; PANEL]], from: Matrix<'_>, start: usize, columns: Range<usize>) {
    let rows = from.numbers[start * from.stride..].chunks(from.stride);
    if columns.len() == PANEL {
        for (to, row) in panel.iter_mut().zip(rows) {
            to.copy_from_slice(&row[columns.clone()]);
        }
    } else {
        for (to, row) in panel.iter_mut().zip(rows) {
            to[..columns.len()].copy_from_slice(&row[columns.clone()]);
        }
    }
}

/// Eight lines at a time: lines whose length is a power of two fall on the same places of the first cache, and it has
/// eight of each.
#[inline(always)]
fn pack_turned(panel: &mut [[f32; PANEL]], from: Matrix<'_>, start: usize, columns: Range<usize>) {
    const LINES: usize = 8;
    for group in (0..PANEL).step_by(LINES) {
        let lines: [&[f32]; LINES] = std::array::from_fn(|index| {
            let line = (columns.start + group + index).min(columns.end - 1);
            &from.numbers[line * from.stride + start..][..panel.len()]
        });
        for (at, to) in panel.iter_mut().enumerate() {
            let numbers: [f32; LINES] = std::array::from_fn(|index| lines[index][at]);
            to[group..group + LINES].copy_from_slice(&numbers);
        }
    }
}
