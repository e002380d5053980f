//! The memory of tensors returns to the thread that made it. Nothing is kept for a thread that has ended.

use std::thread;

use pipewright_stages::Tensor;

#[test]
fn a_dropped_tensors_memory_is_used_again() {
    let first = Tensor::scratch(&[3, 5]).memory();
    assert_eq!(Tensor::zeros(&[15]).memory(), first);
    let ids = Tensor::scratch_ids(&[4]).memory();
    assert_eq!(Tensor::scratch_ids(&[2, 2]).memory(), ids);
}

#[test]
fn the_last_of_those_that_share_memory_gives_it_back() {
    let tensor = Tensor::scratch(&[7]);
    let (memory, shared) = (tensor.memory(), tensor.clone());
    drop(tensor);
    assert_ne!(Tensor::scratch(&[7]).memory(), memory);
    drop(shared);
    assert_eq!(Tensor::scratch(&[7]).memory(), memory);
}

#[test]
fn writing_to_shared_memory_copies_it_first() {
    let mut tensor = Tensor::zeros(&[2]);
    let shared = tensor.clone();
    tensor.f32_mut()[0] = 1.0;
    assert_eq!((tensor.f32(), shared.f32()), (&[1.0, 0.0][..], &[0.0, 0.0][..]));
    let mut ids = Tensor::from_ids(&[2], vec![3, 4]).expect("it fills the shape");
    let shared = ids.clone();
    ids.ids_mut()[1] = 5;
    assert_eq!((ids.ids(), shared.ids()), (&[3, 5][..], &[3, 4][..]));
}

#[test]
fn memory_that_another_thread_drops_comes_home() {
    let tensors: Vec<Tensor> = (0..3).map(|_| Tensor::scratch(&[11])).collect();
    let mut sent: Vec<usize> = tensors.iter().map(Tensor::memory).collect();
    thread::spawn(move || drop(tensors)).join().expect("no panic");
    let again: Vec<Tensor> = (0..3).map(|_| Tensor::scratch(&[11])).collect();
    let mut back: Vec<usize> = again.iter().map(Tensor::memory).collect();
    sent.sort_unstable();
    back.sort_unstable();
    assert_eq!(back, sent);
}

#[test]
fn a_tensor_outlives_the_thread_that_made_it() {
    let made = thread::spawn(|| {
        let mut tensor = Tensor::zeros(&[2]);
        tensor.f32_mut()[1] = 2.0;
        tensor
    });
    let tensor = made.join().expect("no panic");
    assert_eq!(tensor.f32(), [0.0, 2.0]);
}
