//! The real NVRTC compiles every kernel for the architectures that matter. Skipped without NVRTC.
//! `PIPEWRIGHT_NVRTC` may name a `libnvrtc.so.13` that the loader does not find. `PIPEWRIGHT_CUBINS` may name
//! a folder for the compiled kernels: `scripts/machine_code.py` reads them.

#![allow(unsafe_code)]

#[path = "../src/layers/attention/fused.rs"]
#[expect(dead_code, unreachable_pub, reason = "the engine uses the rest")]
mod fused;
#[path = "../src/cuda/source.rs"]
mod source;

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

use cudarc::nvrtc::{result, sys};
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

/// Compiles all kernels to a cubin.
fn compile(architecture: &str) -> Vec<u8> {
    let code = CString::new(source::SOURCE).expect("no zero byte");
    let program = result::create_program(&code, Some(c"pipewright.cu")).expect("a program");
    let mut options = vec![format!("--gpu-architecture={architecture}")];
    options.extend(source::OPTIONS.map(str::to_owned));
    // SAFETY: the program is alive until the end of the function.
    let (compiled, log) = unsafe {
        let compiled = result::compile_program(program, &options);
        (compiled, result::get_program_log(program).expect("a log"))
    };
    let log: Vec<u8> = log.into_iter().map(|letter| letter as u8).collect();
    let log = String::from_utf8_lossy(&log);
    assert!(compiled.is_ok(), "{architecture}: {log}");
    // Products that warps would wait for at once, because the compiler does not see that their registers are
    // free.
    assert!(!log.contains("serialized"), "{architecture}: {log}");
    let mut size = 0;
    // SAFETY: as above; the pointer is to a local.
    let asked = unsafe { sys::nvrtcGetCUBINSize(program, &mut size) };
    asked.result().expect("a size");
    let mut cubin = vec![0_u8; size];
    // SAFETY: as above; there is room for as many bytes as the compiler said.
    let read = unsafe { sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast::<c_char>()) };
    read.result().expect("a cubin");
    // SAFETY: as above.
    unsafe { result::destroy_program(program) }.expect("an end of the program");
    cubin
}

/// The bytes of dynamic shared memory with which the fused kernels are launched, as lines of name and bytes.
fn dynamic_shared() -> String {
    let lines = fused::FUSED.iter().flat_map(|fused| {
        let [forward, kv, q] = fused.shared;
        let of_kv = fused.backward_kv.iter().map(move |names| (*names, kv));
        of_kv.chain([(fused.forward, forward), (fused.backward_q, q)])
    });
    let on_hopper = fused::ON_HOPPER.iter().map(|kernel| (kernel.forward, kernel.shared));
    let lines = lines.chain(on_hopper).flat_map(|(names, bytes)| names.map(|name| (name, bytes)));
    lines.map(|(name, bytes)| format!("{name} {bytes}\n")).collect()
}

#[test]
fn every_kernel_compiles() {
    if let Some(file) = env::var_os("PIPEWRIGHT_NVRTC") {
        load(Path::new(&file));
    }
    if let Some(problem) = devices::Library::Nvrtc.find().problem() {
        eprintln!("skipped: {problem}");
        return;
    }
    let compiling = ["sm_80", "sm_90a", "sm_100a"]
        .map(|architecture| thread::spawn(move || (architecture, compile(architecture))));
    let cubins = compiling.map(|thread| thread.join().expect("the kernels compile"));
    if let Some(folder) = env::var_os("PIPEWRIGHT_CUBINS").map(PathBuf::from) {
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("dynamic_shared"), dynamic_shared()).expect("room on the disk");
        for (architecture, cubin) in cubins {
            let file = folder.join(format!("{architecture}.cubin"));
            fs::write(file, cubin).expect("room on the disk");
        }
    }
}
