//! Frames as a process writes them, byte by byte, and not by the code of the engine.

use pipewright::fabric::WireFrame;
use pipewright::stages::Tensor;

/// The head of a frame from rank 1 to rank 0.
pub(crate) fn head(kind: u32, tag: u64, length: u64, numbers: u64) -> Vec<u8> {
    let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let numbers = [pair(0, kind), pair(1, 0), 0, tag, length, numbers];
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A whole frame with a tensor of two numbers: a wire.
pub(crate) fn wire() -> Vec<u8> {
    let mut described = Vec::new();
    let tensor = Tensor::from_vec(&[2], vec![1.0, 2.0]).expect("two numbers");
    WireFrame::describe(&tensor, &mut described);
    let mut frame = head(0, 0, described.len() as u64, 8);
    frame.extend(described);
    tensor.write(&mut frame).expect("memory takes it");
    frame.push(1);
    frame
}
