//! Whether the system's loader finds CUDA's libraries, and their versions.

use std::fs;
use std::path::{Path, PathBuf};

use cudarc::{cublaslt, driver, nccl, nvrtc};

use crate::error::library::{Library, Version};
use crate::error::{LibraryError, Result};

/// What the loader finds of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLibrary {
    /// Which library.
    pub library: Library,
    /// Its version. `None` if the loader does not find the library.
    pub version: Option<Version>,
    /// The file it was loaded from, if the system tells.
    pub path: Option<PathBuf>,
}

impl FoundLibrary {
    /// Why the library cannot be used, and what to do. `None` if it can be used.
    pub fn problem(&self) -> Option<LibraryError> {
        let library = self.library;
        match self.version {
            None => Some(LibraryError::Missing { library }),
            Some(version) if version < library.oldest() => {
                Some(LibraryError::TooOld { library, path: self.path.clone(), version })
            }
            Some(_) => None,
        }
    }
}

impl Library {
    /// What the loader finds of it. Loads the library if it is there.
    pub fn find(self) -> FoundLibrary {
        let version = self.is_present().then(|| self.version());
        FoundLibrary { library: self, version, path: version.and_then(|_| self.path()) }
    }

    /// Fails if the library cannot be used. Must be called before its first function, because that function
    /// panics if the library is missing.
    ///
    /// # Errors
    /// When the loader does not find the library, or finds one that is too old. The error says what to do.
    pub fn require(self) -> Result<()> {
        self.find().problem().map_or(Ok(()), |problem| Err(problem.into()))
    }

    fn is_present(self) -> bool {
        // SAFETY: loading a library runs only its own initialisation.
        unsafe {
            match self {
                Self::Driver => driver::sys::is_culib_present(),
                Self::Nvrtc => nvrtc::sys::is_culib_present(),
                Self::CublasLt => cublaslt::sys::is_culib_present(),
                Self::Nccl => nccl::sys::is_culib_present(),
            }
        }
    }

    /// The version of a library that the loader has found.
    fn version(self) -> Version {
        let (mut major, mut minor) = (0, 0);
        // A failed call leaves version 0, which is too old. SAFETY: the library is there, and the pointers
        // are to locals that outlive the call.
        unsafe {
            match self {
                Self::Driver => {
                    let _ = driver::sys::cuDriverGetVersion(&mut major);
                    Version(major as u32 / 1000, major as u32 % 1000 / 10, None)
                }
                Self::Nvrtc => {
                    let _ = nvrtc::sys::nvrtcVersion(&mut major, &mut minor);
                    Version(major as u32, minor as u32, None)
                }
                Self::CublasLt => in_hundreds(cublaslt::sys::cublasLtGetVersion() as u32),
                Self::Nccl => {
                    let _ = nccl::sys::ncclGetVersion(&mut major);
                    in_hundreds(major as u32)
                }
            }
        }
    }

    /// The file that a found library was loaded from.
    fn path(self) -> Option<PathBuf> {
        let name = self.file().split_inclusive(".so").next()?;
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let mut files = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
        let file = files.find(|file| {
            let file = Path::new(file).file_name();
            file.is_some_and(|file| file.to_string_lossy().starts_with(name))
        });
        file.map(PathBuf::from)
    }
}

/// Splits a number such as 21 805: two digits each for minor and patch, the rest for major.
fn in_hundreds(version: u32) -> Version {
    Version(version / 10_000, version / 100 % 100, Some(version % 100))
}
