//! A large product is computed by the fastest of cuBLASLt's algorithms that give the bits of its first one.
//! Without a GPU, the test runs on an emulated one, which counts what ran.

#![allow(unsafe_code)]

use common::forward;
use emulator::Cuda;
use libloading::os::unix::{Library, Symbol};
use pipewright_stages::layers::Linear;

use super::*;

/// How often the emulator ran each of its algorithms, in the order of its heuristics: the first, a slower one
/// and a faster one with its bits, one that is faster still and has other bits, one that splits sums. `None`
/// on a GPU.
fn runs(cuda: &Cuda) -> Option<[u64; 5]> {
    let Cuda::Emulated(folder) = cuda else { return None };
    // SAFETY: the library is loaded already, and the function has this signature.
    unsafe {
        let library = Library::new(folder.join("libcublasLt.so")).expect("loaded by the emulator");
        let count: Symbol<unsafe extern "C" fn(i32) -> u64> = library.get(b"pw_runs").expect("a function");
        Some([0, 1, 2, 3, 4].map(|index| count(index)))
    }
}

fn bits(output: Tensor) -> Vec<u32> {
    let output = output.to(Place::default()).expect("on the host");
    output.f32().iter().map(|number| number.to_bits()).collect()
}

/// The bits of a product that is large enough for a trial, used four times, and what had run after each.
fn computed() -> [(Vec<u32>, Option<[u64; 5]>); 4] {
    let place = gpu(DType::Bf16);
    let mut layer = Linear::new("large", [1024, 1024], Init::Normal(0.02), 1);
    for parameter in layer.parameters() {
        parameter.move_to(place).expect("memory");
    }
    let input = Tensor::from_vec(&[1024, 1024], numbers("input", 1024 * 1024)).expect("a matrix");
    let input = input.to(place).expect("memory");
    [(); 4].map(|()| (bits(forward(&mut layer, &input)), runs(emulator::start())))
}

/// Names the run of this test in the process that it starts.
const RUN: &str = "PIPEWRIGHT_TEST_RUN";

#[test]
fn a_large_product_is_computed_by_the_fastest_algorithm_that_changes_no_bit() {
    let name = "choice::a_large_product_is_computed_by_the_fastest_algorithm_that_changes_no_bit";
    let Ok(run) = std::env::var(RUN) else {
        // Two runs after each other, which keep nothing of other tests' runs.
        let cache = tempfile::tempdir().expect("a folder");
        for run in ["first", "second"] {
            let mut again = Command::new(std::env::current_exe().expect("this test"));
            again
                .args([name, "--exact", "--nocapture"])
                .env(RUN, run)
                .env("XDG_CACHE_HOME", cache.path())
                .env("PIPEWRIGHT_EMULATOR_OPTIMIZE", "-O0");
            assert!(again.status().expect("started").success(), "{run} run");
        }
        return;
    };
    if emulator::start().is_none() {
        return;
    }
    let uses = computed();
    assert!(uses.iter().all(|(bits, _)| *bits == uses[0].0), "the choice changes no bit");
    let Some(counts) = uses.iter().map(|(_, runs)| *runs).collect::<Option<Vec<_>>>() else {
        return;
    };
    if run == "second" {
        assert_eq!(counts[3], [0, 0, 4, 0, 0], "what an earlier run has measured is known");
        return;
    }
    let expected = [
        // The first of the algorithms is used. After the third use, each but the one that splits sums is
        // tried.
        [1, 0, 0, 0, 0],
        [2, 0, 0, 0, 0],
        [7, 4, 4, 4, 0],
        // The fastest with the bits of the first.
        [7, 4, 5, 4, 0],
    ];
    assert_eq!(counts, expected);
    let [.., (bits, later)] = thread::spawn(computed).join().expect("no panic");
    assert!(bits == uses[0].0, "another rank has the same bits");
    assert_eq!(later, Some([7, 4, 9, 4, 0]), "what one rank has measured all ranks know");
}
