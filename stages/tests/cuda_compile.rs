//! The real NVRTC compiles every kernel for the architectures that matter, and no kernel spills registers.
//! Skipped without NVRTC. `PIPEWRIGHT_NVRTC` may name a `libnvrtc.so.13` that the loader does not find.

#![allow(unsafe_code)]

#[path = "../src/cuda/source.rs"]
mod source;

use std::ffi::CString;
use std::path::Path;

use cudarc::nvrtc::result;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use pipewright_stages::devices;

/// Loads NVRTC and its dependencies from the folder of this file.
fn load(file: &Path) {
    let folder = file.parent().expect("a file in a folder");
    let builtins = folder.read_dir().expect("a folder").filter_map(|entry| {
        let path = entry.expect("a file").path();
        let name = path.file_name()?.to_str()?;
        name.starts_with("libnvrtc-builtins.so").then_some(path)
    });
    for path in builtins.chain([file.to_owned()]) {
        // SAFETY: it is NVIDIA's own library.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) };
        std::mem::forget(library.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    }
}

/// Compiles all kernels and returns the compiler's log.
fn compile(architecture: &str) -> String {
    let code = CString::new(source::SOURCE).expect("no zero byte");
    let program = result::create_program(&code, Some(c"pipewright.cu")).expect("a program");
    let architecture = format!("--gpu-architecture={architecture}");
    let options = [
        &architecture,
        "--std=c++17",
        "-default-device",
        "--ptxas-options=-v",
    ];
    // SAFETY: the program is alive until the end of the function.
    let (compiled, log) = unsafe {
        let compiled = result::compile_program(program, &options);
        (compiled, result::get_program_log(program).expect("a log"))
    };
    let log: Vec<u8> = log.into_iter().map(|letter| letter as u8).collect();
    let log = String::from_utf8_lossy(&log).into_owned();
    assert!(compiled.is_ok(), "{architecture}: {log}");
    // SAFETY: as above.
    unsafe { result::destroy_program(program) }.expect("an end of the program");
    log
}

#[test]
fn every_kernel_compiles_and_none_spills() {
    if let Some(file) = std::env::var_os("PIPEWRIGHT_NVRTC") {
        load(Path::new(&file));
    }
    if let Some(problem) = devices::Library::Nvrtc.find().problem() {
        eprintln!("skipped: {problem}");
        return;
    }
    for architecture in ["sm_80", "sm_90a"] {
        let log = compile(architecture);
        let mut kernel = "";
        for line in log.lines() {
            if let Some(name) = line
                .split('\'')
                .nth(1)
                .filter(|_| line.contains("entry function"))
            {
                kernel = name;
            }
            let spills =
                line.contains("spill") && !line.contains("0 bytes spill stores, 0 bytes spill loads");
            assert!(!spills, "{architecture}: {kernel}: {line}");
        }
    }
}
