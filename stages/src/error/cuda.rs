//! CUDA libraries that are missing, and calls that they refused.

use std::path::{Path, PathBuf};

use super::library::{Library, Version};

/// One of CUDA's libraries is missing or too old.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// The loader does not find it.
    #[error("no {} ({}) was found: {}", library.name(), library.file(), library.remedy())]
    Missing {
        /// The library.
        library: Library,
    },
    /// Its interface is not the one used here.
    #[error(
        "this {} is too old ({}, {product} {version}; {product} {} or newer is needed): {}",
        library.name(), path.as_deref().unwrap_or(Path::new(library.file())).display(), library.oldest(),
        library.remedy(), product = library.product()
    )]
    TooOld {
        /// The library.
        library: Library,
        /// The loaded file, if the system reports it.
        path: Option<PathBuf>,
        /// Its version.
        version: Version,
    },
}

/// A call that the CUDA driver, NVRTC or cuBLASLt refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{call}: {name}{}{}",
    meaning.as_ref().map_or(String::new(), |meaning| format!(", {meaning}")),
    remedy.map_or(String::new(), |remedy| format!("; {remedy}"))
)]
pub struct CudaError {
    /// The library.
    pub library: Library,
    /// The operation, such as "making a stream". For a kernel, its name.
    pub call: String,
    /// The library's error code.
    pub code: u32,
    /// The library's name of that code, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub name: String,
    /// The library's description of it.
    pub meaning: Option<String>,
    /// What to do, if known.
    pub remedy: Option<CudaRemedy>,
}

/// What to do about a call that CUDA refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaRemedy {
    /// Find the faulty call. A GPU runs behind the program, so a later call may report the error.
    #[error(
        "the fault may lie in work given before this call: with all ranks in one process and \
         CUDA_LAUNCH_BLOCKING=1, the call that is at fault fails"
    )]
    FindCall,
    /// End other programs that use the GPU.
    #[error("another program may have the GPU: `nvidia-smi` lists them")]
    EndOthers,
}
