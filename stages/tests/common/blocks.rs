//! Quantised matrices for tests.

use pipewright_stages::{Parameter, Quantisation, Quantised, Training, rng, starting_at_zero};

/// Blocks of any bits but for their scales, which are small numbers.
pub(crate) fn any_blocks(kind: Quantisation, [rows, columns]: [usize; 2]) -> Quantised {
    let (_, size) = kind.block();
    let mut noise = vec![0.0; kind.bytes(rows * columns)];
    rng::fill_normal(rng::key(3, "blocks"), 100.0, &mut noise);
    let mut bytes: Vec<u8> = noise.iter().map(|number| number.abs() as u64 as u8).collect();
    let scales: &[usize] = match kind {
        Quantisation::F16 | Quantisation::Bf16 | Quantisation::Nf4 => &[],
        Quantisation::Q4_1 | Quantisation::Q5_1 | Quantisation::Q4_K | Quantisation::Q5_K => &[0, 2],
        Quantisation::Q2_K => &[80, 82],
        Quantisation::Q3_K => &[108],
        Quantisation::Q6_K => &[208],
        Quantisation::Q4_0 | Quantisation::Q5_0 | Quantisation::Q8_0 => &[0],
    };
    for block in bytes.chunks_exact_mut(size) {
        // 2^-6 and a little more.
        scales.iter().for_each(|&at| (block[at], block[at + 1]) = (block[at], 0x24));
        match kind {
            Quantisation::Nf4 => block[..4].copy_from_slice(&0.3_f32.to_le_bytes()),
            Quantisation::F16 | Quantisation::Bf16 => {
                block.iter_mut().skip(1).step_by(2).for_each(|high| *high = 0x3b);
            }
            _ => {}
        }
    }
    let mut matrix = Quantised::new(columns);
    matrix.push(kind, bytes.into());
    matrix
}

/// Rows of several kinds, one kind below the other.
pub(crate) fn of_kinds(kinds: &[(Quantisation, usize)], columns: usize) -> Quantised {
    let mut blocks = Quantised::new(columns);
    for &(kind, rows) in kinds {
        let part = any_blocks(kind, [rows, columns]);
        let bytes = part.chunks().flat_map(|(_, bytes)| bytes.to_vec()).collect::<Vec<u8>>();
        blocks.push(kind, bytes.into());
    }
    blocks
}

/// Freezes a parameter, and gives it these blocks or their numbers.
pub(crate) fn give(weight: &mut Parameter, blocks: Quantised, is_quantised: bool) {
    weight.train_by(Training { frozen: true, ..Training::default() });
    match is_quantised {
        true => {
            starting_at_zero(|| weight.quantise(Quantisation::ALL[2])).expect("a frozen matrix");
            weight.hold(blocks).expect("it is on the CPU");
            assert!(weight.value.is_empty() && weight.numbers().len() == weight.count());
        }
        false => weight.value.copy_from_slice(&blocks.to_f32()),
    }
}
