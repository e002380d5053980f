//! The kernels compile for the GPUs that they are written for, where NVIDIA's compiler is installed; no GPU is needed for that.

use pipewright_stages::devices::{Library, compile_kernels};

#[test]
fn kernels_compile_for_ampere_and_hopper() {
    if let Err(reason) = Library::Nvrtc.require() {
        eprintln!("skipped: {reason}");
        return;
    }
    for capability in [(8, 0), (9, 0)] {
        let code = compile_kernels(capability).unwrap_or_else(|error| panic!("{error}"));
        assert!(code.starts_with(b"\x7fELF"), "machine code for {capability:?}");
    }
}
