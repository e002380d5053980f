//! Emulated CUDA for machines without a GPU: libraries that stand in for the driver, NVRTC, cuBLASLt and
//! NCCL. They are built from the C++ sources beside this file, so that tests run the whole GPU path. See
//! README.md.

#![allow(unsafe_code, reason = "it loads C++ libraries and calls them")]

use std::collections::hash_map::DefaultHasher;
use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

/// The CUDA that tests use.
#[derive(Debug)]
pub enum Cuda {
    /// A real GPU.
    Real,
    /// The emulator, whose libraries are in this folder. A child process gets it through `LD_LIBRARY_PATH`.
    Emulated(PathBuf),
    /// Neither: tests are skipped.
    None,
}

impl Cuda {
    /// Gives `command` this CUDA: puts the emulator's folder first in `LD_LIBRARY_PATH`.
    pub fn give<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let Self::Emulated(folder) = self else {
            return command;
        };
        let others = std::env::var_os("LD_LIBRARY_PATH");
        let all = std::iter::once(folder.clone()).chain(others.iter().flat_map(std::env::split_paths));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(all).expect("paths of an environment"))
    }

    /// Whether tests that need CUDA must be skipped.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// Calls a function of the emulator that takes a text.
pub fn tell(function: &str, setting: &str) {
    let setting = CString::new(setting).expect("no zero byte");
    // SAFETY: the library is loaded, and this is the function's signature.
    unsafe {
        let call = Library::this()
            .get::<unsafe extern "C" fn(*const c_char)>(function.as_bytes())
            .map(|symbol| *symbol);
        call.expect("a function of the emulator")(setting.as_ptr());
    }
}

/// Calls a function of the emulator that writes a text.
pub fn answer(function: &str) -> String {
    let mut text = [0 as c_char; 1024];
    // SAFETY: the library is loaded, and this is the function's signature.
    unsafe {
        let call = Library::this()
            .get::<unsafe extern "C" fn(*mut c_char, usize)>(function.as_bytes())
            .map(|symbol| *symbol);
        call.expect("a function of the emulator")(text.as_mut_ptr(), text.len());
        CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
    }
}

/// If this variable is set, tests must run on a GPU, not on the emulator.
const GPU_WANTED: &str = "PIPEWRIGHT_TEST_GPU";

/// Prepares CUDA for this process. Must be called before any use of CUDA. Uses a GPU if there is one.
/// Otherwise it builds the emulator, once for all processes, and loads it.
pub fn start() -> &'static Cuda {
    static CUDA: OnceLock<Cuda> = OnceLock::new();
    CUDA.get_or_init(|| {
        if real() {
            return Cuda::Real;
        }
        assert!(
            std::env::var_os(GPU_WANTED).is_none(),
            "{GPU_WANTED} is set, and no driver with a GPU can be loaded"
        );
        match build() {
            Ok(folder) => {
                LIBRARIES.iter().for_each(|library| load(&folder.join(library.file)));
                Cuda::Emulated(folder)
            }
            Err(reason) => {
                eprintln!("skipped: no GPU, and no emulator: {reason}");
                Cuda::None
            }
        }
    })
}

/// One emulated library: its file name (the first that cudarc looks for), its sources, and the other emulated
/// library that it calls.
struct Stand {
    file: &'static str,
    sources: &'static [&'static str],
    needs: &'static [&'static str],
}

const LIBRARIES: [Stand; 5] = [
    Stand {
        file: "libcuda.so",
        sources: &[
            "driver/accesses.cpp",
            "driver/addresses.cpp",
            "driver/clock.cpp",
            "driver/copy.cpp",
            "driver/device.cpp",
            "driver/failing.cpp",
            "driver/fiber.cpp",
            "driver/inside.cpp",
            "driver/memory.cpp",
            "driver/module.cpp",
            "driver/order.cpp",
            "driver/stream.cpp",
            "driver/watch.cpp",
            "hopper/barriers.cpp",
            "hopper/matrix.cpp",
            "hopper/shared.cpp",
            "hopper/tensor.cpp",
            "hopper/warpgroup.cpp",
        ],
        needs: &[],
    },
    Stand { file: "libnvrtc.so", sources: &["nvrtc/nvrtc.cpp", "nvrtc/rewrite.cpp"], needs: &["libcuda.so"] },
    Stand {
        file: "libcublasLt.so",
        sources: &["cublaslt/compute.cpp", "cublaslt/descriptors.cpp", "cublaslt/matmul.cpp"],
        needs: &["libcuda.so"],
    },
    Stand {
        file: "libnccl.so",
        sources: &["nccl/api.cpp", "nccl/link.cpp", "nccl/transfer.cpp"],
        needs: &["libcuda.so"],
    },
    Stand { file: "libnvtx_tool.so", sources: &["nvtx/tool.cpp"], needs: &[] },
];

macro_rules! sources {
    ($($path:literal),* $(,)?) => { [$(($path, include_str!($path))),*] };
}

/// All source files, included here so that tests need no source tree when they run. The kernels' headers are
/// read when kernels are compiled.
const SOURCES: [(&str, &str); 43] = sources![
    "cublaslt/compute.cpp",
    "cublaslt/cublaslt.h",
    "cublaslt/descriptors.cpp",
    "cublaslt/matmul.cpp",
    "driver/accesses.cpp",
    "driver/accesses.h",
    "driver/addresses.cpp",
    "driver/clock.cpp",
    "driver/clock.h",
    "driver/copy.cpp",
    "driver/device.cpp",
    "driver/driver.h",
    "driver/failing.cpp",
    "driver/fiber.cpp",
    "driver/fiber.h",
    "driver/inside.cpp",
    "driver/memory.cpp",
    "driver/module.cpp",
    "driver/order.cpp",
    "driver/stream.cpp",
    "driver/watch.cpp",
    "driver/watch.h",
    "hopper/barriers.cpp",
    "hopper/hopper.h",
    "hopper/matrix.cpp",
    "hopper/matrix.h",
    "hopper/shared.cpp",
    "hopper/tensor.cpp",
    "hopper/warpgroup.cpp",
    "kernel/abi.h",
    "kernel/arithmetic.h",
    "kernel/errors.h",
    "kernel/hopper.h",
    "kernel/shim.h",
    "kernel/watch.h",
    "nccl/api.cpp",
    "nccl/link.cpp",
    "nccl/nccl.h",
    "nccl/transfer.cpp",
    "nvrtc/nvrtc.cpp",
    "nvrtc/rewrite.cpp",
    "nvrtc/rewrite.h",
    "nvtx/tool.cpp",
];

const FLAGS: [&str; 7] = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden"];

/// Whether a driver with a device is installed.
fn real() -> bool {
    type Init = unsafe extern "C" fn(u32) -> i32;
    type Count = unsafe extern "C" fn(*mut i32) -> i32;
    // SAFETY: it is the driver's own library, with its documented signatures.
    unsafe {
        let Ok(driver) = libloading::Library::new("libcuda.so.1") else {
            return false;
        };
        let (Ok(init), Ok(count)) = (driver.get::<Init>(b"cuInit"), driver.get::<Count>(b"cuDeviceGetCount"))
        else {
            return false;
        };
        let mut devices = 0;
        let found = init(0) == 0 && count(&mut devices) == 0 && devices > 0;
        // Unloading the driver after it was started can fail.
        std::mem::forget(driver);
        found
    }
}

/// The folder of the libraries, named by a hash of their sources. They are built in another folder, which is
/// then renamed, because several processes may build at once.
fn build() -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (SOURCES, FLAGS).hash(&mut hasher);
    // Tests are in `target/PROFILE/deps`.
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(3).unwrap_or(Path::new("."));
    let home = target.join("tmp/emulator");
    let folder = home.join(format!("{:016x}", hasher.finish()));
    if folder.exists() {
        return Ok(folder);
    }
    let aside = home.join(format!("{:016x}.{}", hasher.finish(), process::id()));
    let version = hasher.finish() as u16;
    if let Err(error) = build_in(&aside, version) {
        fs::remove_dir_all(&aside)?;
        return Err(error);
    }
    if fs::rename(&aside, &folder).is_err() {
        fs::remove_dir_all(&aside)?;
    }
    Ok(folder)
}

fn build_in(folder: &Path, version: u16) -> io::Result<()> {
    for (path, text) in SOURCES {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("inside a folder"))?;
        fs::write(path, text)?;
    }
    // The driver comes first, because others are linked to it.
    let (first, others) = LIBRARIES.split_first().expect("there are some");
    finish(first, compiler(folder, first, version).spawn())?;
    let running = others.iter().map(|library| (library, compiler(folder, library, version).spawn()));
    for (library, child) in running.collect::<Vec<_>>() {
        finish(library, child)?;
    }
    Ok(())
}

fn compiler(folder: &Path, library: &Stand, version: u16) -> Command {
    let mut command = Command::new("g++");
    command
        .current_dir(folder)
        .args(FLAGS)
        .arg(format!("-DPW_BUILD={version}"))
        .arg(format!("-Wl,-soname,{},-rpath,$ORIGIN", library.file))
        .args(["-o", library.file])
        .args(library.sources)
        .args(library.needs)
        .arg("-lpthread")
        .stderr(Stdio::piped());
    command
}

/// Waits for a compiler. A missing compiler is an error. If our sources do not compile, the emulator has a
/// fault, and this panics.
fn finish(library: &Stand, child: io::Result<Child>) -> io::Result<()> {
    let child = child.map_err(|error| io::Error::new(error.kind(), format!("g++: {error}")))?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", library.file);
    Ok(())
}

/// Loads a library by its path for the rest of the process. Later loads by its name get this one.
fn load(path: &Path) {
    // SAFETY: it is our own library, and loading it runs only the constructors of its variables.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    std::mem::forget(library.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
}

/// What a counting function of an emulated library says. `None` on a GPU.
pub fn counted(library: &str, function: &str) -> Option<u64> {
    let Cuda::Emulated(folder) = start() else {
        return None;
    };
    // SAFETY: the library is loaded already, and its counting functions have this signature.
    unsafe {
        let library = Library::new(folder.join(library)).expect("loaded by the emulator");
        let count: Symbol<unsafe extern "C" fn() -> u64> =
            library.get(function.as_bytes()).expect("a function");
        Some(count())
    }
}
