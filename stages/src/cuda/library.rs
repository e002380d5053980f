//! CUDA's libraries: their names, the oldest versions that will do, which ones the system's loader finds, and
//! what to do if one is missing.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use cudarc::{cublaslt, driver, nccl, nvrtc};

use crate::error::{Error, Result};

/// A CUDA library. None is linked; each is loaded when it is first needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The driver. No GPU works without it.
    Driver,
    /// The compiler for kernels.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Transfers between processes.
    Nccl,
}

/// A library's version: major, minor and patch. The driver and NVRTC have no patch number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub Option<u32>);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}")?;
        patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

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
    pub fn problem(&self) -> Option<Error> {
        let library = self.library;
        let (name, file, remedy) = (library.name(), library.file(), library.remedy());
        let text = match self.version {
            None => format!("no {name} ({file}) was found: {remedy}"),
            Some(version) if version < library.oldest() => format!(
                "this {name} is too old ({}, {product} {version}; {product} {} or newer is needed): {remedy}",
                self.path.as_deref().unwrap_or(Path::new(file)).display(),
                library.oldest(),
                product = library.product()
            ),
            Some(_) => return None,
        };
        Some(Error::new(text))
    }
}

impl Library {
    /// All libraries.
    pub const ALL: [Self; 4] = [Self::Driver, Self::Nvrtc, Self::CublasLt, Self::Nccl];

    /// The library's usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Driver => "CUDA driver",
            Self::Nvrtc => "NVRTC",
            Self::CublasLt => "cuBLASLt",
            Self::Nccl => "NCCL",
        }
    }

    /// The file that the loader looks for.
    pub fn file(self) -> &'static str {
        match self {
            Self::Driver => "libcuda.so.1",
            Self::Nvrtc => "libnvrtc.so.13",
            Self::CublasLt => "libcublasLt.so.13",
            Self::Nccl => "libnccl.so.2",
        }
    }

    /// What Pipewright uses it for.
    pub fn purpose(self) -> &'static str {
        match self {
            Self::Driver => "GPUs",
            Self::Nvrtc => "compiling the kernels",
            Self::CublasLt => "matrix products",
            Self::Nccl => "transfers between processes",
        }
    }

    /// The PyPI package that contains it, with the version that was tested. `None` for the driver.
    pub fn package(self) -> Option<&'static str> {
        match self {
            Self::Driver => None,
            Self::Nvrtc => Some("nvidia-cuda-nvrtc==13.0.88"),
            Self::CublasLt => Some("nvidia-cublas==13.1.0.3"),
            Self::Nccl => Some("nvidia-nccl-cu13==2.28.9"),
        }
    }

    /// The product that its version number belongs to.
    fn product(self) -> &'static str {
        match self {
            Self::Driver | Self::Nvrtc => "CUDA",
            Self::CublasLt => "cuBLAS",
            Self::Nccl => "NCCL",
        }
    }

    /// The oldest version that has the interface used here.
    fn oldest(self) -> Version {
        match self {
            Self::Driver | Self::Nvrtc => Version(13, 0, None),
            Self::CublasLt => Version(13, 0, Some(0)),
            Self::Nccl => Version(2, 28, Some(0)),
        }
    }

    /// How to install it.
    pub fn remedy(self) -> String {
        match self.package() {
            None => "install NVIDIA's driver 580 or newer".to_owned(),
            Some(package) => {
                format!("`pip install {package}` (`pipewright devices --help` tells where it is looked for)")
            }
        }
    }

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
        self.find().problem().map_or(Ok(()), Err)
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
